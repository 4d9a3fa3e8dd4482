"""The status of a run in the form that programs act on: what it does, what it waits for, and what to call next."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gert.ecosystem.host.shapes.runs import RunDocument, StepResult, Waiting
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.runbook import RunComplete, StepComplete, StepStart
from gert.kernel.foundation.text import one_line

if TYPE_CHECKING:
    from gert.ecosystem.host.runs.listed_run import ListedRun
    from gert.ecosystem.host.runs.listing import Runs

_AFTER: Final = 20
_LONGEST: Final = 500
_MOST_STEPS: Final = 50
_MOST_TEXT: Final = 8000
UNSIGNED: Final = "approvals are not signed: no verification key is configured"


class Progress(msgspec.Struct, frozen=True):
    """How far a run is.

    running: steps that have begun and not ended, by path
    manual: those of them that wait for a person to do something
    last: the last steps that ended, the newest last
    """

    events: int
    done: int = 0
    running: tuple[str, ...] = ()
    manual: tuple[str, ...] = ()
    last: tuple[StepResult, ...] = ()


class ProgressReader:
    """Reads how far a run is; each time only the events since the last time."""

    def __init__(self, runs: "Runs") -> None:
        self._runs = runs
        self._seen = 0
        self._done = 0
        self._running: dict[str, StepStart] = {}
        self._last: list[StepResult] = []

    def read(self, entry: "ListedRun") -> Progress:
        """How far the run is now."""
        for line in self._runs.follow(entry, self._seen).lines():
            self._seen += 1
            self._take(decode(line))
        manual = tuple(path for path, said in self._running.items() if said.step_type == "manual")
        return Progress(self._seen, self._done, tuple(self._running), manual, tuple(self._last))

    def _take(self, event: Envelope) -> None:
        said = event.payload
        if isinstance(said, StepStart) and event.path is not None:
            self._running[event.path] = said
        elif isinstance(said, StepComplete) and event.path is not None:
            self._running.pop(event.path, None)
            self._done += 1
            self._last.append(_step(event.path, said))
            del self._last[:-_MOST_STEPS]
        elif isinstance(said, RunComplete):
            self._running.clear()


def _step(path: str, said: StepComplete) -> StepResult:
    step: StepResult = {"path": path, "step_id": said.step_id, "status": said.status}
    if said.failure is not None:
        step["failure"] = {"kind": said.failure.kind, "message": one_line(said.failure.message, _LONGEST)}
    return step


def status_of(entry: "ListedRun", progress: Progress, *, has_keys: bool) -> RunDocument:
    """The status of a run; waiting and failed are results, not errors."""
    found = entry.head.runbook
    status, waiting = _waiting(entry, progress)
    said: RunDocument = {
        "run_id": entry.run_id,
        "status": status,
        "runbook_name": found.runbook if found is not None else None,
        "mode": found.mode if found is not None else None,
        "steps_done": progress.done,
        "steps_running": list(progress.running[:_MOST_STEPS]),
        "steps": list(progress.last),
    }
    if waiting is not None:
        said["waiting"] = waiting
        if status == "waiting_for_approval" and not has_keys:
            said["warning"] = UNSIGNED
    if found is not None and found.outcome is not None:
        said["outcome"] = {"category": found.outcome[0], "code": found.outcome[1]}
    if found is not None and found.failure_kind is not None:
        message = one_line(found.failure or "", _LONGEST)
        said["failure"] = {"kind": found.failure_kind, "message": message, "step": found.failed_step}
    following = "gert_resume" if entry.is_ready else _NEXT.get(status)
    if following is not None:
        said["next"] = {"tool": following, "after_seconds": _AFTER}
    return said


_NEXT: Final = {
    "running": "gert_run_status",
    "waiting_for_approval": "gert_run_status",
    "waiting_for_person": "gert_run_status",
    "interrupted": "gert_resume",
    "failed": "gert_run_log",
    "error": "gert_run_log",
}


def _bounded(value: Any) -> Any:
    """A value as it is, or the beginning of its text: a status is always small enough to be returned."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return value if len(text) <= _MOST_TEXT else {"cut": text[:_MOST_TEXT], "characters": len(text)}


def _waiting(entry: "ListedRun", progress: Progress) -> tuple[str, Waiting | None]:
    """The status, and what the run waits for where it waits."""
    if entry.tickets:
        ticket = entry.tickets[0]
        request = ticket.ticket.request
        return "waiting_for_approval", {
            "ticket_id": ticket.id,
            "step_id": request.step_id,
            "path": request.path or request.step_id,
            "risk_level": request.risk_level,
            "rule": request.rule,
            "will_run": _bounded(request.command or request.target),
            "inputs": _bounded(request.inputs),
            "request_hash": request.request_hash,
            "expires": ticket.ticket.expires_at,
            "more_tickets": len(entry.tickets) - 1,
            "who": "a person, outside this session",
            "driven": entry.is_driven,
        }
    standing = {"cut-off": "interrupted"}.get(entry.status, entry.status)
    if standing == "running" and progress.manual:
        return "waiting_for_person", {"path": progress.manual[0], "who": "a person gives evidence of a manual step"}
    return standing, None
