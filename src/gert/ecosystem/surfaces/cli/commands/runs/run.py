"""`gert run`: which runs there are, how each stands, what happens in one, and an end for one nobody goes on with."""

import asyncio
from collections.abc import Iterator
from typing import Final

import click
import msgspec

from gert.ecosystem.host.redrive.abandon import AbandonOptions, abandon
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.host.runs.agent_timeline import timeline_of
from gert.ecosystem.host.runs.entry import OPEN, STATUSES, Entry
from gert.ecosystem.host.runs.follow import Following
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.surfaces.cli.commands.runs.exec import checked_actor
from gert.ecosystem.surfaces.cli.commands.runs.run_control import advance, cancel, evidence
from gert.ecosystem.surfaces.cli.commands.runs.run_ledger import artifacts, export, status, summaries, verify
from gert.ecosystem.surfaces.cli.commands.runs.run_reports import cost, diff
from gert.ecosystem.surfaces.cli.live.interrupt import interrupt_event
from gert.ecosystem.surfaces.cli.options import ledger_options, open_runs, parse_since, run_argument
from gert.ecosystem.surfaces.cli.render.agent_timeline_text import MOST_SHOWN, as_data, timeline_lines
from gert.ecosystem.surfaces.cli.render.output import plural, print_error, print_json, print_line, print_table
from gert.ecosystem.surfaces.cli.render.run_text import (
    HEADINGS,
    SPARE,
    abandoned_lines,
    about,
    as_document,
    as_row,
    row,
)
from gert.ecosystem.surfaces.cli.render.timeline import print_timeline
from gert.errors import GertError, TraceError
from gert.kernel.events.envelope import Envelope, decode

MOST_LISTED: Final = 50
LOOK: Final = 0.2
"""Seconds between two looks at whether a process still drives a run that is followed."""

LOOK_AT_AGENT: Final = 30.0
"""The same for an agent run: its end is an event, and events wake whoever follows them."""


@click.group(epilog="Example: gert run list --status waiting")
def command() -> None:
    """List, show, follow, verify and abandon runs of every kind.

    RUN is the id of a run, a unique prefix of it, or `last`: the run that was written to last. Runs are those of the
    state directory, or with --db or --dsn those of another ledger, which may hold runbook runs, agent runs and
    executions of runners.
    """


@command.command("list", epilog="Example: gert run list --since 7d --status cut-off")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs that stand so.")
@click.option("--runbook", metavar="NAME", help="Only runs of this runbook.")
@click.option("--tenant", metavar="ID", help="Only runs of this tenant.")
@click.option("--since", metavar="TIME", help="Only runs that began since: a duration such as 7d, or a time.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=MOST_LISTED, show_default=True, help="How many at most."
)
@ledger_options
def list_(
    status: str | None,
    runbook: str | None,
    tenant: str | None,
    since: str | None,
    limit: int,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
) -> int:
    """List runs, the newest first; those of a ledger by when they were last written to.

    A runbook run is `running` while a process drives it, `waiting` where it waits for an approval, and `cut-off` where
    its process ended before it did: `gert resume` goes on with both. An agent run is `active` or `paused` until its
    harness says that it has completed or failed.
    """
    moment = now()
    earliest = parse_since(since, moment) if since is not None else None
    found: list[Entry] = []
    unreadable: dict[str, GertError] = {}
    with open_runs(state_dir, db, dsn) as runs:
        for entry in runs.newest(earliest, tenant, unreadable.__setitem__):
            if (status is None or entry.is_of(status)) and (runbook is None or as_row(entry)["runbook"] == runbook):
                found.append(entry)
                if len(found) >= limit:
                    break
        if as_json:
            print_json([as_row(entry) for entry in found])
        elif found:
            print_table(HEADINGS, [row(entry, moment) for entry in found], SPARE)
        else:
            any_run = bool(unreadable) or next(runs.newest(), None) is not None
            print_line("there are no such runs" if any_run else f"there are no runs in {runs.place.name}")
    for run_id, problem in unreadable.items():
        print_error(f"run `{run_id}` cannot be read: {problem.message}", "`gert run verify-ledger` says more")
    return 1 if unreadable else 0


