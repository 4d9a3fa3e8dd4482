"""What an event says: the base of every class in the catalogue.

In a docstring, the first sentence says when the event is written; lines of the form `field: …` explain
fields, and `docs/events.md` is generated from both.
"""

from typing import Any, ClassVar

import msgspec

from gert.errors import TraceError
from gert.kernel.foundation.canonical import require_canonical


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `data` of one type of event; fields at their default are not written."""

    type: ClassVar[str] = ""


class UnknownEvent(Payload, frozen=True, kw_only=True):
    """An event this version cannot read: of another type, or of a known type with other data.

    name: its type
    data: its data as it stands
    objection: why data of a known type could not be read
    """

    name: str
    data: dict[str, Any]
    objection: str | None = None


def to_data(payload: Payload) -> dict[str, Any]:
    """Give the data of an event as it is written, or refuse what its class does not declare."""
    if isinstance(payload, UnknownEvent) or not payload.type:
        raise TraceError("an event is written from a class of the catalogue")
    _check_fields(payload)
    data: dict[str, Any] = msgspec.to_builtins(payload)
    try:
        msgspec.convert(data, type(payload))
    except msgspec.ValidationError as error:
        raise TraceError(f"the event `{payload.type}` cannot be written: {said(error)}") from error
    return data


def from_data(kind: type[Payload], data: dict[str, Any]) -> Payload:
    """Read the data of an event; fields the class does not know are passed over."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        return UnknownEvent(name=kind.type, data=data, objection=said(error))


def _check_fields(value: msgspec.Struct, at: str = "") -> None:
    # Before conversion: afterwards a set has become a list in no particular order.
    for name in value.__struct_fields__:
        _check(getattr(value, name), f"{at}.{name}")


def _check(value: object, at: str) -> None:
    if isinstance(value, msgspec.Struct):
        _check_fields(value, at)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            _check(item, f"{at}[{index}]")
    else:
        require_canonical(value, at)


def said(error: Exception) -> str:
    """Word an error of the JSON library as gert words its own."""
    text = str(error)
    return text[:1].lower() + text[1:]
