"""Masking of secrets in everything the world says, once, on the way in.

A secret is masked as it is and in the forms tools print it in: base64 (wherever it starts in the
encoded bytes), URL-encoded, JSON-escaped, hex. Secrets shorter than four characters occur in ordinary
text by chance, so they are masked only where they are a whole value; so is what remains of a secret
once the placeholder's own letters at its ends are cut away. A line-wrapped base64 text is not undone.
"""

import base64
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

PLACEHOLDER = "[REDACTED]"
MIN_LENGTH = 4
"""Shorter secrets are masked only where they are a whole value."""

_MIN_LINE = 8
"""Lines of a secret with several lines are masked alone from this length on."""

_MAX_DEPTH = 200


class Redacted(NamedTuple):
    """A value without secrets, and how many were masked in it."""

    value: Any
    masked: int


class Redactor:
    """Masks a fixed set of secrets; redacting twice equals redacting once."""

    __slots__ = ("_forms", "_longest", "_pattern", "_secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secret for secret in secrets if secret.strip())
        self._forms = sorted({form for secret in self._secrets for form in _forms(secret)})
        self._longest = max(map(len, self._forms), default=0)
        self._pattern = re.compile(_alternation(self._forms)) if self._forms else None

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def also(self, secrets: Iterable[str]) -> "Redactor":
        """Give a redactor that masks these secrets too."""
        return Redactor(self._secrets.union(secrets))

    def text(self, text: str) -> Redacted:
        """Mask every secret in a text."""
        pieces: list[str] = []
        count, at = 0, 0
        for start, end in self._spans(text):
            pieces += (text[at:start], PLACEHOLDER)
            count, at = count + 1, end
        return Redacted("".join(pieces) + text[at:], count) if count else Redacted(text, 0)

    def value(self, value: object) -> Redacted:
        """Mask every secret in a nested value, keys included."""
        return self._value(value, _MAX_DEPTH) if self._secrets else Redacted(value, 0)

    def stream(self) -> "RedactingStream":
        """Start masking a text that arrives in chunks."""
        return RedactingStream(self)

    def _value(self, value: object, depth: int) -> Redacted:
        if isinstance(value, str):
            return Redacted(PLACEHOLDER, 1) if value in self._secrets else self.text(value)
        if value is None or isinstance(value, bool):
            return Redacted(value, 0)
        if isinstance(value, int | float):
            return Redacted(PLACEHOLDER, 1) if self._is_secret_number(value) else Redacted(value, 0)
        if isinstance(value, Mapping | list | tuple) and depth <= 0:
            # What is too deep to look into is not let through.
            return Redacted(PLACEHOLDER, 1)
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple):
            items = [self._value(item, depth - 1) for item in value]
            masked = [item.value for item in items]
            return Redacted(masked if isinstance(value, list) else tuple(masked), sum(item.masked for item in items))
        return Redacted(value, 0)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Redacted:
        masked: dict[Any, Any] = {}
        count = 0
        for key, item in value.items():
            name = self.text(key) if isinstance(key, str) else Redacted(key, 0)
            inner = self._value(item, depth - 1)
            masked[_free(name.value, masked) if name.masked else name.value] = inner.value
            count += name.masked + inner.masked
        return Redacted(masked, count)

    def _is_secret_number(self, number: float) -> bool:
        # A number is a secret only as a whole: its digits occur in other numbers by chance.
        return _number_text(number) in self._secrets

    def _spans(self, text: str, until: int | None = None) -> Iterator[tuple[int, int]]:
        """Find where secrets start before `until`, with overlapping ones joined."""
        if self._pattern is None:
            return
        limit = len(text) if until is None else until
        begin, end = -1, -1
        match = self._pattern.search(text)
        while match and match.start() < limit:
            if match.start() >= end:
                if end > begin:
                    yield begin, end
                begin = match.start()
            end = max(end, match.end())
            match = self._pattern.search(text, match.start() + 1)
        if end > begin:
            yield begin, end

    def _held(self, text: str) -> int:
        """Find from where a text could be the beginning of a secret that continues."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = text[at:]
            place = bisect_left(self._forms, tail)
            # A form that equals the tail may have a longer one right after it.
            if any(len(form) > len(tail) and form.startswith(tail) for form in self._forms[place : place + 2]):
                return at
        return len(text)


class RedactingStream:
    """Masks a text in chunks; wherever it is cut, the result is that of the whole text."""

    __slots__ = ("_masked", "_pending", "_redactor", "count")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._pending = ""
        # How many pending characters belong to a secret whose placeholder is already given out.
        self._masked = 0
        self.count = 0

    def feed(self, chunk: str) -> str:
        """Give what can be shown so far; the rest waits for more text."""
        text = self._pending + chunk
        return self._give(text, self._redactor._held(text))

    def close(self) -> str:
        """Give the rest."""
        return self._give(self._pending, len(self._pending))

    def _give(self, text: str, until: int) -> str:
        pieces: list[str] = []
        at = self._masked
        for start, end in self._redactor._spans(text, until):
            if start >= at:
                pieces += (text[at:start], PLACEHOLDER)
                self.count += 1
            at = max(at, end)
        if at < until:
            pieces.append(text[at:until])
        self._pending = text[until:]
        self._masked = max(0, at - until)
        return "".join(pieces)


def _forms(secret: str) -> Iterator[str]:
    """Give every text a secret is masked as."""
    whole = {secret, secret.strip()}
    lines = {line.strip() for line in secret.splitlines()} if len(secret.splitlines()) > 1 else set()
    for part in whole | {line for line in lines if len(line) >= _MIN_LINE}:
        if len(part) < MIN_LENGTH:
            continue
        for form in _encodings(part):
            for piece in form.split(PLACEHOLDER):
                core = _apart_from_placeholder(piece)
                if len(core) >= MIN_LENGTH:
                    yield core


def _encodings(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield from _json_forms(secret)
    yield from _url_forms(data)
    yield from _base64_forms(data)
    yield data.hex()
    yield data.hex().upper()


def _json_forms(secret: str) -> Iterator[str]:
    """Escaped as JSON text: in ASCII or not, some also escaping `/` or `<>&`, and once more inside JSON."""
    for once in (_json_escape(secret, False), _json_escape(secret, True)):
        yield once
        yield once.replace("/", "\\/")
        yield _json_escape(once, False)
        for_html = "".join(_unicode_escape(char) if char in "<>&" else char for char in once)
        yield for_html
        yield re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match.group()[2:].upper(), for_html)


_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def _json_escape(text: str, ascii_only: bool) -> str:
    return "".join(
        _SHORT_ESCAPES.get(char)
        or (_unicode_escape(char) if char < " " or (ascii_only and not char.isascii()) else char)
        for char in text
    )


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _url_forms(data: bytes) -> Iterator[str]:
    for form in (
        quote(data),
        quote(data, safe=""),
        quote_plus(data),
        quote(data, safe="/!*'()~:@&=+$,;?#[]"),
    ):
        yield form
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), form)


def _base64_forms(data: bytes) -> Iterator[str]:
    """The characters that depend on the secret alone, for each of the three places it can start at."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode()
        yield encode(data).decode().rstrip("=")
        for before in range(3):
            encoded = encode(b"\0" * before + data).decode().rstrip("=")
            # Characters that also carry bits of what stands before or after are not part of the secret.
            first = (0, 2, 3)[before]
            last = len(encoded) if (before + len(data)) % 3 == 0 else len(encoded) - 1
            yield encoded[first:last]


