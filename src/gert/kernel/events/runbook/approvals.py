"""The events of an approval request, from the ticket to its resolution."""

from typing import Any, ClassVar

from gert.kernel.events.payload import Payload
from gert.kernel.events.vocabulary import ApprovalStatus, RiskLevel


class ApprovalSubmitted(Payload, frozen=True, kw_only=True):
    """Approval was requested.

    request_hash: binds the approval to the runbook, step, contract, inputs, tool file, command and preview
    program: where the program was found
    method: the approval provider: `terminal`, `stdin` where standard input is no terminal, `ticket`, or another
    expires_at: when the ticket expires
    approvers: people and `group:` names who may respond; empty means anyone
    created_at: when approval was requested, by the clock of the ledger
    request: the whole request as approvers see it and as the approval is bound to it, without secrets
    """

    type: ClassVar[str] = "approval_submitted"
    ticket_id: str
    step_id: str
    risk_level: RiskLevel
    request_hash: str
    min_approvers: int
    method: str
    expires_at: str | None = None
    approvers: tuple[str, ...] = ()
    requested_by: str | None = None
    preview_digest: str | None = None
    program: str | None = None
    created_at: str | None = None
    request: dict[str, Any] | None = None


class ApprovalOutdated(Payload, frozen=True, kw_only=True):
    """The call has changed since its ticket was submitted, or the run that waits for it was abandoned.

    An approval does not count; if the call is made again, a new one is needed.

    request_hash: of the request that is outdated
    """

    type: ClassVar[str] = "approval_outdated"
    ticket_id: str
    step_id: str
    reason: str
    request_hash: str


class ApprovalResponse(Payload, frozen=True, kw_only=True):
    """An approver responded to a request for approval, and the response counts.

    objection: why it does not count; only in older traces, since such responses are `approval_refused`
    verified: whether its signature was checked and holds
    timestamp: when the approver responded, by the approver's clock
    received_at: when the response was received, by the clock of the ledger
    request_hash: the request it says it is for
    """

    type: ClassVar[str] = "approval_response"
    ticket_id: str
    step_id: str
    approved: bool
    approver_id: str
    method: str
    timestamp: str
    verified: bool = False
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    reason: str | None = None
    objection: str | None = None
    received_at: str | None = None
    request_hash: str | None = None


class ApprovalRefused(Payload, frozen=True, kw_only=True):
    """A response to an approval request does not count; the run waits for another one.

    approved: what the response says
    objection: why it does not count
    verified: whether its signature was checked and is valid
    timestamp: when the response was given, by its sender's clock
    received_at: when the response was received, by the clock of the ledger
    request_hash: the request it says it is for
    """

    type: ClassVar[str] = "approval_refused"
    ticket_id: str
    step_id: str
    approved: bool
    approver_id: str
    method: str
    timestamp: str
    objection: str
    verified: bool = False
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    reason: str | None = None
    received_at: str | None = None
    request_hash: str | None = None


class ApprovalEscalated(Payload, frozen=True, kw_only=True):
    """No approver responded in time, and the request was escalated.

    escalated_to: people and `group:` names who may respond now
    """

    type: ClassVar[str] = "approval_escalated"
    ticket_id: str
    step_id: str
    escalated_to: tuple[str, ...]
    expires_at: str | None = None


class ApprovalResolved(Payload, frozen=True, kw_only=True):
    """A ticket was resolved, and cannot be used again.

    approver_id: whose response resolved it; absent if it expired
    approvers: everyone whose approval counted
    verified: every response that counted has a valid signature
    """

    type: ClassVar[str] = "approval_resolved"
    ticket_id: str
    step_id: str
    approved: bool
    status: ApprovalStatus
    method: str
    approver_id: str | None = None
    approvers: tuple[str, ...] = ()
    verified: bool = False
    signature: str | None = None
    reason: str | None = None
