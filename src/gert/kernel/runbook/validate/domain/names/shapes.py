"""Shapes: what is known about a value before the run, so that a path into it can be checked."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.kernel.foundation.names import did_you_mean, listing
from gert.kernel.foundation.text import shorten, with_article
from gert.kernel.governance.parameter import Parameter
from gert.kernel.template import Template


class Shape(msgspec.Struct, frozen=True):
    """An unknown shape: any path is accepted."""


class ScalarShape(Shape, frozen=True):
    """A single value, without paths into it."""

    type: str


class StatusShape(ScalarShape, frozen=True):
    """How a step ended: one of a few words."""


class RecordShape(Shape, frozen=True):
    """A map with known keys."""

    fields: Mapping[str, Shape]


class KeyedShape(Shape, frozen=True):
    """A map with keys of its author's choosing, all of one shape."""

    item: Shape


class ListShape(Shape, frozen=True):
    """A list whose items are all of one shape."""

    item: Shape


ANYTHING: Final = Shape()
TEXT: Final = ScalarShape("string")
A_LIST: Final = ListShape(ANYTHING)
A_MAP: Final = KeyedShape(ANYTHING)
SCALARS: Final = frozenset({"string", "int", "float", "bool"})
NOTHING: Final = "value"
_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "bool", int: "int", float: "float"}

# The shapes that can be coerced to each type; text may fit any type (`foundation.values.coerce`).
_BECOMES: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"int", "float", "bool"}),
    "int": frozenset({"int", "float"}),
    "float": frozenset({"int", "float"}),
    "bool": frozenset({"bool"}),
    "list": frozenset({"list"}),
    "object": frozenset({"object"}),
}


class Unresolved(msgspec.Struct, frozen=True):
    """Why a path does not resolve. `is_list` marks a list that is used as if it were one of its items."""

    message: str
    hint: str | None = None
    is_list: bool = False


def shape_of_parameter(parameter: Parameter) -> Shape:
    """Return the shape of a declared type; for a secret, templates see a text reference."""
    if parameter.type in SCALARS:
        return TEXT if parameter.secret else ScalarShape(parameter.type)
    if parameter.secret:
        return ANYTHING
    return {"list": A_LIST, "object": A_MAP}.get(parameter.type, ANYTHING)


def shape_of_value(value: Any) -> Shape:
    """Return the shape of a constant; its templates are unknown."""
    if isinstance(value, Template):
        return ANYTHING if value.is_value else ScalarShape("string")
    if isinstance(value, Mapping):
        return RecordShape({str(key): shape_of_value(item) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        shapes = [shape_of_value(item) for item in value]
        return ListShape(shapes[0] if shapes and all(shape == shapes[0] for shape in shapes) else ANYTHING)
    return ScalarShape(_TYPES.get(type(value), NOTHING))


def type_of(shape: Shape) -> str | None:
    """Return the name of a shape, as a declared type; None if it is unknown or nothing."""
    if isinstance(shape, ListShape):
        return "list"
    if isinstance(shape, RecordShape | KeyedShape):
        return "object"
    return shape.type if isinstance(shape, ScalarShape) and shape.type != NOTHING else None


def never_fits(shape: Shape, type_name: str) -> bool:
    """Return whether no value of a shape fits a declared type."""
    noun = type_of(shape)
    return noun not in {None, "string"} and type_name in _BECOMES and noun not in _BECOMES[type_name]


def follow(shape: Shape, rest: Sequence[Any], said: str) -> Shape | Unresolved:
    """Resolve a path into a shape, or return why it does not resolve. `said` is the path up to here."""
    for index, segment in enumerate(rest):
        named = isinstance(segment, str)
        if isinstance(shape, RecordShape):
            if not named:
                return ANYTHING
            if segment not in shape.fields:
                return _no_field(said, segment, shape.fields)
            shape = shape.fields[segment]
        elif isinstance(shape, KeyedShape):
            shape = shape.item
        elif isinstance(shape, ListShape):
            if named and not segment.isdecimal():
                return _no_list_field(said, rest[index:])
            shape = shape.item
        elif isinstance(shape, ScalarShape):
            if not named:
                return ANYTHING  # `index` and `range` have their own errors
            return Unresolved(f"`{said}` is {with_article(shape.type)}, it has no `{shorten(segment)}`")
        else:
            return ANYTHING
        said += f".{segment}" if named else "[…]"
    return shape


def _no_field(said: str, segment: str, fields: Mapping[str, Shape]) -> Unresolved:
    guess = did_you_mean(segment, fields)
    hint = f"did you mean `{said}.{guess}`?" if guess else f"it has {listing(fields, 12)}"
    return Unresolved(f"`{said}` has no `{shorten(segment)}`", hint)


def _no_list_field(said: str, rest: Sequence[Any]) -> Unresolved:
    wanted = " ".join(f'"{segment}"' for segment in rest)
    return Unresolved(
        f"`{said}` is a list, it has no `{shorten(str(rest[0]))}`",
        f"pick an item, as in `index {said} 0 {wanted}`, or use `range`",
        is_list=True,
    )
