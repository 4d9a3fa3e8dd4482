"""What model calls cost: reserved when they are requested, settled when they end, counted by run tree and by tenant.

Amounts are whole billionths of a US dollar, so that sums are exact.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from gert.kernel.events.agent import ModelCompleted, ModelFailed, ModelRequested
from gert.kernel.events.payload import Payload

NANO: Final = 10**9
_LARGEST: Final = 2**62
BRANCHES: Final = ("::sub_agent::", "::fork::", "::child::")
"""Separators in a run id between the id of the parent run and the run's own part."""

_BRANCH: Final = re.compile("|".join(BRANCHES))
UNKNOWN_COST: Final = frozenset({"timeout", "cancelled", "abandoned"})
"""Ends of a call after which the vendor may still charge for it."""
UNREADABLE_USAGE: Final = "unreadable_usage"
"""The category of a call that was answered, with a usage that is no amount."""

PRICED: Final = frozenset({ModelRequested, ModelCompleted, ModelFailed})
"""The events that reserve, spend or give back."""

SpendKind = Literal["run", "tenant"]
"""What spending is counted by: a root run with its sub-agents and forks, or a tenant by the minute."""


class Spend(NamedTuple):
    """What an append adds to a counter, in billionths of a US dollar; negative if less was spent than reserved.

    name: the root run; empty for the counter of a tenant
    """

    kind: SpendKind
    tenant: str
    name: str
    amount: int


def root_of(run_id: str) -> str:
    """Return the root run of a run's tree."""
    return _BRANCH.split(run_id, maxsplit=1)[0]


def nano(usd: float) -> int:
    """Convert US dollars to billionths; an amount too large to count is the largest."""
    return round(usd * NANO) if usd < _LARGEST / NANO else _LARGEST


def reserved_after(reserved: dict[int, int], payload: Payload, seq: int) -> dict[int, int]:
    """Return the reservations of open calls after one more event."""
    if isinstance(payload, ModelRequested):
        return {**reserved, seq: nano(payload.reserved_usd)} if payload.reserved_usd else reserved
    if isinstance(payload, ModelCompleted | ModelFailed) and payload.request_seq in reserved:
        return {number: amount for number, amount in reserved.items() if number != payload.request_seq}
    return reserved


def spent_by(payload: Payload, reserved: Mapping[int, int]) -> int:
    """Return what an event adds to spending, given the reservations before it."""
    if isinstance(payload, ModelRequested):
        return nano(payload.reserved_usd)
    if isinstance(payload, ModelFailed) and is_cost_unknown(payload):
        return 0  # what was reserved stays counted
    if isinstance(payload, ModelCompleted | ModelFailed):
        return nano(payload.cost_usd) - reserved.get(payload.request_seq, 0)
    return 0


def is_cost_unknown(payload: ModelFailed) -> bool:
    """Whether a call ended so that gert cannot know what it cost."""
    used = payload.cost_usd or payload.prompt_tokens or payload.completion_tokens
    return (payload.reason in UNKNOWN_COST or payload.category == UNREADABLE_USAGE) and not used


def spends_of(amount: int, run_id: str, tenant: str) -> Iterator[Spend]:
    """Return the counters that an amount is added to."""
    if amount:
        yield Spend("run", tenant, root_of(run_id), amount)
        yield Spend("tenant", tenant, "", amount)
