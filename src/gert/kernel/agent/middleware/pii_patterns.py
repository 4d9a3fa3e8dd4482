"""Find personal data in text: email addresses, phone numbers, payment cards, IBANs, US social security numbers.

A number is personal data only if its check digits or its form match: an order number must stay readable. Data without
a rule, such as names and postal addresses, is not found.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from gert.kernel.foundation.patterns import compile_pattern


class Found(NamedTuple):
    """Personal data in a text: its position, its kind, and its normalized value."""

    start: int
    end: int
    kind: str
    value: str


_Spans = Iterator[tuple[int, int, str]]


class _Rule(NamedTuple):
    """How one kind is found.

    needs: a character that every value of this kind contains; empty for a digit
    look: yields the positions and values inside a match of the pattern, in order. A match is not searched again, so
        `look` must find every value that begins in it
    """

    kind: str
    needs: str
    pattern: str
    look: Callable[[str, int, int], _Spans]


def find_personal_data(text: str) -> list[Found]:
    """Return all personal data in a text, in order; where two kinds overlap, the first rule wins."""
    text = normalize(text)
    found: list[Found] = []
    has_digit = any(digit in text for digit in _DIGITS)
    for rule in _RULES:
        if rule.needs in text if rule.needs else has_digit:
            found += [each for each in _matches(rule, text) if not _overlaps(found, each)]
            found.sort()
    return found


def _matches(rule: _Rule, text: str) -> Iterator[Found]:
    at = 0
    for first, last in compile_pattern(rule.pattern).spans(text):
        for start, end, value in rule.look(text, first, last):
            if start >= at:
                yield Found(start, end, rule.kind, value)
                at = end


def _overlaps(found: list[Found], other: Found) -> bool:
    place = bisect_left(found, other)
    before = place > 0 and found[place - 1].end > other.start
    return before or (place < len(found) and found[place].start < other.end)


def normalize(text: str) -> str:
    """Replace digits, spaces, dashes and wide characters of every script by ASCII, each at its position."""
    return text if text.isascii() else text.translate(_PLAIN)


def _plain(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Pd" or char == "\N{MINUS SIGN}":
        return "-"
    if category == "Zs":
        return " "
    # A superscript digit does not belong to the number before it.
    wide = unicodedata.normalize("NFKC", char) if category != "No" else char
    digit = unicodedata.decimal(wide, None) if len(wide) == 1 else None
    if digit is not None:
        return str(digit)
    return wide if len(wide) == 1 and wide.isascii() else char


class _Plain(dict[int, str]):
    """Normalized characters, computed when first used and cached unless they are rare."""

    def __missing__(self, code: int) -> str:
        plain = _plain(chr(code))
        if code < _MAX_CACHED:
            self[code] = plain
        return plain


_PLAIN: Final = _Plain((code, chr(code)) for code in range(128))


def _email(text: str, start: int, end: int) -> _Spans:
    """Yield an email address without trailing dashes."""
    address = text[start:end].rstrip("-")
    yield start, start + len(address), address.lower()


def _cards(text: str, start: int, end: int) -> _Spans:
    """Yield the card numbers among groups of digits, by first digit and check digit."""
    groups = [found.span() for found in _GROUP.finditer(text, start, end)]
    sizes = [last - first for first, last in groups]
    at = 0
    while at < len(groups):
        found = next((each for each in _SHAPES.get(sizes[at], ()) if _is_card(text, groups, sizes, at, each)), ())
        if found:
            first, last = groups[at][0], groups[at + len(found) - 1][1]
            yield first, last, _digits(text[first:last])
        at += len(found) or 1


def _is_card(text: str, groups: list[tuple[int, int]], sizes: list[int], at: int, shape: tuple[int, ...]) -> bool:
    if sizes[at : at + len(shape)] != list(shape) or text[groups[at][0]] not in "23456":
        return False
    return _luhn(_digits(text[groups[at][0] : groups[at + len(shape) - 1][1]]))


def _iban(text: str, start: int, end: int) -> _Spans:
    """Yield an IBAN of the length of its country, if its check digits match; text may follow it."""
    length = _IBAN_LENGTHS.get(text[start : start + 2].upper())
    if length is None:
        return
    value = text[start : start + 2 * length].replace(" ", "").replace("-", "")[:length].upper()
    if len(value) < length or not (value.isascii() and value.isalnum()) or not _mod97(value):
        return
    stop, count = start, 0
    while count < length:
        count += text[stop] not in " -"
        stop += 1
    behind = text[stop : stop + 1]
    if not (behind.isascii() and behind.isalnum()):
        yield start, stop, value


def _ssn(text: str, start: int, end: int) -> _Spans:
    digits = _digits(text[start:end])
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if area not in ("000", "666") and area[0] != "9" and group != "00" and serial != "0000":
        yield start, end, digits


def _phone(text: str, start: int, end: int) -> _Spans:
    """Yield a phone number without trailing groups that make it too long."""
    while len(digits := _digits(text[start:end])) > _LONGEST_PHONE:
        end = max(text.rfind(gap, start, end) for gap in " ./-")
        if end < start:
            return
    if len(digits) >= _SHORTEST_PHONE:
        yield start, end, digits


def _digits(text: str) -> str:
    return "".join(char for char in text if char in _DIGITS)


def _luhn(digits: str) -> bool:
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _mod97(value: str) -> bool:
    return int((value[4:] + value[:4]).translate(_AS_NUMBERS)) % 97 == 1


_MAX_CACHED: Final = 0x10000
_DIGITS: Final = "0123456789"
_SHORTEST_PHONE: Final = 8
_LONGEST_PHONE: Final = 15

# In check digits A is 10, and Z is 35.
_AS_NUMBERS: Final = {ord("A") + place: str(10 + place) for place in range(26)}

_GROUP: Final = re.compile("[0-9]+")

# By the size of the first group; the longest first, since digits after a card number may be something else.
_SHAPES: Final[Mapping[int, tuple[tuple[int, ...], ...]]] = {
    4: ((4, 4, 4, 4, 3), (4, 4, 4, 4, 2), (4, 4, 4, 4, 1), (4, 4, 4, 4), (4, 6, 5), (4, 6, 4)),
    **{size: ((size,),) for size in range(13, 20)},
}

# The first match wins: an IBAN may look like a card, and a card like a phone number.
_RULES: Final = (
    _Rule("EMAIL", "@", r"[\pL\pN\pM._%+'-]+@(?:[\pL\pN\pM-]+\.)+[\pL\pN\pM-]{2,}", _email),
    _Rule("IBAN", "", r"(?i)\b[A-Z]{2}\d{2}", _iban),
    _Rule("CARD", "", r"\b(?:\d{13,19}|\d{4,}(?:[ -]\d+){2,})\b", _cards),
    _Rule("SSN", "", r"\b\d{3}[- ]\d{2}[- ]\d{4}\b", _ssn),
    _Rule("PHONE", "+", r"\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,12}(?:[ ./-]?\d{1,6}){0,6}\b", _phone),
    _Rule("PHONE", "", r"(?:\b1[ .-])?(?:\(\d{3}\) ?|\b\d{3}[ .-])\d{3}[ .-]\d{4}\b", _phone),
)

_IBAN_LENGTHS: Final[Mapping[str, int]] = {
    country: int(length)
    for length, countries in {
        "15": "NO", "16": "BE", "18": "DK FI FO GL NL SD", "19": "MK SI", "20": "AT BA EE KZ LT LU XK",
        "21": "CH HR LI LV", "22": "BG BH CR DE GB GE IE ME RS VA", "23": "AE GI IL IQ TL",
        "24": "AD CZ ES MD PK RO SA SE SK TN VG", "25": "LY PT ST", "26": "IS TR", "27": "FR GR IT MC MR SM",
        "28": "AL AZ BY CY DO GT HU LB PL SV", "29": "BR EG PS QA UA", "30": "JO KW MU", "31": "MT SC", "32": "LC",
    }.items()
    for country in countries.split()
}  # fmt: skip
