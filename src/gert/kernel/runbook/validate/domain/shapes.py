"""Shapes: what is known about a value before it exists, so that a path into it can be checked."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.kernel.foundation.names import did_you_mean
from gert.kernel.foundation.text import with_article
from gert.kernel.governance.contract import Parameter
from gert.kernel.runbook.model import listing
from gert.kernel.runbook.reader import shorten
from gert.kernel.template import Template


class Shape(msgspec.Struct, frozen=True):
    """Nothing known: any path leads somewhere."""


class Scalar(Shape, frozen=True):
    """A single value: no path leads into it."""

    type: str


class Record(Shape, frozen=True):
    """A map with known keys."""

    fields: Mapping[str, Shape]


class Keyed(Shape, frozen=True):
    """A map with keys of its author's choosing, all of one shape."""

    item: Shape


class Items(Shape, frozen=True):
    """A list whose items are all of one shape."""

    item: Shape


ANYTHING: Final = Shape()
TEXT: Final = Scalar("string")
A_LIST: Final = Items(ANYTHING)
A_MAP: Final = Keyed(ANYTHING)
SCALARS: Final = frozenset({"string", "int", "float", "bool"})
NOTHING: Final = "value"
_TYPES: Final[Mapping[type, str]] = {str: "string", bool: "bool", int: "int", float: "float"}

# What can become a value of each type, if not of every value; texts can become anything (`foundation.values.coerce`).
_BECOMES: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"int", "float", "bool"}),
    "int": frozenset({"int", "float"}),
    "float": frozenset({"int", "float"}),
    "bool": frozenset({"bool"}),
    "list": frozenset({"list"}),
    "object": frozenset({"object"}),
}


class Dead(msgspec.Struct, frozen=True):
    """Why a path leads nowhere. `is_list` marks a list that is used as if it were one of its items."""

    message: str
    hint: str | None = None
    is_list: bool = False


def shape_of_parameter(parameter: Parameter) -> Shape:
    """What a declared type says; of a secret, templates see a text that stands for it."""
    if parameter.type in SCALARS:
        return TEXT if parameter.secret else Scalar(parameter.type)
    if parameter.secret:
        return ANYTHING
    return {"list": A_LIST, "object": A_MAP}.get(parameter.type, ANYTHING)


def shape_of_value(value: Any) -> Shape:
    """What a constant is, as far as it is not a template itself."""
    if isinstance(value, Template):
        return ANYTHING if value.is_value else Scalar("string")
    if isinstance(value, Mapping):
        return Record({str(key): shape_of_value(item) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        shapes = [shape_of_value(item) for item in value]
        return Items(shapes[0] if shapes and all(shape == shapes[0] for shape in shapes) else ANYTHING)
    return Scalar(_TYPES.get(type(value), NOTHING))


def noun_of(shape: Shape) -> str | None:
    """What a shape is called, in the words of declared types; None where it may be anything, or is nothing."""
    if isinstance(shape, Items):
        return "list"
    if isinstance(shape, Record | Keyed):
        return "object"
    return shape.type if isinstance(shape, Scalar) and shape.type != NOTHING else None


def never_fits(shape: Shape, type_name: str) -> bool:
    """Whether no value of a shape can be given where a type is declared."""
    noun = noun_of(shape)
    return noun not in {None, "string"} and type_name in _BECOMES and noun not in _BECOMES[type_name]


def follow(shape: Shape, rest: Sequence[Any], said: str) -> Shape | Dead:
    """What a path into a shape leads to, or why it leads nowhere. `said` is the path up to here."""
    for index, segment in enumerate(rest):
        named = isinstance(segment, str)
        if isinstance(shape, Record):
            if not named:
                return ANYTHING
            if segment not in shape.fields:
                return _no_field(said, segment, shape.fields)
            shape = shape.fields[segment]
        elif isinstance(shape, Keyed):
            shape = shape.item
        elif isinstance(shape, Items):
            if named and not segment.isdecimal():
                return _no_list_field(said, rest[index:])
            shape = shape.item
        elif isinstance(shape, Scalar):
            if not named:
                return ANYTHING  # `index` and `range` give their own errors
            return Dead(f"`{said}` is {with_article(shape.type)}, it has no `{shorten(segment)}`")
        else:
            return ANYTHING
        said += f".{segment}" if named else "[…]"
    return shape


def _no_field(said: str, segment: str, fields: Mapping[str, Shape]) -> Dead:
    guess = did_you_mean(segment, fields)
    hint = f"did you mean `{said}.{guess}`?" if guess else f"it has {listing(fields, 12)}"
    return Dead(f"`{said}` has no `{shorten(segment)}`", hint)


def _no_list_field(said: str, rest: Sequence[Any]) -> Dead:
    wanted = " ".join(f'"{segment}"' for segment in rest)
    return Dead(
        f"`{said}` is a list, it has no `{shorten(str(rest[0]))}`",
        f"pick an item, as in `index {said} 0 {wanted}`, or use `range`",
        is_list=True,
    )
