"""What the commands of `gert run` share: where runs are looked for, and times people write."""

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

_STATE = click.option(
    "--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise."
)
_DB = click.option("--db", metavar="FILE", help="The runs in this SQLite ledger.")
_DSN = click.option(
    "--dsn", metavar="DSN", help="The runs in this Postgres ledger; env:NAME for a variable that holds its address."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def kept(command: _Command) -> _Command:
    """A command on runs of every kind, wherever they are kept."""
    for option in (_JSON, _DSN, _DB, _STATE):
        command = option(command)
    return command


def of_run(command: _Command) -> _Command:
    """A command on one run of any kind."""
    return click.argument("run_id", metavar="ID")(kept(command))


@contextmanager
def open_runs(state_dir: str | None, db: str | None, dsn: str | None = None) -> Iterator[Runs]:
    """The runs of the place that was named; what cannot be read there is no fault of the engine."""
    with as_document(), Runs(place_for(state_dir, db, os.environ, dsn)) as runs:
        yield runs


def moment_since(text: str, now: datetime) -> datetime:
    """The moment somebody means: a length of time before now, or a time as ISO 8601 has it, in UTC unless it says."""
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
            hint="write for example 7d, or 2026-02-28T14:30",
        ) from None
