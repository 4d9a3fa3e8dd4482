"""`gert rerun`: a new run that takes the answers of an old one up to a step, and goes on live."""

import asyncio
import sys

import click

from gert.ecosystem.host.options import Executed
from gert.ecosystem.host.rerun import RerunOptions, rerun
from gert.ecosystem.host.variables import given_values
from gert.ecosystem.surfaces.cli.ended import show
from gert.ecosystem.surfaces.cli.exec import approval_mode, named
from gert.ecosystem.surfaces.cli.view import make_view
from gert.errors import UsageError


@click.command(name="rerun", epilog="Example: gert rerun --run 20260228-143000-123-k3v9qz --from restart")
@click.option(
    "--run", "run_id", required=True, metavar="ID", help="The run whose answers are taken; its beginning does."
)
@click.option(
    "--from",
    "step",
    required=True,
    metavar="STEP",
    help="The first step that runs live: its id, `id[key]`, or its path.",
)
@click.option("--allow-changed", is_flag=True, help="Although the runbook, a tool or a policy was changed since.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Value of an input in place of the old one."
)
@click.option("--as", "actor", metavar="ACTOR", help="Who runs it; the user of this machine when left out.")
@click.option("--wait", "waits", is_flag=True, help="Wait for approvals given elsewhere, with `gert approve`.")
@click.option("--detach", is_flag=True, help="Set the run aside while it waits for approvals; `gert resume` goes on.")
@click.option(
    "--break-glass", metavar="REASON", help="Override governance in an emergency, where its rules allow that."
)
@click.option("--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise.")
@click.option("--db", metavar="FILE", help="The SQLite database of the old run; the new one is recorded there, too.")
@click.option("--dsn", metavar="DSN", help="The Postgres ledger of both; env:NAME for a variable with its address.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to standard error.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing while it runs.")
@click.option("--verbose", "-v", is_flag=True, help="Print what tools print.")
def command(
    run_id: str,
    step: str,
    allow_changed: bool,
    inputs: tuple[str, ...],
    actor: str | None,
    waits: bool,
    detach: bool,
    break_glass: str | None,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run a runbook again from a step on; everything before it keeps its recorded answers and is not done again.

    The old run has to be over, and is not changed. The new one is recorded like any other; its event `run_forked` says
    where it comes from. Inputs are those of the old run; one that is given takes its place, as long as the way up to
    the step stays the same. Secrets are found again, approvals from the step on are asked for again.
    Exits with 0 when the run completed or waits, 1 when the way up to the step is not the same, 2 when it was called
    wrongly, 3 when the run failed or was denied.
    """
    if break_glass is not None and not break_glass.strip():
        raise UsageError("`--break-glass` needs a reason", hint="it is recorded, and shown in every report")
    options = RerunOptions(
        run_id=run_id,
        step=step,
        state_dir=state_dir,
        db=db,
        dsn=dsn,
        actor=named(actor),
        given=given_values((), inputs, ()),
        allow_changed=allow_changed,
        approvals=approval_mode(waits=waits, detach=detach),
        break_glass=break_glass,
    )
    stream = sys.stderr if as_json else sys.stdout
    view = make_view(stream=stream, verbose=verbose, quiet=quiet) if stream is not None else None
    observers = [view] if view is not None else []
    try:
        executed: Executed = asyncio.run(rerun(options, observers=observers))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for observer in observers:
            observer.close()
    return show(executed, as_json=as_json, quiet=quiet)
