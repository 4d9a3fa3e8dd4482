"""The steps of a run for scripts: what each came to, in the order they ended."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import click

from gert.ecosystem.host.run.observer import SilentObserver
from gert.ecosystem.surfaces.cli.render.events.interruptions import Interruptions
from gert.ecosystem.surfaces.cli.render.output import folded
from gert.ecosystem.surfaces.cli.render.text import STATUS
from gert.errors import TraceError
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import ApprovalResponse, StepComplete, StepStart
from gert.kernel.foundation.text import one_line, path_text, printable


def recorded_steps(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The steps of a recorded run; lines that cannot be read are for `gert trace verify`."""
    found = StepResults()
    for line in lines:
        with suppress(TraceError):
            event = decode(line)
            if event.payload is not None:
                found.said(event, event.payload)
    return found.steps


def step_lines(step: Mapping[str, Any]) -> Iterator[str]:
    """How a step ended, its path and title, how long it took, why it failed or was skipped, and who approved it."""
    mark, colour = STATUS.get(step["status"], ("?", ""))
    failure = step.get("failure")
    why = failure["message"] if failure else step.get("reason", "") if step["status"] == "skipped" else ""
    took = step.get("duration", "") + (" (interrupted)" if step.get("interrupted") else "")
    words = [path_text(step["path"]), printable(step.get("title", "")), took, one_line(why, 200)]
    yield f"  {click.style(mark, fg=colour or None)} {folded('  '.join(word for word in words if word), 4, 6)}"
    for each in step.get("approvals", ()):
        how = ", ".join([each["method"], *(["signed"] if each["signed"] else [])])
        reason = f": {one_line(each['reason'], 200)}" if "reason" in each else ""
        verb = "approved" if each["approved"] else "rejected"
        yield "      " + folded(printable(f"{verb} by {each['approver']} ({how}) at {each['at']}{reason}"), 6, 8)


class StepResults(SilentObserver):
    """An observer that keeps the result of every step; outputs are as the record has them, redacted."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.outputs: dict[str, Any] = {}
        self._started: dict[str, StepStart] = {}
        self._approvals: dict[str, list[dict[str, Any]]] = {}
        self._interruptions = Interruptions()
        self._last = 0

    def repeated(self, event: Envelope, payload: Payload) -> None:
        """Keep the end of a step before the run was resumed, once."""
        if event.seq > self._last:
            self.said(event, payload)

    def said(self, event: Envelope, payload: Payload) -> None:
        """Keep the end of a step."""
        self._last = event.seq
        interrupted = self._interruptions.within(event, payload)
        if isinstance(payload, StepStart) and event.path is not None:
            self._started[event.path] = payload
        elif isinstance(payload, ApprovalResponse) and event.path is not None and payload.objection is None:
            self._approvals.setdefault(event.path, []).append(_approval(payload))
        elif isinstance(payload, StepComplete):
            self.steps.append(self._step(event.path or payload.step_id, payload, interrupted=interrupted))
            if payload.outputs:
                self.outputs[payload.step_id] = payload.outputs

    def _step(self, path: str, said: StepComplete, *, interrupted: bool) -> dict[str, Any]:
        started = self._started.pop(path, None)
        found: dict[str, Any] = {
            "path": path,
            "step_id": said.step_id,
            "step_type": started.step_type if started is not None else None,
            "title": started.title if started is not None else None,
            "status": said.status,
            "duration": said.duration,
            "exit_code": said.exit_code,
            "reason": said.reason,
            "failure": {"kind": said.failure.kind, "message": said.failure.message} if said.failure else None,
            "attempts": said.attempts if said.attempts > 1 else None,
            "outputs": said.outputs or None,
            "approvals": self._approvals.pop(path, None),
            "interrupted": interrupted or None,
        }
        return {name: value for name, value in found.items() if value is not None}


def _approval(said: ApprovalResponse) -> dict[str, Any]:
    return {
        "approver": said.approver_id,
        "approved": said.approved,
        "method": said.method,
        "at": said.received_at or said.timestamp,
        "signed": said.verified,
        **({"reason": said.reason} if said.reason else {}),
    }
