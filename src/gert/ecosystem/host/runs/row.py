"""A run of a list, as machines read it."""

from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.shapes.runs import RunRow
from gert.errors import InputError, TraceError
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.foundation.duration import parse_duration


def run_row(entry: ListedRun) -> RunRow:
    """One run of a list."""
    found, execution = entry.head.runbook, entry.head.runner
    outcome = found.outcome if found is not None else None
    row: RunRow = {
        "run_id": entry.run_id,
        "kind": entry.kind,
        "tenant": entry.tenant,
        "runbook_name": found.runbook if found is not None else None,
        "started": format_timestamp(entry.started) if entry.started is not None else None,
        "actor": found.actor if found is not None else execution.actor if execution is not None else None,
        "mode": found.mode if found is not None else None,
        "status": entry.status,
        "outcome": {"category": outcome[0], "code": outcome[1]} if outcome is not None else None,
        "why": _why(entry) or None,
        "trial": entry.is_trial,
        "events": entry.events,
        "duration": _seconds(entry),
        "waited": _waited(entry),
        "tickets": [view.id for view in entry.tickets],
        "trace": entry.trace,
        "db": entry.place.db,
        "dsn": entry.place.dsn.name if entry.place.dsn is not None else None,
    }
    if execution is not None:
        row["skill_id"], row["runner_id"] = execution.skill_id, execution.runner_id
    return row


def _why(entry: ListedRun) -> str:
    """Why a run did not complete, in a few words."""
    found, execution = entry.head.runbook, entry.head.runner
    if found is not None and found.failure:
        return f"{found.failed_step}: {found.failure}" if found.failed_step else found.failure
    if execution is not None and execution.message:
        return execution.message
    agent = entry.head.agent
    return (agent.failure_reason or "") if agent is not None else ""


def _seconds(entry: ListedRun) -> float | None:
    """The duration of a run; without an end, the time its record covers."""
    found = entry.head.runbook
    if found is not None and found.duration:
        return _duration(found.duration)
    if entry.started is None:
        return None
    try:
        covered = parse_timestamp(entry.last) - entry.started
    except TraceError:
        return None
    return round(max(covered.total_seconds(), 0.0), 3)


def _waited(entry: ListedRun) -> float | None:
    """How long it waited; unknown until the run has ended."""
    found = entry.head.runbook
    if found is None or found.ended is None:
        return None
    return _duration(found.waited) if found.waited else 0.0


def _duration(text: str) -> float | None:
    try:
        return round(parse_duration(text).total_seconds(), 3)
    except InputError:
        return None
