"""`gert resume`: go on with a run that waits, or whose process ended before it did."""

import asyncio
import sys
from typing import cast, get_args

import click

from gert.ecosystem.host.options import Executed
from gert.ecosystem.host.resume import ResumeOptions, resume
from gert.ecosystem.host.variables import given_values
from gert.ecosystem.surfaces.cli.ended import show
from gert.ecosystem.surfaces.cli.exec import approval_mode, named
from gert.ecosystem.surfaces.cli.view import make_view
from gert.errors import UsageError
from gert.kernel.events.vocabulary import Reconciliation

CHOICES = get_args(Reconciliation)


@click.command(name="resume", epilog="Example: gert resume --run 20260228-143000-123-k3v9qz --reconcile restart=retry")
@click.option("--run", "run_id", required=True, metavar="ID", help="The run to go on with.")
@click.option("--ticket", metavar="TICKET", help="Only if this ticket is one the run waits for.")
@click.option(
    "--reconcile",
    "reconcile",
    multiple=True,
    metavar="[STEP=]CHOICE",
    help="What became of a call nobody knows the result of: success, failed or retry.",
)
@click.option("--allow-changed", is_flag=True, help="Go on although the runbook, a tool or a policy was changed.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A secret input that has to be given again."
)
@click.option("--as", "actor", metavar="ACTOR", help="Who goes on with it; the user of this machine when left out.")
@click.option("--wait", "waits", is_flag=True, help="Wait for approvals given elsewhere.")
@click.option("--detach", is_flag=True, help="Set the run aside again while it waits for approvals.")
@click.option("--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise.")
@click.option("--db", metavar="FILE", help="The SQLite database the run is recorded in.")
@click.option("--dsn", metavar="DSN", help="The Postgres ledger it is in; env:NAME for a variable with its address.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to standard error.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing while it runs.")
@click.option("--verbose", "-v", is_flag=True, help="Print what tools print.")
def command(
    run_id: str,
    ticket: str | None,
    reconcile: tuple[str, ...],
    allow_changed: bool,
    inputs: tuple[str, ...],
    actor: str | None,
    waits: bool,
    detach: bool,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Go on with a run: recorded answers first, the live world after; no step that has completed runs twice.

    A call that was announced and has no recorded result is made again only if its contract is idempotent; otherwise you
    say what became of it. Two processes never go on with the same run.
    Exits with 0 when the run completed or waits, 1 when its record or its runbook is not what it was, 2 when it was
    called wrongly, 3 when the run failed or is in doubt.
    """
    options = ResumeOptions(
        run_id=run_id,
        ticket=ticket,
        state_dir=state_dir,
        db=db,
        dsn=dsn,
        actor=named(actor),
        given=given_values((), inputs, ()),
        reconcile=dict(_choice(text) for text in reconcile),
        allow_changed=allow_changed,
        approvals=approval_mode(waits=waits, detach=detach),
    )
    stream = sys.stderr if as_json else sys.stdout
    view = make_view(stream=stream, verbose=verbose, quiet=quiet) if stream is not None else None
    observers = [view] if view is not None else []
    try:
        executed: Executed = asyncio.run(resume(options, observers=observers))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for observer in observers:
            observer.close()
    return show(executed, as_json=as_json, quiet=quiet)


def _choice(text: str) -> tuple[str, Reconciliation]:
    step, equals, choice = text.rpartition("=")
    if choice not in CHOICES:
        raise UsageError(f"`--reconcile` takes {', '.join(CHOICES)}, not `{choice}`", hint="or for one step STEP=retry")
    return (step if equals else "*"), cast("Reconciliation", choice)
