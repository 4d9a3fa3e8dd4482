"""Text in the columns of a terminal: how wide it is, cut to a width, and wrapped at words."""

import re
from typing import Final
from unicodedata import category, combining, east_asian_width

_BREAK: Final = re.compile(r"(?<=\S) (?=\S)")
_LABEL: Final = re.compile(r" {2}[\w ]{1,13}: +(?=\S)")
_QUOTED: Final = re.compile(r" *│ ")


def column_count(text: str) -> int:
    """Count the columns of a text: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def most_columns(text: str) -> int:
    """Count the columns that a text may take: terminals differ in what they draw wide, and in how they draw marks."""
    if text.isascii():
        return len(text)
    return sum(1 if each.isascii() else _most(each) for each in text)


def _most(character: str) -> int:
    width, kind = east_asian_width(character), category(character)
    is_letter = kind[0] == "L" and width not in "WF"
    return 1 if is_letter or (kind[0] in "MP" and width == "N") else 2


def cut(text: str, width: int) -> str:
    """Cut a text to a width; `…` shows that something is missing."""
    if column_count(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while kept and column_count(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"


def cut_middle(text: str, width: int) -> str:
    """Cut a text to a width, and keep its end, too: that of a path tells files apart."""
    if column_count(text) <= width:
        return text
    end = text[-(width // 2) :]
    while end and (column_count(end) > width // 2 or combining(end[0])):
        end = end[1:]
    return f"{cut(text, width - column_count(end))}{end}"


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


def rows(line: str, width: int) -> list[str]:
    """Break a line into rows that a terminal does not break again; every further row begins with a bar.

    Where the terminal broke a long value, the value could draw rows that look like those of the program.
    """
    if most_columns(line) <= width:
        return [line]
    label = _LABEL.match(line)
    indent = max(label.end() if label is not None else len(line) - len(line.lstrip(" ")), 4)
    bar = (
        quoted.group()
        if (quoted := _QUOTED.match(line))
        else " " * ((indent if indent <= width // 2 else 4) - 2) + "│ "
    )
    found, before, rest = [], "", line
    while rest:
        head = _head(rest, max(width - len(before), 1))
        found.append(f"{before}{head}")
        before, rest = bar, rest[len(head) :]
    return found


def _head(text: str, room: int) -> str:
    """The beginning of a text that fits, up to a space in its second half if there is one."""
    taken, used = 0, 0
    for character in text[: 2 * room + 1]:
        used += most_columns(character)
        if used > room:
            break
        taken += 1
    if taken >= len(text):
        return text
    space = text.rfind(" ", room // 2, taken)
    return text[: space + 1] if space >= 0 else text[: max(taken, 1)]


def _continuation(line: str, width: int) -> str:
    """What the further lines of a wrapped line begin with."""
    if quoted := _QUOTED.match(line):
        return quoted.group()
    label = _LABEL.match(line)
    indent = label.end() if label is not None else len(line) - len(line.lstrip(" ")) + 2
    return " " * (indent if indent <= width // 2 else 2)
