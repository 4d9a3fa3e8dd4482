"""The fold of an agent run's events: status, progress and explanations are read from it.

The snapshot is stored in the head of the run and folded in the append itself, so reading the status of a run costs the
same however long it is.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from gert.kernel.events.agent import (
    HarnessFailed,
    HarnessSleep,
    HarnessStage,
    HarnessWake,
    ModelCompleted,
    ModelFailed,
    ModelRequested,
    PauseRequested,
    ReplayedWithDrift,
    ResumeRequested,
    RunEnded,
    RunReopened,
    RunSummary,
    ToolCompleted,
    ToolRequested,
)
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import ApprovalOutdated, ApprovalResolved, ApprovalSubmitted
from gert.kernel.ledger import agent_approvals, spending
from gert.kernel.ledger.agent_approvals import Grant, OpenTicket

TASK_PROGRESS = "task_progress"
UNBLOCKED = "run_unblocked"

LifecycleStatus = Literal["active", "paused", "failed", "completed"]


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pause or block that is not cleared yet."""

    seq: int
    reason: str
    blocked: bool = False
    unblock_key: str | None = None

    @property
    def blocked_on(self) -> str | None:
        """What clears it, if it has a name."""
        if self.unblock_key is None:
            return None
        return self.unblock_key if self.unblock_key.startswith("approval:") else f"unblock:{self.unblock_key}"


class AgentSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, tag="agent"):
    """The state of an agent run.

    asleep: how the run ended, or the status its harness ended with; None while it is active
    calls_by_tool: how often each tool was requested
    tickets: open approval requests, by approval key
    approvals: approvals that were given, by approval key
    reserved: what open model calls may cost, by the number of their request, in billionths of a US dollar
    unsettled: the same of calls that ended so that their cost is not known
    """

    last_type: str = ""
    last_step_key: str | None = None
    pauses: tuple[Pause, ...] = ()
    asleep: Literal["completed", "failed"] | None = None
    failure_reason: str | None = None
    failure_step: str | None = None
    last_stage: str | None = None
    last_tool: str | None = None
    drift_count: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    calls_by_tool: dict[str, int] = msgspec.field(default_factory=dict)
    model_cost: float = 0.0
    tasks_total: int = 0
    tasks_done: int = 0
    task_stage: str | None = None
    tickets: dict[str, OpenTicket] = msgspec.field(default_factory=dict)
    approvals: dict[str, Grant] = msgspec.field(default_factory=dict)
    reserved: dict[int, int] = msgspec.field(default_factory=dict)
    unsettled: int = 0

    @property
    def tasks_left(self) -> bool:
        """Whether tasks are known that are not done."""
        return self.tasks_done < self.tasks_total

    @property
    def status(self) -> LifecycleStatus:
        """The status of the run; one whose tasks are not all done is not completed."""
        if self.asleep == "failed":
            return "failed"
        if self.pauses:
            return "paused"
        return "completed" if self.asleep == "completed" and not self.tasks_left else "active"

    @property
    def blocked_on(self) -> str | None:
        """What the newest block waits for, or else the newest ticket."""
        blocks = (pause.blocked_on for pause in reversed(self.pauses) if pause.blocked_on is not None)
        return next(blocks, None) or next((f"approval:{key}" for key in reversed(self.tickets)), None)

    def is_waiting(self, moment: str) -> bool:
        """Whether the run waits for a person: it is paused or blocked, or a call needs an approval at that time."""
        open_tickets = (ticket for ticket in self.tickets.values() if not ticket.expires_at < moment)
        return bool(self.pauses) or any(open_tickets)


def fold(snapshot: AgentSnapshot, payload: Payload, seq: int) -> AgentSnapshot:
    """The snapshot after one more event."""
    step_key = getattr(payload, "step_key", None)
    if step_key is None:
        step_key = snapshot.last_step_key
    change = _CHANGES.get(type(payload))
    more = {} if change is None else change(snapshot, payload, seq)
    return msgspec.structs.replace(snapshot, last_type=payload.type, last_step_key=step_key, **more)


def _summarize(snapshot: AgentSnapshot, said: RunSummary, seq: int) -> Mapping[str, Any]:
    kind, mark, key = said.summary_type.partition("::")
    if kind == UNBLOCKED:
        cleared = key if mark else None
        return {"pauses": tuple(p for p in snapshot.pauses if not (p.blocked and p.unblock_key == cleared))}
    if said.summary_type == TASK_PROGRESS:
        return _tasks(said.summary_json)
    if said.summary_type.startswith(agent_approvals.APPROVAL):
        return {"approvals": agent_approvals.after_record(snapshot.approvals, said, seq)}
    return {}


def _tasks(text: str) -> Mapping[str, Any]:
    units = read_units(text)
    if units is None:
        # Tasks that cannot be read are not done.
        return {}
    states = [unit.state for unit in units]
    return {
        "tasks_total": len(units),
        "tasks_done": states.count("done"),
        "task_stage": stage_of(units),
    }


