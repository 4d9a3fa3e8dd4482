"""The JSON Schema of shapes."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec

_KEY = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ")


@cache
def schema_for(kind: Any, *, closed: bool = True) -> dict[str, Any]:
    """The JSON Schema of a class, without references: several clients cannot follow them."""
    (reference,), definitions = schemas_for((kind,))
    found: dict[str, Any] = _inlined(reference, definitions)
    found.pop("title", None)
    found.pop("description", None)
    if not closed:
        found.pop("additionalProperties", None)
    return found


def schemas_for(kinds: Iterable[Any]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The JSON Schemas of classes, and the definitions that they refer to; objects have no other keys."""
    found, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    return found, {name: _strict(_described(each)) for name, each in definitions.items()}


def _described(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition with the description of each key in its place."""
    about, _, rest = cleandoc(definition.get("description", "")).partition("\n\n")
    keys: dict[str, str] = {}
    names: list[str] = []
    for line in rest.splitlines():
        named = _KEY.match(line)
        names = named[1].split(", ") if named else names
        for name in names:
            keys[name] = f"{keys.get(name, '')} {line[named.end() if named else 0 :].strip()}".strip()
    properties = {
        name: {**each, "description": f"{keys[name][:1].upper()}{keys[name][1:]}."}
        if name in keys and "description" not in each
        else each
        for name, each in definition.get("properties", {}).items()
    }
    return {**definition, **({"description": about} if about else {}), "properties": properties}


def _strict(definition: dict[str, Any]) -> dict[str, Any]:
    return {**definition, "additionalProperties": False} if "properties" in definition else definition


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema with its definitions in place, and without the `null` that stands for leaving something out."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {**found, **{name: each for name, each in schema.items() if name != "$ref"}}
    found = {name: _inlined(each, definitions) for name, each in schema.items()}
    if found.get("type") == "object":
        found.pop("title", None)
    options = [each for each in found.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) != 1 or found.get("default", found) is not None:
        return found
    return {**options[0], **{name: value for name, value in found.items() if name not in ("anyOf", "default")}}
