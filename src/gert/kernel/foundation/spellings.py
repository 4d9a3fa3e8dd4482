"""The forms in which a secret is searched for, and the reader of escaped characters.

A program that encodes a secret chooses for each character whether to escape it, and programs differ in what they
escape. So a form is a sequence of units, one per character of the secret, and the text is read in every way at once: a
position is read as its character, and where an escape begins, also as the character that the escape means. Only
the reader knows how a character may be escaped; the forms do not list it.
"""

import base64
import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from unicodedata import normalize

from gert.kernel.foundation.text import CONTROL_SEQUENCE, PLACEHOLDER

MIN_LENGTH: Final = 4
"""Shorter secrets occur in ordinary text by chance."""

LONGEST_ESCAPE: Final = 40
"""The longest escape that is read; none contains white space except as its last character."""

GAP: Final = ""
"""The symbol for a line break, indentation or quotes between two characters of wrapped text."""

STYLE: Final = "\x1b["
"""The symbol for a control sequence between two characters, such as a change of colour."""

_MIN_LINE: Final = 8
"""From this length on, each line of a secret with several lines is also searched for by itself."""

_LINE_BREAKS: Final = "\r\n"
_BETWEEN_OCTETS: Final = ": -"

Unit = frozenset[str]
"""The symbols for a character: itself, and its escape (`escaped`)."""


class Form(NamedTuple):
    """A sequence of units, which may have gaps between them.

    gaps: the characters that a gap among the first characters of the form begins with, where text wraps
    """

    units: tuple[Unit, ...]
    gaps: str = ""


def escaped(char: str) -> str:
    """Return the symbol for a character that is written as an escape."""
    return "\\" + char


def forms_of(secret: str) -> Iterator[Form]:
    """Yield every form in which a secret is searched for."""
    for part in sorted(_parts(secret)):
        yield from map(Form, _as_text(part))
        yield from map(_plain, _in_utf16(part))
        data = _octets(part)
        yield Form(
            tuple(frozenset({digit, digit.upper(), escaped(digit)}) for digit in data.hex()),
            _LINE_BREAKS + _BETWEEN_OCTETS,
        )
        yield from (_plain(core, gaps=_LINE_BREAKS) for core in _base64_forms(data))
    yield from (_plain(block, gaps=_LINE_BREAKS) for block in _blocks(secret))


def _plain(text: str, *, gaps: str = "") -> Form:
    core = _without_placeholder(text)
    return Form(tuple(map(_unit, core)) if len(core) >= MIN_LENGTH else (), gaps)


def _unit(char: str) -> Unit:
    if char == " ":
        return frozenset({char, escaped(char), "+"})
    # If the text is not UTF-8, a character that is not ASCII is read as U+FFFD.
    return frozenset({char, escaped(char)} if char.isascii() else {char, escaped(char), "\ufffd"})


def _parts(secret: str) -> set[str]:
    """Return the texts to search for: the whole, its long lines, and each in other Unicode normal forms."""
    lines = secret.splitlines()
    parts = {secret, secret.strip()}
    if len(lines) > 1:
        parts.update(line.strip() for line in lines if len(line.strip()) >= _MIN_LINE)
    parts.update([normalize(form, part) for part in parts if not part.isascii() for form in ("NFC", "NFD")])
    return {part for part in parts if len(part) >= MIN_LENGTH}


def _blocks(secret: str) -> Iterator[str]:
    """Yield a secret with several lines as one line without white space, a PEM file without its first and last line."""
    if "-----BEGIN " in secret:
        secret = re.sub(r"\\+[rn]", "\n", secret)
    for block in re.split(r"-----[^-\n]*-----", secret):
        joined = "".join(block.split())
        if len(joined) >= _MIN_LINE and len(block.split("\n")) > 1:
            yield joined


def _octets(part: str) -> bytes:
    """Return the bytes of a text; one from the environment may contain bytes that are not text."""
    try:
        return part.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return part.encode("utf-8", "surrogatepass")


def _as_text(part: str) -> Iterator[tuple[Unit, ...]]:
    """Yield the form of plain text, in which each character may be escaped."""
    cores = [_without_placeholder(piece) for piece in part.split(PLACEHOLDER)]
    for core in cores:
        if len(core) >= MIN_LENGTH:
            yield tuple(map(_unit, core))
    if cores != [part] and any(char in "[]" for char in part):
        # A part that cannot be masked because of its brackets is still masked where they are escaped.
        yield tuple(frozenset({escaped(char)}) if char in "[]" else _unit(char) for char in part)


def _in_utf16(part: str) -> Iterator[str]:
    """Yield the forms in UTF-16, read as if it were UTF-8, or byte by byte."""
    for encoding in ("utf-16-le", "utf-16-be"):
        data = part.encode(encoding, "surrogatepass")
        read = data.decode("utf-8", "replace").strip("\0")
        yield read
        # Bytes at the ends may form a character together with adjacent bytes.
        yield read.strip("\ufffd")
        yield data.decode("latin-1").strip("\0")


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield the base64 characters that depend on the secret alone, for each of the three offsets it can start at."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode()
        for before in range(3):
            encoded = encode(b"\0" * before + data).decode().rstrip("=")
            # Characters that also encode bits of adjacent bytes are not part of the secret.
            first = (0, 2, 3)[before]
            last = len(encoded) if (before + len(data)) % 3 == 0 else len(encoded) - 1
            yield encoded[first:last]
            if not before:
                yield encoded


