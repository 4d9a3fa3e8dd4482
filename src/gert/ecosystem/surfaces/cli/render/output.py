"""Printing for every command: text that cannot control a terminal, JSON, tables, and errors on stderr."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import RawIOBase, TextIOWrapper
from typing import Any, Final, TypeAlias

import click

from gert.errors import DocumentError, InputError
from gert.kernel.foundation.text import printable


def print_line(text: str = "") -> None:
    """Print a line. The caller passes data through `printable`, so only our own colours remain."""
    click.echo(text)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, each as it comes."""
    for line in lines:
        print_line(line)


def print_pair(title: str, text: str, colour: str | None = None) -> None:
    """Print a titled line of data."""
    print_line(f"{f'{title} '.ljust(10)}{click.style(printable(text), fg=colour)}")


class JsonOutput:
    """Whether this command has printed its result as one document: an error after it must not make two of it."""

    has_result = False


def print_json(value: Any) -> None:
    """Print a result as JSON; it may be shown on a terminal, so nothing in it can control one."""
    import json

    JsonOutput.has_result = True
    text = json.dumps(value, indent=2, ensure_ascii=not _is_utf8(sys.stdout), default=_as_data)
    click.echo("\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n")))


def print_json_line(value: Any) -> None:
    """Print a result, or one item of it, as one line of JSON; as ASCII, so that no terminal acts on it."""
    import json

    click.echo(json.dumps(value, separators=(",", ":"), default=_as_data))


def _as_data(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def error_document(
    code: str, message: str, hint: str | None, exit_code: int, problem: Exception | None = None
) -> dict[str, Any]:
    """An error as JSON: the shape `ErrorDocument`."""
    document: dict[str, Any] = {"code": code, "message": message, "hint": hint, "exit_code": int(exit_code)}
    if isinstance(problem, DocumentError) and problem.findings:
        document["findings"] = [dict(each) for each in problem.findings]
    if isinstance(problem, InputError) and problem.problems:
        document["inputs"] = list(problem.problems)
    return document


def _escaped(character: str) -> str:
    """Escape a character of JSON that is not visible: bidi controls, C1 controls, surrogates."""
    if character.isprintable():
        return character
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def print_error(message: str, hint: str | None = None) -> None:
    """Print an error and a hint."""
    label = click.style("error:", fg="red", bold=True)
    with suppress(OSError):  # the terminal is closed; the exit code still reports the error
        click.echo(f"{label} {printable(message)}", err=True)
        if hint:
            click.echo(f"  {click.style('hint:', fg='cyan')} {printable(hint)}", err=True)


def print_warning(message: str) -> None:
    """Print a warning on standard error."""
    with suppress(OSError):
        click.echo(f"{click.style('warning:', fg='yellow')} {printable(message)}", err=True)


def escape_unencodable() -> None:
    """Write an escape instead of failing if the encoding of the stream has no `✓`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not _is_utf8(stream):
            stream.reconfigure(errors="backslashreplace")


def _is_utf8(stream: Any) -> bool:
    return str(getattr(stream, "encoding", "utf-8")).lower().replace("-", "") == "utf8"


def discard_output() -> None:
    """Let the interpreter exit quietly after the reader of its output is gone."""
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # stdout is not a real file, so there is nothing to flush


class _Nowhere(RawIOBase):
    """Takes what is printed while standard output is closed."""

    is_written = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.is_written = True
        return len(data)


@contextmanager
def closed_output() -> Iterator[Callable[[], bool]]:
    """Stand in for a standard output that is closed, and tell whether anything was to be printed there."""
    nowhere = _Nowhere()
    sys.stdout = TextIOWrapper(nowhere, encoding="utf-8", write_through=True)
    try:
        yield lambda: nowhere.is_written
    finally:
        sys.stdout = None  # as Python has it


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


Cell: TypeAlias = str | tuple[str, str | None]
"""A text, with its colour if it has one."""
_Shown: TypeAlias = tuple[str, str | None]

_FRAME: Final = 3
"""Columns that the frame adds to a table column."""


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], spare: Sequence[str] = ()) -> None:
    """Print rows of text with optional colours: a rich table on a terminal, plain text elsewhere.

    spare: headings of columns to drop on a narrow terminal, in this order
    """
    cells = [[_shown(each) for each in row] for row in rows]
    if _is_terminal() and _say_rich_table(headings, cells, spare):
        return
    texts = [[text for text, _ in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    for line in ([heading.upper() for heading in headings], *texts):
        print_line("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _shown(cell: Cell) -> _Shown:
    text, colour = (cell, None) if isinstance(cell, str) else cell
    return printable(text), colour


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _say_rich_table(headings: Sequence[str], cells: Sequence[Sequence[_Shown]], spare: Sequence[str]) -> bool:
    from shutil import get_terminal_size

    try:
        from rich import box
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    # rich assumes that every dumb terminal is 80 columns wide.
    size = get_terminal_size()
    console = Console(width=size.columns, height=size.lines)
    widths = [max(map(cell_len, (heading, *(row[at][0] for row in cells)))) for at, heading in enumerate(headings)]
    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    chosen = _fitting(headings, cells, widths, spare, console.width)
    for at in chosen:
        # The first column is an id that people copy into the next command: it is never cut or wrapped.
        whole = at == 0 and widths[0] + 2 * _FRAME < console.width
        table.add_column(headings[at], overflow="fold", no_wrap=whole, min_width=widths[0] if whole else None)
    for row in cells:
        # Text objects, so that no square bracket in the data is parsed as markup.
        table.add_row(*(Text(row[at][0], style=(row[at][1] or "").replace("bright_", "bold ")) for at in chosen))
    console.print(table)
    return True


def _fitting(
    headings: Sequence[str], cells: Sequence[Sequence[_Shown]], widths: Sequence[int], spare: Sequence[str], room: int
) -> list[int]:
    """The columns to show: no empty spare columns, and only as many spare columns as fit."""
    chosen = [at for at, name in enumerate(headings) if name not in spare or any(row[at][0] for row in cells)]
    for name in spare:
        if sum(widths[at] + _FRAME for at in chosen) < room:
            break
        chosen = [at for at in chosen if headings[at] != name]
    return chosen
