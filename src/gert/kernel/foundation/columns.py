"""Text in the columns of a terminal: how wide it is, cut to a width, and wrapped at words."""

import re
from typing import Final
from unicodedata import combining, east_asian_width

_BREAK: Final = re.compile(r"(?<=\S) (?=\S)")
_LABEL: Final = re.compile(r" {2}[\w ]{1,13}: +(?=\S)")
_QUOTED: Final = re.compile(r" *│ ")


def column_count(text: str) -> int:
    """Count the columns of a text: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def cut(text: str, width: int) -> str:
    """Cut a text to a width; `…` shows that something is missing."""
    if column_count(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while kept and column_count(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"


def wrap(line: str, width: int, indent: int | None = None) -> list[str]:
    """Wrap a line at single spaces, so that no other space is lost; a longer word is left to the terminal.

    indent: of what follows; by default it stands below the value of a label, and after the bar of quoted text
    """
    if column_count(line) <= width:
        return [line]
    first, *words = _BREAK.split(line)
    lines, begun = [], first
    before = _continuation(line, width) if indent is None else " " * indent
    for word in words:
        if column_count(begun) + 1 + column_count(word) <= width:
            begun = f"{begun} {word}"
        else:
            lines.append(begun)
            begun = f"{before}{word}"
    return [*lines, begun]


def _continuation(line: str, width: int) -> str:
    """What the further lines of a wrapped line begin with."""
    if quoted := _QUOTED.match(line):
        return quoted.group()
    label = _LABEL.match(line)
    indent = label.end() if label is not None else len(line) - len(line.lstrip(" ")) + 2
    return " " * (indent if indent <= width // 2 else 2)
