"""The review of one tool call: what its stages know, what they find, and what they leave for the append."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gert.errors import PolicyViolationError
from gert.kernel.agent.middleware.conditions import Guard, Refusal
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.safety.approvals import Approvals, CallDetails
from gert.kernel.agent.safety.config import ToolSafetyPolicy
from gert.kernel.agent.safety.records import Call, decision
from gert.kernel.agent.types.api import TenantContext, ToolFingerprint
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.record import CallLimit, Head

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel


class Office(Protocol):
    """What the stages of a review need beside the call."""

    @property
    def log(self) -> RunLog:
        """Return the record of the runs."""

    @property
    def approvals(self) -> Approvals:
        """Return the approvals of people."""

    @property
    def kernel(self) -> "AgentKernel":
        """Return the kernel that a critic's model is called through."""

    def fingerprint(self, tool_name: str) -> ToolFingerprint | None:
        """Return the identity of a tool; None if it is not known."""

    async def details(self, call: Call, arguments: Any) -> CallDetails:
        """Return what a call would do; Refused if it could not be made."""


class Denial(NamedTuple):
    """Why a call is denied.

    also: further entries that are recorded with the decision
    """

    rule_id: str
    error: Exception
    reason: str
    code: str | None = None
    also: Callable[[Head], Sequence[Entry]] | None = None

    def refusal(self, call: Call) -> Refusal:
        """Return the refusal of a call inside an append."""
        return Refusal(self.error, (self.decision(call),))

    def decision(self, call: Call) -> Entry:
        """Return the entry that records the denial."""
        return decision(call, outcome="deny", rule_id=self.rule_id, reason=self.reason, code=self.code)


@dataclass
class Review:
    """One call under review.

    guards, limits: what is decided again inside the append, where no other call can come in between
    deferred: checks that the append makes; made before it only if a later stage denies the call, or asks about it
    """

    call: Call
    tenant: TenantContext
    policy: ToolSafetyPolicy
    arguments: Any
    now: datetime
    intent_id: str | None = None
    semantic_key: str | None = None
    amount_usd: float | None = None
    approval_key: str | None = None
    guards: list[Guard] = field(default_factory=list)
    limits: list[CallLimit] = field(default_factory=list)
    deferred: "list[Callable[[], Awaitable[Denial | None]]]" = field(default_factory=list)

    async def deferred_denial(self) -> "Denial | None":
        """Make the checks that were deferred."""
        for check in self.deferred:
            denied = await check()
            if denied is not None:
                return denied
        self.deferred.clear()
        return None

    def deny(self, rule_id: str, code: str, reason: str) -> Denial:
        """Return a denial by a rule."""
        error = PolicyViolationError(
            code=code,
            message=f"`{self.call.tool_name}` is denied: {reason}",
            tool_name=self.call.tool_name,
            fingerprint=self.call.fingerprint,
        )
        return Denial(rule_id, error, reason, code)
