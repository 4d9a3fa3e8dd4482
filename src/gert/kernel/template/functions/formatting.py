"""`printf`, with Go's verbs; a value that does not fit its verb is an error."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from gert.kernel.template.budget import Meter
from gert.kernel.template.printer import written
from gert.kernel.template.values import as_number, is_nothing, kind, named

_VERB = re.compile(r"%([-+# 0]*)(\*|[0-9]+)?(?:(\.)(\*|[0-9]+)?)?(.)?", re.DOTALL)
_WIDEST = 10_000
_MOST_DIGITS = 500
_MOST_BITS = 4000
_NEEDS_QUOTES = re.compile("[\x00-\x08\x0a-\x1f`\x7f\ufeff\ud800-\udfff]")

_PLAIN = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def go_quoted(text: str, quote: str = '"', *, ascii_only: bool = False) -> str:
    """Text in quotes, with Go's escapes for what does not print."""
    pieces = [quote]
    for character in text:
        if character == quote:
            pieces.append("\\" + quote)
        elif character in _PLAIN and character != '"':
            pieces.append(_PLAIN[character])
        elif ascii_only and character > "\x7f":
            pieces.append(_numbered(ord(character)))
        elif character.isprintable() or "\ud800" <= character <= "\udfff":
            pieces.append(character)
        else:
            pieces.append(_numbered(ord(character)))
    return "".join(pieces) + quote


