"""`gert exec`: run a runbook, governed and recorded."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Final, TextIO

import click

from gert.ecosystem.host.driver import MAX_PARALLEL
from gert.ecosystem.host.execute import execute
from gert.ecosystem.host.observer import Observer
from gert.ecosystem.host.options import MODES, Executed, RunOptions
from gert.ecosystem.host.variables import given_values
from gert.ecosystem.surfaces.cli.output import complain, plural, say, say_json
from gert.ecosystem.surfaces.cli.plain import PlainView
from gert.ecosystem.surfaces.cli.rehearsal import Rehearsal
from gert.ecosystem.surfaces.cli.view import make_view, writer
from gert.errors import InputError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.run import secret_names
from gert.kernel.events.runbook import Outcome
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.text import printable
from gert.kernel.runbook.program import Program

EXIT_COMPLETED: Final = 0
EXIT_NOT_COMPLETED: Final = 3
EXIT_INTERRUPTED: Final = 130


@click.command(
    name="exec",
    epilog="Example: gert exec runbooks/restart-pod.yaml --var pod=web-1 --as oncall@example.com --trace run.jsonl",
)
@click.argument("file", metavar="FILE")
@click.option("--var", "variables", multiple=True, metavar="NAME=TEXT", help="Value of an input, as text.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Value of an input as YAML; @FILE reads a file."
)
@click.option("--vars-file", "vars_files", multiple=True, metavar="FILE", help="Values of inputs, a YAML or JSON map.")
@click.option("--mode", type=click.Choice(MODES), default="real", show_default=True, help="Who answers.")
@click.option(
    "--probe-allow-effects",
    metavar="EFFECTS",
    default="network",
    show_default=True,
    help="Effects a tool may have to be run by a probe, separated by commas.",
)
@click.option("--scenario", metavar="NAME|DIR", help="The scenario that answers, with --mode replay.")
@click.option("--record", metavar="DIR", help="Write a scenario of this run that replays to the same outcome.")
@click.option("--config", metavar="FILE", help="Settings beside those of the project.")
@click.option("--as", "actor", metavar="ACTOR", help="Who runs it; the user of this machine when left out.")
@click.option("--trace", metavar="FILE", help="Record in this file instead of the state folder.")
@click.option("--db", metavar="FILE", help="Record in this SQLite database instead.")
@click.option("--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise.")
@click.option(
    "--sync",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="`none` does not wait for the disk; only for runs whose record may be lost.",
)
@click.option(
    "--policy", "policies", multiple=True, metavar="FILE", help="A policy, or a folder of them, as the floor."
)
@click.option("--evidence", metavar="FILE", help="Evidence for manual steps, by step id.")
@click.option(
    "--max-parallel", type=click.IntRange(1, 1000), default=MAX_PARALLEL, show_default=True, help="Lanes at once."
)
@click.option("--timeout", metavar="DURATION", help="Longest time the run may take, such as 30m.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to standard error.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing while it runs.")
@click.option("--verbose", "-v", is_flag=True, help="Print what tools print.")
def command(
    file: str,
    variables: tuple[str, ...],
    inputs: tuple[str, ...],
    vars_files: tuple[str, ...],
    mode: str,
    probe_allow_effects: str,
    scenario: str | None,
    record: str | None,
    config: str | None,
    actor: str | None,
    trace: str | None,
    db: str | None,
    state_dir: str | None,
    sync: str,
    policies: tuple[str, ...],
    evidence: str | None,
    max_parallel: int,
    timeout: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run a runbook: contracts checked, policy applied, every step recorded.

    A real run is always recorded: under `runs/` of the project, of your state folder, or where --trace or --db says.
    `--mode dry-run` runs nothing and shows every outcome that can be reached; `--mode probe` runs only tools that
    write nothing; `--mode replay` takes every answer from a scenario. Ctrl-C stops what is under way and finishes
    the record; a second one ends at once.
    Exits with 0 when the run completed, 1 when the runbook is not valid, 2 when it was called wrongly, 3 when the run
    failed or was denied.
    """
    options = RunOptions(
        file=file,
        given=given_values(variables, inputs, vars_files),
        mode=mode,  # type: ignore[arg-type]
        actor=_named(actor),
        trace=trace,
        db=db,
        state_dir=state_dir,
        sync=sync == "full",
        policies=policies,
        evidence=evidence,
        scenario=scenario,
        record=record,
        config=config,
        max_parallel=max_parallel,
        timeout=_seconds(timeout),
        probe_effects=frozenset(each.strip() for each in probe_allow_effects.split(",") if each.strip()),
    )
    executed = _execute(options, sys.stderr if as_json else sys.stdout, verbose=verbose, quiet=quiet)
    if as_json:
        say_json(executed.as_json())
    else:
        # What a dry run found out is its result, not its progress.
        for line in _reachable(executed) if quiet else _summary(executed):
            say(line)
        if quiet and executed.result.status != "completed":
            complain(_why(executed))
    return _exit_code(executed)


