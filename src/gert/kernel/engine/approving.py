"""Approval in the run: a preview of what would happen, a ticket, the answers, and what they come to.

Whoever answers at the other end, whether the answers are enough is decided here (`gert.kernel.engine.approval`).
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gert.kernel.engine.approval import Tally, Ticket, hash_of, tally
from gert.kernel.engine.asks import (
    ApprovalAnswer,
    ApprovalRequest,
    AwaitApproval,
    CallPreview,
    Said,
    Steps,
    SubmitApproval,
    TicketAnswer,
)
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.govern import decision_of
from gert.kernel.engine.handover import shown_inputs
from gert.kernel.engine.keeping import assumed
from gert.kernel.engine.plan import Terms
from gert.kernel.engine.results import Result, failed
from gert.kernel.events.runbook import (
    ApprovalEscalated,
    ApprovalRefused,
    ApprovalResolved,
    ApprovalResponse,
    ApprovalSubmitted,
    PreviewCaptured,
)
from gert.kernel.events.vocabulary import ApprovalStatus
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.decide import Approvers
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import Step

_LONGEST_PREVIEW: Final = 64 * 1024


def previewed(frame: Frame, terms: Terms, inputs: dict[str, Any], names: Iterator[str]) -> Steps[str | None]:
    """What the step would do, where its action can show that, and somebody will look: before an approval, in a dry run.

    It is part of what is approved, so a preview that changes needs another approval.
    """
    asks = terms.decision.verdict is Verdict.REQUIRE_APPROVAL
    if terms.preview is None or not (asks or frame.run.setup.mode == "dry-run"):
        return None
    answer = yield from frame.ask(
        CallPreview(
            key=next(names),
            path=frame.path or "",
            step_id=frame.step_id,
            timeout=terms.timeout,
            tool=terms.preview,
            action=terms.action or "",
            inputs=inputs,
            contract=terms.contract,
        )
    )
    if answer.assumed is not None:
        return None
    text = answer.stdout if answer.failure is None else f"the preview failed: {answer.failure.message}"
    if len(text) > _LONGEST_PREVIEW:
        text = text[:_LONGEST_PREVIEW] + f"\n… ({len(text) - _LONGEST_PREVIEW} more characters)"
    yield frame.say(PreviewCaptured(step_id=frame.step_id, digest=digest(text.encode()), output=text))
    return text


def approve(
    step: Step, frame: Frame, terms: Terms, inputs: dict[str, Any], preview: str | None, names: Iterator[str]
) -> Steps[Result | None]:
    """Get the approval a decision asks for; a result is a refusal."""
    decision = terms.decision
    if decision.verdict is not Verdict.REQUIRE_APPROVAL:
        return None
    request = _request(step, frame, terms, inputs, preview, decision.approvers)
    result = yield from _asked(request, frame, terms, names)
    if result is _EXPIRED and decision.on_timeout == "escalate":
        wider = _request(step, frame, terms, inputs, preview, decision.escalations)
        result = yield from _asked(wider, frame, terms, names)
    return _TOO_LATE if result is _EXPIRED else result


_EXPIRED: Final = Result(status="skipped")
_TOO_LATE: Final = failed("denied", "nobody approved in time", reason="approval_rejected")


def _asked(request: ApprovalRequest, frame: Frame, terms: Terms, names: Iterator[str]) -> Steps[Result | None]:
    """One ticket from its submission to its end."""
    ticket = yield from frame.ask(
        SubmitApproval(key=next(names), path=frame.path or "", step_id=frame.step_id, request=request)
    )
    if ticket.assumed is not None:
        # Nobody was asked, so nobody has agreed: the step is not executed either.
        return assumed(frame, terms)
    if ticket.failure is not None:
        return _refused(ticket.failure.kind, ticket.failure.message)
    yield frame.say(_submitted(request, ticket), frame.run.actor)
    answer = yield from frame.ask(
        AwaitApproval(
            key=next(names),
            path=frame.path or "",
            step_id=frame.step_id,
            ticket_id=ticket.ticket_id,
            request=request,
            created_at=ticket.created_at,
            expires_at=ticket.expires_at,
        )
    )
    if answer.failure is not None and answer.failure.kind == "cancelled":
        return _refused(answer.failure.kind, answer.failure.message)
    times = {"created_at": ticket.created_at, "expires_at": ticket.expires_at}
    count = tally(Ticket(id=ticket.ticket_id, request=request, **times), answer.responses)
    yield from _responses(answer, count, ticket, frame)
    status, why = _verdict(answer, count)
    by = count.resolved_by
    resolved = ApprovalResolved(
        ticket_id=ticket.ticket_id,
        step_id=frame.step_id,
        approved=status == "approved",
        status=status,
        method=ticket.method,
        approver_id=by.approver if by is not None else None,
        approvers=tuple(each.approver for each in count.approvals),
        verified=bool(count.approvals) and all(each.verified for each in count.approvals),
        signature=by.signature if by is not None else None,
        reason=why,
    )
    yield frame.say(resolved, Principal("human", by.approver) if by is not None else None)
    decision = terms.decision
    if status == "expired" and decision.on_timeout == "escalate" and request.approvers != _listed(decision.escalations):
        yield frame.say(_escalated(frame, ticket, decision.escalations))
        return _EXPIRED
    yield frame.say(msgspec.structs.replace(decision_of(frame, terms), approval_result=status))
    if status == "approved":
        return None
    return failed("denied", why or "the request for approval was rejected", reason="approval_rejected")


def _responses(answer: ApprovalAnswer, count: Tally, ticket: TicketAnswer, frame: Frame) -> Iterator[Said]:
    """The responses that count, and those that are refused; a refused one changes nothing."""
    for response, objection in zip(answer.responses, count.objections, strict=True):
        said: dict[str, Any] = {
            "ticket_id": ticket.ticket_id,
            "step_id": frame.step_id,
            "approved": response.approved,
            "approver_id": response.approver,
            "method": ticket.method,
            "timestamp": response.timestamp,
            "reason": response.reason,
            "verified": response.verified,
            "signature": response.signature,
            "signature_alg": response.signature_alg,
            "key_id": response.key_id,
        }
        event = ApprovalResponse(**said) if objection is None else ApprovalRefused(**said, objection=objection)
        yield frame.say(event, Principal("human", response.approver))


def _escalated(frame: Frame, ticket: TicketAnswer, escalations: frozenset[Approvers]) -> ApprovalEscalated:
    return ApprovalEscalated(
        ticket_id=ticket.ticket_id,
        step_id=frame.step_id,
        escalated_to=tuple(sorted({name for each in escalations for name in each.listed})),
    )


def _listed(lists: frozenset[Approvers]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(sorted(each.listed)) for each in _sorted(lists))


def _sorted(lists: frozenset[Approvers]) -> list[Approvers]:
    return sorted(lists, key=lambda each: sorted(each.listed))


def _verdict(answer: ApprovalAnswer, count: Tally) -> tuple[ApprovalStatus, str | None]:
    by = count.resolved_by
    if by is not None and by.approved:
        return "approved", None
    if by is not None:
        return "rejected", f"rejected by `{by.approver}`" + (f": {by.reason}" if by.reason else "")
    if answer.expired:
        return "expired", "nobody approved in time"
    if answer.failure is not None:
        return "rejected", answer.failure.message
    found = len(count.approvals)
    return "rejected", f"expected {count.needed} approvals, found {found}" if found else "nobody approved"


def _refused(kind: Any, message: str) -> Result:
    return failed(kind, message, reason="approval_rejected" if kind == "denied" else None)


def _request(
    step: Step,
    frame: Frame,
    terms: Terms,
    inputs: dict[str, Any],
    preview: str | None,
    lists: frozenset[Approvers],
) -> ApprovalRequest:
    setup, decision = frame.run.setup, terms.decision
    contract = terms.full
    request = ApprovalRequest(
        run_id=setup.run_id,
        runbook=setup.program.runbook.meta.name,
        step_id=frame.step_id,
        title=frame.render_text(step.title) if step.title is not None else None,
        risk_level=terms.risk,
        rule=terms.rule,
        contract=contract,
        target=terms.target,
        inputs=shown_inputs(inputs, terms.contract),
        preview=preview,
        runbook_hash=setup.runbook_hash,
        request_hash="",
        min_approvers=max(1, decision.min_approvers),
        approvers=_listed(lists),
        admitted=tuple(tuple(sorted(each.everybody(setup.groups))) for each in _sorted(lists)),
        separation_of_duties=decision.separation_of_duties,
        require_signed_approvals=decision.require_signed_approvals,
        requested_by=setup.actor,
        approval_timeout=decision.approval_timeout,
        notify=tuple(sorted(decision.notify)),
        extensions=step.extensions,
    )
    return msgspec.structs.replace(request, request_hash=hash_of(request))


def _submitted(request: ApprovalRequest, ticket: TicketAnswer) -> ApprovalSubmitted:
    return ApprovalSubmitted(
        ticket_id=ticket.ticket_id,
        step_id=request.step_id,
        risk_level=request.risk_level,  # type: ignore[arg-type]
        request_hash=request.request_hash,
        min_approvers=request.min_approvers,
        method=ticket.method,
        expires_at=ticket.expires_at,
        approvers=tuple(sorted({name for listed in request.approvers for name in listed})),
        requested_by=request.requested_by,
        preview_digest=digest(request.preview.encode()) if request.preview is not None else None,
    )