def _numbered(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class Verb(Struct, frozen=True):
    """One `%…` of a format."""

    written: str
    flags: str
    width: int
    precision: int | None
    letter: str


def printf(meter: Meter, layout: Any, *values: Any) -> str:
    """`printf`: the values written as the format says."""
    if not isinstance(layout, str):
        raise meter.fault(f"`printf` needs a format, found {kind(layout)}")
    rest = iter(values)
    pieces: list[str] = []
    position = 0
    for match in _VERB.finditer(layout):
        meter.step()
        pieces.append(layout[position : match.start()])
        position = match.end()
        if match.group(5) == "%":
            pieces.append("%")
            continue
        verb = _verb(match, rest, meter)
        value = _next(rest, verb.written, meter)
        piece = _FORMATS[verb.letter](verb, value, meter)
        meter.make(max(len(piece), verb.width))
        pieces.append(_padded(piece, verb, value))
    pieces.append(layout[position:])
    if (extra := sum(1 for _ in rest)) > 0:
        raise meter.fault(f"`printf` was given {extra} more than its format names")
    meter.make(len(layout))
    return "".join(pieces)


def _verb(match: re.Match[str], rest: Iterator[Any], meter: Meter) -> Verb:
    flags, width, point, precision, letter = match.groups()
    if letter is None:
        raise meter.fault("`printf`: the format ends inside a verb")
    if letter not in _FORMATS:
        raise meter.fault(f"`printf`: unknown verb `{match.group()}`")
    wide = _size(width, rest, match.group(), meter, _WIDEST) if width else 0
    if wide < 0:
        flags, wide = flags + "-", -wide
    digits = None
    if point:
        digits = _size(precision, rest, match.group(), meter, _WIDEST) if precision else 0
        if digits < 0:
            digits = None
    return Verb(match.group(), flags, wide, digits, letter)


def _size(given: str, rest: Iterator[Any], verb: str, meter: Meter, most: int) -> int:
    if given == "*":
        size = _integer(_next(rest, verb, meter), verb, meter)
    else:
        size = int(given[:9])
    if not -most <= size <= most:
        raise meter.fault(f"`printf`: `{verb}` is wider than {most}")
    return size


def _next(rest: Iterator[Any], verb: str, meter: Meter) -> Any:
    for value in rest:
        return value
    raise meter.fault(f"`printf` has no value for `{verb}`")


def _padded(piece: str, verb: Verb, value: Any) -> str:
    if len(piece) >= verb.width:
        return piece
    if "-" in verb.flags:
        return piece.ljust(verb.width)
    a_float = verb.letter in _FLOATS or (verb.letter == "v" and isinstance(value, float))
    if "0" not in verb.flags or _fills_itself(verb, value) or (a_float and piece[-3:] in ("Inf", "NaN")):
        return piece.rjust(verb.width)
    sign = piece[0] if a_float and piece[0] in "+- " else ""
    return sign + piece[len(sign) :].rjust(verb.width - len(sign), "0")


def _fills_itself(verb: Verb, value: Any) -> bool:
    """Integers are filled with zeros as they are written; what is shorter still has a precision of its own."""
    if verb.letter in "xX":
        return not isinstance(value, str)
    return verb.letter in "dboOU" or (verb.letter == "v" and isinstance(value, int) and not isinstance(value, bool))


def _unfit(verb: str, needs: str, value: Any, meter: Meter) -> Exception:
    hint = "give it a value with `default`" if is_nothing(value) else None
    return meter.fault(f"`printf`: `{verb}` needs {needs}, found {named(value)}", hint=hint)


def _integer(value: Any, verb: str, meter: Meter) -> int:
    number = as_number(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int):
        raise _unfit(verb, "an integer", value, meter)
    if number.bit_length() > _MOST_BITS:
        raise meter.fault(f"`printf`: the number for `{verb}` is too large")
    return number


def _signed(flags: str, negative: bool) -> str:
    if negative:
        return "-"
    return "+" if "+" in flags else " " if " " in flags else ""


def _in_base(base: str) -> "Format":
    def format_integer(verb: Verb, value: Any, meter: Meter) -> str:
        number = _integer(value, verb.written, meter)
        sign = _signed(verb.flags, number < 0)
        digits = format(abs(number), base)
        least = verb.precision
        if least is None and "0" in verb.flags and "-" not in verb.flags:
            least = verb.width - len(sign)
        elif least == 0 and number == 0:
            return ""
        meter.make(least or 0)
        digits = digits.rjust(least or 0, "0")
        return sign + _prefix(verb, digits) + digits

    return format_integer


def _prefix(verb: Verb, digits: str) -> str:
    octal = "" if "#" not in verb.flags or digits.startswith("0") else "0"
    if verb.letter == "O":
        return f"0o{octal}"
    if "#" not in verb.flags:
        return ""
    if verb.letter == "o":
        return octal
    return {"b": "0b", "x": "0x", "X": "0X"}.get(verb.letter, "")


def _hexadecimal(verb: Verb, value: Any, meter: Meter) -> str:
    if not isinstance(value, str):
        return _in_base(verb.letter)(verb, value, meter)
    meter.make(len(value) * 12)
    data = value.encode("utf-8", "replace")
    if verb.precision is not None:
        data = data[: verb.precision]
    if not data:
        return ""
    separator = " " if " " in verb.flags else ""
    prefix = "0" + verb.letter if "#" in verb.flags else ""
    digits = data.hex(separator) if separator else data.hex()
    if verb.letter == "X":
        digits = digits.upper()
    if separator and prefix:
        return separator.join(prefix + pair for pair in digits.split(separator))
    return prefix + digits


def _float(verb: Verb, value: Any, meter: Meter) -> str:
    number = as_number(value)
    if number is None:
        raise _unfit(verb.written, "a number", value, meter)
    if isinstance(number, int) and number.bit_length() > 1023:
        raise meter.fault(f"`printf`: the number for `{verb.written}` is too large")
    number = float(number)
    if verb.precision is not None and verb.precision > _MOST_DIGITS:
        raise meter.fault(f"`printf`: `{verb.written}` asks for more than {_MOST_DIGITS} digits")
    if not math.isfinite(number):
        return written(number, meter)
    if verb.letter in "gG" and verb.precision is None:
        shortest = _shortest(number, verb.letter)
        sign = "" if shortest[0] == "-" else _signed(verb.flags, False)
        return sign + (_six_digits(shortest) if "#" in verb.flags else shortest)
    letter = {"F": "f"}.get(verb.letter, verb.letter)
    sign = "+" if "+" in verb.flags else " " if " " in verb.flags else "-"
    alternate = "#" if "#" in verb.flags else ""
    digits = 6 if verb.precision is None else verb.precision
    return format(number, f"{sign}{alternate}.{digits}{letter}")


def _shortest(number: float, letter: str) -> str:
    """The shortest digits that give the number back, with Go's choice of exponent."""
    mantissa, _, exponent = float.__repr__(number).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + ("" if fraction == "0" else fraction)).lstrip("0")
    leading = len(whole + fraction) - len((whole + fraction).lstrip("0"))
    if not digits.strip("0"):
        return sign + "0"
    power = len(whole) - 1 - leading + int(exponent or 0)
    digits = digits.rstrip("0")
    if power < -4 or power >= 6:
        point = "." if len(digits) > 1 else ""
        mark = "e" if letter == "g" else "E"
        return f"{sign}{digits[0]}{point}{digits[1:]}{mark}{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    digits = digits.ljust(power + 1, "0")
    rest = digits[power + 1 :]
    return f"{sign}{digits[: power + 1]}{'.' + rest if rest else ''}"


