"""`gert rerun`: a new run that takes the answers of an old one up to a step, and goes on live."""

from functools import partial
from typing import Any

import click

from gert.ecosystem.host.redrive.rerun import RerunOptions, rerun
from gert.ecosystem.surfaces.cli.commands.resume_command import Going, going_on


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
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Value of an input in place of the old one."
)
@click.option(
    "--break-glass", metavar="REASON", help="Override governance in an emergency, where its rules allow that."
)
@going_on
def command(run_id: str, step: str, break_glass: str | None, **shared: Any) -> Going:
    """Run a runbook again from a step on; everything before it keeps its recorded answers and is not done again.

    The old run has to be over, and is not changed. The new one is recorded in the same place; `run_forked` says
    where it comes from. Inputs are those of the old run; one that is given takes its place, as long as the way up to
    the step stays the same. Secrets are found again, approvals from the step on are asked for again.
    Exits with 0 when the run completed or waits, 1 when the way up to the step is not the same, 2 when it was called
    wrongly, 3 when the run failed or was denied.
    """
    return partial(rerun, RerunOptions(run_id=run_id, step=step, break_glass=break_glass, **shared))
