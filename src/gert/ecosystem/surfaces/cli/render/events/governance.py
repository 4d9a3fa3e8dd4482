"""Descriptions of events about contracts, decisions and approvals."""

import shlex
from collections.abc import Mapping
from typing import Final

from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.text import Describers, Description, Subject, clip, columns
from gert.kernel.events import runbook as says
from gert.kernel.foundation.text import PRINTED_NOTHING

APPROVAL: Final[Mapping[str, tuple[str, str, str]]] = {
    "approved": (style.DONE, style.GOOD, "approved"),
    "rejected": (style.REFUSED, style.BAD, "rejected"),
    "expired": (style.REFUSED, style.BAD, "approval expired"),
}


def _contract_evaluated(step: says.ContractEvaluated, about: Subject) -> Description:
    contract = step.resolved_contract
    parts = [f"{key} {style.value_text(contract[key])}" for key in ("effects", "reads", "writes") if contract.get(key)]
    text = f"{about.name}: contract evaluated"
    return Description(style.NOTED, columns(text, *parts), style.QUIET, news=False)


def _governance_decision(step: says.GovernanceDecision, about: Subject) -> Description:
    rule = f", rule {clip(step.rule, style.LONGEST_VALUE)}" if step.rule else ""
    why = f"{step.risk_level} risk{rule}"
    if step.approval_result is not None:
        # The approval itself is already shown; this only repeats its result.
        icon, colour, _ = APPROVAL[step.approval_result]
        return Description(icon, f"{about.name}: {step.approval_result}, {why}", colour, news=False)
    if step.decision == "allow":
        return Description(style.DONE, f"{about.name}: allowed, {why}", style.GOOD, news=False)
    if step.decision == "deny":
        return Description(style.REFUSED, f"{about.name}: denied, {why}", style.BAD)
    people = f" by {step.min_approvers} people" if (step.min_approvers or 1) > 1 else ""
    return Description(style.ASKED, f"{about.name}: needs approval{people}, {why}", style.DOUBTFUL)


def _contract_violation(step: says.ContractViolation, about: Subject) -> Description:
    icon, colour = (style.FAILED, style.BAD) if step.severity == "error" else (style.WARNING, style.DOUBTFUL)
    return Description(icon, f"{about.name}: contract violation ({step.kind})", colour, style.lines_of(step.message))


def _preview_captured(step: says.PreviewCaptured, about: Subject) -> Description:
    printed = style.lines_of(step.output) if step.output else (PRINTED_NOTHING,)
    return Description(style.NOTED, f"{about.name}: preview{_command(step.command)}", style.LIVELY, printed)


def _preview_skipped(step: says.PreviewSkipped, about: Subject) -> Description:
    text = f"{about.name}: preview not run{_command(step.command)}"
    return Description(style.NOTED, text, style.DOUBTFUL, style.lines_of(step.reason))


def _command(words: tuple[str, ...]) -> str:
    return f", {clip(shlex.join(words))}" if words else ""


def _break_glass(step: says.BreakGlass, about: Subject) -> Description:
    text = f"{about.name}: BREAK GLASS by {clip(step.actor, style.LONGEST_NAME)}, overrides {step.overridden}"
    return Description(style.WARNING, f"{text} ({step.risk_level} risk)", style.BAD, style.lines_of(step.reason))


def _approval_submitted(ticket: says.ApprovalSubmitted, about: Subject) -> Description:
    who = style.listed(ticket.approvers)
    asked = f" from {who}" if who else ""
    until = f", until {clip(ticket.expires_at, 40)}" if ticket.expires_at else ""
    ticket_id = clip(ticket.ticket_id, style.LONGEST_NAME)
    how = f"approval requested{asked} ({clip(ticket.method, 40)}, ticket {ticket_id}{until})"
    return Description(style.ASKED, f"{about.name}: {how}", style.DOUBTFUL)


def _approval_response(answer: says.ApprovalResponse | says.ApprovalRefused, about: Subject) -> Description:
    verb = "approved" if answer.approved else "rejected"
    signed = ", signed" if answer.verified else ""
    text = f"{about.name}: {clip(answer.approver_id, style.LONGEST_NAME)} {verb}{signed}"
    notes = style.lines_of(answer.reason or "")
    if answer.objection is not None:
        return Description(
            style.WARNING, f"{text}, which does not count: {clip(answer.objection)}", style.DOUBTFUL, notes
        )
    icon, colour = (style.DONE, style.GOOD) if answer.approved else (style.REFUSED, style.BAD)
    return Description(icon, text, colour, notes)


def _approval_escalated(ticket: says.ApprovalEscalated, about: Subject) -> Description:
    return Description(
        style.WARNING,
        f"{about.name}: no answer in time, escalated to {style.listed(ticket.escalated_to)}",
        style.DOUBTFUL,
    )


def _approval_outdated(ticket: says.ApprovalOutdated, about: Subject) -> Description:
    text = f"{about.name}: approval ticket {clip(ticket.ticket_id, style.LONGEST_NAME)} is outdated"
    return Description(style.WARNING, text, style.DOUBTFUL, style.lines_of(ticket.reason))


def _approval_resolved(ticket: says.ApprovalResolved, about: Subject) -> Description:
    icon, colour, text = APPROVAL[ticket.status]
    decided = (ticket.approver_id,) if ticket.approver_id else ()
    names = ticket.approvers if ticket.status == "approved" else decided
    by = f" by {style.listed(names)}" if names else ""
    # The responses say the same while the run runs.
    is_news = ticket.status not in ("approved", "rejected")
    return Description(icon, f"{about.name}: {text}{by}", colour, style.lines_of(ticket.reason or ""), news=is_news)


GOVERNANCE: Final[Describers] = {
    says.ContractEvaluated: _contract_evaluated,
    says.GovernanceDecision: _governance_decision,
    says.ContractViolation: _contract_violation,
    says.PreviewCaptured: _preview_captured,
    says.PreviewSkipped: _preview_skipped,
    says.ApprovalSubmitted: _approval_submitted,
    says.ApprovalResponse: _approval_response,
    says.ApprovalRefused: _approval_response,
    says.ApprovalEscalated: _approval_escalated,
    says.ApprovalOutdated: _approval_outdated,
    says.ApprovalResolved: _approval_resolved,
    says.BreakGlass: _break_glass,
}
