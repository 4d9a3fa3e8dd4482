"""Builds the tree of a YAML document from libyaml's events.

libyaml finds the tokens; the meaning of scalars, duplicate keys and the expansion of aliases are decided
here. The builder is a loop over an explicit stack, so deep nesting cannot exhaust the interpreter's stack.
"""

import re
from typing import Any, Final, cast

import msgspec
import yaml
from yaml._yaml import CParser

from gert.kernel.foundation.secret_refs import is_marked
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.finding import Path
from gert.kernel.runbook.plain_scalars import resolve_plain
from gert.kernel.runbook.tree import Map, Seq, Tree


class Limits(msgspec.Struct, frozen=True):
    """The largest document that is read."""

    size: int = 16 * 1024 * 1024
    depth: int = 64
    nodes: int = 1_000_000


DEFAULT_LIMITS: Final = Limits()


class Refusal(Exception):
    """Reading cannot continue."""

    def __init__(self, rule: str, message: str, hint: str | None = None, *, index: int) -> None:
        self.rule, self.message, self.hint, self.index = rule, message, hint, index


# Characters that libyaml does not accept. Compiled on first use: compiling takes longer than reading most documents.
_FORBIDDEN: Final = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"


class _Anchored(msgspec.Struct):
    """An anchored node: its value, its source text, and its expanded size, depth and length."""

    value: Any
    text: str | None
    weight: int
    height: int
    length: int
    open: bool = False


class _Frame:
    """A collection under construction."""

    __slots__ = ("anchor", "before", "height", "is_map", "key", "key_at", "merges", "node", "repeated")

    def __init__(self, node: Map | Seq, anchor: _Anchored | None, before: int, repeated: int) -> None:
        self.node = node
        self.is_map = type(node) is Map
        self.anchor = anchor
        self.before = before
        self.repeated = repeated
        self.height = 0
        self.key: str | None = None
        self.key_at = 0
        self.merges: list[tuple[Any, int]] | None = None


_MERGE: Final = "<<"


