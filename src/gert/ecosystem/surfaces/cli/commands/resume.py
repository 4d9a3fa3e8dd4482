"""`gert resume`: go on with a run that waits, or whose process ended before it did."""

from functools import partial
from typing import Any, cast, get_args

import click

from gert.ecosystem.host.redrive.resume import ResumeOptions, resume
from gert.ecosystem.surfaces.cli.commands.resume_command import Going, going_on
from gert.errors import UsageError
from gert.kernel.events.vocabulary import Reconciliation

CHOICES = get_args(Reconciliation)


@click.command(name="resume", epilog="Example: gert resume --run 20260228-143000-123-k3v9qz --reconcile restart=retry")
@click.option("--run", "run_id", required=True, metavar="ID", help="The run to go on with; its whole id.")
@click.option("--ticket", metavar="TICKET", help="Only if this ticket is one the run waits for.")
@click.option(
    "--reconcile",
    "reconcile",
    multiple=True,
    metavar="[STEP=]CHOICE",
    help="What became of a call nobody knows the result of: success, failed or retry.",
)
@click.option(
    "--reconcile-output",
    "outputs",
    multiple=True,
    metavar="STEP.NAME=VALUE",
    help="An output of a call that is reconciled as a success; required ones are asked for at a terminal.",
)
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A secret input that has to be given again."
)
@click.option("--allow-running", is_flag=True, help="Resume even if a tool of the run is still running.")
@going_on
def command(
    run_id: str,
    ticket: str | None,
    reconcile: tuple[str, ...],
    outputs: tuple[str, ...],
    allow_running: bool,
    **shared: Any,
) -> Going:
    """Go on with a run: recorded answers first, the live world after; no step that has completed runs twice.

    A call that was announced and has no recorded result is made again only if its contract is idempotent; otherwise you
    say what became of it. While its process still runs on this machine, nothing is called. Two processes never go on
    with the same run.
    Exits with 0 when the run completed or waits, 1 when its record or its runbook is not what it was, 2 when it was
    called wrongly, 3 when the run failed or is in doubt.
    """
    choices = dict(_choice(text) for text in reconcile)
    options = ResumeOptions(
        run_id=run_id,
        ticket=ticket,
        reconcile=choices,
        reconcile_outputs=outputs,
        allow_running=allow_running,
        **shared,
    )
    return partial(resume, options)


def _choice(text: str) -> tuple[str, Reconciliation]:
    step, equals, choice = text.rpartition("=")
    if choice not in CHOICES:
        raise UsageError(f"`--reconcile` takes {', '.join(CHOICES)}, not `{choice}`", hint="or for one step STEP=retry")
    return (step if equals else "*"), cast("Reconciliation", choice)
