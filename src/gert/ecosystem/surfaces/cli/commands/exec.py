"""`gert exec`: run a runbook, governed and recorded."""

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO

import click

from gert.ecosystem.host.config.variables import given_values
from gert.ecosystem.host.run.driver import MAX_PARALLEL
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import MODES, ApprovalMode, Executed, RunOptions
from gert.ecosystem.surfaces.cli.live.plain import PlainView
from gert.ecosystem.surfaces.cli.live.view import make_view, writer
from gert.ecosystem.surfaces.cli.render.dry_run_view import Rehearsal
from gert.ecosystem.surfaces.cli.render.result import show
from gert.errors import InputError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.run import secret_names
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.runbook.program import Program


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
@click.option("--dsn", metavar="DSN", help="Record in this Postgres ledger; env:NAME for a variable with its address.")
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
@click.option("--wait", "waits", is_flag=True, help="Wait for approvals given elsewhere, with `gert approve`.")
@click.option("--detach", is_flag=True, help="Set the run aside while it waits for approvals; `gert resume` goes on.")
@click.option(
    "--break-glass", metavar="REASON", help="Override governance in an emergency, where its rules allow that."
)
@click.option(
    "--max-parallel", type=click.IntRange(1, 1000), default=MAX_PARALLEL, show_default=True, help="Lanes at once."
)
@click.option("--witness", metavar="FILE|URL", help="Append sealed heads to this file or URL.")
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
    dsn: str | None,
    state_dir: str | None,
    sync: str,
    policies: tuple[str, ...],
    evidence: str | None,
    waits: bool,
    detach: bool,
    break_glass: str | None,
    witness: str | None,
    max_parallel: int,
    timeout: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run a runbook: contracts checked, policy applied, every step recorded.

    A real run is always recorded: under `runs/` of the project, of your state folder, or where --trace, --db or
    --dsn says.
    `--mode dry-run` runs nothing but previews and shows every outcome that can be reached; `--mode probe` runs only
    tools that write nothing; `--mode replay` takes every answer from a scenario. Ctrl-C stops what is under way and
    finishes the record; a second one ends at once.
    Exits with 0 when the run completed, 1 when the runbook is not valid, 2 when it was called wrongly, 3 when the run
    failed or was denied.
    """
    options = RunOptions(
        file=file,
        given=given_values(variables, inputs, vars_files),
        mode=mode,  # type: ignore[arg-type]
        actor=named(actor),
        trace=trace,
        db=db,
        dsn=dsn,
        state_dir=state_dir,
        sync=sync == "full",
        policies=policies,
        evidence=evidence,
        scenario=scenario,
        record=record,
        config=config,
        approvals=approval_mode(waits=waits, detach=detach) or "terminal",
        break_glass=break_glass,
        witness=witness,
        max_parallel=max_parallel,
        timeout=_seconds(timeout),
        probe_effects=frozenset(each.strip() for each in probe_allow_effects.split(",") if each.strip()),
    )
    executed = _execute(options, sys.stderr if as_json else sys.stdout, verbose=verbose, quiet=quiet)
    return show(executed, as_json=as_json, quiet=quiet)


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
        rehearsal = Rehearsal(writer(stream), options.probe_effects)
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


def approval_mode(*, waits: bool, detach: bool) -> ApprovalMode | None:
    """Whether the run waits for approvals given elsewhere, or is set aside; none where nothing is said."""
    if waits and detach:
        raise UsageError("a run waits or is set aside, not both", hint="give --wait or --detach")
    return "detach" if detach else "wait" if waits else None


def named(actor: str | None) -> str | None:
    """Whoever acts, if they say so."""
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