@command.command(epilog="Example: gert run show 20260228-1430")
@click.option("--all", "whole", is_flag=True, help=f"Show the whole timeline (default: the last {MOST_SHOWN} items).")
@run_argument
def show(run_id: str, whole: bool, state_dir: str | None, db: str | None, dsn: str | None, as_json: bool) -> int:
    """Show what a run was started with, how it stands or ended, and what to do next.

    Of an agent run also a timeline: turns, model and tool calls, decisions, approvals, drift and cost.
    """
    with open_runs(state_dir, db, dsn) as runs:
        entry = runs.whole_entry(runs.find(run_id))
        timeline = timeline_of(runs.lines(entry)) if entry.kind == "agent" else None
    if as_json:
        print_json(as_document(entry) | ({} if timeline is None else as_data(timeline, whole=whole)))
    else:
        for line in about(entry, now()):
            print_line(line)
        for line in () if timeline is None else timeline_lines(timeline, None if whole else MOST_SHOWN):
            print_line(line)
    return 0


@command.command(epilog="Example: gert run tail 20260228-1430 --follow")
@click.option("--follow", "-f", is_flag=True, help="Go on showing what happens while it runs.")
@click.option("--since-seq", type=click.IntRange(0), default=0, metavar="N", help="Only events after this number.")
@click.option("--verbose", "-v", is_flag=True, help="Show what each event says in full.")
@run_argument
def tail(
    run_id: str,
    follow: bool,
    since_seq: int,
    verbose: bool,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
) -> int:
    """Show what happens in a run, event by event; with --follow until it ends, waits, or Ctrl-C.

    An agent run that is paused goes on being followed: whoever resumes it may be elsewhere.
    """
    with open_runs(state_dir, db, dsn) as runs:
        entry = runs.entry(runs.find(run_id))
        reading = runs.follow(entry, since_seq)
        events = _followed(runs, entry, reading) if follow else _readable(reading)
        if not as_json:
            print_timeline(events, verbose=verbose)
            return 0
        import json

        for event in events:
            # As ASCII: a terminal must not act on what a tool printed.
            print_line(json.dumps(msgspec.to_builtins(event), separators=(",", ":")))
    return 0


@command.command("abandon", epilog='Example: gert run abandon 20260228-1430 --reason "the pod is gone"')
@click.option("--reason", required=True, metavar="TEXT", help="Why nobody goes on with it; it is recorded.")
@click.option("--as", "actor", metavar="ACTOR", help="Who says so; the user of this machine when left out.")
@click.option(
    "--adopt-unsealed",
    metavar="REASON",
    help="End a run that is not sealed although a signing key is set; the reason is recorded.",
)
@run_argument
def abandon_(
    run_id: str,
    reason: str,
    actor: str | None,
    adopt_unsealed: str | None,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    as_json: bool,
) -> int:
    """End a runbook run that is not running: its record is closed and sealed, and its requests for approval are.

    Nothing is called: neither what was left to do, nor the steps of `finally`. A run that is running is not touched;
    Ctrl-C, or SIGTERM to its process, ends that one.
    """
    options = AbandonOptions(
        run_id=run_id,
        reason=reason,
        actor=checked_actor(actor),
        state_dir=state_dir,
        db=db,
        dsn=dsn,
        adopt_unsealed=adopt_unsealed,
    )
    ended = asyncio.run(abandon(options))
    if as_json:
        print_json(msgspec.to_builtins(ended))
    else:
        for line in abandoned_lines(ended):
            print_line(line)
    return 0


for _each in (status, summaries, artifacts, export, cancel, advance, evidence, cost, diff):
    command.add_command(_each)
for _name in ("verify-ledger", "verify"):
    command.add_command(verify, _name)


def _followed(runs: Runs, entry: Entry, reading: Following) -> Iterator[Envelope]:
    """The events of a run as they come, until it has ended, nobody drives it, or Ctrl-C."""
    with interrupt_event() as stop:
        while True:
            # Looked at first: what a process wrote before it let go is read once more.
            goes_on = not stop.is_set() and _goes_on(runs, entry)
            yield from _readable(reading)
            if not goes_on:
                return
            reading.wait(LOOK_AT_AGENT if entry.kind == "agent" else LOOK, stop)


def _goes_on(runs: Runs, entry: Entry) -> bool:
    """Whether more may come: an agent run goes on until it says that it has ended, whoever drives it."""
    return runs.entry(entry.run_id).standing in OPEN if entry.kind == "agent" else runs.is_running(entry)


def _readable(reading: Following) -> Iterator[Envelope]:
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
