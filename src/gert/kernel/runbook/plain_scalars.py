"""The values of unquoted YAML scalars."""

import re
from typing import Any, Final

# YAML 1.2 core schema: `yes`, `no`, `on` and `off` are plain strings.
_CONSTANTS: Final[dict[str, Any]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_LONGEST_NUMBER: Final = 400
_NUMBER_STARTS: Final = frozenset("0123456789+-.")
_TEXT: Final = object()


def resolve_plain(text: str) -> Any:
    """Return the core-schema value of an unquoted scalar, or its text."""
    value = _CONSTANTS.get(text, _TEXT)
    if value is not _TEXT:
        return value
    if text[0] not in _NUMBER_STARTS or len(text) > _LONGEST_NUMBER:
        return text
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf")
                     .replace(".nan", "nan").replace(".NaN", "nan").replace(".NAN", "nan"))  # fmt: skip
    return text
