"""`gert exec`: run a runbook."""

import asyncio
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TextIO, TypeVar

import click
import msgspec

from gert.ecosystem.host.config.ledger_location import ledger_arguments
from gert.ecosystem.host.config.variables import given_values, notes_on_given
from gert.ecosystem.host.run.driver.driver import MAX_PARALLEL
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import MODES, Executed, RunOptions
from gert.ecosystem.surfaces.cli.live.plain import PlainView
from gert.ecosystem.surfaces.cli.live.view import make_view, writer
from gert.ecosystem.surfaces.cli.options import WAITING, categories_of, fail_on_option, seconds_of
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line, print_warning
from gert.ecosystem.surfaces.cli.render.runs.result import show
from gert.ecosystem.surfaces.cli.render.runs.step_results import StepResults
from gert.ecosystem.surfaces.cli.render.views.dry_run_view import DryRunView
from gert.errors import UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.run import secret_names
from gert.kernel.events.vocabulary import ApprovalMode
from gert.kernel.runbook.program import Program

R = TypeVar("R")


@click.command(
    name="exec",
    epilog="Example: gert exec runbooks/restart-pod.yaml --var pod=web-1 --as oncall@example.com --trace run.jsonl",
)
@click.argument("file", metavar="FILE")
@click.option("--var", "variables", multiple=True, metavar="NAME=TEXT", help="Set an input to text.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Set an input to a YAML value; @FILE reads a file."
)
@click.option("--vars-file", "vars_files", multiple=True, metavar="FILE", help="Read inputs from a YAML or JSON map.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="real",
    show_default=True,
    help="How to run: call tools (real), call none (dry-run), only read (probe) or use a scenario (replay).",
)
@click.option(
    "--probe-allow-effects",
    metavar="EFFECTS",
    default="network",
    show_default=True,
    help="Effects that a probe may run, separated by commas.",
)
@click.option("--scenario", metavar="NAME|DIR", help="Scenario to replay, with --mode replay.")
@click.option("--record", metavar="DIR", help="Write a scenario that replays this run to DIR.")
@click.option("--config", metavar="FILE", help="Settings file to read in addition to the project's.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user).")
@click.option("--trace", metavar="FILE", help="Write the trace to this file instead of the state directory.")
@click.option("--db", metavar="FILE", help="Record the run in this SQLite ledger.")
@click.option(
    "--dsn", metavar="DSN", help="Record the run in this Postgres ledger; env:NAME reads the DSN from a variable."
)
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option(
    "--sync",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="`none` does not wait for the disk; use it only if losing the record is acceptable.",
)
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder to the floor.")
@click.option("--evidence", metavar="FILE", help="Read evidence for manual steps, by step id, from this file.")
@click.option("--wait", "waits", is_flag=True, help="Wait for approvals from elsewhere, such as `gert approve`.")
@click.option("--detach", is_flag=True, help="Exit while the run waits for approvals; `gert resume` resumes it.")
@click.option(
    "--background",
    is_flag=True,
    help="Drive the run in a process of its own and exit; `gert logs --follow`, `gert run cancel` work on it.",
)
@click.option("--step", "steps", is_flag=True, help="With --background: wait for `gert run advance` before every call.")
@click.option("--break-glass", metavar="REASON", help="Override governance in an emergency, if its rules allow it.")
@click.option(
    "--max-parallel",
    type=click.IntRange(1, 1000),
    default=MAX_PARALLEL,
    show_default=True,
    help="Maximum number of lanes that run at once.",
)
@click.option("--witness", metavar="FILE|URL", help="Append sealed heads to this file or URL.")
@click.option("--timeout", metavar="DURATION", help="Maximum duration of the run, such as 30m (default: none).")
@fail_on_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to standard error.")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress.")
@click.option("--verbose", "-v", is_flag=True, help="Print the output of tools.")
def command(
    variables: tuple[str, ...],
    inputs: tuple[str, ...],
    vars_files: tuple[str, ...],
    probe_allow_effects: str,
    actor: str | None,
    sync: str,
    waits: bool,
    detach: bool,
    background: bool,
    steps: bool,
    timeout: str | None,
    fail_on: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **own: Any,
) -> int:
    """Run the runbook in FILE: check contracts, apply policies, record every step.

    A real run is always recorded: under `runs/` of the project or of your state directory, or where --trace, --db or
    --dsn says. `--mode dry-run` runs only previews and shows every reachable outcome; `--mode probe` runs only tools
    that write nothing; `--mode replay` takes every answer from a scenario. Ctrl-C stops the run in order and completes
    its record; a second Ctrl-C exits at once.
    """
    options = RunOptions(
        given=given_values(variables, inputs, vars_files),
        actor=checked_actor(actor),
        sync=sync == "full",
        approvals=approval_mode(waits=waits, detach=detach) or "terminal",
        timeout=seconds_of("--timeout", timeout) if timeout is not None else None,
        probe_effects=frozenset(each.strip() for each in probe_allow_effects.split(",") if each.strip()),
        **own,
    )
    failing = categories_of(fail_on, WAITING)
    if failing and (background or options.mode in ("dry-run", "probe")):
        what = "a run in the background" if background else f"a {options.mode}"
        raise UsageError(f"`--fail-on` needs an outcome, and `gert exec` has none of {what}", hint="leave it out")
    if background:
        return start_background(msgspec.structs.replace(options, steps=steps), as_json=as_json)
    if steps:
        raise UsageError("`--step` needs `--background`", hint="at a terminal, `gert-tui --step` goes step by step")
    results = StepResults() if as_json else None
    executed = _execute(options, sys.stderr if as_json else sys.stdout, results, verbose=verbose, quiet=quiet)
    return show(executed, as_json=as_json, quiet=quiet, results=results, fail_on=failing)


