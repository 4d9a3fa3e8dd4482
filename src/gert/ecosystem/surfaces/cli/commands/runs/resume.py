"""`gert resume`: resume a waiting or interrupted run."""

from collections.abc import Mapping
from functools import partial
from typing import Any, cast, get_args

import click

from gert.ecosystem.host.config.variables import notes_on_given
from gert.ecosystem.host.redrive.resume import ResumeOptions, resume
from gert.ecosystem.surfaces.cli.commands.runs.exec import Begin
from gert.ecosystem.surfaces.cli.commands.runs.resume_command import Batch, redrive_command
from gert.ecosystem.surfaces.cli.options import named_run, require_run
from gert.ecosystem.surfaces.cli.render.output import print_warning
from gert.errors import UsageError
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.names import suggestion

CHOICES = get_args(Reconciliation)


@click.command(name="resume", epilog="Example: gert resume last --reconcile restart=retry")
@partial(named_run, is_required=False)
@click.option(
    "--ready", is_flag=True, help="Resume every run whose tickets are all answered or expired, one after the other."
)
@click.option(
    "--ticket", metavar="TICKET", help="Resume only if the run waits for this ticket; a unique prefix, or `last`."
)
@click.option(
    "--reconcile",
    "reconcile",
    multiple=True,
    metavar="[STEP=]CHOICE",
    help="Result of a call whose outcome is unknown: success, failed or retry.",
)
@click.option(
    "--reconcile-output",
    "outputs",
    multiple=True,
    metavar="STEP.NAME=VALUE",
    help="Output of a call that is reconciled as success; gert asks for required ones at a terminal.",
)
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Set a secret input, which is never recorded."
)
@click.option(
    "--record",
    metavar="DIR",
    help="Write a scenario that replays the run to DIR (default: that of `gert exec --record`).",
)
@click.option("--allow-running", is_flag=True, help="Resume even if a tool of the run is still running.")
@redrive_command
def command(
    run_id: str | None,
    ready: bool,
    ticket: str | None,
    reconcile: tuple[str, ...],
    outputs: tuple[str, ...],
    record: str | None,
    allow_running: bool,
    **shared: Any,
) -> Begin | Batch:
    """Resume a waiting or interrupted run: completed steps use their recorded answers, the rest runs live.

    RUN is the id of the run, a unique prefix of it, or `last`.
    If gert stopped before recording the result of a call, it makes the call again only if its contract is idempotent;
    otherwise pass the result with --reconcile; STEP is its id, `id[key]` for one item, or its path. While
    a tool of the run still runs on this machine, gert calls nothing. Two processes never drive the same run.

    With --ready in place of RUN, for a timer: runs that another process drives are left to it, and each run is detached
    where it needs the next approval. Runs that are cut off need a person.
    """
    if ready:
        of_one: dict[str, object] = {
            "RUN": run_id,
            "--ticket": ticket,
            "--reconcile": reconcile,
            "--reconcile-output": outputs,
            "--record": record,
            "--allow-running": allow_running,
            "--input": shared["given"],
            "--wait": shared["approvals"] == "wait",
        }
        return _ready(of_one, shared)
    run_id = require_run(run_id)
    for each in notes_on_given(shared["given"].keys(), shared["given"]):  # only secrets are given again
        print_warning(each)
    choices = dict(_choice(text) for text in reconcile)
    options = ResumeOptions(
        run_id=run_id,
        ticket=ticket,
        reconcile=choices,
        reconcile_outputs=outputs,
        record=record,
        allow_running=allow_running,
        **shared,
    )
    return partial(resume, options)


def _ready(of_one: Mapping[str, object], shared: Mapping[str, Any]) -> Batch:
    """All runs that are ready; what is about one run is refused."""
    for name, value in of_one.items():
        if value:
            raise UsageError(f"expected `--ready` or `{name}`, found both", hint=f"`{name}` is about one run")
    from gert.ecosystem.surfaces.cli.commands.runs.resume_ready import resume_all  # to resume one run needs no list

    return Batch(partial(resume_all, ResumeOptions(run_id="", **shared)))


def _choice(text: str) -> tuple[str, Reconciliation]:
    step, equals, choice = text.rpartition("=")
    if choice not in CHOICES:
        raise UsageError(
            f"`--reconcile` takes {', '.join(CHOICES)}, not `{choice}`",
            hint=suggestion(choice, CHOICES) or "for one step, write STEP=retry",
        )
    return (step if equals else "*"), cast("Reconciliation", choice)
