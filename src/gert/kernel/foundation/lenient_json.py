"""JSON that others wrote, and that may be none."""

from typing import Any

import msgspec


def json_or(text: str | bytes, default: Any = None) -> Any:
    """Return the value of a JSON text, or `default` if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return default


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the object of a JSON text; an empty one if it is not an object."""
    found = json_or(text)
    return found if isinstance(found, dict) else {}
