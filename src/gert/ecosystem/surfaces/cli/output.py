"""What every command uses to print: text that cannot steer a terminal, JSON, and complaints on stderr."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any, TypeAlias

import click

from gert.kernel.foundation.text import printable


def say(text: str = "") -> None:
    """Print a line. Data in it has been through `printable`; only our own colours remain."""
    click.echo(text)


def say_pair(title: str, text: str, colour: str | None = None) -> None:
    """Print a titled line of data."""
    say(f"{title.ljust(10)}{click.style(printable(text), fg=colour)}")


def say_json(value: Any) -> None:
    """Print a result for machines."""
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=not _is_utf8(sys.stdout)))


def complain(message: str, hint: str | None = None) -> None:
    """Print an error and what to do about it."""
    label = click.style("error:", fg="red", bold=True)
    click.echo(f"{label} {printable(message)}", err=True)
    if hint:
        click.echo(f"  {click.style('hint:', fg='cyan')} {printable(hint)}", err=True)


def speak_anyway() -> None:
    """Where the terminal or locale has no `✓`, write an escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not _is_utf8(stream):
            stream.reconfigure(errors="backslashreplace")


def _is_utf8(stream: Any) -> bool:
    return str(getattr(stream, "encoding", "utf-8")).lower().replace("-", "") == "utf8"


def no_more_output() -> None:
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


def say_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows of text with an optional colour each: boxed on a terminal that has rich, plain elsewhere."""
    if sys.stdout.isatty() and _say_rich_table(headings, rows):
        return
    cells = [[printable(text) for text, _ in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    for line in ([heading.upper() for heading in headings], *cells):
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _say_rich_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(*headings, header_style="bold", box=box.SIMPLE_HEAD)
    for row in rows:
        # Text objects, so that no square bracket in the data is taken for markup.
        table.add_row(
            *(Text(printable(text), style=(colour or "").replace("bright_", "bold ")) for text, colour in row)
        )
    Console().print(table)
    return True