def _six_digits(number: str) -> str:
    """At least six significant digits, and a point: what `#` asks for."""
    mantissa, *exponent = re.split("(?=[eE])", number, maxsplit=1)
    digits = len(mantissa.lstrip("-0.").replace(".", "")) or 1
    if "." not in mantissa:
        mantissa += "."
    return "".join([mantissa, "0" * (6 - digits), *exponent])


def _text(verb: Verb, value: Any, meter: Meter) -> str:
    plain = written(value, meter)
    return plain if verb.precision is None else plain[: verb.precision]


def _value(verb: Verb, value: Any, meter: Meter) -> str:
    if "#" in verb.flags:
        raise meter.fault(f"`printf`: unknown verb `{verb.written}`")
    if isinstance(value, int) and not isinstance(value, bool):
        # The sign of `%+v` is for the fields of structures, which there are none.
        plain = Verb(verb.written, verb.flags.replace("+", ""), verb.width, verb.precision, "d")
        return _in_base("d")(plain, value, meter)
    if isinstance(value, float) and verb.precision is not None:
        return _float(Verb(verb.written, verb.flags.replace("+", ""), verb.width, verb.precision, "g"), value, meter)
    if isinstance(value, float) and " " in verb.flags and math.copysign(1, value) > 0:
        return " " + written(value, meter)
    return written(value, meter) if isinstance(value, bool) else _text(verb, value, meter)


def _quoted(verb: Verb, value: Any, meter: Meter) -> str:
    ascii_only = "+" in verb.flags
    if isinstance(value, int) and not isinstance(value, bool):
        return go_quoted(_character(verb, value, meter), "'", ascii_only=ascii_only)
    plain = _text(verb, value, meter)
    meter.make(len(plain) * 10)
    if "#" in verb.flags and not _NEEDS_QUOTES.search(plain):
        return f"`{plain}`"
    return go_quoted(plain, ascii_only=ascii_only)


def _boolean(verb: Verb, value: Any, meter: Meter) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and len(value) <= 5 and value.lower() in ("true", "false"):
        return value.lower()
    raise _unfit(verb.written, "a boolean", value, meter)


def _character(verb: Verb, value: Any, meter: Meter) -> str:
    code = _integer(value, verb.written, meter)
    # Neither surrogates nor the noncharacters that mark references to secrets.
    sound = 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000 and not 0xFDD0 <= code <= 0xFDEF
    return chr(code) if sound else "\ufffd"


def _code_point(verb: Verb, value: Any, meter: Meter) -> str:
    code = _integer(value, verb.written, meter)
    if code < 0:
        raise meter.fault(f"`printf`: `{verb.written}` needs a character, found a negative number")
    shows = "#" in verb.flags and code <= 0x10FFFF and chr(code).isprintable()
    digits = f"{code:X}".rjust(max(verb.precision or 0, 4), "0")
    return f"U+{digits} '{chr(code)}'" if shows else f"U+{digits}"


Format: TypeAlias = Callable[[Verb, Any, Meter], str]

_FLOATS = "eEfFgG"
_FORMATS: Mapping[str, Format] = {
    "v": _value,
    "s": _text,
    "q": _quoted,
    "t": _boolean,
    "d": _in_base("d"),
    "b": _in_base("b"),
    "o": _in_base("o"),
    "O": _in_base("o"),
    "x": _hexadecimal,
    "X": _hexadecimal,
    "c": _character,
    "U": _code_point,
    "e": _float,
    "E": _float,
    "f": _float,
    "F": _float,
    "g": _float,
    "G": _float,
}
