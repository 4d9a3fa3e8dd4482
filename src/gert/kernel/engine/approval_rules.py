"""The rules of approval: which responses count, in which order, and what they decide (DECISIONS 42, 43).

The run decides with these rules, over the responses it took. A surface that collects responses asks the same rules
beforehand, to tell an approver at once why a response would not count.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from gert.errors import TraceError
from gert.kernel.engine.requests import ApprovalRequest, Response
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.canonical import canonical, digest, digest_value
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import is_plain
from gert.kernel.governance.decide import person_key

CLOCK_SKEW: Final = timedelta(seconds=30)
"""How far the clock of an approver may differ from that of the ledger (ecosystem-v0 §6.4)."""

UNSIGNED: Final = "the answer is not validly signed"


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is open: what is asked, and while when an answer counts.

    created_at, expires_at: as events carry time; without them every moment will do, as in a replay
    """

    id: str
    request: ApprovalRequest
    created_at: str | None = None
    expires_at: str | None = None


class Tally(msgspec.Struct, frozen=True):
    """What answers to a request come to: the approvals that count, for each answer why it does not, and who decided."""

    needed: int
    approvals: list[Response]
    objections: list[str | None]
    resolved_by: Response | None

    @property
    def is_open(self) -> bool:
        """Whether more answers are needed."""
        return self.resolved_by is None

    @property
    def is_rejected(self) -> bool:
        """Whether a rejection decided."""
        return self.resolved_by is not None and not self.resolved_by.approved

    def outdated(self, reason: str) -> "Tally":
        """The tally of a ticket that asks for something else than what would run: no approval counts."""
        changed = f"what would run has changed: {reason}"
        return Tally(self.needed, [], [each or changed for each in self.objections], None)


def tally(ticket: Ticket, responses: Iterable[Response]) -> Tally:
    """Count responses in the order they came: one rejection, or enough approvals, closes the ticket.

    A rejection that the ledger received before the run closed the ticket is not lost to approvals that came earlier
    and were not taken yet: its author was told that it was received in time.
    """
    given = list(responses)
    count = _counted(ticket, given)
    if count.resolved_by is None or count.is_rejected:
        return count
    first = sorted(range(len(given)), key=lambda each: given[each].approved or given[each].received_at is None)
    again = _counted(ticket, [given[each] for each in first])
    if not again.is_rejected:
        return count
    objections = dict(zip(first, again.objections, strict=True))
    return msgspec.structs.replace(again, objections=[objections[each] for each in range(len(given))])


def _counted(ticket: Ticket, responses: Iterable[Response]) -> Tally:
    needed = max(1, ticket.request.min_approvers)
    approvals: list[Response] = []
    objections: list[str | None] = []
    resolved_by: Response | None = None
    for response in responses:
        objection = _objection(ticket, response, approvals, resolved_by)
        objections.append(objection)
        if objection is None:
            approvals += [response] if response.approved else []
            if not response.approved or len(approvals) >= needed:
                resolved_by = response
    return Tally(needed, approvals, objections, resolved_by)


def _objection(
    ticket: Ticket, response: Response, approvals: list[Response], resolved_by: Response | None
) -> str | None:
    """Why a response does not count, or None when it does."""
    request, approver = ticket.request, response.approver
    # (0) It is a response at all.
    if response.unfit is not None:
        return response.unfit
    # (1) It is about this ticket, and (2) about what this ticket asks: neither may be exchanged under an answer.
    if response.ticket_id not in ("", ticket.id):
        return f"the answer is for the ticket `{response.ticket_id}`"
    if response.request_hash not in ("", request.request_hash):
        return "the answer is for another request: what would run has changed"
    # (3) The ticket is open.
    if resolved_by is not None:
        return f"the ticket is closed: `{resolved_by.approver}` has decided"
    # (4) It came in time, and (5) was not given before anybody asked.
    untimely = _untimely(ticket, response)
    if untimely is not None:
        return untimely
    # (6) It says who gave it, and is this person's first: `min_approvers` counts people. A name with something
    # invisible in it would be another person's to everybody who reads it.
    if not is_plain(approver):
        return "the answer does not say plainly who gave it"
    if any(person_key(each.approver) == person_key(approver) for each in approvals):
        return f"`{approver}` has answered already"
    # (7) A signature that is there holds; an approval has one where policy asks for it.
    if response.flaw is not None:
        return f"{UNSIGNED}: {response.flaw}"
    if not response.approved:
        return None  # anyone may say no
    if request.require_signed_approvals and not (response.verified or response.scripted):
        return UNSIGNED
    # (8) The person may approve.
    return may_not_approve(request, approver)


def _untimely(ticket: Ticket, response: Response) -> str | None:
    """Why a response was given at the wrong time; the clock of the ledger decides about the timeout."""
    if ticket.created_at is None and ticket.expires_at is None:
        return None
    try:
        answered = parse_timestamp(response.timestamp)
        received = parse_timestamp(response.received_at) if response.received_at is not None else answered
        late = ticket.expires_at is not None and received > parse_timestamp(ticket.expires_at)
    except (TraceError, OverflowError) as problem:
        return problem.message if isinstance(problem, TraceError) else "the time of the response cannot be read"
    if late:
        return f"the answer came too late: the ticket expired at {ticket.expires_at}"
    if ticket.created_at is not None and parse_timestamp(ticket.created_at) - answered > CLOCK_SKEW:
        return "the answer is older than the request"
    # Prepared in advance, it could be sent at a moment that its author does not choose.
    if answered - received > CLOCK_SKEW:
        return "the answer is from the future: the clock of the approver is ahead"
    return None


def may_not_approve(request: ApprovalRequest, approver: str) -> str | None:
    """Why this person may not approve, or None when they may."""
    if request.separation_of_duties and request.requested_by is None:
        return "it is not known who started the run, and that person may not approve it"
    if request.separation_of_duties and person_key(approver) == person_key(request.requested_by or ""):
        return f"`{approver}` started the run and may not approve it"
    for listed, people in zip(request.approvers, request.admitted, strict=True):
        if person_key(approver) not in {person_key(each) for each in people}:
            return f"`{approver}` is not among the approvers {', '.join(f'`{each}`' for each in listed)}"
    return None


def hash_of(request: ApprovalRequest) -> str:
    """The hash that binds an answer to exactly what would run (DECISIONS 42).

    It can be computed from the request alone: of a secret input it covers an HMAC under a key of the run.
    Where the program was found is compared apart from it, because another host has it elsewhere.
    """
    bound = {
        "runbook": request.runbook_hash,
        "step": request.step_id,
        "path": request.path,
        "contract": request.contract,
        "inputs": masked(request.inputs),
        "hidden": request.hidden,
        "secrets": request.secrets,
        "tool": request.tool_digest,
        "command": request.command,
        "preview": digest(request.preview.encode()) if request.preview is not None else None,
        "preview_command": list(request.preview_command),
        "preview_skipped": request.preview_skipped,
    }
    return digest_value(bound)


def signed_message(ticket_id: str, response: Response, request_hash: str) -> bytes:
    """What a signature on an answer covers."""
    return canonical(
        {
            "ticket_id": ticket_id,
            "approved": response.approved,
            "approver_id": response.approver,
            "timestamp": response.timestamp,
            "request_hash": request_hash,
        }
    )