class TreeBuilder:
    """Builds one document from events, and counts its expanded size."""

    def __init__(self, tree: Tree, limits: Limits) -> None:
        self.tree = tree
        self.limits = limits
        self.said: list[tuple[str, Path, str, str | None, int]] = []
        self.anchors: dict[str, _Anchored] = {}
        self.stack: list[_Frame] = []
        self.weight = 0
        self.repeated = 0  # characters that aliases expand to

    def say(self, rule: str, message: str, hint: str | None, index: int) -> None:
        """Report a problem at a character of the source."""
        self.said.append((rule, self._path(), message, hint, index))

    def _path(self) -> Path:
        path: list[str | int] = []
        for frame in self.stack:
            if not frame.is_map:
                path.append(len(frame.node))
            elif frame.key is not None:
                path.append(frame.key)
        return tuple(path)

    def build(self) -> Any:
        """Consume all events and return the root value."""
        text = self.tree.text
        try:
            return self._build(text)
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark or problem.context_mark
            if problem.context_mark is not None and mark is not None and mark.index >= len(text.rstrip()):
                mark = (
                    problem.context_mark
                )  # the start of an open quote or bracket is more useful than the end of the file
            index = min(mark.index, len(text)) if mark is not None else 0
            raise Refusal(
                "Y03",
                f"not valid YAML: {problem.problem or 'it does not parse'}",
                _syntax_hint(text, index, problem.problem or "") or problem.context,
                index=index,
            ) from None
        except yaml.reader.ReaderError as problem:
            found = re.search(_FORBIDDEN, text)
            raise Refusal(
                "Y03",
                f"not valid YAML: {problem.reason}",
                "remove the control character",
                index=found.start() if found else 0,
            ) from None

    def _build(self, text: str) -> Any:
        parser = CParser(text)
        next_event = parser.get_event
        root: Any = None
        documents = 0
        while True:
            event: Any = next_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                root = self._scalar(event, root)
            elif kind is yaml.MappingStartEvent:
                self._open(event, Map(event.start_mark.index))
            elif kind is yaml.SequenceStartEvent:
                self._open(event, Seq(event.start_mark.index))
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                root = self._close(event, root)
            elif kind is yaml.AliasEvent:
                root = self._alias(event, root)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise Refusal(
                        "Y04",
                        "the file contains more than one document",
                        "keep one document in a file; remove the `---`",
                        index=event.start_mark.index,
                    )
                if event.tags:
                    self.say("Y05", "tags are not allowed", "remove the `%TAG` directive", event.start_mark.index)
            elif kind is yaml.StreamEndEvent:
                break
        if documents == 0:
            raise Refusal("Y04", "the document is empty", None, index=0)
        return root

    def _scalar(self, event: Any, root: Any) -> Any:
        value: Any = event.value
        text: str | None = None
        index: int = event.start_mark.index
        self._count(1, index)
        if not value.isascii() and is_marked(value):
            # The marks of a secret reference are refused, so that a document cannot forge one.
            raise Refusal("Y03", "the text contains a noncharacter (U+FDD0 or U+FDD1)", "remove it", index=index)
        if event.tag is not None:
            self._refuse_tag(event)
        if not event.style:
            resolved = resolve_plain(value)
            if resolved is not value:
                value, text = resolved, value
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(value, text, 1, 0, len(event.value))
        if not self.stack:
            self.tree.start = index
            return value
        frame = self.stack[-1]
        if frame.is_map and frame.key is None:
            self._key(frame, event.value, index, plain=not event.style)
        else:
            self._put(frame, value, text, index)
        return root

    def _key(self, frame: _Frame, key: str, index: int, *, plain: bool) -> None:
        """Use a scalar as the key of the next value; a key is always its literal text."""
        if key == _MERGE and plain:
            if frame.merges is not None:
                self.say("Y06", "`<<` appears twice in one map", "merge a list: `<<: [*a, *b]`", index)
            else:
                frame.merges = []
        elif key in frame.node:
            first, _ = self.tree.line_column(cast("Map", frame.node).at[key][0])
            self.say("Y06", f"the key `{shorten(key)}` appears twice in one map", f"first on line {first}", index)
        frame.key, frame.key_at = key, index

    def _put(self, frame: _Frame, value: Any, text: str | None, index: int) -> None:
        node = frame.node
        if type(node) is Map:
            key = cast("str", frame.key)
            frame.key = None
            if key == _MERGE and frame.merges == []:
                frame.merges = [(value, index)]
                return
            if key in node:
                return  # reported; the first one is kept
            node[key] = value
            node.at[key] = (frame.key_at, index)
            if text is not None:
                node.texts[key] = text
        elif type(node) is Seq:
            if text is not None:
                node.texts[len(node)] = text
            node.append(value)
            node.at.append(index)

    def _open(self, event: Any, node: Map | Seq) -> None:
        index = node.start
        before = self.weight
        self._count(1, index)
        if event.tag is not None:
            self._refuse_tag(event)
        if len(self.stack) >= self.limits.depth:
            self._too_deep(index)
        if self.stack and self.stack[-1].is_map and self.stack[-1].key is None:
            raise Refusal(
                "Y07",
                "a key must be a single word or text, not a map or list",
                _syntax_hint(self.tree.text, index),
                index=index,
            )
        anchor = None
        if event.anchor is not None:
            anchor = self.anchors[event.anchor] = _Anchored(node, None, 0, 0, 0, open=True)
        self.stack.append(_Frame(node, anchor, before, self.repeated))

    def _close(self, event: Any, root: Any) -> Any:
        frame = self.stack.pop()
        if frame.merges:
            self._merge(frame)
        if frame.anchor is not None:
            frame.anchor.weight = self.weight - frame.before
            frame.anchor.height = frame.height + 1
            frame.anchor.length = event.end_mark.index - frame.node.start + self.repeated - frame.repeated
            frame.anchor.open = False
        if not self.stack:
            self.tree.start = frame.node.start
            return frame.node
        parent = self.stack[-1]
        parent.height = max(parent.height, frame.height + 1)
        self._put(parent, frame.node, None, frame.node.start)
        return root

    def _alias(self, event: Any, root: Any) -> Any:
        index: int = event.start_mark.index
        anchored = self.anchors.get(event.anchor)
        if anchored is None:
            raise Refusal("Y08", f"there is no anchor `&{shorten(event.anchor)}`", None, index=index)
        if anchored.open:
            raise Refusal("Y08", f"`*{shorten(event.anchor)}` is inside the node that it refers to", None, index=index)
        self._count(anchored.weight, index)
        self._repeat(anchored.length, index)
        if len(self.stack) + anchored.height > self.limits.depth:
            self._too_deep(index)
        if not self.stack:
            return anchored.value
        frame = self.stack[-1]
        if frame.is_map and frame.key is None:
            key = anchored.value if isinstance(anchored.value, str) else anchored.text
            if key is None:
                raise Refusal("Y07", "a key must be a single word or text", None, index=index)
            self._key(frame, key, index, plain=False)
        else:
            frame.height = max(frame.height, anchored.height)
            self._put(frame, anchored.value, anchored.text, index)
        return root

    def _merge(self, frame: _Frame) -> None:
        """Add the pairs of `<<`; the map's own keys win, and earlier sources win over later ones."""
        [(value, index)] = frame.merges or []
        sources = value if type(value) is Seq else [value]
        node = cast("Map", frame.node)
        for source in sources:
            if type(source) is not Map:
                self.say("Y09", "`<<` takes a map or a list of maps", "use `<<: *name`", index)
                return
            for key, merged in source.items():
                if key not in node:
                    node[key] = merged
                    node.at[key] = source.at[key]
                    if key in source.texts:
                        node.texts[key] = source.texts[key]

    def _count(self, weight: int, index: int) -> None:
        self.weight += weight
        if self.weight > self.limits.nodes:
            raise Refusal(
                "Y01",
                f"the document expands to more than {self.limits.nodes} values",
                "use fewer aliases, or split it up",
                index=index,
            )

    def _repeat(self, length: int, index: int) -> None:
        """Count the text that aliases expand to: a long text is only one value."""
        self.repeated += length
        if self.repeated > self.limits.size:
            size = self.limits.size // (1024 * 1024)
            hint = "use fewer aliases, or split it up"
            raise Refusal("Y01", f"the document expands to more than {size} MiB of text", hint, index=index)

    def _too_deep(self, index: int) -> None:
        self.stack.clear()  # a path of that length is of no use
        raise Refusal("Y01", f"the document is nested deeper than {self.limits.depth} levels", None, index=index)

    def _refuse_tag(self, event: Any) -> None:
        tag = shorten(event.tag.replace("tag:yaml.org,2002:", "!!"))
        self.say("Y05", f"tags are not allowed: `{tag}`", "remove the tag", event.start_mark.index)


_IN_DOUBLE: Final = re.compile(r'[:\[{,-] *"[^"]*\{\{')


def _syntax_hint(text: str, index: int, problem: str = "") -> str | None:
    start = text.rfind("\n", 0, index) + 1
    line = text[start : index + 40]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces, not tabs"
    if "escape" in problem:
        return "in double quotes a backslash begins an escape: put the value in single quotes"
    if "cannot start any token" in problem:
        return f"put a value that begins with `{shorten(text[index : index + 1])}` in quotes"
    if _IN_DOUBLE.search(text[start:index]):
        return "put a value that contains `{{` and double quotes in single quotes: '{{ … }}'"
    if "{{" in line:
        return "put a value that contains `{{` in quotes"
    return None
