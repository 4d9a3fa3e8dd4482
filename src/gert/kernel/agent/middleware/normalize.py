"""Text as rules read it: digits, gaps, dashes and wide characters of every script, written as ASCII has them."""

import unicodedata
from typing import Final

_MOST_KEPT: Final = 0x10000


class _Plain(dict[int, str]):
    """What stands for a character; found when it is first met, and kept unless it is a rare one."""

    def __missing__(self, code: int) -> str:
        plain = _plain(chr(code))
        if code < _MOST_KEPT:
            self[code] = plain
        return plain


def spelled_plainly(text: str) -> str:
    """The same text as rules read it: each character stands where it stood."""
    return text if text.isascii() else text.translate(_PLAIN)


def _plain(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Pd" or char == "\N{MINUS SIGN}":
        return "-"
    if category == "Zs":
        return " "
    # A small number above a line belongs to no number before it.
    wide = unicodedata.normalize("NFKC", char) if category != "No" else char
    digit = unicodedata.decimal(wide, None) if len(wide) == 1 else None
    if digit is not None:
        return str(digit)
    return wide if len(wide) == 1 and wide.isascii() else char


_PLAIN: Final = _Plain((code, chr(code)) for code in range(128))
