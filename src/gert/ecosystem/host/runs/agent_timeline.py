"""An agent run as a timeline: turns, model and tool calls, decisions, approvals, drift, and what each cost."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from gert.errors import TraceError
from gert.kernel.events import agent as says
from gert.kernel.events.envelope import Envelope, decode, parse_timestamp
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import approvals
from gert.kernel.foundation.lenient_json import json_object

Kind = Literal["run", "model", "tool", "gate", "decision", "approval", "drift", "pause", "read", "harness", "step"]

_TURN: Final = re.compile(r"(?:^|_)turn_(\d{1,9})(?:_|$)")
_GATE: Final = "_accept_tool_"
_LONGEST: Final = 200


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened in a run.

    seconds: from the start of the run
    turn: the turn of an agent that it belongs to
    took: how long a call took, in seconds; None while it has not ended
    """

    seq: int
    seconds: float
    kind: Kind
    name: str
    status: str = ""
    step_key: str | None = None
    turn: int | None = None
    took: float | None = None
    cost_usd: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    detail: str = ""


class Totals(msgspec.Struct, kw_only=True):
    """The totals of a run."""

    turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    denied: int = 0
    approvals: int = 0
    drifts: int = 0
    cost_usd: float = 0.0


class Timeline(msgspec.Struct):
    """The items of a run in order, and their totals; lines that cannot be read are counted."""

    items: list[Item]
    totals: Totals
    unreadable: int = 0


def timeline_of(lines: Iterable[bytes]) -> Timeline:
    """Read the timeline of an agent run from its lines."""
    builder = _Builder()
    for line in lines:
        try:
            builder.add(decode(line))
        except TraceError:
            builder.found.unreadable += 1
    builder.finish()
    return builder.found


class _Builder:
    """Builds a timeline event by event; knows the calls that have not ended."""

    def __init__(self) -> None:
        self.found = Timeline([], Totals())
        self._began: float | None = None
        self._open: dict[int, Item] = {}
        self._gates: dict[str, Item] = {}

    def add(self, event: Envelope) -> None:
        payload = event.payload
        handle = _HANDLERS.get(type(payload))
        moment = parse_timestamp(event.timestamp).timestamp()
        self._began = moment if self._began is None else self._began
        at = round(moment - self._began, 3)
        if handle is not None:
            handle(self, payload, event.seq, at)
        elif (row := _ROWS.get(type(payload))) is not None:
            self.put(event.seq, at, *row(payload))

    def finish(self) -> None:
        totals = self.found.totals
        for item in self.found.items:
            totals.turns = max(totals.turns, item.turn or 0)
            totals.model_calls += item.kind == "model"
            totals.tool_calls += item.kind in ("tool", "gate")
            totals.denied += item.kind == "decision" and item.status == "deny"
            totals.approvals += item.kind == "approval" and item.status == "requested"
            totals.drifts += item.kind == "drift"
            totals.cost_usd += item.cost_usd

    def put(
        self,
        seq: int,
        at: float,
        kind: Kind,
        name: str,
        status: str = "",
        step_key: str | None = None,
        detail: object = "",
    ) -> Item:
        turn = _TURN.search(step_key) if step_key else None
        item = Item(
            seq=seq,
            seconds=at,
            kind=kind,
            name=name,
            status=status,
            step_key=step_key,
            turn=int(turn[1]) if turn else None,
            detail=_short(detail),
        )
        self.found.items.append(item)
        return item

    # --- events

    def model_requested(self, said: says.ModelRequested, seq: int, at: float) -> None:
        self._open[seq] = self.put(seq, at, "model", said.model, "open", said.step_key)

    def model_ended(self, said: says.ModelCompleted | says.ModelFailed, seq: int, at: float) -> None:
        item = self._open.pop(said.request_seq, None)
        if item is None:
            return
        item.took = round(at - item.seconds, 3)
        item.cost_usd, item.prompt_tokens = said.cost_usd, said.prompt_tokens
        item.completion_tokens = said.completion_tokens
        if isinstance(said, says.ModelCompleted):
            item.status = "completed"
            calls = ", ".join(call.tool_name for call in said.tool_calls)
            item.detail = _short(f"calls {calls}" if calls else said.output_json)
        else:
            item.status, item.detail = said.reason, _short(said.message)

    def tool_requested(self, said: says.ToolRequested, seq: int, at: float) -> None:
        is_gate = said.step_key is not None and _GATE in said.step_key
        item = self.put(seq, at, "gate" if is_gate else "tool", said.tool_name, "open", said.step_key)
        item.detail = _short(said.arguments_json)
        self._open[seq] = item
        if is_gate:
            self._gates[said.step_key or ""] = item

    def tool_ended(self, said: says.ToolCompleted, seq: int, at: float) -> None:
        # A later end replaces an earlier one: hooks changed the result, or the call was reconciled.
        item = self._open.get(said.request_seq)
        if item is None:
            return
        item.took = round(at - item.seconds, 3)
        item.status = said.outcome
        if said.error_message:
            item.detail = _short(said.error_message)
        if said.reconciled_by:
            item.detail = _short(f"reconciled by {said.reconciled_by}")

    def summary(self, said: says.RunSummary, seq: int, at: float) -> None:
        facts = json_object(said.summary_json)
        if said.summary_type == "policy_decision":
            rule, why = facts.get("rule_id", ""), facts.get("reason", "")
            # A denial without a code is a call that waits for an approval.
            waits = facts.get("outcome") == "deny" and not facts.get("code")
            status = "waits" if waits else str(facts.get("outcome", ""))
            item = self.put(seq, at, "decision", str(facts.get("tool_name", "")), status)
            item.step_key, item.detail = said.step_key, _short(f"{rule}: {why}" if why else rule)
        elif said.summary_type == "agent_acceptance_gate" and said.step_key in self._gates:
            self._gates[said.step_key].status = "passed" if facts.get("passed") is True else "not passed"
        elif said.summary_type == "runbook_run":
            self.put(
                seq, at, "run", str(facts.get("run_id", "")), "of runbook", said.step_key, facts.get("runbook", "")
            )
        elif said.summary_type == "parent_run":
            self.put(seq, at, "run", str(facts.get("run_id", "")), "has this as step", None, facts.get("path", ""))
        elif said.summary_type.startswith("run_unblocked"):
            self.put(seq, at, "pause", said.summary_type.partition("::")[2], "unblocked")

    def workflow_requested(self, said: says.WorkflowStepRequested, seq: int, at: float) -> None:
        self._open[seq] = self.put(seq, at, "step", said.step_name, "open", said.step_key)

    def workflow_ended(self, said: says.WorkflowStepCompleted | says.WorkflowStepFailed, seq: int, at: float) -> None:
        item = self._open.pop(said.request_seq, None)
        if item is None:
            return
        item.took = round(at - item.seconds, 3)
        item.status = "completed"
        if isinstance(said, says.WorkflowStepFailed):
            item.status, item.detail = said.reason, _short(said.message)


