"""Prepares text for people: nothing in it may control a terminal, and numbers are readable."""

import math
import re
from typing import Final
from urllib.parse import unquote

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_TAB: Final = "⇥"

PLACEHOLDER: Final = "[REDACTED]"
"""The text that replaces a secret."""

PRINTED_NOTHING: Final = "(printed nothing)"
"""Stands where the output of a program would."""

# Outside these bounds a number is clearer with an exponent.
_SMALLEST_PLAIN = 1e-9
_LARGEST_PLAIN = 1e21


CONTROL_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]{0,32}[@-~]|[()][0-9A-Za-z])")
"""What colours text on a terminal, or clears a part of it. It is removed for display, and no secret hides behind it."""


def os_reason(problem: OSError) -> str:
    """The reason of an error of the operating system, for messages: `permission denied`."""
    return (problem.strerror or str(problem)).lower()


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: it holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Replace control, escape and bidirectional formatting characters (a tab by `⇥`); one line stays one."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _TAB if each == "\t" else REPLACEMENT for each in text)


def path_text(path: str) -> str:
    """A path of steps for people, printable: `delete[feat/c]`, which the record has as `delete[feat%2Fc]`."""
    return printable(unquote(path))


def with_marked_newlines(text: str) -> str:
    """Put a text on one line on which its newlines and tabs can be seen, printable."""
    return printable(text.replace("\r\n", "\n").replace("\n", " ⏎ ").replace("\t", " ⇥ "))


def exact_line(text: str) -> str:
    """Put a text on one line so that no other text looks like it: `⏎` is a newline, and what is not seen is escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_EXACT.get(each) or (each if is_plain(each) or each == " " else _escaped(each)) for each in text)


_EXACT: Final = {"\n": " ⏎ ", "\t": " ⇥ ", "⏎": "\\u23ce", "⇥": "\\u21e5"}


def output_line(line: str) -> str:
    """A line that a program printed, printable; its tabs stay, because other programs split columns at them."""
    return "\t".join(map(printable, line.removesuffix("\r").split("\t")))


_TRAILING: Final = re.compile(r"(?:\r?\n)+\Z")


def without_trailing_newlines(text: str) -> str:
    """Remove the newlines at the end of a text, as `$(…)` does in a shell."""
    return _TRAILING.sub("", text) if text.endswith("\n") else text


def lines_of(text: str, *, trim: bool = True) -> list[str]:
    """Split a text into lines, ended by `\
` or `\\r\
`; `trim` drops empty lines at its end."""
    kept = without_trailing_newlines(text) if trim else text.removesuffix("\n")
    return [line.removesuffix("\r") for line in kept.split("\n")] if text and (kept or not trim) else []


def visible(text: str) -> str:
    """Escape what cannot be seen, on one line: newlines, tabs, spaces at the ends, zero-width marks."""
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


# Printable by their category, but drawn as nothing or as empty space: Unicode's default ignorable code points
# among letters and marks, and the blank braille pattern.
_BLANK: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, 0xFFA0))
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


def is_plain(text: str) -> bool:
    """Return whether a text is visible and has no invisible characters, so that it looks unlike any other."""
    return text.isprintable() and _BLANK.isdisjoint(text) and bool(text.strip())


class _Shown(dict[int, int | None]):
    """What becomes of each character: itself, or nothing where a person would not see it."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        is_seen = character.isprintable() or character.isspace()
        self[code] = code if is_seen and character not in _BLANK and character not in _BREAKS else None
        return self[code]


_BREAKS: Final = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029")
_SHOWN: Final = _Shown()


def without_invisible(text: str) -> str:
    """Remove what a person would not see, line breaks and spaces excepted: instructions can hide in it."""
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)


def has_visible(text: str) -> bool:
    """Return whether any character of a text is visible."""
    return any(is_plain(character) for character in text)


def one_line(text: str, longest: int) -> str:
    """Put a text on one line, printable, and cut to a length."""
    # Cut first: a text may be huge, and most of it is not needed.
    line = printable(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def plain_line(text: str, longest: int) -> str:
    """Put a foreign text on one line without invisible characters, and cut it to a length."""
    kept = "".join(each for each in text[: 4 * longest] if each.isspace() or is_plain(each))
    return one_line(kept, longest)


def shorten(text: str, length: int = 60) -> str:
    """Shorten a user's text for a message: one line, printable, bounded."""
    cut = text if len(text) <= length else text[: length - 1] + "…"
    return printable(cut)


def with_article(noun: str) -> str:
    """Put the indefinite article before a noun: `a string`, `an object`."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def number_text(value: float) -> str:
    """Format a float with the shortest digits that read back exactly, without an exponent where readable."""
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
