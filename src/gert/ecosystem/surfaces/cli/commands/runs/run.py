"""`gert run`: list, show, follow, verify and abandon runs."""

import asyncio
from collections.abc import Iterator
from copy import copy
from typing import Final

import click

from gert.ecosystem.host.redrive.abandon import AbandonOptions, abandon
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.host.runs.agent_timeline import timeline_of
from gert.ecosystem.host.runs.ledger_reader import Follower
from gert.ecosystem.host.runs.listed_run import OPEN, STATUSES, ListedRun
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.logs import failed_output
from gert.ecosystem.host.runs.row import run_row
from gert.ecosystem.surfaces.cli.commands.runs.exec import checked_actor
from gert.ecosystem.surfaces.cli.commands.runs.run_control import advance, cancel, evidence
from gert.ecosystem.surfaces.cli.commands.runs.run_ledger import artifacts, export, status, summaries, verify
from gert.ecosystem.surfaces.cli.commands.runs.run_reports import cost, diff
from gert.ecosystem.surfaces.cli.live.interrupt import interrupt_event
from gert.ecosystem.surfaces.cli.options import LedgerChoice, ledger_options, open_runs, parse_since, run_argument
from gert.ecosystem.surfaces.cli.render.output import (
    plural,
    print_error,
    print_json,
    print_json_line,
    print_line,
    print_lines,
)
from gert.ecosystem.surfaces.cli.render.runs.run_text import (
    FIRM,
    HEADINGS,
    SPARE,
    abandoned_lines,
    about,
    as_document,
    row,
)
from gert.ecosystem.surfaces.cli.render.runs.step_results import recorded_steps, step_lines
from gert.ecosystem.surfaces.cli.render.table import print_table
from gert.ecosystem.surfaces.cli.render.views.agent_timeline_text import MOST_SHOWN, as_data, timeline_lines
from gert.ecosystem.surfaces.cli.render.views.timeline import print_timeline
from gert.errors import GertError, TraceError
from gert.kernel.events.envelope import Envelope, decode

MOST_LISTED: Final = 50
LOOK: Final = 0.2
"""Seconds between checks whether a process still drives a run that is followed."""

LOOK_AT_AGENT: Final = 30.0
"""The same for an agent run: its end is an event, and events wake the follower."""


@click.group(epilog="Example: gert run list --status waiting")
def command() -> None:
    """List, show, follow, verify and abandon runs of every kind.

    RUN is the id of a run, a unique prefix of it, or `last`: the run that was written to last. Runs are those of the
    state directory, or with --db or --dsn those of another ledger, which may hold runbook runs, agent runs and
    executions of runners.
    """


@command.command("list", epilog="Example: gert run list --since 7d --status cut-off")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs with this status.")
@click.option("--runbook", metavar="NAME", help="Only runs of this runbook.")
@click.option("--tenant", metavar="ID", help="Only runs of this tenant.")
@click.option("--since", metavar="TIME", help="Only runs that started since a time, or within a duration such as 7d.")
@click.option("--all", "everything", is_flag=True, help="Also list ended runs of `gert tool try`.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=MOST_LISTED, show_default=True, help="Most runs to list."
)
@ledger_options
def list_(
    status: str | None,
    runbook: str | None,
    tenant: str | None,
    since: str | None,
    everything: bool,
    limit: int,
    ledger: LedgerChoice,
    as_json: bool,
) -> int:
    """List runs, the last written first.

    A runbook run is `running` while a process drives it, `waiting` where it waits for an approval, and `cut-off` where
    its process ended before it did: `gert resume` resumes both. An agent run is `active` or `paused` until its
    harness ends as completed or failed. Ended runs of `gert tool try` are left out, except with --all or --runbook.
    """
    moment = now()
    earliest = parse_since(since, moment) if since is not None else None
    found: list[ListedRun] = []
    unreadable: dict[str, GertError] = {}
    left_out = 0
    with open_runs(*ledger) as runs:
        for entry in runs.newest(earliest, tenant, unreadable.__setitem__):
            is_named = runbook is None or run_row(entry)["runbook_name"] == runbook
            if is_named and (status is None or entry.is_of(status)):
                if entry.is_past_trial and not everything and runbook is None:
                    left_out += 1
                    continue
                found.append(entry)
                if len(found) >= limit:
                    break
        if as_json:
            print_json([run_row(entry) for entry in found])
        elif found:
            print_table(HEADINGS, [row(entry, moment) for entry in found], SPARE, FIRM)
        else:
            any_run = bool(unreadable) or next(runs.newest(), None) is not None
            print_line("there are no such runs" if any_run else f"there are no runs in {runs.place.name}")
        if left_out and not as_json:
            print_line(f"left out: {plural(left_out, 'run')} of `gert tool try` (see --all)")
    for run_id, problem in unreadable.items():
        print_error(f"run `{run_id}` cannot be read: {problem.message}", "`gert run verify-ledger` says more")
    return 1 if unreadable else 0