_Row = tuple[Kind, str, str, str | None, object]

# Events that are one item each: kind, name, status, step key and detail.
_ROWS: Final[Mapping[type[Payload], Callable[[Any], _Row]]] = {
    says.RunStarted: lambda said: (
        "run", "", "started", None, f"forked from {said.forked_from}" if said.forked_from else "",
    ),
    says.RunEnded: lambda said: ("run", "", said.status, None, _joined(said.error_type, said.message)),
    says.RunReopened: lambda _: ("run", "", "reopened", None, ""),
    says.ReplayedWithDrift: lambda said: (
        "drift", said.model, f"forked to {said.fork_run_id}" if said.fork_run_id else "replayed", said.step_key,
        ", ".join(said.drift_fields),
    ),
    says.ContextRead: lambda said: ("read", said.source, "", said.step_key, said.content),
    says.PauseRequested: lambda said: (
        "pause", said.unblock_key or "", "blocked" if said.blocked else "paused", said.step_key, said.reason,
    ),
    says.ResumeRequested: lambda said: ("pause", "", "resumed", None, said.human_input_json or ""),
    says.HarnessWake: lambda said: ("harness", "", "woke", None, said.reason or ""),
    says.HarnessSleep: lambda said: (
        "harness", "", f"slept, {said.status}", None, said.execution_error_type or said.sleep_error_type or "",
    ),
    says.HarnessStage: lambda said: ("harness", said.stage, "stage", None, ""),
    says.HarnessFailed: lambda said: (
        "harness", "", "failed", said.last_step_key, f"{said.error_type}: {said.message}",
    ),
    approvals.ApprovalSubmitted: lambda said: (
        "approval", said.ticket_id, "requested", said.step_id, said.requested_by or "",
    ),
    approvals.ApprovalResponse: lambda said: (
        "approval", said.ticket_id, "approved" if said.approved else "rejected", said.step_id,
        f"by {said.approver_id} {said.reason or ''}".strip(),
    ),
    approvals.ApprovalRefused: lambda said: (
        "approval", said.ticket_id, "refused", said.step_id, f"by {said.approver_id} {said.objection}",
    ),
    approvals.ApprovalResolved: lambda said: ("approval", said.ticket_id, said.status, said.step_id, said.reason or ""),
    approvals.ApprovalOutdated: lambda said: ("approval", said.ticket_id, "outdated", said.step_id, said.reason),
}  # fmt: skip

_HANDLERS: Final[Mapping[type[Payload], Callable[[_Builder, Any, int, float], None]]] = {
    says.ModelRequested: _Builder.model_requested,
    says.ModelCompleted: _Builder.model_ended,
    says.ModelFailed: _Builder.model_ended,
    says.ToolRequested: _Builder.tool_requested,
    says.ToolCompleted: _Builder.tool_ended,
    says.RunSummary: _Builder.summary,
    says.WorkflowStepRequested: _Builder.workflow_requested,
    says.WorkflowStepCompleted: _Builder.workflow_ended,
    says.WorkflowStepFailed: _Builder.workflow_ended,
}


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
