"""What every command uses to print: text that cannot steer a terminal, JSON, and complaints on stderr."""

import json
import os
import sys
from typing import Any

import click

from gert.kernel.foundation.text import printable


def say(text: str = "") -> None:
    """Print a line; whatever data it quotes cannot act on the terminal."""
    click.echo(text)


def say_json(value: Any) -> None:
    """Print a result for machines."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def complain(message: str, hint: str | None = None) -> None:
    """Print an error and what to do about it."""
    label = click.style("error:", fg="red", bold=True)
    click.echo(f"{label} {printable(message)}", err=True)
    if hint:
        click.echo(f"  {click.style('hint:', fg='cyan')} {printable(hint)}", err=True)


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
