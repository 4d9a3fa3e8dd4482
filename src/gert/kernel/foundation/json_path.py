"""Paths into JSON such as `a.b[0].c`; a leading `$` is allowed."""

import re
from typing import Any, Final

_SEGMENT: Final = re.compile(r"\[([0-9]+)\]|([^.\[\]\s]+)")
_ROOT: Final = re.compile(r"^\$(?=[.\[]|$)")
_MAX_INDEX_DIGITS: Final = 9


class Absent(LookupError):
    """There is nothing at a path."""


def follow(value: Any, path: str) -> Any:
    """Return the value at a path; Absent if there is none."""
    for index, name in _SEGMENT.findall(_ROOT.sub("", path)):
        at = _index(index or name)
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and at is not None and at < len(value):
            value = value[at]
        else:
            raise Absent(f"expected `{path}` in the JSON, found nothing there")
    return value


def _index(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MAX_INDEX_DIGITS and digits.isascii() and digits.isdecimal() else None
