"""`gert watch`: run a runbook at an interval, one line per run."""

import asyncio
import sys
from datetime import timedelta
from typing import Any, Final

import click

from gert.ecosystem.host.config.variables import given_values
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.run.watch import Round, Watch, WatchOptions
from gert.ecosystem.surfaces.cli.commands.runs.exec import checked_actor
from gert.ecosystem.surfaces.cli.live.unsent import Unsent
from gert.ecosystem.surfaces.cli.options import categories_of, seconds_of
from gert.ecosystem.surfaces.cli.render.output import print_json_line, print_line
from gert.ecosystem.surfaces.cli.render.text import BAD, DONE, FAILED, GOOD, LONGEST_NAME, clip, elapsed
from gert.errors import Exit, UsageError
from gert.kernel.foundation.text import path_text

WIDTH: Final = len("escalated (unknown_failure)")
_FINE: Final = ("resolved", "no_action")


@click.command(
    name="watch",
    epilog="Example: gert watch runbooks/health-check.yaml --interval 5m --stop-on escalated,needs_rca --var host=srv1",
)
@click.argument("file", metavar="FILE")
@click.option(
    "--interval", metavar="DURATION", required=True, help="Time from the start of one run to the next, such as 5m."
)
@click.option(
    "--stop-on",
    multiple=True,
    metavar="CATEGORIES",
    help="Stop after an outcome in these categories, separated by commas.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N runs (default: no limit).")
@click.option("--keep-going", is_flag=True, help="Go on after a run that failed, was denied or rejected.")
@click.option("--config", metavar="FILE", help="Settings file to read in addition to the project's.")
@click.option("--trace-dir", metavar="DIR", help="Write the trace of each run to its own file in this folder.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--var", "variables", multiple=True, metavar="NAME=TEXT", help="Set an input to text.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Set an input to a YAML value; @FILE reads a file."
)
@click.option("--vars-file", "vars_files", multiple=True, metavar="FILE", help="Read inputs from a YAML or JSON map.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user).")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder to the floor.")
@click.option("--evidence", metavar="FILE", help="Read evidence for manual steps, by step id, from this file.")
@click.option("--timeout", metavar="DURATION", help="Maximum duration of one run, such as 30s (default: none).")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per run.")
def command(
    file: str,
    interval: str,
    stop_on: tuple[str, ...],
    count: int | None,
    keep_going: bool,
    config: str | None,
    trace_dir: str | None,
    state_dir: str | None,
    variables: tuple[str, ...],
    inputs: tuple[str, ...],
    vars_files: tuple[str, ...],
    actor: str | None,
    policies: tuple[str, ...],
    evidence: str | None,
    timeout: str | None,
    as_json: bool,
) -> int:
    """Run the runbook in FILE at an interval, in the foreground; record each run and print one line for it.

    If a run takes longer than the interval, the next one starts at once. The loop stops after a run that does not
    complete, unless you pass --keep-going; then gert exits with 3 at the end if any run did not complete. The first
    Ctrl-C lets the current run finish, the second cancels it, the third exits. SIGTERM and SIGHUP cancel the run. A
    cancelled run still runs `finally` and completes its record.
    """
    options = WatchOptions(
        run=RunOptions(
            file=file,
            given=given_values(variables, inputs, vars_files),
            actor=checked_actor(actor),
            state_dir=state_dir,
            policies=policies,
            evidence=evidence,
            timeout=_seconds("--timeout", timeout) if timeout is not None else None,
            config=config,
        ),
        interval=_seconds("--interval", interval),
        stop_on=categories_of(stop_on),
        count=count,
        trace_dir=trace_dir,
        keep_going=keep_going,
    )
    show = _JsonLines() if as_json else _Lines()
    try:
        last = asyncio.run(_watch(options, show))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    return _exit_code(last) or (Exit.NOT_COMPLETED if show.not_completed else Exit.DONE)


async def _watch(options: WatchOptions, show: "_Lines") -> Round | None:
    unsent = Unsent()

    def ended(done: Round) -> None:
        show.round(done)
        unsent.show()

    def last() -> None:
        click.echo("stopping after this run; press Ctrl-C again to cancel it", err=True)

    return await Watch(options, on_round=ended, on_last=last, observers=lambda: (unsent,)).loop()


class _Lines:
    """Prints one line per run, with aligned durations."""

    def __init__(self) -> None:
        self._width = WIDTH
        self.not_completed = 0

    def round(self, done: Round) -> None:
        """Count and show a run that ended."""
        self.not_completed += done.executed.status not in ("completed", "waiting")
        self.show(done)

    def show(self, done: Round) -> None:
        """Show a run."""
        icon, colour, text = _result(done.executed)
        self._width = max(self._width, len(text))
        took = elapsed(timedelta(seconds=done.executed.duration))
        line = f"{done.started.astimezone():%H:%M:%S}  {click.style(icon, fg=colour)} {text.ljust(self._width)}  {took}"
        why = _why_last(done)
        print_line(f"{line}  ← stopping ({why})" if why else line)
        sys.stdout.flush()


class _JsonLines(_Lines):
    """Prints one line of JSON per run."""

    def show(self, done: Round) -> None:
        """Print a run on one line."""
        said: dict[str, Any] = {
            "started": done.started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **done.executed.as_json(),
            "stopping": done.stopping,
        }
        print_json_line(said)
        sys.stdout.flush()


def _result(executed: Executed) -> tuple[str, str, str]:
    """The icon, its colour, and the outcome or failure of a run."""
    result = executed
    if result.outcome is not None:
        fine = result.outcome.category in _FINE
        text = f"{result.outcome.category} ({clip(result.outcome.code, LONGEST_NAME)})"
        return (DONE, GOOD, text) if fine else (FAILED, BAD, text)
    where = f"{clip(path_text(result.failed_step), LONGEST_NAME)}: " if result.failed_step else ""
    why = result.failure.message.partition("\n")[0] if result.failure is not None else ""
    return FAILED, BAD, f"{result.status} ({where}{clip(why, LONGEST_NAME)})" if where or why else result.status


def _why_last(done: Round) -> str | None:
    outcome = done.executed.outcome
    if done.stopping == "stop-on" and outcome is not None:
        return f"--stop-on {outcome.category}"
    # `--count` needs no explanation.
    return {"interrupted": "interrupted", "not-completed": "the run did not complete"}.get(done.stopping or "")


def _exit_code(last: Round | None) -> int:
    if last is None or last.executed.status in ("completed", "waiting"):
        return Exit.DONE
    return Exit.INTERRUPTED if last.executed.interrupted else Exit.NOT_COMPLETED


def _seconds(option: str, text: str) -> float:
    seconds = seconds_of(option, text)
    if seconds <= 0:
        raise UsageError(f"`{option}`: the duration must be greater than zero", hint="for example `30s` or `5m`")
    return seconds
