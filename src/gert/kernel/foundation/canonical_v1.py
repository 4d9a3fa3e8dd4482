"""Canonical JSON of the profile "v1", in which agents' tool arguments are compared and stored.

Keys are sorted, separators compact, and everything beyond ASCII is escaped, as Python's own JSON writer does it.
Unlike RFC 8785 it keeps integers of any size and distinguishes 1 from 1.0, so arguments are stored exactly.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from gert.errors import CanonicalError
from gert.kernel.foundation.canonical import require_canonical

CANONICAL_JSON_PROFILE: Final = "v1"


def canonical_json_dumps(value: object) -> str:
    """Return the canonical JSON text of a value; CanonicalError names the part that has none."""
    require_canonical(value, large_integers=True)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CanonicalError(f"the value has no JSON form: {error}") from error


def canonicalize_json_object(value: str) -> str:
    """Return the canonical form of the JSON text of an object; CanonicalError if it is not an object."""
    found = loads(value)
    if not isinstance(found, dict):
        raise CanonicalError(f"expected a JSON object, found {_KINDS[type(found)]}")
    return canonical_json_dumps(found)


def require_json(text: str) -> str:
    """Return JSON text that every reader parses alike (no duplicate key, NaN or lone surrogate), or raise."""
    require_canonical(loads(text), large_integers=True)
    return text


def loads(text: str) -> Any:
    """Parse JSON text strictly: no NaN, no infinity, and no duplicate key."""
    if not isinstance(text, str):
        raise CanonicalError(f"expected JSON text, found a `{type(text).__name__}`")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise CanonicalError(f"the text is not JSON at character {error.pos}: {_lower(error.msg)}") from None
    except CanonicalError:
        raise
    except RecursionError:
        raise CanonicalError("the text is not valid JSON: it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        # Python refuses to parse a number of thousands of digits.
        raise CanonicalError(f"the text is not valid JSON: {_lower(str(error))}") from None


_KINDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise CanonicalError(f"the key `{key[:40]}` occurs twice in one object")
        found[key] = value
    return found


def _constant(name: str) -> NoReturn:
    raise CanonicalError(f"`{name}` is not a JSON number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
