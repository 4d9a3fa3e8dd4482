"""A run as plain data: its status, events, summaries and artifacts.

The models of the agent kernel are imported only for agent runs.
"""

from typing import Any, Final

from gert.ecosystem.host.runs.ledger_reader import LedgerReader
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.row import run_row
from gert.ecosystem.host.shapes.reports import SummaryRow
from gert.ecosystem.host.shapes.runs import InDoubtCall, OutcomeDocument, StatusFacts
from gert.errors import TraceError
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import Envelope, decode, parse_timestamp
from gert.kernel.foundation.lenient_json import json_or

MOST_SUMMARIES: Final = 20


def status_facts(entry: ListedRun) -> StatusFacts:
    """The status of a run, in the same form for every kind of run."""
    return {
        "run_id": entry.run_id,
        "kind": entry.kind,
        "tenant_id": entry.tenant,
        "status": entry.status,
        "last_event_seq": entry.events,
        "last_event_type": entry.last_type,
        "updated_at": _iso(entry.last),
        "outcome": outcome_facts(entry),
        "blocked_on": _blocked_on(entry),
        "tickets": [
            {
                "ticket_id": view.id,
                "path": view.ticket.request.path or view.ticket.request.step_id,
                "status": view.status_at(entry.now) if entry.now is not None else view.status,
                "answered": view.is_answered,
                "expires_at": view.ticket.expires_at,
                "notes": list(view.notes),
            }
            for view in entry.tickets
        ],
        "failure_reason": _failure_reason(entry),
        "failed_step": entry.head.runbook.failed_step if entry.head.runbook is not None else None,
        "in_doubt": in_doubt_facts(entry),
    }


def outcome_facts(entry: ListedRun) -> OutcomeDocument | None:
    """The outcome of a run, with its `meta` where its last event was read."""
    found = run_row(entry)["outcome"]
    said = entry.end.data.get("outcome") if entry.end is not None and found is not None else None
    if found is not None and isinstance(said, dict) and isinstance(said.get("meta"), dict) and said["meta"]:
        found["meta"] = said["meta"]
    return found


def in_doubt_facts(entry: ListedRun) -> list[InDoubtCall]:
    """The calls of a run that have no result, while no process drives it."""
    return [
        {"path": each.path, "step_id": each.step_id, "target": each.target, "idempotent": each.idempotent}
        for each in entry.in_doubt
    ]


def agent_facts(entry: ListedRun) -> dict[str, Any]:
    """The explanation of an agent run from its head, without reading events."""
    if entry.kind != "agent":
        return {}
    from gert.kernel.agent.api.status import explanation_of

    return dict(explanation_of(entry.head))


def event_facts(line: bytes) -> dict[str, Any]:
    """An event as the agent kernel shows it; one of a runbook run in the same form."""
    from gert.kernel.ledger.projection import event_id

    event = decode(line)
    return {
        "event_id": event_id(event.run_id, event.seq),
        "event_type": event.type,
        "parent_step_key": event.path,
        "payload": _payload(event, line),
        "run_id": event.run_id,
        "seq": event.seq,
        "tenant_id": event.tenant,
        "timestamp": _iso(event.timestamp),
    }


def summary_facts(reader: LedgerReader, run_id: str, summary_type: str | None, limit: int) -> list[SummaryRow]:
    """The newest summaries of a run, the newest first."""
    return [_summary(decode(line)) for line in reader.ask(lambda ledger: ledger.summaries(run_id, summary_type, limit))]


def artifact_facts(reader: LedgerReader, run_id: str) -> dict[str, Any]:
    """The newest value of each artifact of a run, by key."""
    from gert.kernel.agent.api.notes import ARTIFACT

    found = [_summary(decode(line)) for line in reader.ask(lambda ledger: ledger.latest_summaries(run_id, ARTIFACT))]
    held = {str(each["summary_type"]).removeprefix(ARTIFACT): each["summary"] for each in found}
    return {key: value.get("value") if isinstance(value, dict) else value for key, value in sorted(held.items())}


def _summary(event: Envelope) -> SummaryRow:
    said = event.payload
    if not isinstance(said, RunSummary):
        raise TraceError(f"expected event {event.seq} to be a `run_summary`, found `{event.type}`")
    return {
        "parent_step_key": event.path,
        "seq": event.seq,
        "step_key": said.step_key,
        "summary": json_or(said.summary_json, said.summary_json),
        "summary_type": said.summary_type,
        "timestamp": _iso(event.timestamp),
    }


def _payload(event: Envelope, line: bytes) -> dict[str, Any]:
    from gert.kernel.agent.types.payloads import PAYLOADS, event_from_line

    if event.type in PAYLOADS and event.tenant is not None:
        try:
            return event_from_line(line).payload.model_dump(mode="json")
        except TraceError:
            pass  # written by a newer version: its data is shown unchanged
    return {"kind": event.type, **event.data}


def _iso(timestamp: str | None) -> str | None:
    """A timestamp in the format of Python; an invalid one unchanged."""
    try:
        return parse_timestamp(timestamp).isoformat() if timestamp is not None else None
    except TraceError:
        return timestamp


def _blocked_on(entry: ListedRun) -> str | None:
    if entry.head.agent is not None:
        return entry.head.agent.blocked_on
    return f"approval:{entry.tickets[0].id}" if entry.tickets else None


def _failure_reason(entry: ListedRun) -> str | None:
    if entry.head.agent is not None:
        return entry.head.agent.failure_reason if entry.status == "failed" else None
    if entry.head.runner is not None:
        execution = entry.head.runner
        return f"{execution.rule}: {execution.message}" if execution.rule is not None else None
    found = entry.head.runbook
    return f"{found.failure_kind}: {found.failure}" if found is not None and found.failure_kind is not None else None
