"""`gert run cancel|advance|evidence`: control a run that another process drives."""

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gert.ecosystem.host.background.messages import Sender, advance_run, cancel_run, give_evidence
from gert.ecosystem.host.config.files import read_map
from gert.ecosystem.surfaces.cli.commands.runs.exec import checked_actor
from gert.ecosystem.surfaces.cli.options import open_runs, run_argument
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line
from gert.errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])

_AS = click.option("--as", "actor", metavar="ACTOR", help="Sender to record (default: the current user).")
_KEY = click.option("--key", metavar="NAME|FILE", help="Key to sign with; a shared ledger requires it.")
_KEY_ID = click.option("--key-id", metavar="ID", help="Id of the key (default: from its name).")


def _sender_options(command: _Command) -> _Command:
    for option in (_KEY_ID, _KEY, _AS):
        command = option(command)
    return run_argument(command)


def _found(
    run_id: str,
    place: tuple[str | None, str | None, str | None],
    actor: str | None,
    key: str | None,
    key_id: str | None,
) -> tuple[Sender, str]:
    with open_runs(*place) as runs:
        found = runs.find(run_id)
        return Sender(database=runs.place.ledger, by=checked_actor(actor), key=key, key_id=key_id), found


@click.command(name="cancel", epilog="Example: gert run cancel 20260228-1430 --reason 'wrong cluster'")
@click.option("--reason", metavar="TEXT", help="Reason to record.")
@_sender_options
def cancel(
    run_id: str,
    reason: str | None,
    actor: str | None,
    key: str | None,
    key_id: str | None,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
) -> int:
    """Cancel a running run: its tools are ended, its `finally` steps run, its record is completed."""
    sender, found = _found(run_id, (state_dir, db, dsn), actor, key, key_id)
    asyncio.run(cancel_run(sender, found, os.environ, reason))
    _sent(found, "cancel", f"run {found} was told to stop", as_json=as_json)
    return 0


@click.command(name="advance", epilog="Example: gert run advance 20260228-1430")
@click.option("--path", metavar="PATH", help="Call that may begin, by the path of its step (default: the next).")
@_sender_options
def advance(
    run_id: str,
    path: str | None,
    actor: str | None,
    key: str | None,
    key_id: str | None,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
) -> int:
    """Let the next call begin, in a run that was started with --step."""
    sender, found = _found(run_id, (state_dir, db, dsn), actor, key, key_id)
    asyncio.run(advance_run(sender, found, os.environ, path))
    _sent(found, "advance", f"run {found} may make its next call", as_json=as_json)
    return 0


@click.command(name="evidence", epilog="Example: gert run evidence 20260228-1430 confirm --file evidence.yaml")
@_sender_options
@click.argument("step", required=False, metavar="STEP")
@click.option("--file", "file", metavar="FILE", help="Evidence by name, as YAML or JSON.")
@click.option("--reject", metavar="REASON", help="Reject the step instead of giving evidence.")
def evidence(
    run_id: str,
    step: str | None,
    file: str | None,
    reject: str | None,
    actor: str | None,
    key: str | None,
    key_id: str | None,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
) -> int:
    """Give the evidence of a manual STEP (its path) to a run in the background, or confirm it without --file."""
    if step is None:
        raise UsageError("expected a step", hint=f"name it after the run: gert run evidence {run_id} STEP")
    if file is not None and reject is not None:
        raise UsageError("expected `--file` or `--reject`, found both", hint="pass only one of them")
    sender, found = _found(run_id, (state_dir, db, dsn), actor, key, key_id)
    given = read_map(file, "evidence by name") if file is not None else None
    folder = os.path.dirname(os.path.abspath(file)) if file is not None else None
    asyncio.run(give_evidence(sender, found, step, os.environ, given, reject, folder))
    _sent(found, "evidence", f"run {found} has the evidence for `{step}`", as_json=as_json)
    return 0


def _sent(run_id: str, kind: str, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"run_id": run_id, "message": kind, "sent": True})
    else:
        print_line(text)
