"""The events of an approval, the same for a step of a runbook and for a tool call of an agent."""

from typing import Any

from gert.kernel.events.runbook import ApprovalRefused, ApprovalResolved, ApprovalResponse, ApprovalSubmitted
from gert.kernel.events.vocabulary import ApprovalStatus
from gert.kernel.foundation.canonical import digest
from gert.kernel.governance.approval import Response, as_recorded
from gert.kernel.governance.approval_rules import Tally, Ticket
from gert.kernel.ledger.runbook_fold import TICKET


def submitted_event(ticket: Ticket, method: str) -> ApprovalSubmitted:
    """Return the event that opens a ticket; it carries the whole request, without secrets."""
    request = ticket.request
    return ApprovalSubmitted(
        ticket_id=ticket.id,
        step_id=request.step_id,
        risk_level=request.risk_level,  # type: ignore[arg-type]
        request_hash=request.request_hash,
        min_approvers=request.min_approvers,
        method=method,
        expires_at=ticket.expires_at,
        approvers=tuple(sorted({name for names in request.approvers for name in names})),
        requested_by=request.requested_by,
        preview_digest=digest(request.preview.encode()) if request.preview is not None else None,
        program=request.program,
        created_at=ticket.created_at,
        request=as_recorded(request),
    )


def response_event(
    response: Response, objection: str | None, *, ticket_id: str, step_id: str, method: str
) -> ApprovalResponse | ApprovalRefused:
    """Return the event of a response: it counts, or there is an objection to it."""
    fields: dict[str, Any] = {
        "ticket_id": ticket_id,
        "step_id": step_id,
        "approved": response.approved,
        "approver_id": response.approver,
        "method": _how(response, method),
        "timestamp": response.timestamp,
        "received_at": response.received_at,
        "request_hash": response.request_hash or None,
        "reason": response.reason,
        "verified": response.verified,
        "signature": response.signature,
        "signature_alg": response.signature_alg,
        "key_id": response.key_id,
    }
    return ApprovalResponse(**fields) if objection is None else ApprovalRefused(**fields, objection=objection)


def resolved_event(
    count: Tally, status: ApprovalStatus, reason: str | None, *, ticket_id: str, step_id: str, method: str
) -> ApprovalResolved:
    """Return the event that closes a ticket."""
    by = count.resolved_by
    return ApprovalResolved(
        ticket_id=ticket_id,
        step_id=step_id,
        approved=status == "approved",
        status=status,
        method=_how(by, method),
        approver_id=by.approver if by is not None else None,
        approvers=tuple(each.approver for each in count.approvals),
        verified=bool(count.approvals) and all(each.verified for each in count.approvals),
        signature=by.signature if by is not None else None,
        reason=reason,
    )


def _how(response: Response | None, method: str) -> str:
    """How a response was given; one to a ticket of the ledger always by ticket."""
    return method if response is None or response.method is None or method == TICKET else response.method


def decided(count: Tally, *, expired: bool) -> tuple[ApprovalStatus, str | None] | None:
    """Return how a ticket ended, and why; None while it is open."""
    by = count.resolved_by
    if by is not None and by.approved:
        return "approved", None
    if by is not None:
        return "rejected", f"rejected by `{by.approver}`" + (f": {by.reason}" if by.reason else "")
    return ("expired", "no approver approved in time") if expired else None