def _execute(
    options: RunOptions, stream: TextIO | None, results: StepResults | None, *, verbose: bool, quiet: bool
) -> Executed:
    """Execute the run and show its progress on `stream`."""
    observers: list[Observer] = [results] if results is not None else []
    begin = None
    if stream is None:
        pass  # it is closed: there is no progress to show
    elif options.mode in ("real", "replay"):
        observers += [view for view in (make_view(stream=stream, verbose=verbose, quiet=quiet),) if view is not None]
    elif not quiet:
        # These runs are short and print more than a live view can show.
        rehearsal = DryRunView(writer(stream), options.probe_effects)
        observers += [PlainView(writer(stream), verbose=verbose, colour=stream.isatty()), rehearsal]
        begin = rehearsal.begin
    return drive(execute(options, observers=observers, on_start=_starting(options, begin)), observers)


class Begin(Protocol):
    """A run that is ready to start."""

    def __call__(self, *, observers: list[Observer]) -> Coroutine[Any, Any, Executed]:
        """Drive the run and notify `observers`."""


def drive_in_view(
    begin: Begin, results: StepResults | None = None, *, as_json: bool, quiet: bool, verbose: bool = False
) -> Executed:
    """Drive a run to its end and show its progress: on standard error where the result is JSON."""
    stream = sys.stderr if as_json else sys.stdout
    view = make_view(stream=stream, verbose=verbose, quiet=quiet) if stream is not None else None
    observers: list[Observer] = [each for each in (view, results) if each is not None]
    return drive(begin(observers=observers), observers)


def drive(run: Coroutine[Any, Any, R], observers: Iterable[Observer]) -> R:
    """Drive a run to its end, and close what shows it."""
    try:
        return asyncio.run(run)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for observer in observers:
            observer.close()


def _starting(options: RunOptions, begin: Callable[[Program, list[str]], None] | None) -> Callable[[Setup], None]:
    def start(setup: Setup) -> None:
        for each in notes_on_given(setup.secret_inputs, options.given):
            print_warning(each)
        if begin is not None:
            begin(setup.program, secret_names(setup.program))

    return start


def start_background(options: RunOptions, *, as_json: bool) -> int:
    """Start the run in a process of its own, and print its id."""
    from gert.ecosystem.host.background.launch import start_run  # other runs do not need it

    if options.mode != "real" and options.db is None and options.dsn is None:
        raise UsageError(f"a {options.mode} in the background needs a ledger", hint="add --db FILE")
    launched = asyncio.run(start_run(options))
    if as_json:
        print_json({"run_id": launched.run_id, "status": "running", "pid": launched.pid})
    else:
        where = ledger_arguments(options.db or None) or (
            f" --state-dir {shlex.quote(options.state_dir)}" if options.state_dir else ""
        )
        print_line(f"{launched.run_id}: running in the background")
        print_line(f"follow it with: gert logs {launched.run_id} --follow{where}")
        print_line(f"see what it waits for, and its tickets: gert run status {launched.run_id}{where}")
    return 0


def approval_mode(*, waits: bool, detach: bool) -> ApprovalMode | None:
    """The approval mode that --wait or --detach selects; None if neither is given."""
    if waits and detach:
        raise UsageError("expected `--wait` or `--detach`, found both", hint="pass only one of them")
    return "detach" if detach else "wait" if waits else None


def checked_actor(actor: str | None) -> str | None:
    """The actor of --as, checked."""
    if actor is not None and not actor.strip():
        raise UsageError("`--as` needs a name", hint="for example --as oncall@example.com")
    return actor
