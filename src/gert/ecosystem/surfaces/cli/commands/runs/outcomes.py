"""`gert outcomes`: the outcomes of recorded runs, by runbook."""

import os
import sys
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, cast

import click

from gert.ecosystem.host.runs.outcome_scan import TRIAL, Scan, Sources, sources_for
from gert.ecosystem.host.shapes.reports import OutcomesReport, RunbookOutcomesRow
from gert.ecosystem.surfaces.cli.live.progress import progress
from gert.ecosystem.surfaces.cli.render.output import plural, print_json, print_line
from gert.ecosystem.surfaces.cli.render.runs.outcome_rows import write_rows
from gert.ecosystem.surfaces.cli.render.runs.outcome_text import print_runbooks
from gert.errors import InputError, UsageError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.outcomes import OutcomeReport, Selection, distinct
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.names import did_you_mean
from gert.kernel.foundation.text import printable

ALL: Final = "all"
MODES: Final = (ALL, "real", "replay", "dry-run", "probe")
MOST_SHOWN: Final = 5
PASSED_OVER: Final = {
    "mode": ("in another mode", "pass `--mode all` to count every run"),
    "period": ("outside the period", "set the period with `--since` and `--until`"),
    "runbook": ("of another runbook", "omit `--runbook` to count all runbooks"),
    TRIAL: ("of `gert tool try`", "`gert run list --all` lists them"),
}


@click.command(epilog="Example: gert outcomes --since 7d --runbook service-health-check")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--since", metavar="WHEN", help="Only runs started since: 7d, 24h, 2026-02-28 or a timestamp.")
@click.option("--until", metavar="WHEN", help="Only runs started until then; a day includes its end (UTC).")
@click.option("--runbook", metavar="NAME", help="Only runs of this runbook.")
@click.option("--mode", type=click.Choice(MODES), default="real", show_default=True, help="Only runs in this mode.")
@click.option("--db", metavar="FILE", help="Read runs from this SQLite ledger.")
@click.option(
    "--dsn", metavar="DSN", help="Read runs from this Postgres ledger; env:NAME reads the DSN from a variable."
)
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV row per run.")
def command(
    paths: tuple[str, ...],
    since: str | None,
    until: str | None,
    runbook: str | None,
    mode: str,
    db: str | None,
    dsn: str | None,
    state_dir: str | None,
    as_json: bool,
    as_csv: bool,
) -> int:
    """Show run outcomes by runbook.

    PATH is a trace or a folder of traces. Without PATH, gert reads the configured folder (GERT_TRACES_DIR, or
    `traces.dir` of the project) and the runs of the state directory. Runs of `gert tool try` are not counted.
    Traces are not verified here; use `gert trace verify` for that.
    """
    if as_json and as_csv:
        raise UsageError("expected `--json` or `--csv`, found both")
    now = datetime.now(UTC)
    selection = Selection(
        since=_moment(since, now),
        until=_moment(until, now, end_of_day=True),
        runbook=runbook,
        mode=None if mode == ALL else mode,
    )
    if selection.since is not None and selection.until is not None and selection.since >= selection.until:
        raise UsageError("`--since` must be before `--until`")
    places = sources_for(paths, db, state_dir, os.getcwd(), os.environ, dsn)
    report = OutcomeReport()
    # Rows that appear on the same terminal are progress enough.
    with progress(wanted=not (as_csv and sys.stdout is not None and sys.stdout.isatty())) as reading:
        scan = Scan(selection, reading.on_read)
        runs = distinct(scan.runs(places))
        if as_csv:
            write_rows(runs, sys.stdout)
        else:
            for run in runs:
                report.add(run)
    if as_json:
        print_json(_document(report, scan, places, selection))
        return 0
    if report.runs:
        print_runbooks(report.runbooks, _duration(since) if until is None else None)
    elif not as_csv:
        _say_nothing(scan, places, runbook)
    _note(scan)
    return 0


def _moment(text: str | None, now: datetime, *, end_of_day: bool = False) -> datetime | None:
    """Parse a duration before now, a day, or a timestamp."""
    if text is None:
        return None
    if _duration(text) is not None:
        return now - parse_duration(text)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return _timestamp(text)
    midnight = datetime.combine(day, time(), UTC)
    return midnight + timedelta(days=1) if end_of_day and day < date.max else midnight


def _timestamp(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"expected a duration or a date, found `{text}`",
            hint="for example `7d`, `24h`, `2026-02-28` or `2026-02-28T14:30:00Z`",
        ) from None


def _duration(text: str | None) -> str | None:
    """The text, if it is a duration."""
    if text is None:
        return None
    try:
        parse_duration(text)
    except InputError:
        return None
    return text


def _say_nothing(scan: Scan, places: Sources, runbook: str | None) -> None:
    passed = scan.passed_over
    if not passed:
        print_line(f"No runs found in {', '.join(map(printable, places.names))}.")
        _hint("pass a trace, a folder of traces, or a ledger with `--db` or `--dsn`; `gert exec` records every run")
        return
    said = ", ".join(f"{count} {PASSED_OVER[why][0]}" for why, count in sorted(passed.items()))
    print_line(f"No runs to count: of {plural(passed.total(), 'run')} found, {said}.")
    guess = did_you_mean(runbook, sorted(scan.other_runbooks)) if runbook is not None else None
    if guess is not None:
        _hint(f"did you mean `--runbook {guess}`?")
    else:
        _hint(PASSED_OVER[max(passed, key=lambda why: (passed[why], why))][1])


def _hint(text: str) -> None:
    print_line(f"  {click.style('hint:', fg='cyan')} {printable(text)}")


def _note(scan: Scan) -> None:
    """What was not counted, on standard error."""
    label = click.style("note:", fg="yellow")
    for each in scan.skipped[:MOST_SHOWN]:
        click.echo(f"{label} skipped `{printable(each.file)}`: {printable(each.reason)}", err=True)
    more = scan.skipped_count - MOST_SHOWN
    if more > 0:
        click.echo(f"{label} skipped {plural(more, 'more file')}: `--json` lists the reasons", err=True)
    if scan.unreadable:
        lines = f"{plural(scan.unreadable, 'line')} of traces cannot be read"
        click.echo(f"{label} {lines}: run `gert trace verify FILE` for details", err=True)


def _document(report: OutcomeReport, scan: Scan, places: Sources, selection: Selection) -> OutcomesReport:
    return {
        "runs": report.runs,
        "since": None if selection.since is None else format_timestamp(selection.since),
        "until": None if selection.until is None else format_timestamp(selection.until),
        "runbook": selection.runbook,
        "mode": selection.mode or ALL,
        "places": list(places.names),
        "traces": scan.traces,
        "runbooks": [cast("RunbookOutcomesRow", each.as_data()) for each in report.runbooks],
        "passed_over": {why: scan.passed_over[why] for why in PASSED_OVER},
        "skipped": {
            "count": scan.skipped_count,
            "files": [{"file": each.file, "reason": each.reason} for each in scan.skipped],
        },
        "unreadable_lines": scan.unreadable,
    }
