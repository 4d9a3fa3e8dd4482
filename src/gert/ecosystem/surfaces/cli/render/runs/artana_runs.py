"""The output of `artana run`: tab-separated lines, or one line of JSON with sorted keys."""

import json
import os
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import click

from gert.ecosystem.host.config.dsn import read_dsn
from gert.ecosystem.host.config.files import is_file
from gert.ecosystem.host.config.keys.trace_keys import verification_keys
from gert.ecosystem.host.config.ledger_location import require_ledger
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.host.runs.details import artifact_facts, event_facts, status_facts, summary_facts
from gert.ecosystem.host.runs.ledger_reader import Follower, LedgerReader
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.host.runs.verify_ledger import Demands, check_record
from gert.ecosystem.surfaces.cli.live.interrupt import interrupt_event
from gert.ecosystem.surfaces.cli.options import parse_since
from gert.errors import RunError, UsageError
from gert.kernel.foundation.text import printable

POLL_INTERVAL: Final = 30.0
"""Seconds between two reads of a followed run if no notification arrives."""

_STATUS: Final = (
    "blocked_on", "failure_reason", "last_event_seq", "last_event_type", "run_id", "status", "tenant_id", "updated_at",
)  # fmt: skip
_Where = tuple[str, str | None]


def moment_of(since: str | None) -> datetime | None:
    """Parse --since, if given."""
    return parse_since(since, now()) if since is not None else None


def list_runs(where: _Where, tenant: str | None, since: str | None, moment: datetime | None, *, as_json: bool) -> None:
    """`run_id`, one per line, the newest first."""
    with _opened(where) as runs:
        ids = [head.run_id for head in _archive(runs).heads(tenant=tenant, since=moment)]
    if as_json:
        _say_json({"run_ids": ids, "since": since, "tenant": tenant})
    else:
        for run_id in ids:
            _say_row((run_id,))


def tail(where: _Where, run_id: str, since_seq: int, *, follow: bool, as_json: bool) -> None:
    """`seq⇥timestamp⇥event_type⇥parent_step_key`, with `-` for an event that belongs to no step."""
    with _opened(where) as runs:
        entry = _entry(runs, run_id)
        reading = runs.follow(entry, since_seq)
        if follow:
            _follow(reading, as_json=as_json)
            return
        events = (event_facts(line) for line in reading.lines())
        if as_json:
            _say_events(events, run_id)
        else:
            for event in events:
                _say_event(event)


def verify_ledger(where: _Where, run_id: str, *, as_json: bool) -> int:
    """`valid` or `invalid`; the reasons go to standard error."""
    with _opened(where) as runs:
        found = check_record(runs.reader, _found(runs, run_id), Demands(verification_keys(os.environ, None)))
    if as_json:
        _say_json({"run_id": run_id, "valid": found.holds})
    else:
        click.echo("valid" if found.holds else "invalid")
    for check in found.failures:
        click.echo(printable(check.reason), err=True)
    return 0 if found.holds else 1


def status(where: _Where, run_id: str, *, as_json: bool) -> None:
    """`run_id⇥status⇥last_seq=N⇥updated_at=ISO`."""
    with _opened(where) as runs:
        facts = status_facts(_entry(runs, run_id))
    if as_json:
        _say_json({name: facts[name] for name in _STATUS})
    else:
        said = (f"last_seq={facts['last_event_seq']}", f"updated_at={facts['updated_at']}")
        _say_row((run_id, facts["status"], *said))


def summaries(where: _Where, run_id: str, summary_type: str | None, limit: int, *, as_json: bool) -> None:
    """`seq⇥summary_type⇥step_key⇥json`, the newest first."""
    with _opened(where) as runs:
        _entry(runs, run_id)
        noted = summary_facts(_archive(runs), run_id, summary_type, limit)
    if as_json:
        _say_json({"run_id": run_id, "summaries": noted})
    else:
        for each in noted:
            _say_row((each["seq"], each["summary_type"], each["step_key"] or "-", _json(each["summary"])))


def artifacts(where: _Where, run_id: str, *, as_json: bool) -> None:
    """`key⇥json`, by key."""
    with _opened(where) as runs:
        _entry(runs, run_id)
        held = artifact_facts(_archive(runs), run_id)
    if as_json:
        _say_json({"artifacts": held, "run_id": run_id})
    else:
        for key, value in held.items():
            _say_row((key, _json(value)))


def _follow(reading: Follower, *, as_json: bool) -> None:
    """Print events as they arrive; with --json, one per line."""
    with interrupt_event() as stop:
        while not stop.is_set():
            for line in reading.lines():
                event = event_facts(line)
                if as_json:
                    _say_json(event)
                else:
                    _say_event(event)
            reading.wait(POLL_INTERVAL, stop)


def _opened(where: _Where) -> Runs:
    db, dsn = where
    if dsn is not None:
        return Runs(Place("", None, read_dsn(dsn, os.environ)))
    if not os.path.isdir(db) and not is_file(db):
        raise UsageError(f"there is no database `{db}`")
    require_ledger(db)
    return Runs(Place("", db))


def _entry(runs: Runs, run_id: str) -> ListedRun:
    return runs.entry(_found(runs, run_id))


def _found(runs: Runs, run_id: str) -> str:
    """Find a run by its full id: scripts rely on it."""
    if _archive(runs).head(run_id) is None:
        raise RunError(f"there is no run `{run_id}` in `{runs.place.name}`")
    return run_id


def _archive(runs: Runs) -> LedgerReader:
    assert runs.reader is not None  # noqa: S101 - every place here is a ledger
    return runs.reader


def _say_event(event: dict[str, Any]) -> None:
    _say_row((event["seq"], event["timestamp"], event["event_type"], event["parent_step_key"] or "-"))


def _say_events(events: Iterable[dict[str, Any]], run_id: str) -> None:
    """Print all events as one document while reading them: a run may be larger than memory."""
    before = '{"events":['
    for event in events:
        click.echo(before + _json(event), nl=False)
        before = ","
    click.echo(("" if before == "," else before) + f'],"run_id":{_json(run_id)}}}')


def _say_row(cells: Iterable[object]) -> None:
    # Each cell is escaped separately: a tab in a value would end the cell.
    click.echo("\t".join(printable(str(cell)) for cell in cells))


def _say_json(value: Any) -> None:
    click.echo(_json(value))


def _json(value: Any) -> str:
    """One line of sorted ASCII JSON: a terminal must not act on the output of a model."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
