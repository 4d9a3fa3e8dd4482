"""The rules of approval: which responses count, in which order, and what they decide (DECISIONS 42, 43).

The run decides with these rules, over the responses it took. A surface that collects responses asks the same rules
beforehand, to tell an approver at once why a response would not count.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from gert.errors import TraceError
from gert.kernel.foundation.canonical import canonical, digest, digest_value
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import is_plain
from gert.kernel.foundation.timestamps import parse_timestamp
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.decide import person_key

CLOCK_SKEW: Final = timedelta(seconds=30)
"""How far the clock of an approver may differ from that of the ledger (ecosystem-v0 §6.4)."""

UNSIGNED: Final = "the response has no valid signature"


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """An open approval request and the time in which a response counts.

    created_at, expires_at: timestamps as in events; without them any time counts, as in a replay
    """

    id: str
    request: ApprovalRequest
    created_at: str | None = None
    expires_at: str | None = None


class Tally(msgspec.Struct, frozen=True):
    """The counted responses: approvals, an objection or None for each response, and the response that decided."""

    needed: int
    approvals: list[Response]
    objections: list[str | None]
    resolved_by: Response | None

    @property
    def is_open(self) -> bool:
        """Whether more responses are needed."""
        return self.resolved_by is None

    @property
    def is_rejected(self) -> bool:
        """Whether a rejection closed the ticket."""
        return self.resolved_by is not None and not self.resolved_by.approved

    def outdated(self, reason: str) -> "Tally":
        """Return the tally of a ticket whose call has changed: no approval counts."""
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
    """Return why a response does not count, or None if it counts."""
    request, approver = ticket.request, response.approver
    # (0) It is a response at all.
    if response.unfit is not None:
        return response.unfit
    # (1) The response is for this ticket, and (2) for the request of this ticket.
    if response.ticket_id not in ("", ticket.id):
        return f"the response is for the ticket `{response.ticket_id}`"
    if response.request_hash not in ("", request.request_hash):
        return "the response is for another request: what would run has changed"
    # (3) The ticket is open.
    if resolved_by is not None:
        return f"the ticket is closed: `{resolved_by.approver}` has decided"
    # (4) It came in time, and (5) not before the request.
    untimely = _timing_objection(ticket, response)
    if untimely is not None:
        return untimely
    # (6) It names the approver and is their first response: `min_approvers` counts people. A name with invisible
    # characters could be mistaken for another person's.
    if not is_plain(approver):
        return "the response does not name its approver plainly"
    if any(person_key(each.approver) == person_key(approver) for each in approvals):
        return f"`{approver}` has already responded"
    # (7) A given signature is valid; an approval has one where the policy requires it.
    if response.flaw is not None:
        return f"{UNSIGNED}: {response.flaw}"
    if not response.approved:
        return None  # anyone may reject
    if request.require_signed_approvals and not (response.verified or response.scripted):
        return UNSIGNED
    # (8) The person may approve.
    return approver_objection(request, approver)


def _timing_objection(ticket: Ticket, response: Response) -> str | None:
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
        return f"the response came too late: the ticket expired at {ticket.expires_at}"
    if ticket.created_at is not None and parse_timestamp(ticket.created_at) - answered > CLOCK_SKEW:
        return "the response is older than the request"
    # Prepared in advance, it could be sent at a moment that its author does not choose.
    if answered - received > CLOCK_SKEW:
        return "the response is from the future: the clock of the approver is ahead"
    return None


def approver_objection(request: ApprovalRequest, approver: str) -> str | None:
    """Return why this person may not approve, or None if they may."""
    if request.separation_of_duties and request.requested_by is None:
        return "the run does not record who started it, and that person may not approve it"
    if request.separation_of_duties and person_key(approver) == person_key(request.requested_by or ""):
        return f"`{approver}` started the run and may not approve it"
    for listed, people in zip(request.approvers, request.admitted, strict=True):
        if person_key(approver) not in {person_key(each) for each in people}:
            return f"`{approver}` is not among the approvers {listing(listed)}"
    return None


def hash_of(request: ApprovalRequest) -> str:
    """Return the hash that binds a response to the exact call (DECISIONS 42).

    It is computed from the request alone; for a secret input it covers an HMAC under a key of the run.
    The path of the program is compared separately, because it differs between hosts.
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
        # Only where there is one: the hash of other requests stays what it was.
        **({"plan": request.plan} if request.plan is not None else {}),
    }
    return digest_value(bound)


def signed_message(ticket_id: str, response: Response, request_hash: str) -> bytes:
    """Return the bytes that a response's signature covers."""
    return canonical(
        {
            "ticket_id": ticket_id,
            "approved": response.approved,
            "approver_id": response.approver,
            "timestamp": response.timestamp,
            "request_hash": request_hash,
        }
    )
