"""The approval of a step: run its preview, submit a ticket, wait for responses, and emit the decision.

`gert.kernel.governance.approval_rules` decides which responses count and whether they are enough.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gert.kernel.engine.approval_request import NO_PREVIEW, Preview, approver_lists, build_request, subject_of
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.outputs import assumed_result
from gert.kernel.engine.plan import PreviewSettings, StepSettings
from gert.kernel.engine.policy_gate import decision_of
from gert.kernel.engine.requests import (
    ApprovalAnswer,
    AwaitApproval,
    CallPreview,
    Emit,
    Steps,
    Subject,
    SubmitApproval,
    TicketAnswer,
    ToolAnswer,
)
from gert.kernel.engine.results import Result, failed
from gert.kernel.engine.step_inputs import masked_inputs
from gert.kernel.events.runbook import ApprovalEscalated, ApprovalOutdated, PreviewCaptured, PreviewSkipped
from gert.kernel.events.vocabulary import ApprovalStatus, FailureKind
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.principal import KERNEL, Principal
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import Tally, Ticket, hash_of, tally
from gert.kernel.governance.decide import Approvers
from gert.kernel.governance.verdict import Verdict
from gert.kernel.ledger.approval_events import decided, resolved_event, response_event, submitted_event
from gert.kernel.runbook.command import masked_preview
from gert.kernel.runbook.documents.steps import Step, ToolStep

OUTDATED: Final[FailureKind] = "approval_outdated"
_MAX_PREVIEW: Final = 64 * 1024
PREVIEW_TIMEOUT: Final = 60.0
"""Seconds that a preview may take where neither the step nor the tool says so: a person waits for it."""


class Approval(msgspec.Struct, frozen=True):
    """A granted approval: its ticket and the request it covers."""

    ticket_id: str
    request: ApprovalRequest


def run_preview(
    step: Step, frame: Frame, settings: StepSettings, inputs: dict[str, Any], keys: Iterator[str]
) -> Steps[Preview]:
    """Run the preview of an action before an approval and in a dry run.

    The approval covers the preview. A resumed run uses the recorded one.
    """
    asks = settings.decision.verdict is Verdict.REQUIRE_APPROVAL
    if settings.preview is None or not (asks or frame.run.setup.mode == "dry-run"):
        return NO_PREVIEW
    program = frame.run.program
    tool, action = (program.tool_of(step), program.action_of(step)) if isinstance(step, ToolStep) else (None, None)
    shown = masked_inputs(inputs, settings.contract)
    command = masked_preview(tool, action[1], shown) if tool is not None and action is not None else ()
    preview = Preview(command=command)
    output, skipped = None, settings.preview.refusal
    if skipped is None:
        output, skipped = yield from _preview_output(frame, settings, settings.preview, inputs, keys)
    if skipped is not None:
        yield frame.emit(PreviewSkipped(step_id=frame.step_id, reason=skipped, command=preview.command))
    elif output is not None:
        captured = PreviewCaptured(
            step_id=frame.step_id, digest=digest(output.encode()), output=output, command=preview.command
        )
        yield frame.emit(captured)
    return msgspec.structs.replace(preview, output=output, skipped=skipped)


def _preview_output(
    frame: Frame, settings: StepSettings, preview: PreviewSettings, inputs: dict[str, Any], keys: Iterator[str]
) -> Steps[tuple[str | None, str | None]]:
    """Return what the preview printed, or why it was not run."""
    answer = yield from frame.request(
        CallPreview(
            key=next(keys),
            path=frame.path or "",
            step_id=frame.step_id,
            timeout=settings.timeout if settings.timeout is not None else PREVIEW_TIMEOUT,
            tool=preview.tool,
            action=settings.action or "",
            inputs=inputs,
            contract=preview.contract,
        )
    )
    if answer.assumed is not None:
        return None, answer.failure.message if answer.failure is not None else None
    text = _preview_text(answer)
    if len(text) > _MAX_PREVIEW:
        text = text[:_MAX_PREVIEW] + f"\n… ({len(text) - _MAX_PREVIEW} more characters)"
    return text, None


def _preview_text(answer: ToolAnswer) -> str:
    """What a preview printed, and why it failed if it did; `diff` exits with 1 where files differ, and has not."""
    failure = answer.failure
    if failure is None:
        return answer.stdout
    if failure.kind != "exit_code" or not answer.stdout.strip():
        return f"the preview failed: {failure.message}"
    if answer.stderr.strip():
        return f"{answer.stdout.rstrip()}\nthe preview failed: {failure.message}"
    if answer.exit_code == 1:
        return answer.stdout
    # The reason in the message would be a line of the preview itself.
    return f"{answer.stdout.rstrip()}\nthe preview exited with {answer.exit_code}"


def approve(
    step: Step, frame: Frame, settings: StepSettings, inputs: dict[str, Any], keys: Iterator[str]
) -> Steps[Approval | Result | None]:
    """Get the approval that a decision requires; a Result is a refusal, None means that no approval is needed.

    If the call changes while its ticket is open, the ticket is void and a new one is submitted.
    """
    decision = settings.decision
    result: Approval | Result = _OUTDATED
    while result is _OUTDATED:
        preview = yield from run_preview(step, frame, settings, inputs, keys)
        if decision.verdict is not Verdict.REQUIRE_APPROVAL:
            return None
        subject = subject_of(step, frame, settings, inputs)
        request = build_request(step, frame, settings, inputs, preview, decision.approvers)
        result = yield from _run_ticket(request, subject, frame, settings, keys)
        if result is _EXPIRED and decision.on_timeout == "escalate":
            wider = build_request(step, frame, settings, inputs, preview, decision.escalations)
            result = yield from _run_ticket(wider, subject, frame, settings, keys)
    return _TOO_LATE if result is _EXPIRED else result


_EXPIRED: Final = Result(status="skipped")
_OUTDATED: Final = Result(status="skipped")
_TOO_LATE: Final = failed("denied", "no approver approved in time", reason="approval_rejected")


def outdated_event(frame: Frame, approval: Approval, reason: str) -> Emit:
    """Return the event for an approval that does not cover the call about to be made."""
    return frame.emit(
        ApprovalOutdated(
            ticket_id=approval.ticket_id,
            step_id=frame.step_id,
            reason=reason,
            request_hash=approval.request.request_hash,
        )
    )


def _run_ticket(
    request: ApprovalRequest, subject: Subject, frame: Frame, settings: StepSettings, keys: Iterator[str]
) -> Steps[Approval | Result]:
    """Submit one ticket and wait until it is resolved."""
    ticket = yield from frame.request(
        SubmitApproval(
            key=next(keys),
            path=frame.path or "",
            step_id=frame.step_id,
            request=msgspec.structs.replace(request, request_hash=hash_of(request)),
            subject=subject,
        )
    )
    if ticket.assumed is not None:
        # No approver was asked, so the step is not executed.
        return assumed_result(frame, settings)
    if ticket.failure is not None:
        return _refusal(ticket.failure.kind, ticket.failure.message)
    request = _as_submitted(request, ticket)
    times: dict[str, Any] = {"created_at": ticket.created_at, "expires_at": ticket.expires_at}
    asked = Ticket(id=ticket.ticket_id, request=request, **times)
    yield frame.emit(submitted_event(asked, ticket.method), frame.run.actor)
    wait = AwaitApproval(
        key=next(keys),
        path=frame.path or "",
        step_id=frame.step_id,
        ticket_id=ticket.ticket_id,
        request=request,
        subject=subject,
        items=frame.lane.targets,
        **times,
    )
    given: tuple[Response, ...] = ()
    while True:
        answer = yield from frame.request(wait)
        if answer.failure is not None and answer.failure.kind == "cancelled":
            return _refusal(answer.failure.kind, answer.failure.message)
        first, given = len(given), (*given, *answer.responses)
        count = tally(asked, given)
        # A rejection does not depend on the exact call: it fails the step even if the call has changed.
        if answer.failure is not None and answer.failure.kind == OUTDATED and not count.is_rejected:
            void = count.outdated(answer.failure.message)
            yield from _response_events(answer, void.objections[first:], ticket, frame)
            yield outdated_event(frame, Approval(ticket.ticket_id, request), answer.failure.message)
            return _OUTDATED
        yield from _response_events(answer, count.objections[first:], ticket, frame)
        if not (answer.more and count.is_open):
            break
        wait = msgspec.structs.replace(wait, key=next(keys))
    status, why = _verdict(answer, count)
    by = count.resolved_by
    resolved = resolved_event(
        count, status, why, ticket_id=ticket.ticket_id, step_id=frame.step_id, method=ticket.method
    )
    yield frame.emit(resolved, Principal("human", by.approver) if by is not None else KERNEL)
    decision = settings.decision
    if (
        status == "expired"
        and decision.on_timeout == "escalate"
        and request.approvers != approver_lists(decision.escalations)
    ):
        yield frame.emit(_escalation(frame, ticket, decision.escalations))
        return _EXPIRED
    yield frame.emit(msgspec.structs.replace(decision_of(frame, settings), approval_result=status))
    if status == "approved":
        return Approval(ticket.ticket_id, request)
    return failed("denied", why or "the approval request was rejected", reason="approval_rejected")


def _response_events(
    answer: ApprovalAnswer, objections: list[str | None], ticket: TicketAnswer, frame: Frame
) -> Iterator[Emit]:
    """Emit each response as accepted or refused; a refused response changes nothing."""
    for response, objection in zip(answer.responses, objections, strict=True):
        event = response_event(
            response, objection, ticket_id=ticket.ticket_id, step_id=frame.step_id, method=ticket.method
        )
        yield frame.emit(event, Principal("human", response.approver))


def _escalation(frame: Frame, ticket: TicketAnswer, escalations: frozenset[Approvers]) -> ApprovalEscalated:
    return ApprovalEscalated(
        ticket_id=ticket.ticket_id,
        step_id=frame.step_id,
        escalated_to=tuple(sorted({name for each in escalations for name in each.listed})),
    )


def _verdict(answer: ApprovalAnswer, count: Tally) -> tuple[ApprovalStatus, str | None]:
    found_by = decided(count, expired=answer.expired)
    if found_by is not None:
        return found_by
    if answer.failure is not None:
        return "rejected", answer.failure.message
    found = len(count.approvals)
    return "rejected", f"expected {count.needed} approvals, found {found}" if found else "no approver approved"


def _refusal(kind: Any, message: str) -> Result:
    return failed(kind, message, reason="approval_rejected" if kind == "denied" else None)


def _as_submitted(request: ApprovalRequest, ticket: TicketAnswer) -> ApprovalRequest:
    """Return the request as it was recorded at submission, which is what the approvers respond to."""
    recorded: dict[str, Any] = {
        name: getattr(ticket, name) for name in ("program", "folder", "host", "secrets", "plan")
    }
    if ticket.admitted is not None:
        recorded["admitted"] = ticket.admitted
    if ticket.must_sign:
        recorded["require_signed_approvals"] = True
    bound = msgspec.structs.replace(request, **recorded)
    return msgspec.structs.replace(bound, request_hash=ticket.request_hash or hash_of(bound))
