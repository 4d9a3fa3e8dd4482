"""A ticket as machines read it, in the names of the specifications (ecosystem-v0 §4); secrets are masked."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from gert.ecosystem.approvals.ticket_file import Heard, TicketFile
from gert.kernel.engine.requests import ApprovalRequest
from gert.kernel.foundation.duration import format_duration
from gert.kernel.foundation.secret_refs import masked


def request_document(request: ApprovalRequest) -> dict[str, Any]:
    """What is asked for, of whom, and what the answer is bound to."""
    document: dict[str, Any] = masked(
        {
            "run_id": request.run_id,
            "step_id": request.step_id,
            "path": request.place,
            "runbook_name": request.runbook,
            "step_type": request.step_type,
            "title": request.title,
            "description": request.description or request.title,
            "target": request.target,
            "command": request.command,
            "program": request.program,
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


def ticket_document(file: TicketFile, now: datetime) -> dict[str, Any]:
    """A ticket with everything that was answered."""
    return {
        "ticket_id": file.id,
        "status": file.status_at(now),
        "created": file.ticket.created_at,
        "expires_at": file.ticket.expires_at,
        **request_document(file.ticket.request),
        "approvals": file.approvals,
        "responses": [_response(file, heard) for heard in file.responses],
        "refused": [_response(file, heard) for heard in file.refused],
        "unrecorded": file.unrecorded,
        "notes": list(file.notes),
        "run": msgspec.to_builtins(file.run),
    }


def _response(file: TicketFile, heard: Heard) -> dict[str, Any]:
    said = heard.response
    return {
        "ticket_id": said.ticket_id or file.id,
        "approved": said.approved,
        "approver_id": said.approver,
        "method": file.method,
        "timestamp": said.timestamp,
        "signature": said.signature,
        "signature_alg": said.signature_alg,
        "key_id": said.key_id,
        "reason": masked(said.reason),
        "received": heard.at,
        "objection": heard.objection,
        "counted": heard.counts,
    }
