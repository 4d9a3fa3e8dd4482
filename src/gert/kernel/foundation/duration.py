"""Durations as people write them: `500ms`, `30s`, `1h30m`, `7d`.

Units come in descending order, each at most once, and every accepted text is an exact number of
microseconds. `DURATION_PATTERN` is the same rule for a JSON Schema.
"""

import re
from datetime import timedelta

from gert.errors import InputError
from gert.kernel.foundation.values import show

# (unit, microseconds, decimals that are always a whole number of microseconds)
_UNITS = (
    ("d", 86_400_000_000, 6),
    ("h", 3_600_000_000, 6),
    ("m", 60_000_000, 6),
    ("s", 1_000_000, 6),
    ("ms", 1_000, 3),
)

MAX_DURATION = timedelta(days=36_500)
"""A hundred years; more is a typing error, and would overflow clocks."""

MAX_SECONDS = MAX_DURATION.total_seconds()

_MAX_TEXT = 64


def _term(unit: str, decimals: int) -> str:
    return rf"[0-9]+(\.[0-9]{{1,{decimals}}})?{unit}"


def _pattern() -> str:
    # Spelled without lookahead, so that every regular expression dialect reads it alike.
    terms = [_term(unit, decimals) for unit, _, decimals in _UNITS]
    starts = [first + "".join(f"({later})?" for later in terms[at + 1 :]) for at, first in enumerate(terms)]
    return f"^({'|'.join(starts)})$"


DURATION_PATTERN = _pattern()

# The same in Python's dialect, shorter and faster to compile; a property test keeps the two equal.
_SHAPE = "(?=[0-9])" + "".join(f"({_term(unit, decimals)})?" for unit, _, decimals in _UNITS) + r"\Z"
_PART = r"([0-9]+)(?:\.([0-9]+))?([a-z]+)"
_SIZE = {unit: size for unit, size, _ in _UNITS}
_EXAMPLES = "use a duration such as `500ms`, `30s`, `5m`, `1h30m` or `7d`"


def parse_duration(text: str) -> timedelta:
    """Parse a duration exactly; InputError says what is wrong with it."""
    if not re.match(_SHAPE, text):
        raise InputError(f"{show(text)} is not a duration: {_flaw(text)}", hint=_EXAMPLES)
    if is_too_long(text):
        raise InputError(f"{show(text)} is longer than a hundred years", hint=_EXAMPLES)
    return timedelta(microseconds=_micros(text))


def is_too_long(text: str) -> bool:
    """Return whether a text is a well-formed duration above the maximum."""
    if not re.match(_SHAPE, text):
        return False
    return len(text) > _MAX_TEXT or _micros(text) > MAX_DURATION // timedelta(microseconds=1)


def _micros(text: str) -> int:
    # Decimals are limited so that this division has no remainder.
    return sum(
        int(whole) * _SIZE[unit] + int(fraction or 0) * _SIZE[unit] // 10 ** len(fraction)
        for whole, fraction, unit in re.findall(_PART, text)
    )


def format_duration(duration: timedelta) -> str:
    """Format a duration in its short form; `parse_duration` reads it back exactly."""
    micros = duration // timedelta(microseconds=1)
    if micros < 0:
        raise InputError("a duration cannot be negative")
    if micros < _SIZE["s"]:
        return _number(micros, _SIZE["ms"]) + "ms" if micros else "0s"
    text = ""
    for unit in ("d", "h", "m"):
        count, micros = divmod(micros, _SIZE[unit])
        text += f"{count}{unit}" if count else ""
    return text + _number(micros, _SIZE["s"]) + "s" if micros else text


def _number(micros: int, size: int) -> str:
    """Divide by a power of ten and format the quotient; integer arithmetic, because every step event needs it."""
    whole, rest = divmod(micros, size)
    return f"{whole}.{str(size + rest)[1:]}".rstrip("0") if rest else str(whole)


def _flaw(text: str) -> str:
    if not text.strip():
        return "it is empty"
    if text.lstrip().startswith("-"):
        return "it is negative"
    if re.fullmatch(r"[0-9.]+", text):
        return "it has no unit"
    if re.search(r"\s", text):
        return "it contains a space"
    return "expected numbers with the units d, h, m, s, ms, largest first, each at most once"
