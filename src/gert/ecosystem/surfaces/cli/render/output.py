"""Printing for every command: text that cannot control a terminal, JSON, tables, and errors on stderr."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from shutil import get_terminal_size
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


def print_pair(title: str, text: str, colour: str | None = None) -> None:
    """Print a titled line of data."""
    begun = f"{title} ".ljust(_PAIR)
    for line in wrapped(begun + printable(text), len(begun)):
        print_line(f"{line[: len(begun)]}{click.style(line[len(begun) :], fg=colour)}")


def wrapped(line: str, indent: int | None = None) -> list[str]:
    """A line for standard output: wrapped at words on a terminal, whole elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return [line]
    return wrap(line, get_terminal_size().columns, indent)


class JsonOutput:
    """Whether this command has printed its result: an error after it must not make two documents of it."""

    has_result = False


def print_json(value: Any) -> None:
    """Print a result as JSON; it may be shown on a terminal, so nothing in it can control one."""
    import json

    JsonOutput.has_result = True
    text = json.dumps(value, indent=2, ensure_ascii=not _is_utf8(sys.stdout))
    click.echo("\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n")))


def print_json_line(value: Any) -> None:
    """Print a result, or one item of it, as one line of JSON; as ASCII, so that no terminal acts on it."""
    import json

    line = json.dumps(value, separators=(",", ":"))
    JsonOutput.has_result = True
    click.echo(line)


def error_document(
    code: str, message: str, hint: str | None, exit_code: int, problem: Exception | None = None
) -> dict[str, Any]:
    """An error as JSON: the shape `ErrorDocument`."""
    document: dict[str, Any] = {"code": code, "message": message, "hint": hint, "exit_code": int(exit_code)}
    if isinstance(problem, DocumentError) and problem.findings:
        document["findings"] = [dict(each) for each in problem.findings]
    if isinstance(problem, InputError) and problem.problems:
        import msgspec

        document["inputs"] = msgspec.to_builtins(list(problem.problems))
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


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
