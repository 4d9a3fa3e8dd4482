"""Options and output that `gert resume` and `gert rerun` share."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from gert.ecosystem.host.config.variables import given_values
from gert.ecosystem.surfaces.cli.commands.runs.exec import Begin, approval_mode, checked_actor, drive_in_view
from gert.ecosystem.surfaces.cli.options import WAITING, categories_of, fail_on_option
from gert.ecosystem.surfaces.cli.render.runs.result import show
from gert.ecosystem.surfaces.cli.render.runs.step_results import StepResults

_OPTIONS: Final = (
    click.option("--verbose", "-v", is_flag=True, help="Print the output of tools."),
    click.option("--quiet", "-q", is_flag=True, help="Print no progress."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to standard error."),
    fail_on_option,
    click.option("--dsn", metavar="DSN", help="Postgres ledger of the run; env:NAME reads the DSN from a variable."),
    click.option("--db", metavar="FILE", help="SQLite ledger of the run."),
    click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own)."),
    click.option("--detach", is_flag=True, help="Exit while the run waits for approvals; `gert resume` resumes it."),
    click.option("--wait", "waits", is_flag=True, help="Wait for approvals from elsewhere, such as `gert approve`."),
    click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user)."),
    click.option(
        "--adopt-unsealed",
        metavar="REASON",
        help="Continue a run that is not sealed although a signing key is set; the reason is recorded.",
    ),
    click.option("--witness", metavar="FILE|URL", help="Append sealed heads to this file or URL."),
    click.option("--allow-changed", is_flag=True, help="Continue even if the runbook, a tool or a policy has changed."),
)


class Batch(NamedTuple):
    """Several runs to drive, which show their results themselves."""

    drive: Callable[..., int]


def redrive_command(prepare: Callable[..., Begin | Batch]) -> Callable[..., int]:
    """Make a command of a function that prepares a redrive; the shared options reach it as options of the host."""

    @wraps(prepare)
    def command(
        inputs: tuple[str, ...],
        actor: str | None,
        waits: bool,
        detach: bool,
        fail_on: tuple[str, ...],
        as_json: bool,
        quiet: bool,
        verbose: bool,
        variables: tuple[str, ...] = (),
        **own: Any,
    ) -> int:
        failing = categories_of(fail_on, WAITING)
        redrive = prepare(
            given=given_values(variables, inputs, ()),
            actor=checked_actor(actor),
            approvals=approval_mode(waits=waits, detach=detach),
            **own,
        )
        if isinstance(redrive, Batch):
            return redrive.drive(as_json=as_json)
        results = StepResults() if as_json else None
        executed = drive_in_view(redrive, results, as_json=as_json, quiet=quiet, verbose=verbose)
        return show(executed, as_json=as_json, quiet=quiet, results=results, fail_on=failing)

    for option in _OPTIONS:
        command = option(command)
    return command
