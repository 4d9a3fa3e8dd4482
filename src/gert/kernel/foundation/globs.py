"""Path globs, and the view of the state that they allow.

Segments are separated by `.` or `/`. `*` matches any characters inside one segment, so alone it is
one segment; `**` alone is any number of segments, none included. A glob that matches a node covers its
subtree. Matching walks a set of positions through the path, so no glob takes exponential time.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from gert.errors import InputError

_SEPARATOR = re.compile(r"[./]")
_MAX_TEXT = 1024
_MAX_DEPTH = 200

States = frozenset[int]
_NOWHERE: States = frozenset()


def split_path(path: str) -> tuple[str, ...]:
    """Split a path into its segments: `scope.round/0` is `scope`, `round`, `0`."""
    return tuple(_SEPARATOR.split(path))


class Glob:
    """One parsed glob; `start`, `step` and `covers` let a walk over a tree match as it descends."""

    __slots__ = ("_head", "_segments", "text")

    def __init__(self, text: str, segments: tuple[str, ...]) -> None:
        self.text = text
        self._segments = segments
        # Most globs begin with a name, and most paths with another one.
        self._head = segments[0] if "*" not in segments[0] else None

    def __repr__(self) -> str:
        return f"Glob({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and other._segments == self._segments

    def __hash__(self) -> int:
        return hash(self._segments)

    def start(self) -> States:
        """Return the positions before any segment is read."""
        return self._closed({0})

    def step(self, states: States, segment: str) -> States:
        """Return the positions after reading one segment; everything below a covered node is covered."""
        if self.covers(states):
            return states
        moved = set()
        for at in states:
            if self._segments[at] == "**":
                moved.add(at)
            elif _fits(self._segments[at], segment):
                moved.add(at + 1)
        return self._closed(moved)

    def covers(self, states: States) -> bool:
        """Return whether the node read so far, or one above it, is matched."""
        return len(self._segments) in states

    def matches(self, path: str | tuple[str, ...]) -> bool:
        """Return whether the glob covers a path: matches it, or a node above it."""
        return self.covers(self._after(path))

    def leads_into(self, path: str | tuple[str, ...]) -> bool:
        """Return whether the glob could match something at or below a path."""
        return bool(self._after(path))

    def _after(self, path: str | tuple[str, ...]) -> States:
        segments = split_path(path) if isinstance(path, str) else path
        if self._head is not None and segments[0] != self._head:
            return _NOWHERE
        states = self.start()
        for segment in segments:
            states = self.step(states, segment)
        return states

    def _closed(self, positions: set[int]) -> States:
        # `**` may be nothing; a second one never follows it.
        return frozenset(positions).union(at + 1 for at in positions if self._segments[at : at + 1] == ("**",))


def parse_glob(text: str) -> Glob:
    """Parse a glob; InputError says what is wrong with it."""
    if not text.strip():
        raise InputError("a path glob is empty", hint="use `**` to match everything")
    if len(text) > _MAX_TEXT:
        raise InputError(f"a path glob is longer than {_MAX_TEXT} characters")
    if text[0] in "./":
        raise InputError(f"the path glob `{text}` starts with a separator", hint=f"write `{text.lstrip('./')}`")
    segments = split_path(text)
    for segment in segments:
        if not segment:
            raise InputError(f"the path glob `{text}` has an empty segment")
        if "**" in segment and segment != "**":
            raise InputError(f"`**` must be a whole segment, found `{segment}` in `{text}`")
        if segment != segment.strip() or "{{" in segment or "}}" in segment:
            raise InputError(f"the path glob `{text}` has a segment that is not a plain name: `{segment}`")
    # Adjacent `**` mean the same as one, and one is faster.
    once = (segment for at, segment in enumerate(segments) if segments[at : at + 2] != ("**", "**"))
    return Glob(text, tuple(once))


class Visibility:
    """What a step may see: deny wins, a present `allow` denies the rest."""

    __slots__ = ("allow", "deny")

    def __init__(self, allow: Iterable[str] | None = None, deny: Iterable[str] | None = None) -> None:
        self.allow = None if allow is None else tuple(parse_glob(text) for text in allow)
        self.deny = tuple(parse_glob(text) for text in deny or ())

    def __repr__(self) -> str:
        return f"Visibility(allow={self.allow!r}, deny={self.deny!r})"

    def sees(self, path: str) -> bool:
        """Return whether the node at a path is itself visible."""
        segments = split_path(path)
        if any(glob.matches(segments) for glob in self.deny):
            return False
        return self.allow is None or any(glob.matches(segments) for glob in self.allow)

    def sees_into(self, path: str) -> bool:
        """Return whether something at or below a path may be visible: a denied node hides its subtree."""
        segments = split_path(path)
        if any(glob.matches(segments) for glob in self.deny):
            return False
        return self.allow is None or any(glob.leads_into(segments) for glob in self.allow)


HIDDEN: Final = object()
"""Stands for a value that is not visible."""


class Marks:
    """How far each glob has been matched on the way down to a node."""

    __slots__ = ("_allow", "_deny")

    def __init__(self, allow: list[tuple[Glob, States]] | None, deny: list[tuple[Glob, States]]) -> None:
        self._allow = allow
        self._deny = deny

    @classmethod
    def start(cls, visibility: Visibility) -> "Marks":
        """Return the marks before the first segment."""
        allow = None if visibility.allow is None else [(glob, glob.start()) for glob in visibility.allow]
        return cls(allow, [(glob, glob.start()) for glob in visibility.deny])

    @classmethod
    def any_of(cls, names: list["Marks"]) -> "Marks":
        """Combine the marks of several names of one node."""
        if len(names) == 1:
            return names[0]
        is_open = any(each._allow is None for each in names)
        allow = None if is_open else _merge_marks(each._allow or [] for each in names)
        return cls(allow, _merge_marks(each._deny for each in names))

    def below(self, key: str) -> "Marks":
        """Return the marks of a child."""
        allow, deny = self._allow, self._deny
        for segment in split_path(key):
            allow = None if allow is None else _step_marks(allow, segment)
            deny = _step_marks(deny, segment)
            if any(glob.covers(states) for glob, states in deny):
                break
        return Marks(allow, deny)

    @property
    def hides(self) -> bool:
        """Whether a deny covers the node, so that nothing below is visible under any name."""
        return any(glob.covers(states) for glob, states in self._deny)

    @property
    def denied(self) -> bool:
        """Whether nothing at or below the node can be visible under these names."""
        return self.hides or self._allow == []

    @property
    def allowed(self) -> bool:
        """Whether an allow covers the node, or there is no allow."""
        return self._allow is None or any(glob.covers(states) for glob, states in self._allow)

    @property
    def settled(self) -> bool:
        """Whether nothing below can be hidden."""
        return self.allowed and not self._deny


def _merge_marks(marks: Iterable[list[tuple[Glob, States]]]) -> list[tuple[Glob, States]]:
    united: dict[Glob, States] = {}
    for glob, states in chain.from_iterable(marks):
        united[glob] = united.get(glob, _NOWHERE) | states
    return list(united.items())


def _step_marks(marks: list[tuple[Glob, States]], segment: str) -> list[tuple[Glob, States]]:
    stepped = ((glob, glob.step(states, segment)) for glob, states in marks)
    return [(glob, states) for glob, states in stepped if states]


def visible_part(node: Any, marks: Marks, depth: int = _MAX_DEPTH) -> Any:
    """Return the visible part of a value, or `HIDDEN`."""
    if marks.denied:
        return HIDDEN
    if marks.settled:
        return node
    if isinstance(node, Mapping | list | tuple) and depth <= 0:
        return HIDDEN
    if isinstance(node, Mapping):
        viewed = {key: visible_part(child, marks.below(str(key)), depth - 1) for key, child in node.items()}
        kept = {key: child for key, child in viewed.items() if child is not HIDDEN}
        return kept if kept or marks.allowed else HIDDEN
    if isinstance(node, list | tuple):
        items = [visible_part(child, marks.below(str(index)), depth - 1) for index, child in enumerate(node)]
        if not marks.allowed and all(item is HIDDEN for item in items):
            return HIDDEN
        return [None if item is HIDDEN else item for item in items]
    return node if marks.allowed else HIDDEN


def _fits(pattern: str, segment: str) -> bool:
    """Match one segment: the first piece at its start, the last at its end, the others leftmost in between."""
    if "*" not in pattern:
        return pattern == segment
    first, *middle, last = pattern.split("*")
    if len(segment) < len(first) + len(last) or not segment.startswith(first) or not segment.endswith(last):
        return False
    at, end = len(first), len(segment) - len(last)
    for piece in middle:
        found = segment.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
