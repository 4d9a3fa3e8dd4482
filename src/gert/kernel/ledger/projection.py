"""The rows derived from events: the calls they open and end, the tickets they open and close, the snapshot.

One projection serves the append that writes these rows and the verification that computes them again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gert.errors import TraceError
from gert.kernel.events.agent import (
    ContextRead,
    ModelCompleted,
    ModelFailed,
    ModelRequested,
    PauseRequested,
    ReplayedWithDrift,
    ResumeRequested,
    RunSummary,
    ToolCompleted,
    ToolRequested,
    WorkflowStepCompleted,
    WorkflowStepFailed,
    WorkflowStepRequested,
)
from gert.kernel.events.payload import Payload, to_data
from gert.kernel.events.runbook import (
    ApprovalOutdated,
    ApprovalRefused,
    ApprovalResolved,
    ApprovalResponse,
    ApprovalSubmitted,
    RunComplete,
    RunStart,
    StepComplete,
    StepRetry,
    StepStart,
)
from gert.kernel.events.runner import PlanCreated
from gert.kernel.events.vocabulary import RunKind
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.ledger import agent_fold, runbook_fold, runner_fold
from gert.kernel.ledger.agent_fold import AgentSnapshot
from gert.kernel.ledger.record import Call, CallEnd, CallKind, CallOutcome, Head, TicketEnd, TicketResponse, TicketRow
from gert.kernel.ledger.runbook_fold import TICKET, RunbookSnapshot, is_call, target_of
from gert.kernel.ledger.runner_fold import RunnerSnapshot
from gert.kernel.ledger.spending import PRICED, Spend, spends_of, spent_by

_encode = msgspec.json.Encoder(order="sorted").encode


class Projection:
    """The derived rows of a run, from its head on.

    For a run of an agent a call ends where an event names its number; a step of a runbook ends where an event has
    the path of its start, so the open calls of a runbook come from its snapshot.
    """

    def __init__(self, head: Head) -> None:
        self._run_id = head.run_id
        self.kind = head.kind
        self.tenant = head.tenant
        self.snapshot = head.snapshot
        self.calls: list[Call] = []
        self.ends: list[CallEnd] = []
        self.tickets: list[TicketRow] = []
        self.ticket_ends: list[TicketEnd] = []
        self.responses: list[TicketResponse] = []
        self.spends: list[Spend] = []

    def add(self, payload: Payload, seq: int, timestamp: str, path: str | None = None) -> None:
        """Add an event."""
        if seq == 1:
            self.kind = _KIND_OF.get(type(payload), self.kind)
        if self.kind == "runbook":
            self._add_runbook(payload, seq, timestamp, path)
        elif self.kind == "runner":
            known = self.snapshot if isinstance(self.snapshot, RunnerSnapshot) else RunnerSnapshot()
            self.snapshot = runner_fold.fold(known, payload)
        else:
            self._add_agent(payload, seq, timestamp)

    @property
    def is_clear(self) -> bool:
        """Whether the events since the last `clear` lead to no rows."""
        return not (self.calls or self.ends or self.tickets or self.ticket_ends or self.responses or self.spends)

    def clear(self) -> None:
        """Forget the rows so far; the snapshot stays."""
        for rows in (self.calls, self.ends, self.tickets, self.ticket_ends, self.responses, self.spends):
            rows.clear()

    def _add_agent(self, payload: Payload, seq: int, timestamp: str) -> None:
        before = self.snapshot if isinstance(self.snapshot, AgentSnapshot) else AgentSnapshot()
        self.snapshot = agent_fold.fold(before, payload, seq)
        kind = type(payload)
        if kind in PRICED:
            self.spends += spends_of(spent_by(payload, before.reserved), self._run_id, self.tenant or "")
        elif kind in _ABOUT_TICKETS:
            self._add_ticket_event(payload, seq, timestamp)
        if kind in _OPENS:
            self.calls.append(_opened_by(payload, seq, self._run_id, self.tenant or "", timestamp))
        if kind in _ENDS:
            self.ends += _ENDS[kind](payload, seq)

    def _add_runbook(self, payload: Payload, seq: int, timestamp: str, path: str | None) -> None:
        before = self.snapshot if isinstance(self.snapshot, RunbookSnapshot) else RunbookSnapshot()
        match payload:
            case StepStart() if is_call(payload):
                call = Call(self._run_id, seq, "tool", f"tool:{path}", target_of(payload), "", timestamp, last_seq=seq)
                self.calls.append(call)
            case StepStart() if payload.step_type == "manual" and payload.contract_summary:
                # It calls nothing, so it cannot be open; limits count it all the same.
                done = Call(self._run_id, seq, "manual", f"manual:{path}", "manual", "", timestamp, last_seq=seq)
                self.calls.append(msgspec.structs.replace(done, outcome="success", done_seq=seq))
            case StepRetry():
                # Every attempt is a call of its own: limits count what is executed.
                for each in before.open:
                    if each.path == path:
                        self.ends.append(CallEnd(each.seq, seq, "failed"))
                        key = f"tool:{path}"
                        again = Call(self._run_id, seq, "tool", key, each.target, "", timestamp, last_seq=seq)
                        self.calls.append(again)
            case StepComplete():
                outcome = _outcome_of(payload)
                self.ends += (CallEnd(each.seq, seq, outcome) for each in before.open if each.path == path)
            case RunComplete():
                self.ends += (CallEnd(each.seq, seq, "unknown_outcome") for each in before.open)
                self.ticket_ends.append(TicketEnd(None, "abandoned", seq))
            case _:
                self._add_ticket_event(payload, seq, timestamp)
        self.snapshot = runbook_fold.fold(before, payload, seq, path)

    def _add_ticket_event(self, payload: Payload, seq: int, timestamp: str) -> None:
        """Add an event about a ticket; they are the same for every kind of run."""
        match payload:
            case ApprovalSubmitted() if payload.method == TICKET:
                self.tickets.append(_ticket_of(payload, self._run_id, seq, timestamp))
            case ApprovalResponse() | ApprovalRefused() if payload.method == TICKET:
                line = _encode(to_data(payload)).decode()
                self.responses.append(TicketResponse(payload.ticket_id, f"{line}\n"))
            case ApprovalResolved():
                self.ticket_ends.append(TicketEnd(payload.ticket_id, payload.status, seq))
            case ApprovalOutdated():
                self.ticket_ends.append(TicketEnd(payload.ticket_id, "abandoned", seq))
            case _:
                pass


_ABOUT_TICKETS = frozenset({ApprovalSubmitted, ApprovalResponse, ApprovalRefused, ApprovalResolved, ApprovalOutdated})

# The first event says what kind of run it is; any other begins an agent run.
_KIND_OF: Mapping[type[Payload], RunKind] = {RunStart: "runbook", PlanCreated: "runner"}


def _ticket_of(said: ApprovalSubmitted, run_id: str, seq: int, timestamp: str) -> TicketRow:
    request = _encode(said.request).decode() if said.request is not None else ""
    created_at = said.created_at or timestamp
    return TicketRow(said.ticket_id, run_id, seq, said.step_id, created_at, said.expires_at, request=request)


def _outcome_of(said: StepComplete) -> CallOutcome:
    """The outcome of the call of a step."""
    if said.status == "success":
        return "success"
    kind = said.failure.kind if said.failure is not None else ""
    if kind in ("timeout", "cancelled", "unknown_outcome"):
        return kind
    return "failed"


def summary_type_of(payload: Payload) -> str | None:
    """The type a summary is found by."""
    return payload.summary_type if isinstance(payload, RunSummary) else None


def key_of(kind: CallKind, step_key: str | None, input_hash: str) -> str:
    """The key that a request is looked up by: its step key, or the hash of its input."""
    return f"{kind}:{step_key}" if step_key is not None else f"{kind}#{input_hash}"


def tool_hash(tool_name: str, arguments_json: str) -> str:
    """The hash of a tool call: which tool, and its canonical arguments."""
    return sha256_hex(msgspec.json.encode((tool_name, arguments_json)))


def idempotency_key(run_id: str, tool_name: str, seq: int) -> str:
    """The idempotency key of a tool call, from the number of its `tool_requested`."""
    return sha256_hex(f"{run_id}:{tool_name}:{seq}".encode())


def _opened_by(payload: Payload, seq: int, run_id: str, tenant: str, moment: str) -> Call:
    """The request an event makes."""
    kind, step_key, name, input_hash, semantic_key = _OPENS[type(payload)](payload)
    key = key_of(kind, step_key, input_hash)
    call = Call(run_id, seq, kind, key, name, tenant, moment, input_hash, semantic_key, last_seq=seq)
    # One event records both the request and what was read.
    return msgspec.structs.replace(call, outcome="success", done_seq=seq) if kind == "read" else call


def event_id(run_id: str, seq: int) -> str:
    """The id of an event, unique in every ledger."""
    return f"{run_id}#{seq}"


def seq_of(event: str) -> int:
    """The number in the id of an event."""
    number = event.rpartition("#")[2]
    if not number.isdecimal():
        raise TraceError(f"`{event}` is not the id of an event")
    return int(number)


_Opens = tuple[CallKind, str | None, str, str, str | None]


# Kind, step key, name, input hash and semantic key of the request that an event makes.
_OPENS: Mapping[type[Payload], Callable[[Any], _Opens]] = {
    ModelRequested: lambda said: ("model", said.step_key, said.model, said.input_hash, None),
    ToolRequested: lambda said: (
        "tool", said.step_key, said.tool_name, said.input_hash or tool_hash(said.tool_name, said.arguments_json),
        said.semantic_idempotency_key,
    ),
    WorkflowStepRequested: lambda said: (
        "workflow", said.step_key if said.step_key is not None else str(said.step_index), said.step_name, "", None,
    ),
    ContextRead: lambda said: ("read", said.step_key, said.source, "", None),
    PauseRequested: lambda said: ("pause", said.step_key, said.reason, "", None),
}  # fmt: skip

# The ends of earlier requests that an event records.
_ENDS: Mapping[type[Payload], Callable[[Any, int], Sequence[CallEnd]]] = {
    ToolCompleted: lambda said, seq: (CallEnd(said.request_seq, seq, said.outcome),),
    ModelCompleted: lambda said, seq: (CallEnd(said.request_seq, seq, "success"),),
    WorkflowStepCompleted: lambda said, seq: (CallEnd(said.request_seq, seq, "success"),),
    ModelFailed: lambda said, seq: (CallEnd(said.request_seq, seq, said.reason),),
    WorkflowStepFailed: lambda said, seq: (CallEnd(said.request_seq, seq, said.reason),),
    ResumeRequested: lambda said, seq: tuple(CallEnd(pause, seq, "success") for pause in said.pause_seqs),
    ReplayedWithDrift: lambda said, seq: (
        CallEnd(seq_of(said.source_model_requested_event_id), seq, drift=said.input_hash),
    ),
}
