"""Text on its way to people: nothing in it may act on a terminal, and numbers read as they are written."""

import math
import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

PLACEHOLDER: Final = "[REDACTED]"
"""What stands in place of a secret."""

# Beyond these a number is clearer with its exponent.
_SMALLEST_PLAIN = 1e-9
_LARGEST_PLAIN = 1e21


def printable(text: str) -> str:
    """The text with control, escape and bidirectional formatting characters made harmless; one line stays one."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else REPLACEMENT for character in text)


_TRAILING: Final = re.compile(r"(?:\r?\n)+\Z")


def without_trailing_newlines(text: str) -> str:
    """The text without the newlines at its end, as `$(…)` gives it in a shell."""
    return _TRAILING.sub("", text) if text.endswith("\n") else text


def lines_of(text: str, *, trim: bool = True) -> list[str]:
    """The lines of a text, which end with a newline or a Windows one; `trim` leaves out empty lines at its end."""
    kept = without_trailing_newlines(text) if trim else text.removesuffix("\n")
    return [line.removesuffix("\r") for line in kept.split("\n")] if text and (kept or not trim) else []


def visible(text: str) -> str:
    """The text on one line with what cannot be seen escaped: newlines, tabs, spaces at its ends, zero-width marks."""
    if text.isprintable() and text == text.strip(" "):
        return text
    inner = text.strip(" ")
    before, after = (text[: len(text) - len(text.lstrip(" "))], text[len(text.rstrip(" ")) :]) if inner else (text, "")
    shown = "".join(each if each.isprintable() else _escaped(each) for each in inner)
    return f"{_SPACE * len(before)}{shown}{_SPACE * len(after)}"


_SPACE: Final = "\\x20"
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Printable by their category, and still drawn as nothing or as empty space: Unicode's default ignorable code points
# among letters and marks, and the blank braille pattern.
_BLANK: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, 0xFFA0))
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


def is_plain(text: str) -> bool:
    """Whether a text can be seen, and nothing in it is invisible: two that look alike are alike."""
    return text.isprintable() and _BLANK.isdisjoint(text) and bool(text.strip())


def has_visible(text: str) -> bool:
    """Whether anything of a text can be seen."""
    return any(is_plain(character) for character in text)


def one_line(text: str, longest: int) -> str:
    """The text on one line, printable, and cut where it is longer."""
    # Cut first: a text may be huge, and most of it is not shown.
    line = printable(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def a_noun(noun: str) -> str:
    """The noun with its article: `a string`, `an object`."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def number_text(value: float) -> str:
    """The shortest digits that give the float back, without an exponent where that is readable."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    digits = float.__repr__(value)
    mantissa, mark, exponent = digits.partition("e")
    if not mark or not _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        return digits
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    shift = int(exponent)
    if shift < 0:
        return f"{sign}0.{'0' * (-shift - 1)}{whole}{fraction}"
    return f"{sign}{(whole + fraction).ljust(shift + 1, '0')}.0"