@command.command(epilog="Example: gert run show 20260228-1430")
@click.option("--all", "whole", is_flag=True, help=f"Show all steps or items (default: the last {MOST_SHOWN}).")
@run_argument
def show(run_id: str, whole: bool, ledger: LedgerChoice, as_json: bool) -> int:
    """Show what a run was started with, its steps, its status, and what to do next.

    Of an agent run a timeline: turns, model and tool calls, decisions, approvals, drift and cost.
    """
    with open_runs(*ledger) as runs:
        entry = runs.whole_entry(runs.find(run_id))
        timeline = timeline_of(runs.lines(entry)) if entry.kind == "agent" else None
        steps = recorded_steps(runs.lines(entry)) if entry.kind == "runbook" else []
        printed = {} if as_json else failed_output(runs.reader, entry.head)
    shown = steps if whole else steps[-MOST_SHOWN:]
    if as_json:
        added = {} if timeline is None else as_data(timeline, whole=whole)
        print_json(as_document(entry) | added | ({"steps": shown} if entry.kind == "runbook" else {}))
    else:
        print_lines(about(entry, now(), printed, interrupted=any("interrupted" in each for each in steps)))
        if shown:
            print_line()
            left_out = len(steps) - len(shown)
            print_line(f"steps (the last {len(shown):,} of {len(steps):,}; --all shows all):" if left_out else "steps:")
        for each in shown:
            print_lines(step_lines(each))
        print_lines(() if timeline is None else timeline_lines(timeline, None if whole else MOST_SHOWN))
    return 0


@command.command(epilog="Example: gert run tail 20260228-1430 --follow")
@click.option("--follow", "-f", is_flag=True, help="Continue until the run ends or waits.")
@click.option("--since-seq", type=click.IntRange(0), default=0, metavar="N", help="Only events after this number.")
@click.option("--verbose", "-v", is_flag=True, help="Show each event in full.")
@run_argument
def tail(run_id: str, follow: bool, since_seq: int, verbose: bool, ledger: LedgerChoice, as_json: bool) -> int:
    """Show the events of a run; with --follow until it ends or waits, or Ctrl-C.

    A paused agent run is still followed: another process may resume it.
    """
    with open_runs(*ledger) as runs:
        entry = runs.entry(runs.find(run_id))
        reading = runs.follow(entry, since_seq)
        events = _followed(runs, entry, reading) if follow else _readable(reading)
        if not as_json:
            print_timeline(events, verbose=verbose)
            return 0
        for event in events:
            print_json_line(event)
    return 0


@command.command("abandon", epilog='Example: gert run abandon 20260228-1430 --reason "the pod is gone"')
@click.option("--reason", required=True, metavar="TEXT", help="Reason to record.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user).")
@click.option(
    "--adopt-unsealed",
    metavar="REASON",
    help="End a run that is not sealed although a signing key is set, for this reason.",
)
@run_argument
def abandon_(
    run_id: str,
    reason: str,
    actor: str | None,
    adopt_unsealed: str | None,
    ledger: LedgerChoice,
    as_json: bool,
) -> int:
    """Abandon a runbook run that is not running: close and seal its record, and close its tickets.

    Nothing is called, not even the steps of `finally`. A running run is refused: stop it with Ctrl-C or SIGTERM to its
    process, or, in the background, with `gert run cancel`.
    """
    options = AbandonOptions(
        run_id=run_id,
        reason=reason,
        actor=checked_actor(actor),
        **ledger._asdict(),
        adopt_unsealed=adopt_unsealed,
    )
    ended = asyncio.run(abandon(options))
    if as_json:
        print_json(ended)
    else:
        print_lines(abandoned_lines(ended))
    return 0


for _each in (status, summaries, artifacts, export, cancel, advance, evidence, cost, diff):
    command.add_command(_each)
command.add_command(verify)
_verify = copy(verify)
_verify.name, _verify.epilog = "verify", (verify.epilog or "").replace("verify-ledger", "verify")
command.add_command(_verify)


def _followed(runs: Runs, entry: ListedRun, reading: Follower) -> Iterator[Envelope]:
    """The events of a run, until it ends, no process drives it, or Ctrl-C."""
    with interrupt_event() as stop:
        while True:
            # Checked first: events that a process wrote before it released the lease are read once more.
            continues = not stop.is_set() and _continues(runs, entry)
            yield from _readable(reading)
            if not continues:
                return
            reading.wait(LOOK_AT_AGENT if entry.kind == "agent" else LOOK, stop)


def _continues(runs: Runs, entry: ListedRun) -> bool:
    """Whether more events may follow; an agent run has no driver, and continues until its status is final."""
    return runs.entry(entry.run_id).status in OPEN if entry.kind == "agent" else runs.is_running(entry)


def _readable(reading: Follower) -> Iterator[Envelope]:
    unreadable = 0
    for line in reading.lines():
        try:
            event = decode(line)
        except TraceError:
            unreadable += 1
            continue
        yield event
    if unreadable:
        print_error(f"{plural(unreadable, 'line')} of the trace cannot be read", "`gert trace verify` says more")
