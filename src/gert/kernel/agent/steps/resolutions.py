"""The outcome of each tool call of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from gert.kernel.agent.types.payload_models import ToolCompletedPayload, ToolRequestedPayload
from gert.kernel.agent.types.payloads import KernelEvent
from gert.kernel.foundation.arguments import checked
from gert.kernel.ledger.projection import event_id


@dataclass(frozen=True, slots=True)
class ToolResolution:
    """A tool request and its completion, if any; a later completion replaces an earlier one."""

    request: KernelEvent
    completion: KernelEvent | None

    @property
    def outcome(self) -> str:
        """Return the outcome; `open` without a completion."""
        ended = self.completion.payload if self.completion is not None else None
        return ended.outcome if isinstance(ended, ToolCompletedPayload) else "open"


@checked
def resolve_tool_resolutions(events: Sequence[KernelEvent]) -> list[ToolResolution]:
    """Pair tool requests with their completions by the id of the request, never by position."""
    ends: dict[str, KernelEvent] = {}
    for event in events:
        if isinstance(event.payload, ToolCompletedPayload) and event.payload.request_seq is not None:
            ends[event_id(event.run_id, event.payload.request_seq)] = event
    return [
        ToolResolution(event, ends.get(event.event_id))
        for event in events
        if isinstance(event.payload, ToolRequestedPayload)
    ]
