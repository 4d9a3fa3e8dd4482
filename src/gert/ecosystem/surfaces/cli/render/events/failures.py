"""Each failure is shown once: by the step that failed, not again by the blocks around it and the run."""

from typing import Final

import msgspec

from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload

MOST_KEPT: Final = 1000


class Failures:
    """Remembers the failures that were shown; it must receive the events in order."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._shown: dict[str, None] = {}
        self._rejected: str | None = None

    def once(self, event: Envelope, payload: Payload) -> Payload:
        """The payload, without a failure that a step inside has shown."""
        if isinstance(payload, says.RunComplete):
            repeated = {
                name: None for name in ("failure", "finally_failure") if self._is_shown(getattr(payload, name), None)
            }
            return msgspec.structs.replace(payload, **repeated) if repeated else payload
        if isinstance(payload, says.ApprovalResponse) and not payload.approved:
            self._rejected = event.path
        elif isinstance(payload, says.ApprovalResolved) and event.path == self._rejected and payload.reason:
            self._shown[payload.reason] = None
            return msgspec.structs.replace(payload, reason=None)
        if isinstance(payload, says.StepComplete) and payload.reason == "approval_rejected":
            return msgspec.structs.replace(payload, failure=None) if event.path == self._rejected else payload
        if not isinstance(payload, says.StepComplete | says.FinallyComplete) or payload.failure is None:
            return payload
        if self._is_shown(payload.failure, event.path):
            return msgspec.structs.replace(payload, failure=None)
        self._path = event.path
        if len(self._shown) >= MOST_KEPT:
            self._shown.clear()
        self._shown[payload.failure.message] = None
        return payload

    def _is_shown(self, failure: says.Failure | None, path: str | None) -> bool:
        """Whether a step inside this one has shown the failure; a block says which of its items or lanes it was."""
        is_inside = path is None or (self._path is not None and self._path.startswith((f"{path}/", f"{path}[")))
        return failure is not None and is_inside and any(map(failure.message.endswith, self._shown))
