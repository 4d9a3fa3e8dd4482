"""The middleware that enforces a safety policy on tool calls."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gert.errors import GertError, UsageError
from gert.kernel.agent.middleware.base import PassThroughMiddleware, PreparedToolRequest
from gert.kernel.agent.middleware.conditions import Conditions, Refusal
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.replay.run_log import RunLog, refuse_if_blocked
from gert.kernel.agent.safety.approvals import NO_DETAILS, Approvals, CallDetails, Opening
from gert.kernel.agent.safety.config import SafetyPolicyConfig
from gert.kernel.agent.safety.records import Call, decision
from gert.kernel.agent.safety.review import Denial, Review
from gert.kernel.agent.safety.stages import STAGES, held_denial, limit_denial
from gert.kernel.agent.types.api import TenantContext, ToolFingerprint
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.projection import tool_hash
from gert.kernel.ledger.record import Exceeded, Head, Held

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel

PIPELINE: Final = "pipeline"


class SafetyPolicyMiddleware(PassThroughMiddleware):
    """Decides about every call of a tool that has a policy, and records each decision.

    An allowed call is recorded together with its decision. What other calls could change meanwhile (counts, semantic
    keys, approvals) is decided again inside that append.
    """

    def __init__(self, *, config: SafetyPolicyConfig, store: EventStore | None = None) -> None:
        self.config = config
        self._log: RunLog | None = None
        self._kernel: AgentKernel | None = None
        if store is not None:
            self.bind_store(store)

    def bind_store(self, store: EventStore) -> None:
        """Set the store that decisions are recorded in; the kernel calls this."""
        self._log = RunLog(ledger_of(store))

    def bind_kernel(self, kernel: "AgentKernel") -> None:
        """Set the kernel that steps are taken and events appended through; the kernel calls this."""
        self._kernel = kernel
        self._log = kernel.run_log

    # --- what the stages need

    @property
    def log(self) -> RunLog:
        """Return the record of the runs."""
        if self._log is None:
            raise UsageError("the safety policy has no store", hint="pass it to a kernel, or call `bind_store`")
        return self._log

    @property
    def kernel(self) -> "AgentKernel":
        """Return the kernel that a critic's model is called through."""
        if self._kernel is None:
            raise UsageError("a critic needs a kernel to call its model", hint="pass the middleware to a kernel")
        return self._kernel

    @property
    def approvals(self) -> Approvals:
        """Return the approvals of people."""
        return self._kernel.approvals if self._kernel is not None else Approvals(self.log, None)

    def fingerprint(self, tool_name: str) -> ToolFingerprint | None:
        """Return the identity of a tool; None if it is not known."""
        try:
            return None if self._kernel is None else self._kernel.tool_fingerprint(tool_name=tool_name)
        except GertError:
            return None

    async def details(self, call: Call, arguments: Any) -> CallDetails:
        """Return what a call would do; of a function, nothing is known."""
        return NO_DETAILS

    # --- the hook

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str, step_key: str | None = None
    ) -> str | PreparedToolRequest:
        """Run the stages; deny the call by raising, or return it with the decision and what must still hold."""
        policy = self.config.policy_for(tool_name)
        if policy is None:
            return arguments_json
        fingerprint = tool_hash(tool_name, arguments_json)
        call = Call(run_id, tenant.tenant_id, tool_name, arguments_json, fingerprint, step_key)
        review = Review(call, tenant, policy, msgspec.json.decode(arguments_json), self.log.ledger.now())
        for stage in STAGES:
            denied = await stage(review, self)
            if denied is not None:
                # An earlier stage that was left to the append comes first.
                denied = await review.deferred_denial() or denied
                await self._record(review, denied)
                raise denied.error
        allowed = decision(call, outcome="allow", rule_id=PIPELINE, reason="every rule holds")
        conditions = Conditions(
            (allowed,),
            tuple(review.guards),
            tuple(review.limits),
            (lambda found: _refusal(review, found),),
        )
        return PreparedToolRequest(
            arguments_json,
            review.semantic_key,
            review.intent_id,
            review.amount_usd,
            conditions,
            review.approval_key,
        )

    async def _record(self, review: Review, denied: Denial) -> None:
        """Record a denial, and announce the ticket that it opens."""
        call, also = review.call, denied.also

        def entries(head: Head) -> tuple[Entry, ...]:
            return (denied.decision(call), *(also(head) if also is not None else ()))

        await self.log.append(call.run_id, call.tenant, entries, guard=refuse_if_blocked)
        if isinstance(also, Opening) and also.is_new and also.ticket_id is not None:
            await self.approvals.announce(also.ticket_id)


def _refusal(review: Review, found: Held | Exceeded) -> Refusal | None:
    """Return what a refusal of the ledger means for a call."""
    if isinstance(found, Held):
        return held_denial(review, found).refusal(review.call) if review.semantic_key is not None else None
    limit = next((each for each in review.limits if each == found.limit), None)
    return None if limit is None else limit_denial(review, limit).refusal(review.call)
