"""The data of events: the base of every class in the catalogue.

In a docstring, the first sentence says when the event is written; lines of the form `field: …` explain
fields, and `docs/events.md` is generated from both.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from gert.errors import CanonicalError, TraceError
from gert.kernel.foundation.canonical import require_canonical


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `data` of one type of event; fields at their default are not written."""

    type: ClassVar[str] = ""


class UnknownEvent(Payload, frozen=True, kw_only=True):
    """An event that this version cannot read: of another type, or of a known type with other data.

    name: its type
    data: its data, unchanged
    objection: why data of a known type could not be read
    """

    name: str
    data: dict[str, Any]
    objection: str | None = None


def to_data(payload: Payload) -> dict[str, Any]:
    """Return the data of an event as written, or raise TraceError for a class that is not in the catalogue."""
    if isinstance(payload, UnknownEvent) or not payload.type:
        raise TraceError("an event is written from a class of the catalogue")
    return as_written(payload, f"the event `{payload.type}`")


def as_written(value: msgspec.Struct, what: str, at: str = "") -> dict[str, Any]:
    """Return a struct as plain data; TraceError says why `what`, at the path `at`, cannot be written."""
    try:
        # Before conversion: afterwards a set has become a list in no particular order.
        _check_fields(value, at)
        data: dict[str, Any] = msgspec.to_builtins(value, enc_hook=plain)
        msgspec.convert(data, type(value))
    except RecursionError as error:
        raise TraceError(f"{what} cannot be written: its values are nested too deep") from error
    except (TypeError, ValueError) as error:
        raise TraceError(f"{what} cannot be written: {said(error)}") from error
    return data


def plain(value: object) -> object:
    """Convert text or a number of a derived class to the plain type."""
    for base, of_base in _PLAIN:
        if isinstance(value, base):
            return of_base(value)
    raise TypeError(f"a `{type(value).__name__}` has no JSON form")


_PLAIN: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)


def check_json(value: object, at: str) -> None:
    """Raise TraceError for a value without a JSON form; `at` is its path."""
    try:
        require_canonical(value, at)
    except CanonicalError as error:
        raise TraceError(error.message, hint=error.hint) from error
    except ValueError as error:
        # A key that is an integer of thousands of digits cannot even be shown.
        raise TraceError(f"the value at `{at.removeprefix('.')}` has no JSON form") from error


def from_data(kind: type[Payload], data: dict[str, Any]) -> Payload:
    """Decode the data of an event; unknown fields are ignored."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        return UnknownEvent(name=kind.type, data=data, objection=said(error))


def _check_fields(value: msgspec.Struct, at: str) -> None:
    for name in value.__struct_fields__:
        _check(getattr(value, name), f"{at}.{name}")


def _check(value: object, at: str) -> None:
    if isinstance(value, msgspec.Struct):
        _check_fields(value, at)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            _check(item, f"{at}[{index}]")
    else:
        check_json(value, at)


def said(error: Exception) -> str:
    """Format an error of the JSON library in gert's style."""
    text = str(error)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
