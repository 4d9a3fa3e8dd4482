"""The time, for agents and for events they make by hand."""

from gert.ecosystem.ledger.ids import utc_now
from gert.kernel.agent.types.payloads import KernelEvent, tell_time_by

__all__ = ["KernelEvent", "utc_now"]

tell_time_by(utc_now)
