"""Arguments and options that several commands share: how a run is named, and the ledger it is in."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from gert.errors import InputError, UsageError
from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.names import did_you_mean

if TYPE_CHECKING:
    from gert.ecosystem.host.runs.listing import Runs

_Command = TypeVar("_Command", bound=Callable[..., Any])

WAITING: Final = "waiting"
"""What `--fail-on` calls a run that waits for approval; no outcome category has this name."""

_STATE = click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
_DB = click.option("--db", metavar="FILE", help="Read runs from this SQLite ledger.")
_DSN = click.option(
    "--dsn", metavar="DSN", help="Read runs from this Postgres ledger; env:NAME reads the DSN from a variable."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


class LedgerChoice(NamedTuple):
    """The options that choose a ledger."""

    state_dir: str | None
    db: str | None
    dsn: str | None


def ledger_options(command: _Command) -> _Command:
    """Add the options that choose a ledger; the command gets them as `ledger`."""

    @wraps(command)
    def chosen(state_dir: str | None, db: str | None, dsn: str | None, **rest: Any) -> Any:
        return command(ledger=LedgerChoice(state_dir, db, dsn), **rest)

    return cast("_Command", _STATE(_DB(_DSN(_JSON(chosen)))))


_RUN = click.option("--run", "run_option", metavar="RUN", help="Run, in place of the argument.")


def run_argument(command: _Command) -> _Command:
    """Add the argument that names a run, and the options that choose a ledger."""
    return named_run(ledger_options(command))


def named_run(command: _Command, *, is_required: bool = True) -> _Command:
    """Add the argument RUN and the option --run; the command gets one of them as `run_id`.

    An argument `step` may follow; with --run, the first argument is the step.
    """

    @wraps(command)
    def named(run_id: str | None, run_option: str | None, **rest: Any) -> Any:
        if run_option is not None and "step" in rest and rest["step"] is None:
            run_id, rest["step"] = None, run_id
        is_missing = not is_required and run_id is None and run_option is None
        return command(run_id=None if is_missing else _one_run(run_id, run_option), **rest)

    return cast("_Command", click.argument("run_id", metavar="[RUN]", required=False)(_RUN(named)))


def require_run(found: str | None) -> str:
    """The run that was named; UsageError where none was."""
    if found is None:
        raise UsageError("expected a run", hint="name a run by its id, a unique prefix of it, or `last`")
    return found


def _one_run(argument: str | None, option: str | None) -> str:
    """The run that an argument or --run names; UsageError where both do, or neither."""
    if argument is not None and option is not None:
        raise UsageError("the run is named twice", hint="pass it as an argument or with --run")
    return require_run(argument if argument is not None else option)


@contextmanager
def open_runs(state_dir: str | None, db: str | None, dsn: str | None = None) -> "Iterator[Runs]":
    """Open the runs of the chosen ledger; a file that cannot be read is a document error, not an engine error."""
    from gert.ecosystem.host.runs.listing import Runs
    from gert.ecosystem.host.runs.place import place_for  # not every command with these options lists runs
    from gert.ecosystem.host.runs.traces import as_document

    with as_document(), Runs(place_for(state_dir, db, os.environ, dsn)) as runs:
        yield runs


def seconds_of(option: str, text: str) -> float:
    """The seconds of a duration that an option has."""
    try:
        return parse_duration(text).total_seconds()
    except InputError as problem:
        raise UsageError(f"`{option}`: {problem.message}", hint=problem.hint) from None


fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    metavar="CATEGORIES",
    help=f"Exit with 3 after an outcome in these categories, separated by commas; `{WAITING}`: if the run waits.",
)


def categories_of(given: tuple[str, ...], *others: str) -> frozenset[str]:
    """The outcome categories that options name, separated by commas; `others` are allowed as well."""
    named = [each.strip() for words in given for each in words.split(",")]
    known = (*OUTCOME_CATEGORIES, *others)
    for each in named:
        if each not in known:
            guess = did_you_mean(each, known)
            listed = f"one of {', '.join(known)}"
            raise UsageError(
                f"`{each}` is not an outcome category", hint=f"did you mean `{guess}`? {listed}" if guess else listed
            )
    return frozenset(named)


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
