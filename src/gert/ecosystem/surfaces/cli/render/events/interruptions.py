"""Steps whose process ended during a call: how much of their time was work is not known."""

from typing import Final

from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload

MOST_KEPT: Final = 1000


class Interruptions:
    """Remembers calls that were left without a result; it must receive the events in order."""

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def within(self, event: Envelope, payload: Payload) -> bool:
        """Whether the step or the run that ends with this event was interrupted, or a step inside it."""
        path = event.path
        if isinstance(payload, says.StepReconciled) and path is not None and len(self._paths) < MOST_KEPT:
            self._paths.add(path)
        if not isinstance(payload, says.StepComplete | says.RunComplete) or not self._paths:
            return False
        if path is None:
            return True
        return any(each == path or each.startswith((f"{path}/", f"{path}[")) for each in self._paths)
