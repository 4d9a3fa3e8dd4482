"""Steps whose process ended during a call: how much of their time was work is not known."""

from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload


class Interruptions:
    """Remembers calls that were left without a result; it must receive the events in order."""

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def within(self, event: Envelope, payload: Payload) -> bool:
        """Whether the step of an event, one inside it, or one of the run was interrupted."""
        path = event.path
        if isinstance(payload, says.StepReconciled) and path is not None:
            self._paths.add(path)
        if path is None or not self._paths:
            return bool(self._paths)
        return any(each == path or each.startswith((f"{path}/", f"{path}[")) for each in self._paths)