def _execute(options: RunOptions, stream: TextIO | None, *, verbose: bool, quiet: bool) -> Executed:
    """Run it, watched by whoever is at the other end of a stream."""
    observers: list[Observer] = []
    begin = None
    if stream is None:
        pass  # it is closed: nobody watches
    elif options.mode in ("real", "replay"):
        observers += [view for view in (make_view(stream=stream, verbose=verbose, quiet=quiet),) if view is not None]
    elif not quiet:
        # Nothing takes long here, and there is more to read than a live view could hold.
        rehearsal = Rehearsal(writer(stream))
        observers += [PlainView(writer(stream), verbose=verbose, colour=stream.isatty()), rehearsal]
        begin = rehearsal.begin
    try:
        return asyncio.run(execute(options, observers=observers, on_start=_starting(begin)))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for observer in observers:
            observer.close()


def _starting(begin: Callable[[Program, list[str]], None] | None) -> Callable[[Setup], None]:
    def start(setup: Setup) -> None:
        if begin is not None:
            begin(setup.program, secret_names(setup.program))

    return start


def _named(actor: str | None) -> str | None:
    if actor is not None and not actor.strip():
        raise UsageError("`--as` needs a name", hint="for example --as oncall@example.com")
    return actor


def _seconds(timeout: str | None) -> float | None:
    if timeout is None:
        return None
    try:
        return parse_duration(timeout).total_seconds()
    except InputError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None


def _exit_code(executed: Executed) -> int:
    if executed.result.status == "completed":
        return EXIT_COMPLETED
    return EXIT_INTERRUPTED if executed.interrupted and executed.result.status == "cancelled" else EXIT_NOT_COMPLETED


def _reachable(executed: Executed) -> Iterator[str]:
    if executed.mode not in ("dry-run", "probe"):
        return
    outcomes = executed.result.reachable_outcomes
    yield "Outcomes that can be reached:" if outcomes else "No outcome can be reached."
    yield from (f"  {_outcome(outcome)}" for outcome in outcomes)
    yield f"This was a {executed.mode}: no outcome is claimed."


def _summary(executed: Executed) -> Iterator[str]:
    where = executed.trace or executed.db
    recorded = f" in {printable(where)}" if where is not None else ", not recorded"
    yield f"{printable(executed.run_id)}: {plural(executed.events, 'event')}{recorded}"
    scenario = executed.scenario
    if scenario is not None:
        where = printable(scenario.folder)
        again = f"; it does not replay to the same: {printable(scenario.differs)}" if scenario.differs else ""
        yield f"scenario recorded in {where}{again or '; it replays to the same outcome'}"


def _outcome(outcome: Outcome) -> str:
    return f"{outcome.category}: {printable(outcome.code)}"


def _why(executed: Executed) -> str:
    failure = executed.result.failure
    where = f" at `{executed.result.failed_step}`" if executed.result.failed_step else ""
    ended = {"error": "ended in an error", "cancelled": "was cancelled"}.get(executed.result.status, "failed")
    return f"the run {ended}{where}: {failure.message}" if failure else "the run did not complete"
