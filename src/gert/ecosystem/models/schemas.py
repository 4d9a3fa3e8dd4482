"""The JSON Schema of an output, in the strict form that vendors can enforce.

The strict form has closed objects with every field required, lists, unions, enumerations and references. Other
constraints, such as a minimum, are put into the description and checked when the answer arrives. A schema without a
strict form, such as one with an open map, is sent unchanged and not enforced by the vendor.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from gert.errors import ModelPermanentError

VALUE: Final = "value"
"""The only field of the object around an output that is not an object itself."""

_MAX_DEPTH: Final = 64
_KEPT: Final = frozenset({"type", "enum", "const", "title", "description", "$ref"})
_DESCRIBED: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "maxItems", "uniqueItems",
)  # fmt: skip
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_UNKNOWN: Final = ("prefixItems", "patternProperties", "not", "if", "contains", "propertyNames")


class OutputFormat(msgspec.Struct, frozen=True):
    """An output schema as it is sent: whether it is strict, recursive, and wrapped in an object."""

    name: str
    schema: dict[str, Any]
    strict: bool
    wrapped: bool
    recursive: bool


class _NotStrict(Exception):
    """A schema has no strict form."""


@lru_cache(maxsize=256)
def output_format(output_schema: type[BaseModel]) -> OutputFormat:
    """Return the form of an output schema that is sent. It is shared and must not be changed."""
    try:
        schema = output_schema.model_json_schema()
    except PydanticUserError:  # it has a type without a JSON form, or an undefined reference
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
    except _NotStrict:
        return OutputFormat(name, schema, False, wrapped, recursive)


def _is_recursive(definitions: dict[str, Any]) -> bool:
    """Whether a definition refers to itself: definitions without references are removed until none changes."""
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
        raise _NotStrict
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    parts = schema.get("allOf")
    if parts is not None:
        if len(parts) != 1:
            raise _NotStrict
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
        raise _NotStrict  # it allows any value
    return _described(schema, strict)


def _by_type(values: list[Any]) -> list[dict[str, Any]]:
    """Split an enumeration by type: a strict schema states the type of every value."""
    kinds: dict[str, list[Any]] = {}
    for value in values:
        if type(value) not in _TYPES:
            raise _NotStrict
        kinds.setdefault(_TYPES[type(value)], []).append(value)
    return [{"type": kind} if kind == "null" else {"type": kind, "enum": some} for kind, some in kinds.items()]


def _closed(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    if schema.get("additionalProperties", "properties" not in schema):
        raise _NotStrict  # it allows undeclared fields
    fields = schema.get("properties", {})
    return {
        "properties": {name: _strict(part, depth - 1) for name, part in fields.items()},
        "required": list(fields),
        "additionalProperties": False,
    }


def _described(schema: dict[str, Any], strict: dict[str, Any]) -> dict[str, Any]:
    limits = [f"{key}: {schema[key]}" for key in _DESCRIBED if key in schema]
    if limits:
        strict["description"] = " ".join(filter(None, [schema.get("description"), f"({', '.join(limits)})"]))
    return strict
