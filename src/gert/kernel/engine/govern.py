"""Governance in the run: the decision about a step, and the approval it may ask for (kernel-v0 §9).

Whoever answers at the other end, whether the answers are enough is decided here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gert.kernel.engine.asks import ApprovalAnswer, ApprovalRequest, AwaitApproval, Response, Steps, SubmitApproval
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.results import Result, failed
from gert.kernel.events.runbook import (
    ApprovalResolved,
    ApprovalResponse,
    ApprovalSubmitted,
    GovernanceDecision,
)
from gert.kernel.events.vocabulary import ApprovalStatus
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.decide import Decision, person_key
from gert.kernel.governance.rules import Limits
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import Step


def permit(step: Step, frame: Frame, plan: Plan) -> Steps[Result | None]:
    """Say what governance decides; a result is a refusal."""
    decided = _of_iteration(plan.decided, frame)
    breach = _breach(plan.decision.limits, frame)
    if breach is not None:
        yield frame.say(msgspec.structs.replace(decided, decision="deny", reasons=(breach,)))
        return _denied(step, breach)
    yield frame.say(decided)
    if plan.decision.verdict is Verdict.DENY:
        return _denied(step, f"denied by {plan.decision.rule}")
    return None


def approve(step: Step, frame: Frame, plan: Plan, inputs: dict[str, Any], names: Iterator[str]) -> Steps[Result | None]:
    """Get the approval a decision asks for; a result is a refusal."""
    if plan.decision.verdict is not Verdict.REQUIRE_APPROVAL:
        return None
    request = _request(step, frame, plan, inputs)
    ticket = yield from frame.ask(
        SubmitApproval(key=next(names), path=frame.path or "", step_id=frame.step_id, request=request)
    )
    if ticket.assumed is not None:
        return None
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
    counted, objections = tally(plan.decision, answer.responses, frame.run.setup.actor, frame.run.setup.groups)
    for response, objection in zip(answer.responses, objections, strict=True):
        said = ApprovalResponse(
            ticket_id=ticket.ticket_id,
            step_id=frame.step_id,
            approved=response.approved,
            approver_id=response.approver,
            method=ticket.method,
            timestamp=response.timestamp,
            reason=response.reason,
            objection=objection,
        )
        yield frame.say(said, Principal("human", response.approver))
    status, why = _verdict(plan.decision, answer, counted)
    by = counted[-1].approver if counted and status != "expired" else None
    resolved = ApprovalResolved(
        ticket_id=ticket.ticket_id,
        step_id=frame.step_id,
        approved=status == "approved",
        status=status,
        method=ticket.method,
        approver_id=by,
        approvers=tuple(each.approver for each in counted if each.approved),
        reason=why,
    )
    yield frame.say(resolved, Principal("human", by) if by else None)
    yield frame.say(msgspec.structs.replace(_of_iteration(plan.decided, frame), approval_result=status))
    if status == "approved":
        return None
    return failed("denied", why or "the request for approval was rejected", reason="approval_rejected")


def tally(
    decision: Decision,
    responses: Iterable[Response],
    started_by: str,
    groups: Mapping[str, Iterable[str]],
) -> tuple[list[Response], list[str | None]]:
    """The answers that count, and for each answer why it does not."""
    counted: list[Response] = []
    objections: list[str | None] = []
    seen: set[str] = set()
    for response in responses:
        # (1) It is this person's first answer: `min_approvers` counts people.
        if person_key(response.approver) in seen:
            objection: str | None = f"`{response.approver}` has answered already"
        # (2) Signed answers are asked for only where they can be given.
        elif decision.require_signed_approvals and response.approved:
            objection = "the answer is not validly signed"
        # (3) The person may decide on this step. Anyone may say no.
        elif response.approved:
            objection = decision.objection(response.approver, started_by=started_by, groups=groups)
        else:
            objection = None
        objections.append(objection)
        if objection is None:
            seen.add(person_key(response.approver))
            counted.append(response)
    return counted, objections


def _verdict(decision: Decision, answer: ApprovalAnswer, counted: list[Response]) -> tuple[ApprovalStatus, str | None]:
    refusal = next((each for each in counted if not each.approved), None)
    if refusal is not None:
        because = f": {refusal.reason}" if refusal.reason else ""
        return "rejected", f"rejected by `{refusal.approver}`{because}"
    if len(counted) >= max(1, decision.min_approvers):
        return "approved", None
    if answer.expired:
        return "expired", "nobody approved in time"
    if answer.failure is not None:
        return "rejected", answer.failure.message
    needed = max(1, decision.min_approvers)
    return "rejected", f"expected {needed} approvals, found {len(counted)}" if counted else "nobody approved"


def _of_iteration(decided: GovernanceDecision, frame: Frame) -> GovernanceDecision:
    return decided if decided.step_id == frame.step_id else msgspec.structs.replace(decided, step_id=frame.step_id)


def _breach(limits: Limits, frame: Frame) -> str | None:
    """Why a circuit breaker is open."""
    if limits.max_targets is not None and frame.targets > limits.max_targets:
        return f"expected at most {limits.max_targets} targets, found {frame.targets}"
    if limits.max_per_hour is not None:
        # Only a ledger of earlier runs could tell; a limit nobody can check is not a limit that holds.
        return "`max_per_hour` cannot be checked without a ledger of earlier runs"
    return None


def _denied(step: Step, message: str) -> Result:
    return failed(
        "denied", f"{step.label} is {message}" if message.startswith("denied") else message, reason="governance_denied"
    )


def _refused(kind: Any, message: str) -> Result:
    return failed(kind, message, reason="approval_rejected" if kind == "denied" else None)


def _request(step: Step, frame: Frame, plan: Plan, inputs: dict[str, Any]) -> ApprovalRequest:
    setup, decision = frame.run.setup, plan.decision
    contract = plan.evaluated.resolved_contract
    return ApprovalRequest(
        run_id=setup.run_id,
        runbook=setup.program.runbook.meta.name,
        step_id=frame.step_id,
        title=frame.render_text(step.title) if step.title is not None else None,
        risk_level=plan.risk,
        rule=decision.rule,
        contract=contract,
        target=plan.target,
        inputs=inputs,
        request_hash=digest_value(
            {"runbook": setup.runbook_hash, "step": frame.step_id, "contract": contract, "inputs": inputs}
        ),
        min_approvers=max(1, decision.min_approvers),
        approvers=tuple(sorted(tuple(sorted(each.listed)) for each in decision.approvers)),
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
