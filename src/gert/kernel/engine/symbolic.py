"""Unknown values: what a dry run has in place of outputs, and conditions that depend on them.

An unknown value renders as text, so that people see where it would appear, and it is never mistaken for that
text: a condition that reads one is itself unknown.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gert.kernel.template import EACH, MISSING, Template, templates_in
from gert.kernel.template.values import Ordered, field

_MAX_DEPTH: Final = 220
"""Deeper than any data may be."""


class Unknown(str):
    """An unknown value; its text shows the known parts."""

    __slots__ = ()


UNKNOWN: Final = Unknown("(unknown)")


def is_unknown(value: Any, depth: int = _MAX_DEPTH) -> bool:
    """Whether a value, or anything in it, is unknown."""
    if isinstance(value, Unknown) or depth <= 0:
        return True  # too deep to inspect, so it counts as unknown
    if isinstance(value, Mapping):
        return any(is_unknown(item, depth - 1) for item in value.values())
    return isinstance(value, list | tuple) and any(is_unknown(item, depth - 1) for item in value)


def reads_unknown(template: Template, data: Mapping[str, Any]) -> bool:
    """Whether a template may read something unknown."""
    return not template.is_text and any(_leads_to_unknown(data, each.path) for each in template.references)


def any_reads_unknown(compiled: Any, data: Mapping[str, Any]) -> bool:
    """Whether any template in a nested value may read something unknown."""
    return any(reads_unknown(template, data) for _, template in templates_in(compiled))


class UnknownRead(Exception):
    """An evaluation read an unknown value."""


class GuardedState(Mapping[str, Any]):
    """State that raises UnknownRead when an unknown value is read.

    So `and false .unknown` is known to be false, and only what really depends on the unknown is unknown.
    """

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the keys matters."""
        return isinstance(self._data, Ordered)

    def __getitem__(self, key: str) -> Any:
        # By `get`, because a keyed result reports a key that it does not have.
        value = self._data.get(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        if isinstance(value, Mapping):
            return GuardedState(value)
        if is_unknown(value):
            raise UnknownRead
        return value

    # A map with an unknown value may also lack some of its keys, so its keys are unknown too.

    def __iter__(self) -> Iterator[str]:
        if is_unknown(self._data):
            raise UnknownRead
        return iter(self._data)

    def __len__(self) -> int:
        if is_unknown(self._data):
            raise UnknownRead
        return len(self._data)


def unknown_as_text(value: Any) -> Any:
    """Return a value with every unknown replaced by its text."""
    if isinstance(value, Mapping):
        return {key: unknown_as_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unknown_as_text(item) for item in value]
    return str(value) if isinstance(value, Unknown) else value


def unwrap(value: Any) -> Any:
    """Return the result of an evaluation on guarded state as plain data; UnknownRead if any part is unknown."""
    if isinstance(value, GuardedState):
        if is_unknown(value._data):
            raise UnknownRead
        return value._data
    if isinstance(value, Mapping):
        return {key: unwrap(item) for key, item in value.items()}
    return [unwrap(item) for item in value] if isinstance(value, list | tuple) else value


def _leads_to_unknown(value: Any, path: Iterable[Any]) -> bool:
    if isinstance(value, Unknown):
        return True
    segments = tuple(path)
    if not segments:
        return is_unknown(value)
    first, rest = segments[0], segments[1:]
    if isinstance(value, Mapping):
        if first is EACH:
            return any(_leads_to_unknown(item, rest) for item in value.values())
        return str(first) in value and _leads_to_unknown(value[str(first)], rest)
    if isinstance(value, list | tuple):
        if first is EACH:
            return any(_leads_to_unknown(item, rest) for item in value)
        text = str(first)
        if text.isascii() and text.isdecimal():
            found = field(value, text)
            return found is not MISSING and _leads_to_unknown(found, rest)
        # A function may index a list differently from a path.
        return any(_leads_to_unknown(item, rest) for item in value)
    return False
