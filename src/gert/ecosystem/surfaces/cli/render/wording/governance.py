"""The words of events about contracts, decisions and approvals."""

import shlex
from collections.abc import Mapping
from typing import Final

from gert.ecosystem.surfaces.cli.render import text as say
from gert.ecosystem.surfaces.cli.render.text import Subject, Wording, Words, clip, columns
from gert.kernel.events import runbook as says

APPROVAL: Final[Mapping[str, tuple[str, str, str]]] = {
    "approved": (say.DONE, say.GOOD, "approved"),
    "rejected": (say.REFUSED, say.BAD, "rejected"),
    "expired": (say.REFUSED, say.BAD, "approval expired"),
}


def _contract_evaluated(step: says.ContractEvaluated, about: Subject) -> Words:
    contract = step.resolved_contract
    parts = [f"{key} {say.value_text(contract[key])}" for key in ("effects", "reads", "writes") if contract.get(key)]
    text = f"{about.name}: contract evaluated"
    return Words(say.NOTED, columns(text, *parts), say.QUIET, news=False)


def _governance_decision(step: says.GovernanceDecision, about: Subject) -> Words:
    rule = f", rule {clip(step.rule, say.LONGEST_VALUE)}" if step.rule else ""
    why = f"{step.risk_level} risk{rule}"
    if step.approval_result is not None:
        # The approval itself has been shown already; this only repeats how it ended.
        icon, colour, _ = APPROVAL[step.approval_result]
        return Words(icon, f"{about.name}: {step.approval_result}, {why}", colour, news=False)
    if step.decision == "allow":
        return Words(say.DONE, f"{about.name}: allowed, {why}", say.GOOD, news=False)
    if step.decision == "deny":
        return Words(say.REFUSED, f"{about.name}: denied, {why}", say.BAD)
    people = f" by {step.min_approvers} people" if (step.min_approvers or 1) > 1 else ""
    return Words(say.ASKED, f"{about.name}: needs approval{people}, {why}", say.DOUBTFUL)


def _contract_violation(step: says.ContractViolation, about: Subject) -> Words:
    icon, colour = (say.FAILED, say.BAD) if step.severity == "error" else (say.WARNING, say.DOUBTFUL)
    return Words(icon, f"{about.name}: contract violation ({step.kind})", colour, say.lines_of(step.message))


def _preview_captured(step: says.PreviewCaptured, about: Subject) -> Words:
    return Words(say.NOTED, f"{about.name}: preview{_command(step.command)}", say.LIVELY, say.lines_of(step.output))


def _preview_skipped(step: says.PreviewSkipped, about: Subject) -> Words:
    text = f"{about.name}: preview not run{_command(step.command)}"
    return Words(say.NOTED, text, say.DOUBTFUL, say.lines_of(step.reason))


def _command(words: tuple[str, ...]) -> str:
    return f", {clip(shlex.join(words))}" if words else ""


def _break_glass(step: says.BreakGlass, about: Subject) -> Words:
    text = f"{about.name}: BREAK GLASS by {clip(step.actor, say.LONGEST_NAME)}, overrides {step.overridden}"
    return Words(say.WARNING, f"{text} ({step.risk_level} risk)", say.BAD, say.lines_of(step.reason))


def _approval_submitted(ticket: says.ApprovalSubmitted, about: Subject) -> Words:
    who = say.listed(ticket.approvers)
    asked = f" of {who}" if who else ""
    until = f", until {clip(ticket.expires_at, 40)}" if ticket.expires_at else ""
    how = f"approval asked{asked} ({clip(ticket.method, 40)}, ticket {clip(ticket.ticket_id, say.LONGEST_NAME)}{until})"
    return Words(say.ASKED, f"{about.name}: {how}", say.DOUBTFUL)


def _approval_response(answer: says.ApprovalResponse | says.ApprovalRefused, about: Subject) -> Words:
    verb = "approved" if answer.approved else "rejected"
    signed = ", signed" if answer.verified else ""
    text = f"{about.name}: {clip(answer.approver_id, say.LONGEST_NAME)} {verb}{signed}"
    notes = say.lines_of(answer.reason or "")
    if answer.objection is not None:
        return Words(say.WARNING, f"{text}, which does not count: {clip(answer.objection)}", say.DOUBTFUL, notes)
    icon, colour = (say.DONE, say.GOOD) if answer.approved else (say.REFUSED, say.BAD)
    return Words(icon, text, colour, notes)


def _approval_escalated(ticket: says.ApprovalEscalated, about: Subject) -> Words:
    return Words(
        say.WARNING, f"{about.name}: nobody answered, now asked: {say.listed(ticket.escalated_to)}", say.DOUBTFUL
    )


def _approval_outdated(ticket: says.ApprovalOutdated, about: Subject) -> Words:
    text = f"{about.name}: the approval asked for in ticket {clip(ticket.ticket_id, say.LONGEST_NAME)} is outdated"
    return Words(say.WARNING, text, say.DOUBTFUL, say.lines_of(ticket.reason))


def _approval_resolved(ticket: says.ApprovalResolved, about: Subject) -> Words:
    icon, colour, text = APPROVAL[ticket.status]
    decided = (ticket.approver_id,) if ticket.approver_id else ()
    names = ticket.approvers if ticket.status == "approved" else decided
    by = f" by {say.listed(names)}" if names else ""
    return Words(icon, f"{about.name}: {text}{by}", colour, say.lines_of(ticket.reason or ""))


GOVERNANCE: Final[Wording] = {
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
