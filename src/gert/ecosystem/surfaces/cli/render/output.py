"""Printing for every command: text that cannot control a terminal, JSON, tables, and errors on stderr."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase, TextIOWrapper
from typing import Any, Final

import click

from gert.errors import DocumentError, InputError
from gert.kernel.foundation.columns import wrap
from gert.kernel.foundation.text import printable

_PAIR: Final = 10
"""Columns for the title of a pair."""


def print_line(text: str = "") -> None:
    """Print a line. The caller passes data through `printable`, so only our own colours remain."""
    click.echo(text, color=None if has_colours() else False)


def has_colours() -> bool:
    """Whether the user and the terminal want colours; where output is no terminal, click removes them."""
    return not is_dumb() and not os.environ.get("NO_COLOR")


def is_dumb() -> bool:
    """Whether the terminal can only print lines."""
    # Windows sets no TERM, and its terminals are capable.
    return os.environ.get("TERM", "dumb" if os.name == "posix" else "windows").lower() in ("", "dumb", "unknown")


def print_lines(lines: Iterable[str], *, folds: bool = False) -> None:
    """Print lines, each as it comes.

    folds: they are sentences: a terminal breaks them between words
    """
    for line in lines:
        for part in wrapped(line) if folds else (line,):
            print_line(part)


def print_pair(title: str, text: str, colour: str | None = None, *, folds: bool = False) -> None:
    """Print a titled line of data.

    folds: it is a sentence, and not a command that people copy: a terminal shows it on several lines
    """
    shown = printable(text)
    shown = folded(shown, _PAIR, _PAIR) if folds else shown
    print_line(f"{f'{title} '.ljust(_PAIR)}{click.style(shown, fg=colour)}")


def folded(text: str, before: int, indent: int) -> str:
    """A sentence that is broken between words where a terminal would break it within one.

    before: the columns before it in its first line
    indent: the columns before it in the others
    """
    return "\n".join(wrapped(" " * before + text, indent))[before:]


def near_path(path: str) -> str:
    """A path as people read it on a terminal: without the working directory, where it lies below it."""
    if not _is_terminal():
        return path
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        return path
    return path if relative.startswith(os.pardir) else relative


def wrapped(line: str, indent: int | None = None) -> list[str]:
    """A line for standard output: wrapped at words on a terminal, whole elsewhere."""
    if not _is_terminal():
        return [line]
    from shutil import get_terminal_size

    return wrap(line, get_terminal_size().columns, indent)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


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
        colour = None if has_colours() else False
        click.echo(f"{label} {printable(message)}", err=True, color=colour)
        if hint:
            click.echo(f"  {click.style('hint:', fg='cyan')} {printable(hint)}", err=True, color=colour)


def print_warning(message: str) -> None:
    """Print a warning on standard error."""
    with suppress(OSError):
        click.echo(f"{click.style('warning:', fg='yellow')} {printable(message)}", err=True)


def print_written(file: str) -> None:
    """Say on standard error which file a command wrote instead of its output."""
    with suppress(OSError):
        colour = None if has_colours() else False
        click.echo(f"{click.style('✓', fg='green')} wrote {printable(file)}", err=True, color=colour)


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
