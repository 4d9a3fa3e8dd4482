"""A ticket as machines read it, in the names of the specifications (ecosystem-v0 §4); secrets are masked."""

import shlex
from datetime import datetime, timedelta
from typing import Any

from gert.ecosystem.approvals.tickets import Received, TicketView
from gert.ecosystem.host.approvals.respond import Given
from gert.ecosystem.host.shapes.approvals import AnsweredTicket
from gert.kernel.foundation.duration import format_duration
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.governance.approval import ApprovalRequest


def request_document(request: ApprovalRequest) -> dict[str, Any]:
    """What is asked for, of whom, and what the answer is bound to."""
    document: dict[str, Any] = masked(
        {
            "run_id": request.run_id,
            "step_id": request.step_id,
            "path": request.path or request.step_id,
            "runbook_name": request.runbook,
            "run_kind": request.run_kind,
            "step_type": request.step_type,
            "title": request.title,
            "description": request.description or request.title,
            "target": request.target,
            "command": request.command,
            "program": request.program,
            **({"plan": request.plan} if request.plan is not None else {}),
            "folder": request.folder,
            "risk_level": request.risk_level,
            "rule": request.rule,
            "contract": request.contract,
            "inputs": request.inputs,
            "hidden_inputs": request.hidden,
            "preview": request.preview,
            "preview_command": list(request.preview_command),
            "preview_skipped": request.preview_skipped,
            "request_hash": request.request_hash,
            "min_approvers": max(1, request.min_approvers),
            "approvers": [list(names) for names in request.approvers],
            "separation_of_duties": request.separation_of_duties,
            "require_signed_approvals": request.require_signed_approvals,
            "requested_by": request.requested_by,
            "notify": list(request.notify),
            "timeout": format_duration(timedelta(seconds=request.approval_timeout)),
            "extensions": request.extensions,
        }
    )
    return document


def ticket_document(view: TicketView, now: datetime, resume: str | None = None) -> dict[str, Any]:
    """A ticket with its responses: those the run took, and those it has received and not taken.

    resume: the command that resumes its run, where the ticket is answered or expired and no process drives the run
    """
    taken = [each for each in view.responses if each.is_taken]
    return {
        "ticket_id": view.id,
        "status": view.status_at(now),
        "created": view.ticket.created_at,
        "expires_at": view.ticket.expires_at,
        **request_document(view.ticket.request),
        "approvals": view.approvals,
        "responses": [_response(view, each) for each in taken if each.counts],
        "refused": [_response(view, each) for each in taken if not each.counts],
        "received": [_response(view, each) for each in view.responses if not each.is_taken],
        "notes": list(view.notes),
        "answered": view.is_answered,
        "resume": resume,
    }


def _response(view: TicketView, received: Received) -> dict[str, Any]:
    said = received.response
    return {
        "ticket_id": said.ticket_id or view.id,
        "approved": said.approved,
        "approver_id": said.approver,
        "method": view.method,
        "timestamp": said.timestamp,
        "signature": said.signature,
        "signature_alg": said.signature_alg,
        "key_id": said.key_id,
        "reason": masked(said.reason),
        "received": received.received_at,
        "objection": received.objection,
        "counted": received.counts,
    }


def pending_document(view: TicketView, now: datetime | None) -> dict[str, Any]:
    """A ticket that a run waits for, as the details of the run show it."""
    return {
        "ticket_id": view.id,
        "status": view.status_at(now) if now is not None else view.status,
        "answered": view.is_answered,
        "created": view.ticket.created_at,
        "expires_at": view.ticket.expires_at,
        "notes": list(view.notes),
        **request_document(view.ticket.request),
    }


def resume_command(view: TicketView, words: str) -> str:
    """The command that resumes a run which does not wait by itself; `words` are its options."""
    return f"{shlex.join(['gert', 'resume', view.resumes or view.run_id])}{words}"


def answered_document(given: Given, approved: bool, words: str | None) -> AnsweredTicket:
    """The result of an answer; `words` name the ledger of its run, None if it is not known here."""
    answered, view = given.answered, given.answered.view
    is_received = answered.objection is None
    is_next = is_received and words is not None and (answered.is_decided or given.is_unverified)
    # One whose signature was not checked may turn out not to count.
    unchecked = int(given.is_unverified and is_received and approved and words is not None)
    return {
        "ticket_id": view.id,
        "run_id": view.run_id,
        "approved": approved,
        "received": is_received,
        "objection": answered.objection,
        "status": view.status,
        "approvals": view.given - unchecked,
        "counted": view.approvals,
        "min_approvers": view.needed,
        "resume": resume_command(view, f"{words}{given.input_words}") if is_next else None,
        "signed": given.is_signed,
        "signature_checked_here": given.is_signed and not given.is_unverified,
    }
