"""The JSON Schema of an output, in the narrower form vendors can hold a model to.

The narrow form ("strict") knows closed objects with every field required, lists, unions, enumerations and references.
What it does not know, such as a smallest number, is said in words and checked here when the answer comes. A schema that
does not fit at all, such as one of an open map, is sent as it is, and the model is asked rather than held to it.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from gert.errors import ModelPermanentError

VALUE: Final = "value"
"""The one field of the object that is wrapped around an output which is not an object itself."""

_MAX_DEPTH: Final = 64
_KEPT: Final = frozenset({"type", "enum", "const", "title", "description", "$ref"})
_SAID: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "maxItems", "uniqueItems",
)  # fmt: skip
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_UNKNOWN: Final = ("prefixItems", "patternProperties", "not", "if", "contains", "propertyNames")


class OutputFormat(msgspec.Struct, frozen=True):
    """An output schema as it is sent: whether a model can be held to it, contains itself, and was wrapped."""

    name: str
    schema: dict[str, Any]
    strict: bool
    wrapped: bool
    recursive: bool


class _Unfit(Exception):
    """A schema has no strict form."""


@lru_cache(maxsize=256)
def output_format(output_schema: type[BaseModel]) -> OutputFormat:
    """Give the form of an output schema that is sent. It is shared: nobody changes it."""
    try:
        schema = output_schema.model_json_schema()
    except PydanticUserError:  # it holds what JSON does not know, or names what nobody has defined
        raise ModelPermanentError(
            f"the output schema `{output_schema.__name__}` has no JSON Schema", category="request"
        ) from None
    wrapped = not _is_object(schema, schema)
    if wrapped:
        schema = _wrap(schema)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", output_schema.__name__).strip("_")[:64] or "output"
    recursive = _is_recursive(schema.get("$defs", {}))
    try:
        return OutputFormat(name, _strict_root(schema), True, wrapped, recursive)
    except _Unfit:
        return OutputFormat(name, schema, False, wrapped, recursive)


def _is_recursive(definitions: dict[str, Any]) -> bool:
    """Whether a definition leads back to itself: those that lead to none are taken away until nothing changes."""
    leads = {name: _references(definition) for name, definition in definitions.items()}
    while ended := {name for name, targets in leads.items() if not targets & leads.keys()}:
        leads = {name: targets for name, targets in leads.items() if name not in ended}
    return bool(leads)


def _references(schema: object) -> set[str]:
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str):
                found.add(reference.removeprefix("#/$defs/"))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return found


def _is_object(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    target = _resolved(schema, root)
    return target.get("type") == "object"


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """A schema whose top is only a reference, as those of types that contain themselves are, followed once."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    found = root.get("$defs", {}).get(name)
    return found if isinstance(found, dict) else schema


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: part for key, part in schema.items() if key != "$defs"}
    outer: dict[str, Any] = {"type": "object", "properties": {VALUE: inner}, "required": [VALUE]}
    return outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _strict_root(schema: dict[str, Any]) -> dict[str, Any]:
    # The top must be an object in itself; vendors do not follow a reference there.
    top = _strict({key: part for key, part in _resolved(schema, schema).items() if key != "$defs"}, _MAX_DEPTH)
    definitions = schema.get("$defs")
    if definitions:
        top["$defs"] = {name: _strict(part, _MAX_DEPTH) for name, part in definitions.items()}
    return top


def _strict(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth <= 0 or any(key in schema for key in _UNKNOWN):
        raise _Unfit
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    parts = schema.get("allOf")
    if parts is not None:
        if len(parts) != 1:
            raise _Unfit
        return _strict({**parts[0], **{key: part for key, part in schema.items() if key != "allOf"}}, depth - 1)
    strict = {key: part for key, part in schema.items() if key in _KEPT}
    choices = schema.get("anyOf", schema.get("oneOf"))
    if choices is not None:
        strict["anyOf"] = [_strict(choice, depth - 1) for choice in choices]
    elif schema.get("type") == "object":
        strict |= _closed(schema, depth)
    elif schema.get("type") == "array":
        strict["items"] = _strict(schema.get("items"), depth - 1)
    elif "enum" in schema and "type" not in schema:
        return {key: part for key, part in strict.items() if key != "enum"} | {"anyOf": _by_type(schema["enum"])}
    elif not {"type", "enum", "const"} & schema.keys():
        raise _Unfit  # anything at all
    return _in_words(schema, strict)


def _by_type(values: list[Any]) -> list[dict[str, Any]]:
    """The values of an enumeration of several types, apart: a strict schema says of which type each value is."""
    kinds: dict[str, list[Any]] = {}
    for value in values:
        if type(value) not in _TYPES:
            raise _Unfit
        kinds.setdefault(_TYPES[type(value)], []).append(value)
    return [{"type": kind} if kind == "null" else {"type": kind, "enum": some} for kind, some in kinds.items()]


def _closed(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    if schema.get("additionalProperties", "properties" not in schema):
        raise _Unfit  # it may hold fields nobody has named
    fields = schema.get("properties", {})
    return {
        "properties": {name: _strict(part, depth - 1) for name, part in fields.items()},
        "required": list(fields),
        "additionalProperties": False,
    }


def _in_words(schema: dict[str, Any], strict: dict[str, Any]) -> dict[str, Any]:
    said = [f"{key}: {schema[key]}" for key in _SAID if key in schema]
    if said:
        strict["description"] = " ".join(filter(None, [schema.get("description"), f"({', '.join(said)})"]))
    return strict
