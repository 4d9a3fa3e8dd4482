"""The clock of agents, and of events that callers make without a time."""

from gert.ecosystem.ledger.ids import utc_now
from gert.kernel.agent.safety.config import IntentPlanRecord
from gert.kernel.agent.types.payloads import KernelEvent, set_event_clock

__all__ = ["IntentPlanRecord", "KernelEvent", "utc_now"]

set_event_clock(utc_now)
