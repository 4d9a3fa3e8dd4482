"""The fold of a runbook run's events: its status, open calls, open tickets and end.

The snapshot is kept in the head and folded in the append itself, so that listing a run costs the same however long
it is, and verification can compute it again.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import (
    ApprovalOutdated,
    ApprovalResolved,
    ApprovalSubmitted,
    BreakGlass,
    ContractViolation,
    Failure,
    OutcomeResolved,
    RunCancelled,
    RunComplete,
    RunForked,
    RunResumed,
    RunStart,
    StepComplete,
    StepRetry,
    StepStart,
    StepWaiting,
)

ABANDONED: Final = "abandoned: "
"""How the reason of a run that was ended by hand begins."""

CALLING: Final = frozenset({"tool", "extension"})
"""Types of steps that call something outside; the outcome of such a call can be unknown."""

TICKET: Final = "ticket"
"""The method of approval requests that are answered through the ledger."""

MOST_LISTED: Final = 100
"""Violations and overrides that are counted separately in one run."""

RunbookStatus = Literal["running", "waiting", "completed", "failed", "error", "cancelled", "abandoned"]


class OpenCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that was announced and has no result yet.

    target: the tool or extension, with its action
    idempotent: a resume repeats it; otherwise the operator reconciles it
    """

    seq: int
    path: str
    step_id: str
    target: str
    idempotent: bool = False


class RunbookSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, tag="runbook"):
    """The state of a runbook run.

    open: calls without a result; of a run that no process drives, their outcome is unknown
    tickets: ids of open approval requests
    waits: tickets of other runs that calls wait for, by the path of the call; no process drives the run then
    forked: the number of the `run_forked` of a rerun; calls before it were made by the run it is a rerun of
    violations, overrides: how often each kind happened at each step, as `kind step`
    """

    runbook: str = ""
    mode: str = "real"
    actor: str = ""
    scenario: str | None = None
    parent_run_id: str | None = None
    last_type: str = ""
    open: tuple[OpenCall, ...] = ()
    tickets: tuple[str, ...] = ()
    waits: dict[str, str] = msgspec.field(default_factory=dict)
    ended: RunbookStatus | None = None
    claimed: tuple[str, str] | None = None
    forked: int = 0
    duration: str = ""
    waited: str = ""
    failure_kind: str | None = None
    failure: str | None = None
    failed_step: str | None = None
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    overrides: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def status(self) -> RunbookStatus:
        """What the run is doing, or how it ended."""
        if self.ended is not None:
            return self.ended
        return "waiting" if self.awaited and not self.in_doubt else "running"

    @property
    def awaited(self) -> tuple[str, ...]:
        """The tickets that it waits for, its own and those of agents of its steps."""
        return (*self.tickets, *self.waits.values())

    @property
    def in_doubt(self) -> tuple[OpenCall, ...]:
        """Calls without a result that wait for no one."""
        return tuple(call for call in self.open if call.path not in self.waits)

    @property
    def outcome(self) -> tuple[str, str] | None:
        """Category and code of a completed run; a dry run claims none."""
        return self.claimed if self.ended == "completed" and self.mode != "dry-run" else None


def fold(snapshot: RunbookSnapshot, payload: Payload, seq: int, path: str | None) -> RunbookSnapshot:
    """The snapshot after one more event."""
    change = _CHANGES.get(type(payload))
    changes = {} if change is None else change(snapshot, payload, seq, path or "")
    return msgspec.structs.replace(snapshot, last_type=payload.type, **changes)


def _open_call(snapshot: RunbookSnapshot, said: StepStart, seq: int, path: str) -> dict[str, Any]:
    if not is_call(said):
        return {}
    return {"open": (*snapshot.open, OpenCall(seq, path, said.step_id, target_of(said), is_idempotent(said)))}


def is_call(said: StepStart) -> bool:
    """Whether a step calls something outside; the loop around such steps does not."""
    return said.step_type in CALLING and (said.tool is not None or said.extension is not None)


def target_of(said: StepStart) -> str:
    """The tool and action, or the extension, that a step calls."""
    if said.tool:
        return f"{said.tool}:{said.action}" if said.action else said.tool
    return said.extension or ""


def is_idempotent(said: StepStart) -> bool:
    """Whether the contract of a step allows to call it again."""
    return said.contract_summary.get("idempotent") is True


def _retry_call(snapshot: RunbookSnapshot, _: StepRetry, seq: int, path: str) -> dict[str, Any]:
    if all(call.path != path for call in snapshot.open):
        return {}
    again = (msgspec.structs.replace(call, seq=seq) if call.path == path else call for call in snapshot.open)
    return {"open": tuple(again)}


def _close_ticket(snapshot: RunbookSnapshot, said: ApprovalResolved | ApprovalOutdated, *_: object) -> dict[str, Any]:
    return {"tickets": tuple(each for each in snapshot.tickets if each != said.ticket_id)}


def _counted(counts: Mapping[str, int], name: str) -> dict[str, int]:
    if name not in counts and len(counts) >= MOST_LISTED:
        return dict(counts)
    return {**counts, name: counts.get(name, 0) + 1}


def _end(_: RunbookSnapshot, said: RunComplete, __: int, ___: str) -> dict[str, Any]:
    failure = said.failure
    changes: dict[str, Any] = {
        "ended": _how(said.status, failure),
        "duration": said.duration,
        "waited": said.waited or "",
        "tickets": (),
        "waits": {},
        "open": (),
        "failure_kind": failure.kind if failure is not None else None,
        "failure": failure.message if failure is not None else None,
        "failed_step": said.failed_step,
    }
    if said.outcome is not None:
        changes["claimed"] = (said.outcome.category, said.outcome.code)
    return changes


def _how(status: str, failure: Failure | None) -> str:
    is_abandoned = status == "cancelled" and failure is not None and failure.message.startswith(ABANDONED)
    return "abandoned" if is_abandoned else status


_CHANGES: Final[Mapping[type[Payload], Callable[[RunbookSnapshot, Any, int, str], dict[str, Any]]]] = {
    RunStart: lambda _, said, __, ___: {
        name: getattr(said, name) for name in ("runbook", "mode", "actor", "scenario", "parent_run_id")
    },
    StepStart: _open_call,
    StepRetry: _retry_call,
    RunForked: lambda _, __, seq, ___: {"forked": seq},
    StepComplete: lambda snapshot, _, __, path: {"open": tuple(call for call in snapshot.open if call.path != path)},
    StepWaiting: lambda snapshot, said, _, path: {"waits": {**snapshot.waits, path: said.ticket_id}},
    RunResumed: lambda _, __, ___, ____: {"waits": {}},
    ApprovalSubmitted: lambda snapshot, said, _, __: (
        {"tickets": (*snapshot.tickets, said.ticket_id)} if said.method == TICKET else {}
    ),
    ApprovalResolved: _close_ticket,
    ApprovalOutdated: _close_ticket,
    ContractViolation: lambda snapshot, said, _, __: {
        "violations": _counted(snapshot.violations, f"{said.kind} {said.step_id}")
    },
    BreakGlass: lambda snapshot, said, _, __: {
        "overrides": _counted(snapshot.overrides, f"{said.actor} {said.step_id}")
    },
    OutcomeResolved: lambda _, said, __, ___: {
        "claimed": (said.structured_outcome.category, said.structured_outcome.code)
    },
    RunCancelled: lambda _, __, ___, ____: {"tickets": (), "waits": {}},
    RunComplete: _end,
}