def _apart_from_placeholder(form: str) -> str:
    """Cut what overlaps with the placeholder, so that masked text never looks like part of a secret."""
    while form and form not in PLACEHOLDER:
        ends = [size for size in range(1, len(PLACEHOLDER)) if PLACEHOLDER.startswith(form[-size:])]
        starts = [size for size in range(1, len(PLACEHOLDER)) if PLACEHOLDER.endswith(form[:size])]
        if ends:
            form = form[: -ends[-1]]
        elif starts:
            form = form[starts[-1] :]
        else:
            return form
    return ""


def _alternation(forms: list[str]) -> str:
    """Build one expression from sorted texts, shared beginnings factored out, longest first."""
    if forms == [""]:
        return ""
    prefix = _shared(forms[0], forms[-1])
    rests = [form[len(prefix) :] for form in forms]
    groups: dict[str, list[str]] = {}
    for rest in rests:
        groups.setdefault(rest[:1], []).append(rest)
    if len(groups) == 1:
        return re.escape(prefix)
    options = "|".join(_alternation(group) for first, group in groups.items() if first)
    return f"{re.escape(prefix)}(?:{options}){'?' if '' in groups else ''}"


def _shared(first: str, last: str) -> str:
    size = 0
    while size < min(len(first), len(last)) and first[size] == last[size]:
        size += 1
    return first[:size]


def _number_text(number: float) -> str:
    try:
        return str(number)
    except ValueError:
        return ""


def _free(name: str, taken: Mapping[Any, Any]) -> str:
    """Two keys that are masked alike both stay."""
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
