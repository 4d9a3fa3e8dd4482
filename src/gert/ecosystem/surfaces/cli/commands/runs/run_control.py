"""`gert run cancel|advance|evidence`: control a run that another process drives."""

import asyncio
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click

from gert.ecosystem.host.background.messages import Sender, advance_run, cancel_run, give_evidence
from gert.ecosystem.host.config.files import read_map
from gert.ecosystem.surfaces.cli.commands.runs.exec import checked_actor
from gert.ecosystem.surfaces.cli.options import LedgerChoice, open_runs, run_argument
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line
from gert.errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])

_AS = click.option("--as", "actor", metavar="ACTOR", help="Sender to record (default: the current user).")
_KEY = click.option("--key", metavar="NAME|FILE", help="Key to sign with; a shared ledger requires it.")
_KEY_ID = click.option("--key-id", metavar="ID", help="Id of the key (default: from its name).")


def _sender_options(command: _Command) -> _Command:
    """Add the run and who sends the message; the command gets the id of the run and `sender`."""

    @wraps(command)
    def sent(
        run_id: str, ledger: LedgerChoice, actor: str | None, key: str | None, key_id: str | None, **rest: Any
    ) -> Any:
        with open_runs(*ledger) as runs:
            found = runs.find(run_id)
            sender = Sender(database=runs.place.ledger, by=checked_actor(actor), key=key, key_id=key_id)
        return command(run_id=found, sender=sender, **rest)

    return cast("_Command", run_argument(_AS(_KEY(_KEY_ID(sent)))))


@click.command(name="cancel", epilog="Example: gert run cancel 20260228-1430 --reason 'wrong cluster'")
@click.option("--reason", metavar="TEXT", help="Reason to record.")
@_sender_options
def cancel(run_id: str, reason: str | None, sender: Sender, as_json: bool) -> int:
    """Cancel a running run: its tools are ended, its `finally` steps run, its record is completed."""
    asyncio.run(cancel_run(sender, run_id, os.environ, reason))
    _sent(run_id, "cancel", f"run {run_id} was told to stop", as_json=as_json)
    return 0


@click.command(name="advance", epilog="Example: gert run advance 20260228-1430")
@click.option("--path", metavar="PATH", help="Call that may begin, by the path of its step (default: the next).")
@_sender_options
def advance(run_id: str, path: str | None, sender: Sender, as_json: bool) -> int:
    """Let the next call begin, in a run that was started with --step."""
    asyncio.run(advance_run(sender, run_id, os.environ, path))
    _sent(run_id, "advance", f"run {run_id} may make its next call", as_json=as_json)
    return 0


@click.command(name="evidence", epilog="Example: gert run evidence 20260228-1430 confirm --file evidence.yaml")
@_sender_options
@click.argument("step", required=False, metavar="STEP")
@click.option("--file", "file", metavar="FILE", help="Evidence by name, as YAML or JSON.")
@click.option("--reject", metavar="REASON", help="Reject the step instead of giving evidence.")
def evidence(run_id: str, step: str | None, file: str | None, reject: str | None, sender: Sender, as_json: bool) -> int:
    """Give the evidence of a manual STEP (its path) to a run in the background, or confirm it without --file."""
    if step is None:
        raise UsageError("expected a step", hint=f"name it after the run: gert run evidence {run_id} STEP")
    if file is not None and reject is not None:
        raise UsageError("expected `--file` or `--reject`, found both", hint="pass only one of them")
    given = read_map(file, "evidence by name") if file is not None else None
    folder = os.path.dirname(os.path.abspath(file)) if file is not None else None
    asyncio.run(give_evidence(sender, run_id, step, os.environ, given, reject, folder))
    _sent(run_id, "evidence", f"run {run_id} has the evidence for `{step}`", as_json=as_json)
    return 0


def _sent(run_id: str, kind: str, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"run_id": run_id, "message": kind, "sent": True})
    else:
        print_line(text)
