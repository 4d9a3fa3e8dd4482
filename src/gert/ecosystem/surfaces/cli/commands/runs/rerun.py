"""`gert rerun`: start a new run that uses recorded answers up to a step and runs live from there."""

from functools import partial
from typing import Any

import click

from gert.ecosystem.host.redrive.rerun import RerunOptions, rerun
from gert.ecosystem.surfaces.cli.commands.runs.exec import Begin
from gert.ecosystem.surfaces.cli.commands.runs.resume_command import redrive_command
from gert.ecosystem.surfaces.cli.options import named_run


@click.command(name="rerun", epilog="Example: gert rerun last --from restart")
@named_run
@click.option(
    "--from",
    "step",
    required=True,
    metavar="STEP",
    help="First step to run live: its id, `id[key]` or its path.",
)
@click.option("--var", "variables", multiple=True, metavar="NAME=TEXT", help="Set an input to another text.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Set an input to a YAML value; @FILE reads a file."
)
@click.option("--break-glass", metavar="REASON", help="Override governance in an emergency, if its rules allow it.")
@redrive_command
def command(run_id: str, step: str, break_glass: str | None, **shared: Any) -> Begin:
    """Start a new run from a step of an earlier run; steps before it use their recorded answers and do not run again.

    RUN is the id of the earlier run, a unique prefix of it, or `last`. It must have ended; gert does not change it. The
    new run is recorded in the same ledger, and its `run_forked` event names the earlier run. Inputs come from the
    earlier run; you can change one with --var if the path up to the step stays the same. Secrets are resolved again,
    and approvals from the step on are requested again: at the terminal, unless you pass --wait or --detach.
    """
    shared["approvals"] = shared["approvals"] or "terminal"  # it is a new run, also if the earlier one was detached
    return partial(rerun, RerunOptions(run_id=run_id, step=step, break_glass=break_glass, **shared))
