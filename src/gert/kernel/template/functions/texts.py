"""Functions on text; nothing is the empty text, and other values are printed first."""

import re
from typing import Any

import msgspec

from gert.errors import PatternError
from gert.kernel.foundation.patterns import Match, compile_pattern
from gert.kernel.foundation.secret_refs import without_marks
from gert.kernel.foundation.text import lines_of
from gert.kernel.template.budget import Meter
from gert.kernel.template.compare import equal, same_kind
from gert.kernel.template.printer import json_of, written
from gert.kernel.template.values import is_list, is_map, is_nothing, kind, list_of

# White space in Go; Python also counts the separators \x1c to \x1f.
_WHITE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_CHARACTERS_PER_SEARCH_STEP = 1024
_RESERVED = re.compile(r"[^A-Za-z0-9_.~ -]+")


def text(value: Any, meter: Meter, name: str) -> str:
    """A scalar as text."""
    if isinstance(value, str):
        return value
    if is_list(value) or is_map(value):
        raise meter.fault(f"`{name}` needs text, found {kind(value)}")
    return written(value, meter)


def to_string(meter: Meter, value: Any) -> str:
    """`toString`: the value as it prints."""
    return written(value, meter)


def printed(meter: Meter, *values: Any) -> str:
    """`print`: the values, with a space between two that are not text."""
    pieces: list[str] = []
    for position, value in enumerate(values):
        if position and not isinstance(value, str) and not isinstance(values[position - 1], str):
            pieces.append(" ")
        pieces.append(written(value, meter))
    return _joined("", pieces, meter)


def printed_line(meter: Meter, *values: Any) -> str:
    """`println`: the values with spaces between, and a newline."""
    return _joined(" ", [written(value, meter) for value in values], meter) + "\n"


def _joined(separator: str, pieces: list[str], meter: Meter) -> str:
    meter.make(sum(map(len, pieces)) + len(separator) * max(len(pieces) - 1, 0))
    return separator.join(pieces)


def printed_as(meter: Meter, layout: Any, *values: Any) -> str:
    """`printf`: the values written as a format says."""
    from gert.kernel.template.functions.formatting import printf

    return printf(meter, layout, *values)


def url_query(meter: Meter, *values: Any) -> str:
    """`urlquery`: the printed values, escaped for the query of a URL."""
    plain = printed(meter, *values)
    meter.make(len(plain) * 12)
    return _RESERVED.sub(_percent, plain).replace(" ", "+")


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", "replace"))


def contains(meter: Meter, wanted: Any, value: Any) -> bool:
    """`contains`: the text contains the other text, or the list an equal item."""
    if is_list(value):
        meter.step(len(value))
        return any(same_kind(wanted, item) and equal(wanted, item, meter) for item in value)
    part, whole = text(wanted, meter, "contains"), text(value, meter, "contains")
    meter.read(len(whole))
    return part in whole


def has_prefix(meter: Meter, prefix: Any, value: Any) -> bool:
    """`hasPrefix`: the text begins so."""
    whole, start = text(value, meter, "hasPrefix"), text(prefix, meter, "hasPrefix")
    meter.read(len(start))
    return whole.startswith(start)


def has_suffix(meter: Meter, suffix: Any, value: Any) -> bool:
    """`hasSuffix`: the text ends so."""
    whole, end = text(value, meter, "hasSuffix"), text(suffix, meter, "hasSuffix")
    meter.read(len(end))
    return whole.endswith(end)


def upper(meter: Meter, value: Any) -> str:
    """`upper`: in capitals."""
    plain = text(value, meter, "upper")
    meter.make(len(plain))
    large = plain.upper()
    return large if len(large) == len(plain) else "".join(map(_large, plain))


def _large(character: str) -> str:
    # As in Go, a character stays one: `ß` has no capital, and that of `ᾳ` is the one that titles begin with.
    return next((one for one in (character.upper(), character.title()) if len(one) == 1), character)


def lower(meter: Meter, value: Any) -> str:
    """`lower`: in small letters."""
    plain = text(value, meter, "lower")
    meter.make(len(plain))
    small = plain.lower()
    # As in Go, a character stays one, and a sigma is the same in any position.
    if len(small) == len(plain) and "Σ" not in plain:
        return small
    return "".join(character.lower()[0] for character in plain)


def trim(meter: Meter, value: Any) -> str:
    """`trim`: without white space at both ends."""
    plain = text(value, meter, "trim")
    meter.read(len(plain))
    trimmed = plain.strip(_WHITE)
    if len(trimmed) < len(plain):
        meter.make(len(trimmed))
    return trimmed


def replace(meter: Meter, old: Any, new: Any, value: Any) -> str:
    """`replace`: every occurrence of a text replaced by another."""
    plain, wanted, put = (text(each, meter, "replace") for each in (value, old, new))
    count = plain.count(wanted)
    meter.make(len(plain) + count * max(len(put) - len(wanted), 0))
    return plain.replace(wanted, put)


def split(meter: Meter, separator: Any, value: Any) -> list[str]:
    """`split`: the pieces between separators; of the empty text none."""
    plain, between = text(value, meter, "split"), text(separator, meter, "split")
    if not plain:
        return []
    meter.make(len(plain))
    if not between:
        meter.step(len(plain))
        return list(plain)
    meter.step(plain.count(between))
    return plain.split(between)


def lines(meter: Meter, value: Any) -> list[str]:
    """`lines`: the lines of a text, without the newlines at its end; of the empty text none."""
    plain = text(value, meter, "lines")
    meter.make(len(plain))
    found = lines_of(plain)
    meter.step(len(found))
    return found


def join(meter: Meter, separator: Any, value: Any) -> str:
    """`join`: the printed items with a separator between them."""
    items = list_of(value, meter, "join")
    meter.step(len(items))
    return _joined(text(separator, meter, "join"), [written(item, meter) for item in items], meter)


def to_json(meter: Meter, value: Any) -> str:
    """`toJson`: compact JSON with sorted keys."""
    return json_of(value, meter)


def from_json(meter: Meter, value: Any) -> Any:
    """`fromJson`: the value a JSON text spells; of the empty text nothing."""
    plain = text(value, meter, "fromJson")
    if is_nothing(value) or not plain:
        return None
    meter.make(len(plain))
    try:
        # Escapes in JSON may encode the marks of a secret reference.
        return without_marks(msgspec.json.decode(plain))
    except (ValueError, RecursionError):  # DecodeError is a ValueError, and so is a lone surrogate
        raise meter.fault("`fromJson` needs JSON, found other text") from None


def quote(meter: Meter, value: Any) -> str:
    """`quote`: the printed value in double quotes, escaped."""
    from gert.kernel.template.functions.formatting import go_quoted

    plain = written(value, meter)
    meter.make(len(plain) * 10 + 2)
    return go_quoted(plain)


def _searched(name: str, pattern: Any, value: Any, meter: Meter) -> Match | None:
    subject = text(value, meter, name)
    meter.read(len(subject), _CHARACTERS_PER_SEARCH_STEP)
    try:
        return compile_pattern(text(pattern, meter, name)).search(subject)
    except PatternError as error:
        raise meter.fault(error.message, hint=error.hint) from None


def regex_match(meter: Meter, pattern: Any, value: Any) -> bool:
    """`regexMatch`: the pattern matches somewhere in the text."""
    return _searched("regexMatch", pattern, value, meter) is not None


def regex_find(meter: Meter, pattern: Any, value: Any) -> str:
    """`regexFind`: the first text the pattern matches, or the empty text."""
    found = _searched("regexFind", pattern, value, meter)
    return (found.group() if found else None) or ""