def _end(snapshot: AgentSnapshot, said: RunEnded, _: int) -> Mapping[str, Any]:
    if said.status == "completed":
        return {**_AWAKE, "asleep": "completed"}
    reason = ": ".join(part for part in (said.error_type, said.message) if part)
    return {"asleep": "failed", "failure_reason": reason or None, "failure_step": snapshot.last_step_key}


def _sleep(snapshot: AgentSnapshot, said: HarnessSleep, _: int) -> Mapping[str, Any]:
    if said.status == "completed":
        return {**_AWAKE, "asleep": "completed"}
    reason = snapshot.failure_reason or said.execution_error_type or said.sleep_error_type
    return {"asleep": "failed", "failure_reason": reason}


def _fail(snapshot: AgentSnapshot, said: HarnessFailed, _: int) -> Mapping[str, Any]:
    return {
        "asleep": "failed",
        "failure_reason": f"{said.error_type}: {said.message}" if said.message else said.error_type,
        "failure_step": said.last_step_key or snapshot.last_step_key,
    }


def _request_model(snapshot: AgentSnapshot, said: ModelRequested, seq: int) -> Mapping[str, Any]:
    return {
        "model_calls": snapshot.model_calls + 1,
        "reserved": spending.reserved_after(snapshot.reserved, said, seq),
    }


def _settle_model(snapshot: AgentSnapshot, said: ModelCompleted | ModelFailed, seq: int) -> Mapping[str, Any]:
    # An answer that cannot be used is paid for, too.
    is_unknown = isinstance(said, ModelFailed) and spending.is_cost_unknown(said)
    kept = snapshot.reserved.get(said.request_seq, 0) if is_unknown else 0
    return {
        "model_cost": snapshot.model_cost + said.cost_usd,
        "reserved": spending.reserved_after(snapshot.reserved, said, seq),
        "unsettled": snapshot.unsettled + kept,
    }


def _request_tool(snapshot: AgentSnapshot, said: ToolRequested, seq: int) -> Mapping[str, Any]:
    name, counts = said.tool_name, snapshot.calls_by_tool
    return {
        "tool_calls": snapshot.tool_calls + 1,
        "calls_by_tool": {**counts, name: counts.get(name, 0) + 1},
        "last_tool": name,
        "approvals": agent_approvals.after_request(snapshot.approvals, said, seq),
    }


_AWAKE: Final = {"asleep": None, "failure_reason": None, "failure_step": None}

_CHANGES: Mapping[type[Payload], Callable[[AgentSnapshot, Any, int], Mapping[str, Any]]] = {
    PauseRequested: lambda snapshot, said, seq: {
        "pauses": (*snapshot.pauses, Pause(seq, said.reason, said.blocked, said.unblock_key))
    },
    # Blocks stay: each is cleared by its key.
    ResumeRequested: lambda snapshot, _, __: {**_AWAKE, "pauses": tuple(p for p in snapshot.pauses if p.blocked)},
    RunEnded: _end,
    RunReopened: lambda _, __, ___: _AWAKE,
    RunSummary: _summarize,
    HarnessWake: lambda _, __, ___: _AWAKE,
    HarnessSleep: _sleep,
    HarnessFailed: _fail,
    HarnessStage: lambda _, said, __: {"last_stage": said.stage},
    ModelRequested: _request_model,
    ModelCompleted: _settle_model,
    ModelFailed: _settle_model,
    ReplayedWithDrift: lambda snapshot, _, __: {"drift_count": snapshot.drift_count + 1},
    ToolRequested: _request_tool,
    ToolCompleted: lambda snapshot, said, _: {
        "last_tool": said.tool_name,
        "approvals": agent_approvals.after_end(snapshot.approvals, said),
    },
    ApprovalSubmitted: lambda snapshot, said, _: {"tickets": agent_approvals.after_submission(snapshot.tickets, said)},
    ApprovalResolved: lambda snapshot, said, _: {"tickets": agent_approvals.after_resolution(snapshot.tickets, said)},
    ApprovalOutdated: lambda snapshot, said, _: {"tickets": agent_approvals.after_resolution(snapshot.tickets, said)},
}


class Unit(msgspec.Struct, frozen=True):
    """One task of a run."""

    id: str
    state: Literal["pending", "in_progress", "done"] = "pending"


class _Progress(msgspec.Struct, frozen=True):
    units: tuple[Unit, ...] = ()


_PROGRESS = msgspec.json.Decoder(_Progress)


def units_of(text: str) -> tuple[Unit, ...]:
    """The tasks in a `task_progress` summary; empty where it cannot be read."""
    return read_units(text) or ()


def read_units(text: str) -> tuple[Unit, ...] | None:
    """The tasks in a `task_progress` summary; None where it cannot be read."""
    try:
        return _PROGRESS.decode(text).units
    except (msgspec.MsgspecError, RecursionError):
        return None


def stage_of(units: tuple[Unit, ...]) -> str | None:
    """The task a run is at: the first in progress, else the first pending, else the last done."""
    for state in ("in_progress", "pending"):
        for unit in units:
            if unit.state == state:
                return unit.id
    return units[-1].id if units else None
