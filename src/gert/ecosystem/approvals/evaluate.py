"""What was said about a ticket, judged by the run that asked: by its own request, its own times and the keys it holds.

Nothing a file says of itself counts. Where a group can write the file, an approval needs a signature besides, and
rejections are taken also from where nobody can take them away (`gert.ecosystem.approvals.rejections`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.approvals.ticket_file import Heard, TicketFile, as_recorded, as_written, bare, settled
from gert.ecosystem.approvals.validate_response import future, recordable, unfit
from gert.errors import IntegrityError
from gert.kernel.engine.approval_rules import Ticket, tally
from gert.kernel.engine.requests import ApprovalRequest, Response

CHANGED: Final = "what would run has changed: earlier approvals do not count"
UNPROVEN: Final = "it has no signature, and a group can write where its ticket lies"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the run has on record about a question it put; times it does not have are those of the file."""

    request: ApprovalRequest
    created_at: str | None = None
    expires_at: str | None = None


def judged(
    found: TicketFile,
    terms: Terms,
    verifier: SignatureVerifier,
    now: datetime,
    kept: Sequence[Response] | None = None,
) -> TicketFile:
    """The file as the run finds it, with signatures checked; an answer counts if it is recorded to, and does here.

    kept: the rejections that were kept apart, where the folder is shared
    """
    asked = without_unfit(renewed(found, terms))
    if kept is None:
        file = heard_again(asked, verifier)
        if file.status == "approved":
            # Fewer approvals may be needed now than when a rejection was counted: it still decides.
            rejections = [bare(response) for response in asked.counted if not response.approved]
            file = heard_again(put_first(asked, rejections), verifier)
    else:
        fit = (each for each in kept if unfit(each) is None)
        rejections = list(dict.fromkeys(as_kept(each, asked.ticket, verifier) for each in fit))
        counted = {bare(response) for response in asked.counted}
        file = heard_again(put_first(asked, [each for each in rejections if each not in counted]), verifier, now)
        if file.status == "approved":
            # Each was given while the ticket was open: an approval that stands before one was put there.
            file = heard_again(put_first(asked, rejections), verifier, now)
    if found.status == "abandoned" or (found.status == "expired" and kept is None):
        return msgspec.structs.replace(file, status=found.status)
    if file.status == "pending" and file.is_over(now):
        return msgspec.structs.replace(file, status="expired")
    if file.status == "pending" and found.status != "pending":
        return file.noting(f"open again: it was marked `{found.status}`, and the run finds otherwise")
    return file


def heard_again(file: TicketFile, verifier: SignatureVerifier, now: datetime | None = None) -> TicketFile:
    """The file with every answer judged in its turn.

    now: given where a group can write the file; elsewhere an answer was held against the clock when it came
    """
    again: list[Heard] = []
    for each in file.responses:
        response = checked(bare(each.response), file.ticket, verifier, is_shared=now is not None)
        if each.is_unverified and not verifier.has_key_for(response):
            again.append(msgspec.structs.replace(each, response=response))
            continue
        said = [other.response for other in again if other.counts]
        objection = tally(file.ticket, [*said, response]).objections[-1] or each.objection
        if now is not None:
            objection = objection or future(response, now)
        again.append(msgspec.structs.replace(each, response=response, objection=objection, is_unverified=False))
    return settled(msgspec.structs.replace(file, responses=tuple(again)))


def checked(response: Response, ticket: Ticket, verifier: SignatureVerifier, *, is_shared: bool) -> Response:
    """The answer with what the check of its signature found; where a group can write it, an approval must have one."""
    found = verifier.verify(response, ticket)
    if is_shared and found.approved and not found.verified and found.flaw is None:
        return msgspec.structs.replace(found, flaw=UNPROVEN)
    return found


def as_kept(response: Response, ticket: Ticket, verifier: SignatureVerifier) -> Response:
    """A rejection that was kept apart, without what would speak against it.

    Whoever gave it took from the file what it is about: what somebody else had written there for that moment. It lies
    in the place of this ticket, and nobody needs to sign a rejection.
    """
    said = bare(response)
    if said.request_hash in ("", ticket.request.request_hash) and verifier.verify(said, ticket).flaw is None:
        return said
    return _unbound(said)


def is_for_the_run(file: TicketFile, rejection: Response) -> bool:
    """Whether a rejection is kept for the run, whatever the file says of what is asked, when, and who else rejects.

    Those are the run's to say, and somebody could have written them there to send a person away.
    """
    approvals = [as_recorded(each) for each in file.counted if each.approved]
    always = Ticket(id=file.id, request=file.ticket.request)
    said = msgspec.structs.replace(rejection, request_hash="")
    return tally(always, [*approvals, said]).objections[-1] is None


def strict(request: ApprovalRequest) -> ApprovalRequest:
    """A request as it is put in a shared folder: whoever answers is told that approvals are signed."""
    return msgspec.structs.replace(request, require_signed_approvals=True)


def renewed(found: TicketFile, terms: Terms) -> TicketFile:
    """The ticket with the terms of the run that asks now; they are not a matter of what lies on disk."""
    if found.ticket.request.request_hash != terms.request.request_hash:
        raise IntegrityError(
            f"the ticket `{found.id}` asks for something else than the run: what would run has changed",
            hint="abandon the run and begin a new one",
        )
    ticket = Ticket(
        id=found.id,
        request=as_written(terms.request),
        created_at=terms.created_at or found.ticket.created_at,
        expires_at=terms.expires_at or found.ticket.expires_at,
    )
    return found if ticket == found.ticket else msgspec.structs.replace(found, ticket=ticket)


def reopened(fresh: TicketFile, found: TicketFile) -> TicketFile:
    """A ticket that asks for something else than it did, with what was answered before.

    Rejections count, whatever has changed since they were given; approvals do not.
    """
    responses = [
        msgspec.structs.replace(each, objection=each.objection or CHANGED)
        if each.response.approved or each.objection is not None
        else msgspec.structs.replace(each, response=_unbound(each.response))
        for each in found.responses
    ]
    ticket = msgspec.structs.replace(fresh.ticket, created_at=found.ticket.created_at)
    return settled(msgspec.structs.replace(fresh, ticket=ticket, responses=tuple(responses))).noting(CHANGED)


def _unbound(rejection: Response) -> Response:
    """A rejection without what binds it to a request; nobody needs to sign a rejection."""
    return Response(approver=rejection.approver, approved=False, timestamp=rejection.timestamp, reason=rejection.reason)


def without_unfit(file: TicketFile) -> TicketFile:
    """The file without what can be no answer, which only something else than gert can have written."""
    fit = tuple(each for each in file.responses if unfit(each.response) is None)
    if len(fit) == len(file.responses):
        return file
    changed: TicketFile = msgspec.structs.replace(file, responses=fit)
    for each in file.responses:
        flaw = unfit(each.response)
        if flaw is not None:
            changed = changed.refusing(Heard(response=recordable(each.response), at=each.at[:64], objection=flaw))
    return changed


def put_first(file: TicketFile, rejections: Sequence[Response]) -> TicketFile:
    """The file with rejections before everything else, and counting, whatever somebody has made of them in it."""
    if not rejections:
        return file
    # The time is the rejection's own, so that judging twice comes to the same file.
    first = (Heard(response=each, at=each.timestamp) for each in rejections)
    others = (each for each in file.responses if bare(each.response) not in rejections)
    return msgspec.structs.replace(file, responses=(*first, *others))
