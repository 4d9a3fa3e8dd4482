"""Options that the commands of `gert run` share."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from gert.ecosystem.host.runs.entry import place_for
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.traces import as_document
from gert.errors import InputError, UsageError
from gert.kernel.foundation.duration import parse_duration

_Command = TypeVar("_Command", bound=Callable[..., Any])

_STATE = click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
_DB = click.option("--db", metavar="FILE", help="Read runs from this SQLite ledger.")
_DSN = click.option(
    "--dsn", metavar="DSN", help="Read runs from this Postgres ledger; env:NAME reads the DSN from a variable."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def ledger_options(command: _Command) -> _Command:
    """Add the options that choose a ledger."""
    for option in (_JSON, _DSN, _DB, _STATE):
        command = option(command)
    return command


def run_argument(command: _Command) -> _Command:
    """Add the argument that names a run, and the options that choose a ledger."""
    return click.argument("run_id", metavar="ID")(ledger_options(command))


@contextmanager
def open_runs(state_dir: str | None, db: str | None, dsn: str | None = None) -> Iterator[Runs]:
    """Open the runs of the chosen ledger; a file that cannot be read is a document error, not an engine error."""
    with as_document(), Runs(place_for(state_dir, db, os.environ, dsn)) as runs:
        yield runs


def parse_since(text: str, now: datetime) -> datetime:
    """Parse a duration before now, or an ISO 8601 time (UTC unless it has a zone)."""
    try:
        return now - parse_duration(text)
    except (InputError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"`--since`: expected a duration or a time, found `{text}`",
            hint="for example 7d, or 2026-02-28T14:30",
        ) from None
