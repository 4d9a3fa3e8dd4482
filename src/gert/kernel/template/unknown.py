"""Unknown values: what a dry run has in place of outputs.

An unknown value renders as text, so that people see where it would appear, and it is never mistaken for that
text: whatever is computed from one is itself unknown.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gert.kernel.template.values import MISSING, Ordered

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


class UnknownRead(Exception):
    """An evaluation read an unknown value."""


class GuardedState(Mapping[str, Any]):
    """State that raises UnknownRead when an unknown value is read.

    So `and false .unknown` is known to be false, and only what really depends on the unknown is unknown.
    """

    __slots__ = ("of",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.of = data

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the keys matters."""
        return isinstance(self.of, Ordered)

    def __getitem__(self, key: str) -> Any:
        # By `get`, because a keyed result reports a key that it does not have.
        value = self.of.get(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        if isinstance(value, Mapping):
            return GuardedState(value)
        if is_unknown(value):
            raise UnknownRead
        return value

    # A map with an unknown value may also lack some of its keys, so its keys are unknown too.

    def __iter__(self) -> Iterator[str]:
        if is_unknown(self.of):
            raise UnknownRead
        return iter(self.of)

    def __len__(self) -> int:
        if is_unknown(self.of):
            raise UnknownRead
        return len(self.of)


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
        if is_unknown(value.of):
            raise UnknownRead
        return value.of
    if isinstance(value, Mapping):
        return {key: unwrap(item) for key, item in value.items()}
    return [unwrap(item) for item in value] if isinstance(value, list | tuple) else value
