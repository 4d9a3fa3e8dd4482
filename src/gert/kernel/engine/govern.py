"""Governance in the run: the decision about a step, and the approval it may ask for (kernel-v0 §9).

Whoever answers at the other end, whether the answers are enough is decided here.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from gert.kernel.engine.approval import UNSIGNED, Tally, Ticket, tally
from gert.kernel.engine.asks import (
    ApprovalAnswer,
    ApprovalRequest,
    AwaitApproval,
    Said,
    Steps,
    SubmitApproval,
)
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.handover import shown_inputs
from gert.kernel.engine.keeping import assumed
from gert.kernel.engine.plan import Terms
from gert.kernel.engine.results import Result, failed
from gert.kernel.events.runbook import (
    ApprovalResolved,
    ApprovalResponse,
    ApprovalSubmitted,
    ContractViolation,
    GovernanceDecision,
)
from gert.kernel.events.vocabulary import ApprovalStatus
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.rules import Limits
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import Step


def permit(step: Step, frame: Frame, terms: Terms) -> tuple[Said, Result | None]:
    """What governance decides, to be said; a result is a refusal."""
    if terms.is_free:
        return frame.say(_decision(frame, terms)), None
    breach = _breach(terms.decision.limits, step, frame)
    if breach is not None:
        denied = msgspec.structs.replace(_decision(frame, terms), decision="deny", reasons=(breach,))
        return frame.say(denied), _denied(breach)
    said = frame.say(_decision(frame, terms))
    if terms.decision.verdict is Verdict.DENY:
        return said, _denied(f"{step.label} is denied by {terms.rule}")
    return said, None


def approve(
    step: Step, frame: Frame, terms: Terms, inputs: dict[str, Any], names: Iterator[str]
) -> Steps[Result | None]:
    """Get the approval a decision asks for; a result is a refusal."""
    if terms.decision.verdict is not Verdict.REQUIRE_APPROVAL:
        return None
    request = _request(step, frame, terms, inputs)
    ticket = yield from frame.ask(
        SubmitApproval(key=next(names), path=frame.path or "", step_id=frame.step_id, request=request)
    )
    if ticket.assumed is not None:
        # Nobody was asked, so nobody has agreed: the step is not executed either.
        return assumed(frame, terms)
    if ticket.failure is not None:
        return _refused(ticket.failure.kind, ticket.failure.message)
    yield frame.say(_submitted(request, ticket.ticket_id, ticket.method, ticket.expires_at), frame.run.actor)
    answer = yield from frame.ask(
        AwaitApproval(
            key=next(names),
            path=frame.path or "",
            step_id=frame.step_id,
            ticket_id=ticket.ticket_id,
            request=request,
        )
    )
    if answer.failure is not None and answer.failure.kind == "cancelled":
        return _refused(answer.failure.kind, answer.failure.message)
    count = tally(
        Ticket(id=ticket.ticket_id, request=request, created_at=ticket.created_at, expires_at=ticket.expires_at),
        answer.responses,
    )
    for response, objection in zip(answer.responses, count.objections, strict=True):
        said = ApprovalResponse(
            ticket_id=ticket.ticket_id,
            step_id=frame.step_id,
            approved=response.approved,
            approver_id=response.approver,
            method=ticket.method,
            timestamp=response.timestamp,
            reason=response.reason,
            verified=response.verified,
            signature=response.signature,
            signature_alg=response.signature_alg,
            key_id=response.key_id,
            objection=objection,
        )
        yield frame.say(said, Principal("human", response.approver))
        if objection is not None and objection.startswith(UNSIGNED):
            message = f"the approval by `{response.approver}` is not validly signed"
            yield frame.say(
                ContractViolation(step_id=frame.step_id, kind="invalid_signature", message=message, severity="error")
            )
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
    yield frame.say(msgspec.structs.replace(_decision(frame, terms), approval_result=status))
    if status == "approved":
        return None
    return failed("denied", why or "the request for approval was rejected", reason="approval_rejected")


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


def _decision(frame: Frame, terms: Terms) -> GovernanceDecision:
    return GovernanceDecision(
        step_id=frame.step_id,
        risk_level=terms.risk,  # type: ignore[arg-type]
        decision=terms.verdict,  # type: ignore[arg-type]
        rule=terms.rule,
        min_approvers=terms.min_approvers,
    )


def _breach(limits: Limits, step: Step, frame: Frame) -> str | None:
    """Why a circuit breaker is open."""
    if limits.max_targets is not None:
        # Items of loops are known beforehand; what `repeat` and `next` add shows as it comes.
        targets = max(frame.strand.targets, frame.run.executions(step))
        if targets > limits.max_targets:
            return f"expected at most {limits.max_targets} targets, found {targets}"
    if limits.max_per_hour is not None:
        # Only a ledger of earlier runs could tell; a limit nobody can check is not a limit that holds.
        return "`max_per_hour` cannot be checked without a ledger of earlier runs"
    return None


def _denied(message: str) -> Result:
    return failed("denied", message, reason="governance_denied")


def _refused(kind: Any, message: str) -> Result:
    return failed(kind, message, reason="approval_rejected" if kind == "denied" else None)


def _request(step: Step, frame: Frame, terms: Terms, inputs: dict[str, Any]) -> ApprovalRequest:
    setup, decision = frame.run.setup, terms.decision
    contract = terms.full
    lists = sorted(decision.approvers, key=lambda each: sorted(each.listed))
    return ApprovalRequest(
        run_id=setup.run_id,
        runbook=setup.program.runbook.meta.name,
        step_id=frame.step_id,
        title=frame.render_text(step.title) if step.title is not None else None,
        risk_level=terms.risk,
        rule=terms.rule,
        contract=contract,
        target=terms.target,
        inputs=shown_inputs(inputs, terms.contract),
        request_hash=digest_value(
            {
                "runbook": setup.runbook_hash,
                "step": frame.step_id,
                "contract": contract,
                "inputs": shown_inputs(inputs, terms.contract),
            }
        ),
        min_approvers=max(1, decision.min_approvers),
        approvers=tuple(tuple(sorted(each.listed)) for each in lists),
        admitted=tuple(tuple(sorted(each.everybody(setup.groups))) for each in lists),
        separation_of_duties=decision.separation_of_duties,
        require_signed_approvals=decision.require_signed_approvals,
        requested_by=setup.actor,
        approval_timeout=decision.approval_timeout,
        notify=tuple(sorted(decision.notify)),
        extensions=step.extensions,
    )


def _submitted(request: ApprovalRequest, ticket_id: str, method: str, expires_at: str | None) -> ApprovalSubmitted:
    return ApprovalSubmitted(
        ticket_id=ticket_id,
        step_id=request.step_id,
        risk_level=request.risk_level,  # type: ignore[arg-type]
        request_hash=request.request_hash,
        min_approvers=request.min_approvers,
        method=method,
        expires_at=expires_at,
        approvers=tuple(sorted({name for listed in request.approvers for name in listed})),
        requested_by=request.requested_by,
    )
