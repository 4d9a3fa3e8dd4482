"""What callers record for a safety policy: approvals and intent plans; and the approvals that calls wait for."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from gert.errors import InputError
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.safety.approvals import Approvals
from gert.kernel.agent.safety.config import IntentPlanRecord
from gert.kernel.agent.safety.records import INTENT_PLAN, POLICY_DECISION, ApprovalRecord
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.events.runbook import RunStart
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.approval_rules import tally
from gert.kernel.ledger.agent_approvals import APPROVAL
from gert.kernel.ledger.approval_events import decided
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.record import TicketRow

MODES: Final = ("human", "critic")
RESERVED: Final = {
    POLICY_DECISION: "the safety policy records its decisions itself",
    INTENT_PLAN: "use `record_intent_plan`",
    APPROVAL: "use `approve_tool_call`",
}
"""Types of summaries that decide about calls, and how they are recorded."""
LOOK_AGAIN: Final = 5.0
"""Seconds after which a caller that waits for an approval looks again in any case."""

ApprovalStatus = Literal["approved", "rejected", "pending", "none"]


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A tool call that waits for the approval of people.

    approvals: how many have approved so far
    """

    run_id: str
    approval_key: str
    ticket_id: str
    tool_name: str
    arguments_json: str
    risk_level: str
    created_at: str
    expires_at: str | None
    min_approvers: int
    approvals: int
    requested_by: str | None = None
    step_key: str | None = None


class PolicyRecords:
    """Records approvals and intent plans."""

    def __init__(self, log: RunLog, approvals: Approvals) -> None:
        self._log = log
        self._approvals = approvals

    async def approve(
        self, run_id: str, tenant: TenantContext, record: ApprovalRecord, parent_step_key: str | None
    ) -> int:
        """Record an approval or a rejection and return the number of its event."""
        return await self._approvals.respond(run_id, tenant.tenant_id, record, parent_step_key)

    async def plan(
        self,
        run_id: str,
        tenant: TenantContext,
        intent: IntentPlanRecord,
        step_key: str | None,
        parent_step_key: str | None,
    ) -> int:
        """Record an intent plan and return the number of its event."""
        text = canonical_json_dumps(intent.model_dump(mode="json"))
        payload = RunSummary(summary_type=INTENT_PLAN, summary_json=text, step_key=step_key)
        return (await self._log.append(run_id, tenant.tenant_id, (Entry(payload, parent_step_key),))).last

    async def pending(self, tenant: TenantContext, run_id: str | None) -> tuple[PendingApproval, ...]:
        """Return the calls of a tenant that wait for people, the oldest first."""
        if run_id is not None:
            await self._log.head(run_id, tenant)
        rows = await self._log.ledger.tickets("pending", run_id=run_id)
        found = (_pending(row, tenant.tenant_id) for row in rows)
        return tuple(each for each in found if each is not None)

    async def wait(self, run_id: str, tenant: TenantContext, approval_key: str, seconds: float) -> ApprovalStatus:
        """Wait until a ticket is decided, and return how; `pending` if the time is over first."""
        until = self._log.ledger.now().timestamp() + seconds
        status, ticket_id = await self._status(run_id, tenant, approval_key)
        if ticket_id is None:
            return status
        async with self._approvals.listening(ticket_id):
            while status == "pending" and (left := until - self._log.ledger.now().timestamp()) > 0:
                await self._next_message(run_id, min(left, LOOK_AGAIN))
                status, _ = await self._status(run_id, tenant, approval_key)
        return status

    async def _status(self, run_id: str, tenant: TenantContext, key: str) -> tuple[ApprovalStatus, str | None]:
        """Take received responses; return the status of a ticket, and its id while it is open."""
        if await self._is_runbook_of(run_id, tenant):
            return await self._runbook_status(run_id, key)
        found = await self._approvals.take(run_id, tenant.tenant_id, key)
        head = await self._log.head(run_id, tenant)
        ticket = head.agent.tickets.get(key) if head.agent is not None else None
        if ticket is not None:
            return "pending", ticket.ticket_id
        return ("none" if found is None else "approved" if found.record.approved else "rejected"), None

    async def _is_runbook_of(self, run_id: str, tenant: TenantContext) -> bool:
        """Whether this is the run of a runbook that an agent of the tenant started."""
        lines = await self._log.ledger.lines(run_id, limit=1)
        started = decode(lines[0]).payload if lines else None
        return isinstance(started, RunStart) and started.principal == Principal("agent", tenant.tenant_id)

    async def _runbook_status(self, run_id: str, ticket_id: str) -> tuple[ApprovalStatus, str | None]:
        """How a ticket of a runbook's run stands, with the responses that the run takes when it is resumed."""
        state = await self._approvals.port.look(self._log.ledger, run_id, ticket_id)
        ending = decided(tally(state.ticket, (*state.counted, *state.received)), expired=state.is_over)
        if ending is None:
            return "pending", ticket_id
        return ("approved" if ending[0] == "approved" else "rejected"), None

    async def _next_message(self, run_id: str, seconds: float) -> None:
        ledger, last = self._log.ledger, 0
        while page := await ledger.messages(run_id, since=last):
            last = page[-1].id
            if any(each.taken is None and each.kind == "approval" for each in page):
                return
        await ledger.wait_for_message(run_id, last, seconds)


def refuse_reserved(summary_type: str) -> None:
    """Refuse a summary that would decide about calls: InputError."""
    for reserved, hint in RESERVED.items():
        if summary_type == reserved or (reserved.endswith("::") and summary_type.startswith(reserved)):
            raise InputError(f"a summary of type `{summary_type[:64]}` is not recorded by hand", hint=hint)


def approval_mode(mode: str) -> Literal["human", "critic"]:
    """Return the mode of an approval; InputError if there is none of that name."""
    if mode not in MODES:
        raise InputError(f"expected the mode of an approval to be human | critic, found `{mode}`")
    return mode  # type: ignore[return-value]


def _pending(row: TicketRow, tenant: str) -> PendingApproval | None:
    """Return the call of a ticket; None if it is of another tenant, or not of an agent."""
    request: dict[str, Any] = msgspec.json.decode(row.request)
    extensions = request.get("extensions", {})
    if request.get("run_kind") != "agent" or extensions.get("tenant_id") != tenant:
        return None
    responses = [msgspec.json.decode(line) for line in row.responses.splitlines()]
    return PendingApproval(
        run_id=row.run_id,
        approval_key=extensions["approval_key"],
        ticket_id=row.ticket_id,
        tool_name=request["target"],
        arguments_json=canonical_json_dumps(request["inputs"]),
        risk_level=request["risk_level"],
        created_at=row.created_at,
        expires_at=row.expires_at,
        min_approvers=request["min_approvers"],
        approvals=sum(each.get("approved") is True and "objection" not in each for each in responses),
        requested_by=request.get("requested_by"),
        step_key=extensions.get("step_key"),
    )
