"""Canonical JSON (RFC 8785) and the digests made from it.

Everything that is hashed, signed or compared is first brought into this one form, so two writers with
the same value produce the same bytes. The one exception is the hash chain, which hashes stored bytes.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from gert.errors import CanonicalError
from gert.kernel.foundation.values import MAX_INTEGER

MAX_DEPTH = 200
"""The deepest nesting that is accepted; a value that contains itself ends here too."""

# How much of a path a message shows: the longest segment, its dot included, and how many at either end.
_MAX_SEGMENT = 41
_FIRST = 8
_LAST = 2

DIGEST_PREFIX = "sha256:"


def canonical(value: object) -> bytes:
    """Return the canonical JSON of a value; CanonicalError names the part that has none."""
    require_canonical(value)
    import rfc8785

    try:
        return rfc8785.dumps(value)  # type: ignore[arg-type]
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise CanonicalError(f"the value has no canonical JSON form: {error}") from error


def digest(data: bytes) -> str:
    """Return the content hash of bytes, as written in events: `sha256:<hex>`."""
    return DIGEST_PREFIX + sha256_hex(data)


def digest_value(value: object) -> str:
    """Return the content hash of a value's canonical JSON."""
    return digest(canonical(value))


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of bytes in hex, as the hash chain writes it."""
    return hashlib.sha256(data).hexdigest()


class Hasher:
    """The content hash and the size of bytes that arrive in chunks."""

    __slots__ = ("_hash", "size")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0

    def update(self, chunk: bytes) -> None:
        """Add the next chunk."""
        self._hash.update(chunk)
        self.size += len(chunk)

    def digest(self) -> str:
        """Return the hash of all chunks so far, equal to `digest` of the whole."""
        return DIGEST_PREFIX + self._hash.hexdigest()


def require_canonical(value: object, at: str = "", *, large_integers: bool = False) -> None:
    """Raise CanonicalError for a value without a canonical JSON form; `at` is the path of the value.

    large_integers: accept integers that not every reader keeps exactly
    """
    try:
        _check(value, MAX_DEPTH, large_integers)
    except _FlawError as flaw:
        path = at + _short(flaw.path[::-1])
        where = f" at `{path.removeprefix('.')}`" if path else ""
        raise CanonicalError(f"{flaw.reason}{where}", hint=flaw.hint) from None


def _short(path: list[str]) -> str:
    """Shorten a path for a message: a value that contains itself has an endless one."""
    segments = [segment if len(segment) <= _MAX_SEGMENT else f"{segment[:_MAX_SEGMENT]}…" for segment in path]
    if len(segments) > _FIRST + _LAST:
        segments[_FIRST:-_LAST] = ["…"]
    return "".join(segments)


class _FlawError(Exception):
    """Why a value has no canonical form; the path is gathered while unwinding, innermost first."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.path: list[str] = []


def _check(value: object, depth: int, large: bool) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int):
        if not large and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise _FlawError(
                "the integer is beyond ±(2^53-1), which JSON readers do not keep exactly", "write it as text"
            )
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _FlawError(f"`{value}` is not a JSON number")
    elif isinstance(value, dict):
        _check_mapping(value, depth, large)
    elif isinstance(value, list | tuple):
        _check_depth(depth)
        for index, item in enumerate(value):
            try:
                _check(item, depth - 1, large)
            except _FlawError as flaw:
                flaw.path.append(f"[{index}]")
                raise
    else:
        raise _FlawError(f"a `{type(value).__name__}` has no JSON form")


def _check_mapping(value: Mapping[Any, Any], depth: int, large: bool) -> None:
    _check_depth(depth)
    for key, item in value.items():
        if not isinstance(key, str):
            raise _FlawError(f"the key `{key!r}` is not text", "quote it")
        try:
            _check_text(key)
            _check(item, depth - 1, large)
        except _FlawError as flaw:
            flaw.path.append("." + key.encode("utf-8", "backslashreplace").decode())
            raise


def _check_depth(depth: int) -> None:
    if depth <= 0:
        raise _FlawError(f"the value is nested deeper than {MAX_DEPTH} levels, or contains itself")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _FlawError(f"the text has a lone surrogate at character {error.start}") from None
