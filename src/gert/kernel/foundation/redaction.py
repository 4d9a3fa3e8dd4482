"""Masks secrets in everything that enters gert, once, before the engine sees it.

A secret is masked as plain text, in the encodings tools print (base64, hex, UTF-16, Latin-1, other composition), with
any of its characters written as an escape (`\\u`, `\\x`, octal, percent, HTML, shells), and, if it has several lines
or is encoded, with any line wrapping. Other encodings (base32, capitals, base64 twice) and a secret printed in pieces
are not found. Secrets shorter than four characters occur in ordinary text by chance, so they are masked only where
they are a whole value, apart from white space; the same holds for the rest of a secret whose ends overlap with
the placeholder.
"""

import codecs
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gert.kernel.foundation.lenient_json import json_or
from gert.kernel.foundation.spelling_search import SearchStream, SpellingSearch
from gert.kernel.foundation.spellings import forms_of
from gert.kernel.foundation.text import PLACEHOLDER

__all__ = ["PLACEHOLDER", "Redacted", "RedactingStream", "Redactor", "credentials_of", "parts_of"]

_MAX_DEPTH = 200
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?\Z")
_CREDENTIAL = re.compile(r"(?i)key|secret|token|passw|passphrase|pwd|credential|authorization")
_NO_CREDENTIAL = re.compile(r"(?i)(?:uri|url|id|type|name|email)$")
_BLOCK = 1 << 16
_DECODINGS = (("utf-8", "surrogateescape"), ("latin-1", "strict"))
"""Both keep every byte, so text without secrets is returned unchanged."""

_MAX_DIGITS = 4000  # Python refuses to parse many more


class Redacted(NamedTuple):
    """A value with its secrets masked, and how many were masked."""

    value: Any
    masked: int


def parts_of(secret: object) -> list[str]:
    """Return the texts to mask for a secret: the whole, and for a list or map, also as JSON, each of its values."""
    if isinstance(secret, str):
        value = _as_json(secret)
        return [secret] if isinstance(value, str) else [secret, *_leaves(value, _MAX_DEPTH)]
    return list(_leaves(secret, _MAX_DEPTH))


def credentials_of(secret: str) -> list[str]:
    """Return the texts to mask for a secret variable: the whole, and for JSON, the values named as credentials.

    Unlike a declared secret input, not all values are masked: such a document also names projects and regions,
    which ordinary inputs contain as well.
    """
    value = _as_json(secret)
    return [secret] if isinstance(value, str) else [secret, *_credentials(value, _MAX_DEPTH)]


def _credentials(value: object, depth: int) -> Iterable[str]:
    if depth <= 0:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, depth) if _is_credential(str(name)) else _credentials(item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _credentials(item, depth - 1)
    elif isinstance(value, str) and "-----BEGIN " in value:
        yield value


def _is_credential(name: str) -> bool:
    return _CREDENTIAL.search(name) is not None and _NO_CREDENTIAL.search(name) is None


def _as_json(secret: str) -> object:
    """Parse a text as JSON if it is a list or a map; otherwise return the text."""
    return json_or(secret, secret) if secret.lstrip()[:1] in ("{", "[") else secret


def _leaves(value: object, depth: int) -> Iterable[str]:
    if isinstance(value, Mapping | list | tuple) and depth > 0:
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item, depth - 1)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


