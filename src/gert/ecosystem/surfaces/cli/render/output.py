"""What every command uses to print: text that cannot steer a terminal, JSON, and complaints on stderr."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, Final, TypeAlias

import click

from gert.kernel.foundation.text import printable


def say(text: str = "") -> None:
    """Print a line. Data in it has been through `printable`; only our own colours remain."""
    click.echo(text)


def say_pair(title: str, text: str, colour: str | None = None) -> None:
    """Print a titled line of data."""
    say(f"{title.ljust(10)}{click.style(printable(text), fg=colour)}")


def say_json(value: Any) -> None:
    """Print a result for machines; people may be looking, so nothing in it acts on a terminal either."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=not _is_utf8(sys.stdout))
    click.echo("\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n")))


def _escaped(character: str) -> str:
    """A character of JSON, written with an escape where it would not be seen as it is: bidi controls, C1, half ones."""
    if character.isprintable():
        return character
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def complain(message: str, hint: str | None = None) -> None:
    """Print an error and what to do about it."""
    label = click.style("error:", fg="red", bold=True)
    with suppress(OSError):  # the terminal was closed: nobody can be told, and the exit code still says it
        click.echo(f"{label} {printable(message)}", err=True)
        if hint:
            click.echo(f"  {click.style('hint:', fg='cyan')} {printable(hint)}", err=True)


def escape_unencodable() -> None:
    """Where the terminal or locale has no `✓`, write an escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not _is_utf8(stream):
            stream.reconfigure(errors="backslashreplace")


def _is_utf8(stream: Any) -> bool:
    return str(getattr(stream, "encoding", "utf-8")).lower().replace("-", "") == "utf8"


def discard_output() -> None:
    """Let the interpreter shut down quietly after its reader has gone."""
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # stdout is not a real file, so nothing is left to flush into


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


Cell: TypeAlias = tuple[str, str | None]

_FRAME: Final = 3
"""What stands around the text of a column."""


def say_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], spare: Sequence[str] = ()) -> None:
    """Print rows of text with an optional colour each: boxed on a terminal that has rich, plain elsewhere.

    spare: headings of columns that a narrow terminal does without, the first of them first
    """
    if _is_terminal() and _say_rich_table(headings, rows, spare):
        return
    cells = [[printable(text) for text, _ in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    for line in ([heading.upper() for heading in headings], *cells):
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _say_rich_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], spare: Sequence[str]) -> bool:
    from shutil import get_terminal_size

    try:
        from rich import box
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    # Asked here: rich takes every terminal that calls itself dumb to be 80 wide.
    size = get_terminal_size()
    console = Console(width=size.columns, height=size.lines)
    cells = [[(printable(text), colour) for text, colour in row] for row in rows]
    widths = [max(map(cell_len, (heading, *(row[at][0] for row in cells)))) for at, heading in enumerate(headings)]
    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    chosen = _fitting(headings, cells, widths, spare, console.width)
    for at in chosen:
        # What others are told apart by is copied into the next command: it is never cut, and stays on one line.
        whole = at == 0 and widths[0] + 2 * _FRAME < console.width
        table.add_column(headings[at], overflow="fold", no_wrap=whole, min_width=widths[0] if whole else None)
    for row in cells:
        # Text objects, so that no square bracket in the data is taken for markup.
        table.add_row(*(Text(row[at][0], style=(row[at][1] or "").replace("bright_", "bold ")) for at in chosen))
    console.print(table)
    return True


def _fitting(
    headings: Sequence[str], cells: Sequence[Sequence[Cell]], widths: Sequence[int], spare: Sequence[str], room: int
) -> list[int]:
    """The columns to show: without spare ones that say nothing, and of the others no more than there is room for."""
    chosen = [at for at, name in enumerate(headings) if name not in spare or any(row[at][0] for row in cells)]
    for name in spare:
        if sum(widths[at] + _FRAME for at in chosen) < room:
            break
        chosen = [at for at in chosen if headings[at] != name]
    return chosen
