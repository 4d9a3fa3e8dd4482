"""The declared types of values, lossless coercion to them, and the constraints on parameters."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from gert.errors import InputError
from gert.kernel.foundation.patterns import compile_pattern
from gert.kernel.foundation.secret_refs import masked, without_marks
from gert.kernel.foundation.text import number_text, visible, with_article

TypeName = Literal["string", "int", "float", "bool", "list", "object", "any"]
TYPE_NAMES: tuple[TypeName, ...] = get_args(TypeName)

MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0+)?\Z")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\Z")
_MAX_NUMBER_TEXT = 400
_MAX_SHOWN = 60
_HUGE = 10**400


def coerce(value: object, type_name: str) -> Any:
    """Convert a value to the declared type if nothing is lost; InputError says why it does not fit."""
    row = _TYPES.get(type_name)
    if row is None:
        raise InputError(f"expected a type, one of {', '.join(TYPE_NAMES)}, found `{type_name}`")
    coerced = row.read(value)
    if coerced is _LOSSY:
        raise InputError(f"expected {with_article(type_name)}, found {show(value)}", hint=_hint(value, type_name))
    return coerced


def coerce_if_possible(value: Any, type_name: str) -> Any:
    """Convert a value to the declared type if it fits, else return it unchanged; None stays None."""
    if value is None or fits(value, type_name):
        return value
    try:
        return coerce(value, type_name)
    except InputError:
        return value


def fits(value: object, type_name: str) -> bool:
    """Return whether a value already is of the declared type."""
    row = _TYPES.get(type_name)
    return row is not None and row.holds(value)


def objection(
    value: object,
    *,
    type: str = "any",  # noqa: A002
    enum: Sequence[object] | None = None,
    pattern: str | None = None,
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
) -> str | None:
    """Return why a value violates its declared constraints, or None if it meets them.

    `min` and `max` bound a number, or the length of a text or list. `pattern` is searched for, as JSON
    Schema does; anchor it with `^` and `$` to cover the whole text. Unlike there, only text matches.
    """
    if not fits(value, type):
        return f"expected {with_article(type)}, found {show(value)}" if type in _TYPES else "the type is unknown"
    if enum is not None and not any(_same(value, choice) for choice in enum):
        return f"expected one of {', '.join(show(choice) for choice in enum)}, found {show(value)}"
    if pattern is not None and not _matches(value, pattern, type):
        return f"expected text that matches `{pattern}`, found {show(value)}"
    return _out_of_bounds(value, min, max)


def show(value: object) -> str:
    """Show a value in a message: short, on one line, in backticks, and with invisible characters escaped."""
    if value is None:
        return "nothing"
    if isinstance(value, int) and abs(value) > _HUGE:
        return "a huge number"
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    text = ("true" if value else "false") if isinstance(value, bool) else masked(str(value))
    line = visible(text[: 4 * _MAX_SHOWN])
    return f"`{line}`" if len(line) <= _MAX_SHOWN and len(text) <= 4 * _MAX_SHOWN else f"`{line[:_MAX_SHOWN]}…`"


_LOSSY = object()
"""Returned by a conversion that would lose information."""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER


def _is_float(value: object) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _to_string(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value) if math.isfinite(value) else _LOSSY
    return str(value) if _is_int(value) else _LOSSY


def _to_int(value: object) -> object:
    if _is_int(value):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else _LOSSY
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_TEXT and _INTEGER.match(value.strip()):
        number = int(value.strip().partition(".")[0])
        return number if _is_int(number) else _LOSSY
    return _LOSSY


def _to_float(value: object) -> object:
    if _is_float(value):
        return float(cast("float", value))
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_TEXT and _FLOAT.match(value.strip()):
        number = float(value)
        return number if _is_kept(value.strip(), number) else _LOSSY
    return _LOSSY


def _is_kept(text: str, number: float) -> bool:
    """Return whether a float keeps the value of its text: by its shortest digits, or exactly."""
    from decimal import Decimal

    return math.isfinite(number) and Decimal(text) in (Decimal(repr(number)), Decimal(number))


def _to_bool(value: object) -> object:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.strip().lower(), _LOSSY) if isinstance(value, str) else _LOSSY


def _to_list(value: object) -> object:
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    return _from_json(value, list)


def _to_object(value: object) -> object:
    if isinstance(value, dict):
        return value
    return dict(value) if isinstance(value, Mapping) else _from_json(value, dict)


def _from_json(value: object, kind: type) -> object:
    if not isinstance(value, str):
        return _LOSSY
    import msgspec

    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _LOSSY
    # Escapes in JSON may encode the marks of a secret reference.
    return without_marks(decoded) if isinstance(decoded, kind) else _LOSSY


class _Type:
    """One declared type: how to convert a value to it, and whether a value already has it."""

    def __init__(self, read: Callable[[object], object], holds: Callable[[object], bool]) -> None:
        self.read = read
        self.holds = holds


_TYPES: Mapping[str, _Type] = {
    "string": _Type(_to_string, lambda value: isinstance(value, str)),
    "int": _Type(_to_int, _is_int),
    "float": _Type(_to_float, _is_float),
    "bool": _Type(_to_bool, lambda value: isinstance(value, bool)),
    "list": _Type(_to_list, lambda value: isinstance(value, list)),
    "object": _Type(_to_object, lambda value: isinstance(value, dict)),
    "any": _Type(lambda value: value, lambda value: True),
}


def _hint(value: object, type_name: str) -> str | None:
    if type_name == "bool":
        return "use true or false"
    if type_name in ("list", "object") and isinstance(value, str):
        return 'use JSON, for example ["a", "b"]' if type_name == "list" else 'use JSON, for example {"a": 1}'
    if type_name == "int" and (type(value) is int or (isinstance(value, str) and _INTEGER.match(value.strip()))):
        return "integers beyond ±(2^53-1) are not kept exactly; declare `type: string`"
    if type_name == "float" and isinstance(value, str) and _FLOAT.match(value.strip()):
        return "a float does not keep all its digits; declare `type: string`"
    return None


def _same(value: object, choice: object) -> bool:
    """Compare values as JSON: 1 equals 1.0, and true is not 1."""
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _matches(value: object, pattern: str, type_name: str) -> bool:
    if isinstance(value, str):
        return compile_pattern(pattern).search(value) is not None
    # A pattern applies to text only; for `any` it means that the value must be text.
    return type_name != "any"


def _out_of_bounds(value: object, low: float | None, high: float | None) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | list) or (low is None and high is None):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, found {show(value)}"
    size = len(value) if isinstance(value, str | list) else value
    unit = " characters" if isinstance(value, str) else " items" if isinstance(value, list) else ""
    found = f"{size}{unit}" if unit else show(value)
    if low is not None and not size >= low:
        return f"expected at least {low}{unit}, found {found}"
    if high is not None and not size <= high:
        return f"expected at most {high}{unit}, found {found}"
    return None
