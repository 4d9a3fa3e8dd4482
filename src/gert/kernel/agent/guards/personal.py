"""Finding personal data in a text: email addresses, phone numbers, payment cards, IBANs, US social security numbers.

A number is personal data only where its check digits or its form say so: an order number must stay readable. What no
rule knows, such as a name or a postal address, is not found.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from gert.kernel.foundation.patterns import compile_pattern


class Found(NamedTuple):
    """Personal data in a text: where, of which kind, and written as one writes it to compare."""

    start: int
    end: int
    kind: str
    value: str


_Looked = tuple[int, int, str] | None


class _Rule(NamedTuple):
    """How one kind is found.

    needs: a character without which there is none of it
    look: what a match really holds: where it begins and ends, and its value; None where it is something else
    """

    kind: str
    needs: str
    pattern: str
    look: Callable[[str], _Looked]


def find_personal(text: str) -> list[Found]:
    """All personal data in a text, in order; where two kinds overlap, the first of the table stands."""
    found: list[Found] = []
    has_digit = any(digit in text for digit in _DIGITS)
    for rule in _RULES:
        if rule.needs in text if rule.needs else has_digit:
            found += [each for each in _matches(rule, text) if not _overlaps(found, each)]
            found.sort()
    return found


def _matches(rule: _Rule, text: str) -> Iterator[Found]:
    for start, end in compile_pattern(rule.pattern).spans(text):
        looked = rule.look(text[start:end])
        if looked is not None:
            first, last, value = looked
            yield Found(start + first, start + last, rule.kind, value)


def _overlaps(found: list[Found], other: Found) -> bool:
    place = bisect_left(found, other)
    before = place > 0 and found[place - 1].end > other.start
    return before or (place < len(found) and found[place].start < other.end)


def _email(match: str) -> _Looked:
    """An address with a domain; the full stop behind it ends a sentence."""
    address = match.rstrip(".-")
    host, dot, top = address.rpartition("@")[2].rpartition(".")
    return (0, len(address), address.lower()) if host and dot and len(top) > 1 else None


def _card(match: str) -> _Looked:
    """A number of a payment card, by its first digit and its check digit; a group behind it may be something else."""
    for length in dict.fromkeys((len(match), max(match.rfind(" "), match.rfind("-")))):
        digits = _digits(match[: max(length, 0)])
        if 13 <= len(digits) <= 19 and digits[0] in "23456" and _luhn(digits):
            return 0, length, digits
    return None


def _iban(match: str) -> _Looked:
    """As many characters as IBANs of the country have, if their check digits hold; words may stand around them."""
    starts = [0, *(place + 1 for place, char in enumerate(match) if char == " ")]
    return next((found for start in starts if (found := _iban_at(match, start)) is not None), None)


def _iban_at(match: str, start: int) -> _Looked:
    length = _IBAN_LENGTHS.get(match[start : start + 2].upper())
    if length is None:
        return None
    end, count = start, 0
    while end < len(match) and count < length:
        count += match[end] != " "
        end += 1
    value = match[start:end].replace(" ", "").upper()
    if count < length or match[end : end + 1].isalnum() or not _mod97(value):
        return None
    return start, end, value


def _ssn(match: str) -> _Looked:
    digits = _digits(match)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if area in ("000", "666") or area[0] == "9" or group == "00" or serial == "0000":
        return None
    return 0, len(match), digits


def _phone(match: str) -> _Looked:
    digits = _digits(match)
    return (0, len(match), digits) if 8 <= len(digits) <= 15 else None


def _digits(text: str) -> str:
    return "".join(char for char in text if char in _DIGITS)


def _luhn(digits: str) -> bool:
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _mod97(value: str) -> bool:
    moved = value[4:] + value[:4]
    return int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


_DIGITS: Final = "0123456789"
_GROUPS: Final = r"\d{4}[ -]\d{4}[ -]\d{4}[ -]\d{4}(?:[ -]\d{1,3})?|\d{4}[ -]\d{6}[ -]\d{4,5}"

# The first that fits stands: an IBAN may look like a card, and a card like a phone number.
_RULES: Final = (
    _Rule("EMAIL", "@", r"[\pL\pN._%+'-]+@[\pL\pN][\pL\pN.-]*", _email),
    _Rule("IBAN", "", r"(?i)\b[A-Z]{2}\d{2} ?[A-Z0-9](?: ?[A-Z0-9]){9,60}\b", _iban),
    _Rule("CARD", "", rf"\b(?:\d{{13,19}}|{_GROUPS})\b", _card),
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
