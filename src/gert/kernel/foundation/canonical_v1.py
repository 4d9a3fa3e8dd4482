"""Canonical JSON of the profile "v1", in which agents' tool arguments are compared and kept.

Keys are sorted, separators compact, and everything beyond ASCII is escaped, as Python's own JSON writer does it.
Unlike RFC 8785 it keeps integers of any size, and tells 1 from 1.0: what a tool is called with is what it was given.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from gert.errors import CanonicalError
from gert.kernel.foundation.canonical import require_canonical

CANONICAL_JSON_PROFILE: Final = "v1"


def canonical_json_dumps(value: object) -> str:
    """Give the canonical JSON text of a value, or say where it has none."""
    require_canonical(value, large_integers=True)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CanonicalError(f"the value has no JSON form: {error}") from error


def canonicalize_json_object(value: str) -> str:
    """Bring the JSON text of an object into its canonical form; a text that is not one object is refused."""
    found = loads(value)
    if not isinstance(found, dict):
        raise CanonicalError(f"expected a JSON object, found {_KINDS[type(found)]}")
    return canonical_json_dumps(found)


def require_json(text: str) -> str:
    """Give back JSON text that every reader reads alike: no key twice, no NaN, no half characters; or refuse it."""
    require_canonical(loads(text), large_integers=True)
    return text


def loads(text: str) -> Any:
    """Read JSON text as canonical JSON is read: no NaN, no infinity, and no key twice."""
    if not isinstance(text, str):
        raise CanonicalError(f"expected JSON text, found a `{type(text).__name__}`")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise CanonicalError(f"the text is not JSON at character {error.pos}: {_lower(error.msg)}") from None
    except CanonicalError:
        raise
    except RecursionError:
        raise CanonicalError("the text is not JSON that can be read: it is nested too deep") from None
    except (TypeError, ValueError) as error:
        # A number of thousands of digits, which Python refuses to read.
        raise CanonicalError(f"the text is not JSON that can be read: {_lower(str(error))}") from None


_KINDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise CanonicalError(f"the key `{key[:40]}` stands twice in one object")
        found[key] = value
    return found


def _constant(name: str) -> NoReturn:
    raise CanonicalError(f"`{name}` is not a JSON number")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
