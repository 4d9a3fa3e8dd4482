"""The values of quoted text, characters and numbers, as Go writes them."""

import re

from gert.kernel.template.wording import shown

_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|(\\)", re.DOTALL
)
_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
}
_INTEGER = re.compile(
    r"([+-]?)(?:0[xX]((?:_?[0-9a-fA-F])+)|0[oO]((?:_?[0-7])+)|0[bB]((?:_?[01])+)|0((?:_?[0-7])+)|(0|[1-9](?:_?[0-9])*))"
)
_BASES = (16, 8, 2, 8, 10)
_FLOAT = re.compile(
    r"[+-]?(?:[0-9](?:_?[0-9])*\.?(?:[0-9](?:_?[0-9])*)?|\.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
)
_HEX_FLOAT = re.compile(
    r"[+-]?0[xX](?:(?:_?[0-9a-fA-F])+\.?(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?|\.[0-9a-fA-F](?:_?[0-9a-fA-F])*)"
    r"[pP][+-]?[0-9](?:_?[0-9])*"
)
_LONGEST_NUMBER = 400


def text_of(quoted: str) -> str:
    """The text between double quotes; ValueError says what is wrong with an escape."""
    return _unescaped(quoted[1:-1], '"')


def character_of(quoted: str) -> int:
    """The code point between single quotes."""
    inner = _unescaped(quoted[1:-1], "'")
    if len(inner) != 1:
        raise ValueError("a character constant holds one character")
    return ord(inner)


def _unescaped(inner: str, quote: str) -> str:
    # `\xhh` and `\ooo` are bytes: only together with their neighbours they may make a character.
    pieces = bytearray()
    position = 0
    for match in _ESCAPE.finditer(inner):
        pieces += inner[position : match.start()].encode("utf-8", "surrogatepass")
        position = match.end()
        simple, byte, octal, short, long, lone = match.groups()
        if lone or (simple in ("'", '"') and simple != quote):
            raise ValueError(f"unknown escape `{inner[match.start() : match.start() + 2]}`")
        if simple:
            pieces += _SIMPLE[simple].encode()
        elif byte or octal:
            code = int(byte, 16) if byte else int(octal, 8)
            if code > 255:
                raise ValueError(f"escape `{match.group()}` is not a byte")
            pieces.append(code)
        else:
            code = int(short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000 or 0xFDD0 <= code <= 0xFDEF:
                raise ValueError(f"escape `{match.group()}` is not a character")
            pieces += chr(code).encode()
    pieces += inner[position:].encode("utf-8", "surrogatepass")
    try:
        return pieces.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise ValueError("the escapes do not make UTF-8 text") from None


def number_of(written: str) -> int | float:
    """An integer of 64 bits or a float; ValueError says what is wrong."""
    if len(written) > _LONGEST_NUMBER:
        raise ValueError("the number is too long")
    whole = _INTEGER.fullmatch(written)
    if whole:
        sign, *digits = whole.groups()
        base, found = next((base, d) for base, d in zip(_BASES, digits, strict=True) if d is not None)
        return _of_64_bits(int(sign + found.replace("_", ""), base), written)
    plain = written.replace("_", "")
    if _FLOAT.fullmatch(written):
        if not any(mark in written for mark in ".eE"):
            raise ValueError(f"{shown(written)} is not a number: a leading 0 means octal")
        value = float(plain)
    elif _HEX_FLOAT.fullmatch(written):
        try:
            value = float.fromhex(plain)
        except OverflowError:
            value = float("inf")
    else:
        raise ValueError(f"{shown(written)} is not a number")
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {shown(written)} is too large")
    return value


def _of_64_bits(value: int, written: str) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"the number {shown(written)} does not fit in 64 bits")
    return value
