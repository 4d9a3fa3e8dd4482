"""Tables that fit the terminal: long cells are cut, the least important columns are left out, and a note says so."""

import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Final, NamedTuple, TypeAlias

import click

from gert.ecosystem.surfaces.cli.render.output import print_line, wrapped
from gert.ecosystem.surfaces.cli.render.text import QUIET
from gert.kernel.foundation.columns import column_count, cut
from gert.kernel.foundation.text import printable

Cell: TypeAlias = str | tuple[str, str | None]
"""A text, with its colour if it has one."""
_Shown: TypeAlias = tuple[str, str | None]

_GAP: Final = 2
NARROW: Final = 14
"""A column that matters is shown from this width on."""

COMFORTABLE: Final = 40
"""No column is cut below this width to make room for one that matters less."""


class Layout(NamedTuple):
    """The columns to show, by position, with their widths.

    above: a column with lines of its own, because it is never cut
    """

    widths: dict[int, int]
    left_out: list[int]
    above: int | None = None


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    spare: Sequence[str] = (),
    firm: Sequence[str] = (),
) -> None:
    """Print rows of text with optional colours. Only on a terminal is anything cut or left out.

    The first column is what people copy into the next command: it is always whole.

    spare: headings of columns that may be left out, the least important first
    firm: headings among them that matter more than the full width of others
    """
    cells = [[_shown(each) for each in row] for row in rows]
    lines = [list(headings), *([text for text, _ in row] for row in cells)]
    natural = [max(map(column_count, column)) for column in zip(*lines, strict=True)]
    layout = Layout(dict(enumerate(natural)), [])
    if sys.stdout is not None and sys.stdout.isatty():
        filled = [at for at in range(len(headings)) if at == 0 or any(row[at][0] for row in cells)]
        essential = [at for at in filled if headings[at] not in spare]
        important = sorted((at for at in filled if headings[at] in spare), key=lambda at: -spare.index(headings[at]))
        kept = [at for at in important if headings[at] in firm]
        layout = fit(natural, essential, important, get_terminal_size().columns, kept)
    _print_row([(heading.upper(), None) for heading in headings], layout, is_heading=True)
    for row in cells:
        _print_row(row, layout)
    left_out = [heading for at, heading in enumerate(headings) if at in layout.left_out]
    if left_out or any(width < natural[at] for at, width in layout.widths.items()):
        what = f"not shown: {', '.join(left_out)}" if left_out else "… marks what was cut"
        for line in wrapped(f"{what} (see --json, or widen the terminal)"):
            print_line(click.style(line, fg=QUIET))


def _shown(cell: Cell) -> _Shown:
    text, colour = (cell, None) if isinstance(cell, str) else cell
    return printable(text), colour


def fit(
    natural: Sequence[int], essential: Sequence[int], spare: Sequence[int], room: int, firm: Sequence[int] = ()
) -> Layout:
    """Choose columns and their widths, so that a row takes one line of `room` columns.

    natural: how wide each column is
    essential: columns that are shown in any case; the first of them is not cut
    spare: columns that are shown if there is room, the most important first
    firm: columns among them for which others may be cut
    """
    first, *others = essential
    if _total(natural[first], *(min(natural[at], NARROW) for at in others)) > room:
        chosen, room, left_out = others, room - _GAP, []
        while len(chosen) > 1 and _total(*(min(natural[at], NARROW) for at in chosen)) > room:
            left_out.append(chosen.pop())
        return Layout(_widths(natural, chosen, {}, room), [*left_out, *spare], first)
    chosen, left_out = list(essential), []
    for at in spare:
        least = NARROW if at in firm else COMFORTABLE
        wanted = (natural[each] if each == first else min(natural[each], least) for each in (*chosen, at))
        (chosen if _total(*wanted) <= room else left_out).append(at)
    return Layout(_widths(natural, chosen, {first: natural[first]}, room), left_out)


def _widths(natural: Sequence[int], chosen: Sequence[int], fixed: dict[int, int], room: int) -> dict[int, int]:
    """Widths that use the whole room: the narrowest columns first get what they need."""
    widths = {at: fixed.get(at, min(natural[at], NARROW, max(room, 1))) for at in sorted(chosen)}
    while (left := room - _total(*widths.values())) > 0:
        growing = [at for at in widths if widths[at] < natural[at]]
        if not growing:
            break
        for at in growing[:left]:
            widths[at] += min(max(left // len(growing), 1), natural[at] - widths[at])
    return widths


def _total(*widths: int) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _print_row(row: Sequence[_Shown], layout: Layout, *, is_heading: bool = False) -> None:
    def styled(at: int, width: int) -> str:
        text, colour = row[at]
        shown = cut(text, width)
        return click.style(shown, fg=colour, bold=is_heading or None) + " " * (width - column_count(shown))

    parts = [styled(at, width) for at, width in layout.widths.items()]
    if layout.above is not None:
        print_line(styled(layout.above, column_count(row[layout.above][0])))
        parts.insert(0, "")
    if any(parts):
        print_line((" " * _GAP).join(parts).rstrip())