class Redactor:
    """Masks a fixed set of secrets; redacting twice equals redacting once."""

    __slots__ = ("_numbers", "_search", "_secrets", "_whole")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secret for secret in secrets if secret.strip())
        self._whole = frozenset(secret.strip() for secret in self._secrets)
        self._numbers = frozenset(number for secret in self._whole for number in _numbers_of(secret))
        self._search = SpellingSearch(form for secret in sorted(self._secrets) for form in forms_of(secret))

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def also(self, secrets: Iterable[str]) -> "Redactor":
        """Return a redactor that also masks these secrets."""
        return Redactor(self._secrets.union(secrets))

    def text(self, text: str) -> Redacted:
        """Mask every secret in a text."""
        if self._search.candidate(text, 0) == len(text):
            return Redacted(text, 0)
        stream = self.stream()
        pieces = [stream.feed(text[at : at + _BLOCK]) for at in range(0, len(text), _BLOCK)]
        masked = "".join(pieces) + stream.close()
        return Redacted(masked, stream.count) if stream.count else Redacted(text, 0)

    def cut(self, data: bytes) -> bytes:
        """Mask every secret in bytes that were cut off; their end is left out where a secret may begin in it."""
        for encoding, errors in _DECODINGS:
            # What is not complete, a character or the beginning of a secret, is never asked for.
            text = codecs.getincrementaldecoder(encoding)(errors).decode(data)
            data = self.stream().feed(text).encode(encoding, errors)
        return data

    def value(self, value: object) -> Redacted:
        """Mask every secret in a nested value, keys included."""
        return self._value(value, _MAX_DEPTH) if self._secrets else Redacted(value, 0)

    def stream(self) -> "RedactingStream":
        """Start masking a text that arrives in chunks."""
        return RedactingStream(self._search)

    def _value(self, value: object, depth: int) -> Redacted:
        if value is None or isinstance(value, bool):
            return Redacted(value, 0)
        if isinstance(value, str):
            return self._whole_text(value)
        if isinstance(value, int | float):
            # A number is a secret only as a whole: its digits occur in other numbers by chance.
            return Redacted(PLACEHOLDER, 1) if abs(value) in self._numbers else Redacted(value, 0)
        if isinstance(value, bytes):
            return self._bytes(value)
        if isinstance(value, Mapping) and depth > 0:
            return self._mapping(value, depth)
        if isinstance(value, list | tuple) and depth > 0:
            items = [self._value(item, depth - 1) for item in value]
            masked = [item.value for item in items]
            return Redacted(masked if isinstance(value, list) else tuple(masked), sum(item.masked for item in items))
        # A value that cannot be inspected, or is too deep, is masked.
        return Redacted(PLACEHOLDER, 1)

    def _whole_text(self, text: str) -> Redacted:
        return Redacted(PLACEHOLDER, 1) if text.strip() in self._whole else self.text(text)

    def _bytes(self, data: bytes) -> Redacted:
        count = 0
        for encoding, errors in _DECODINGS:
            text, masked = self._whole_text(data.decode(encoding, errors))
            if masked:
                data, count = text.encode(encoding, errors), count + masked
        return Redacted(data, count)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Redacted:
        entries = [(self._value(key, depth - 1), self._value(item, depth - 1)) for key, item in value.items()]
        # An unmasked key keeps its name, whatever its position.
        taken = {name.value for name, _ in entries if not name.masked}
        numbers: dict[Any, int] = {}
        masked = {
            _unused_name(name.value, taken, numbers) if name.masked else name.value: item.value
            for name, item in entries
        }
        return Redacted(masked, sum(name.masked + item.masked for name, item in entries))


class RedactingStream:
    """Masks a text that arrives in chunks; the result does not depend on where it is split."""

    __slots__ = ("_masked", "_stream", "count")

    def __init__(self, search: SpellingSearch) -> None:
        self._stream = SearchStream(search)
        # How many of the next characters belong to a secret whose placeholder was already returned.
        self._masked = 0
        self.count = 0

    def feed(self, chunk: str) -> str:
        """Return the text that is decided so far; the rest waits for more text."""
        return "".join(self._pieces(chunk, is_final=False))

    def close(self) -> str:
        """Return the rest."""
        return "".join(self._pieces("", is_final=True))

    def _pieces(self, chunk: str, *, is_final: bool) -> Iterator[str]:
        for text, spans in self._stream.feed(chunk, is_final=is_final):
            at = self._masked
            for start, end in spans:
                if start >= at:
                    yield text[at:start]
                    yield PLACEHOLDER
                    self.count += 1
                at = max(at, end)
            yield text[at:]
            self._masked = max(0, at - len(text))


def _numbers_of(secret: str) -> Iterable[float]:
    """Return the numbers that a secret may be parsed as, without their sign."""
    if len(secret) > _MAX_DIGITS or not _NUMBER.match(secret):
        return
    if secret.lstrip("+-").isdigit():
        yield abs(int(secret))
    if math.isfinite(number := abs(float(secret))):
        yield number


def _unused_name(name: Any, taken: set[Any], numbers: dict[Any, int]) -> Any:
    """Return a name not yet taken, so that two keys masked alike are both kept."""
    free = name
    while free in taken:
        numbers[name] = numbers.get(name, 1) + 1
        free = f"{name}#{numbers[name]}"
    taken.add(free)
    return free
