"""Parameters of a contract from the JSON Schemas of an MCP server.

A schema says more than a parameter can. What has no counterpart is left out, so a parameter may accept more than the
server does; the server checks its arguments itself. Everything here is foreign: nothing is trusted to be well formed.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from gert.errors import PatternError
from gert.kernel.foundation.patterns import compile_pattern
from gert.kernel.foundation.text import plain_line
from gert.kernel.foundation.values import MAX_INTEGER, fits, objection

LONGEST_DESCRIPTION: Final = 300
_MAX_REFERENCES: Final = 8
_MAX_CHOICES: Final = 100
_LONGEST_NAME: Final = 100
_LONGEST_DEFAULT: Final = 200
_TYPES: Final = {
    "string": "string",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "object",
}
_BOUNDS: Final = {
    "string": ("minLength", "maxLength"),
    "int": ("minimum", "maximum"),
    "float": ("minimum", "maximum"),
    "list": ("minItems", "maxItems"),
}
_SCALARS: Final = frozenset({"string", "int", "float", "bool"})

Note = Callable[[str], object]
"""Called with a remark for the person who reviews the import."""


def parameter_of(schema: Any, root: Mapping[str, Any], note: Note, *, limits: bool = True) -> dict[str, Any]:
    """Return the declaration of one property; `root` is the schema that its references point into.

    limits: also its enumeration, pattern, bounds and default; outputs are not limited
    """
    schema = _resolved(schema, root)
    declared: dict[str, Any] = {"type": _type_of(schema)}
    if description := plain_line(_text(schema.get("description")), LONGEST_DESCRIPTION):
        declared["description"] = description
    if schema.get("format") == "password" or schema.get("writeOnly") is True:
        declared["secret"] = True
    if limits:
        declared |= _limits(schema, declared["type"], note)
        _add_default(schema, declared)
    return declared


def distinct_name(name: str, taken: Collection[str], unfit: str, fallback: str) -> str:
    """Return a valid name that is not taken: characters that match `unfit` become `_`."""
    base = re.sub(unfit, "_", name[:_LONGEST_NAME], flags=re.ASCII)
    if not base.strip("_"):
        base = fallback
    elif not (base[0].isalpha() or base[0] == "_"):
        base = f"_{base}"
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    return found


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Follow references and `X or null`, so that a nullable property has the type of its value."""
    found: dict[str, Any] = schema if isinstance(schema, dict) else {}
    for _ in range(_MAX_REFERENCES):
        inner = _referenced(found, root) or _only_choice(found)
        if inner is None:
            return found
        # Keys beside a reference describe the property, not the type.
        beside = {key: value for key, value in found.items() if key not in ("$ref", "anyOf", "oneOf", "allOf")}
        found = {**inner, **beside}
    return {}


def _referenced(schema: dict[str, Any], root: Mapping[str, Any]) -> dict[str, Any] | None:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return None
    at: Any = root
    for segment in reference.removeprefix("#/").split("/"):
        at = at.get(segment.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
    return at if isinstance(at, dict) else {}


def _only_choice(schema: dict[str, Any]) -> dict[str, Any] | None:
    for key in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(key)
        if isinstance(choices, list):
            others = [each for each in choices if isinstance(each, dict) and each.get("type") != "null"]
            if len(others) == 1:
                return others[0]
    return None


def _type_of(schema: dict[str, Any]) -> str:
    said = schema.get("type")
    named = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    types = {_TYPES.get(each, "any") for each in named if isinstance(each, str) and each != "null"}
    return types.pop() if len(types) == 1 else "any"


def _limits(schema: dict[str, Any], type_name: str, note: Note) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= _MAX_CHOICES and all(map(_is_plain, choices)):
        kept = [each for each in choices if each is not None and fits(each, type_name)]
        if len(kept) == len([each for each in choices if each is not None]) > 0:
            limits["enum"] = kept
    for name, key in zip(("min", "max"), _BOUNDS.get(type_name, ()), strict=False):
        bound = schema.get(key)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) <= MAX_INTEGER:
            limits[name] = bound
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and pattern and type_name == "string":
        try:
            compile_pattern(pattern)
            limits["pattern"] = pattern
        except PatternError as problem:
            note(f"its pattern is left out: {problem.hint or problem.message}")
    if limits.get("min", 0) > limits.get("max", MAX_INTEGER):
        del limits["min"], limits["max"]
    return limits


def _add_default(schema: dict[str, Any], declared: dict[str, Any]) -> None:
    """Keep a short default that fits: gert then passes it, even if the server's default changes."""
    default = schema.get("default")
    if declared.get("secret") or not _is_plain(default) or declared["type"] not in _SCALARS:
        return
    checked: dict[str, Any] = {key: declared.get(key) for key in ("type", "enum", "pattern", "min", "max")}
    if default is not None and objection(default, **checked) is None:
        declared["default"] = default


def _is_plain(value: Any) -> bool:
    """Whether a value is a short scalar that a document can hold."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_DEFAULT and value.isprintable()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return abs(value) <= MAX_INTEGER
    return value is None or isinstance(value, bool)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