def _without_placeholder(form: str) -> str:
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


_SPACE: Final = re.compile(r"\s")
_WRAP: Final = r"(?:\\{1,4}[nrt]|%0[aAdD]|[\s\"',:\\]){0,40}"
_GAP_TEXT: Final = re.compile(rf"({_WRAP})(?:[+-]{_WRAP})?")
_HEX: Final = "[0-9a-fA-F]"
_SLASHES: Final = r"\\{1,4}"  # JSON within JSON doubles them
_ESCAPE: Final = re.compile(
    rf"""
    (?:{_SLASHES}|%)u(?P<high>[dD][89abAB]{_HEX}{{2}})(?:{_SLASHES}|%)u(?P<low>[dD][c-fC-F]{_HEX}{{2}})
  | (?:{_SLASHES}|%)u(?P<unit>{_HEX}{{4}})
  | {_SLASHES}U(?P<long>{_HEX}{{8}})
  | {_SLASHES}[ux]\{{0{{0,8}}(?P<braced>{_HEX}{{1,6}})\}}
  | &(?:amp;)?\#[xX]0{{0,8}}(?P<entity>{_HEX}{{1,6}});?
  | &(?:amp;)?\#0{{0,8}}(?P<decimal>[0-9]{{1,7}});?
  | &(?:amp;)?(?P<name>[A-Za-z][A-Za-z0-9]{{1,23}};)
  | {_SLASHES}(?!{re.escape(PLACEHOLDER)})(?P<short>[nrtbf]|[^A-Za-z0-9\\\x80-\U0010ffff])
  | '(?P<quote>'|\\''|"'"')
  | "(?P<double>")
    """,
    re.VERBOSE,
)
_OCTET: Final = (
    *(re.compile(f"%{nested}({_HEX}{{2}})") for nested in ("", "25", "2525")),
    re.compile(f"{_SLASHES}x({_HEX}{{2}})"),
)
_OCTAL: Final = re.compile(f"{_SLASHES}(0?[0-3][0-7]{{2}}|[0-7]{{1,2}})")
_SHORT: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

LEADS: Final = frozenset("\\%&'\",:+- \t\r\n\v\f\x1b\x1c\x1d\x1e\x1f\x85\xa0")
"""The characters that an escape or a gap begins with."""


def readings(text: str, at: int, *, is_final: bool) -> list[tuple[str, int]] | None:
    """Return the symbols that a text may mean at a position besides its character, and where it continues after each.

    None: more text could change the answer.
    """
    gap = _GAP_TEXT.match(text, at)
    ends = {gap.end(1), gap.end()} - {at} if gap else set()
    if not is_final and (len(text) in ends or (len(text) - at < LONGEST_ESCAPE and not _SPACE.search(text, at + 1))):
        return None
    if (style := CONTROL_SEQUENCE.match(text, at)) is not None:
        return [(STYLE, style.end())]
    return [*((GAP, end) for end in ends), *((escaped(char), end) for char, end in _escapes(text, at))]


def _escapes(text: str, at: int) -> Iterator[tuple[str, int]]:
    found = _ESCAPE.match(text, at)
    if found is not None:
        yield from ((char, found.end()) for char in _meaning(found))
    for octet in _OCTET:
        yield from _from_octets(octet, 16, text, at)
    yield from _from_octets(_OCTAL, 8, text, at)
    yield from (("\\", at + size) for size in (2, 4) if text.startswith("\\" * size, at))


def _meaning(found: re.Match[str]) -> str:
    """Return the character that an escape means; a named entity may mean two, which no form contains."""
    kind, value = str(found.lastgroup), found[str(found.lastgroup)]
    if kind == "name":
        from html.entities import html5  # two thousand names, and most runs meet none

        char = html5.get(value, "")
        return char if len(char) == 1 else ""
    if kind == "short":
        return _SHORT.get(value, value)
    if kind in ("quote", "double"):
        return "'" if kind == "quote" else '"'
    if kind == "low":
        return bytes.fromhex(found["high"] + value).decode("utf-16-be")
    code = int(value, 10 if kind == "decimal" else 16)
    return chr(code) if code <= 0x10FFFF else ""


def _from_octets(octet: re.Pattern[str], base: int, text: str, at: int) -> Iterator[tuple[str, int]]:
    """Read a character from its bytes in UTF-8, or from a single byte in Latin-1 or outside any encoding."""
    data = b""
    while len(data) < 4 and (found := octet.match(text, at)):
        data += bytes([int(found[1], base)])
        at = found.end()
        if len(data) == 1:
            yield chr(data[0]), at
            if data[0] < 0x80:
                return
            yield chr(0xDC00 + data[0]), at
        else:
            try:
                yield data.decode(), at
            except UnicodeDecodeError:
                continue
            return
