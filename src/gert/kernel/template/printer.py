"""How values print: text as it is, numbers as written, maps and lists as JSON.

The keys of a map are sorted, as in Go; a keyed result of a loop keeps the order of its items.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from gert.kernel.foundation.secret_refs import is_marked
from gert.kernel.foundation.text import number_text
from gert.kernel.template.budget import Meter, too_deep
from gert.kernel.template.values import MISSING, Absent, Ordered, is_list, is_map

_LONGEST_INTEGER = 4000  # digits; Python refuses to print many more

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def render_text(value: Any) -> str:
    """Format any native value as text."""
    try:
        return value if isinstance(value, str) else written(value, Meter())
    except RecursionError:
        raise too_deep() from None


def written(value: Any, meter: Meter) -> str:
    """Format a value as text; new text is counted by the meter, existing text is not."""
    if isinstance(value, str):
        return value
    if value is None or value is MISSING:
        return ""
    scalar = _scalar(value, meter)
    return json_of(value, meter) if scalar is None else scalar


def _scalar(value: Any, meter: Meter) -> str | None:
    """A boolean or number, printed."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return integer(value, meter)
    return number_text(value) if isinstance(value, float) else None


def integer(value: int, meter: Meter) -> str:
    """An integer's digits."""
    if value.bit_length() > _LONGEST_INTEGER * 3:
        raise meter.fault("the number is too long to print")
    meter.read(value.bit_length(), 256)
    return int.__repr__(value)


def quoted(text: str) -> str:
    """Text as a JSON string."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def json_of(value: Any, meter: Meter) -> str:
    """The value as compact JSON with sorted keys."""
    pieces: list[str] = []

    def write(piece: str) -> None:
        meter.make(len(piece))
        pieces.append(piece)

    _json(value, meter, write, meter.max_depth)
    return "".join(pieces)


def _json(value: Any, meter: Meter, write: Callable[[str], None], depth: int) -> None:
    if isinstance(value, str):
        if is_marked(value):
            raise meter.fault("a secret cannot be written as JSON", hint="hand it over by itself, as in `{{ .token }}`")
        meter.make(len(value))
        write(quoted(value))
    elif value is None or value is MISSING:
        write("null")
    elif isinstance(value, float) and not math.isfinite(value):
        raise meter.fault(f"`{number_text(value)}` has no JSON form")
    elif (scalar := _scalar(value, meter)) is not None:
        write(scalar)
    elif depth <= 0:
        raise meter.fault("the value is nested too deeply")
    elif is_map(value):
        _json_map(value, meter, write, depth - 1)
    elif is_list(value):
        _json_list(value, meter, write, depth - 1)
    elif isinstance(value, Absent):
        raise value.fault(meter)
    else:
        raise meter.fault(f"a value of type `{type(value).__name__}` has no text form")


def _json_map(value: Mapping[Any, Any], meter: Meter, write: Callable[[str], None], depth: int) -> None:
    before = "{"
    for key, of in sorted_items(value, meter):
        meter.make(len(key))
        write(f"{before}{quoted(key)}:")
        _json(of, meter, write, depth)
        before = ","
    write("{}" if before == "{" else "}")


def _json_list(value: list[Any] | tuple[Any, ...], meter: Meter, write: Callable[[str], None], depth: int) -> None:
    meter.step()
    meter.visit(len(value))
    before = "["
    for item in value:
        write(before)
        _json(item, meter, write, depth)
        before = ","
    write("[]" if before == "[" else "]")


def sorted_items(value: Mapping[Any, Any], meter: Meter) -> list[tuple[str, Any]]:
    """A map's entries in the order of their keys, which are text; a keyed result's in the order of its items."""
    meter.step(len(value))
    entries = [(key if isinstance(key, str) else written(key, meter), of) for key, of in value.items()]
    return entries if isinstance(value, Ordered) or getattr(value, "is_ordered", False) else sorted(entries, key=_key)


def _key(entry: tuple[str, Any]) -> str:
    return entry[0]
