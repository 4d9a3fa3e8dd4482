"""What was said about a ticket, judged by the run that asked: by its own request, its own times and the keys it holds.

Nothing a file says of itself counts. Where a group can write the file, an approval needs a signature besides, and
rejections are taken also from where nobody can take them away (`gert.ecosystem.approvals.rejections`).
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from gert.ecosystem.approvals.hearing import future, recordable, unfit
from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.approvals.ticket_file import Heard, TicketFile, as_written, bare, settled
from gert.errors import IntegrityError
from gert.kernel.engine.approval import Ticket, tally
from gert.kernel.engine.asks import ApprovalRequest, Response

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
    kept: Iterable[Response] | None = None,
) -> TicketFile:
    """The file as the run finds it, with signatures checked; an answer counts if it is recorded to, and does here.

    kept: the rejections that were kept apart, where the folder is shared
    """
    file = without_unfit(renewed(found, terms), now)
    if kept is not None:
        file = with_kept(file, kept)
    heard: list[Heard] = []
    for each in file.responses:
        response = checked(bare(each.response), file.ticket, verifier, is_shared=kept is not None)
        said = [other.response for other in heard if other.objection is None]
        objection = tally(file.ticket, [*said, response]).objections[-1] or each.objection
        if kept is not None:
            objection = objection or future(response, now)
        heard.append(msgspec.structs.replace(each, response=response, objection=objection))
    file = settled(msgspec.structs.replace(file, responses=tuple(heard)))
    if found.status == "abandoned" or (found.status == "expired" and kept is None):
        return msgspec.structs.replace(file, status=found.status)
    if file.status == "pending" and file.is_over(now):
        return msgspec.structs.replace(file, status="expired")
    if file.status == "pending" and found.status != "pending":
        return file.noting(f"open again: it was marked `{found.status}`, and the run finds otherwise")
    return file


def checked(response: Response, ticket: Ticket, verifier: SignatureVerifier, *, is_shared: bool) -> Response:
    """The answer with what the check of its signature found; where a group can write it, an approval must have one."""
    found = verifier.verify(response, ticket)
    if is_shared and found.approved and not found.verified and found.flaw is None:
        return msgspec.structs.replace(found, flaw=UNPROVEN)
    return found


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


def without_unfit(file: TicketFile, now: datetime) -> TicketFile:
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


def with_kept(file: TicketFile, kept: Iterable[Response]) -> TicketFile:
    """The file with the rejections that somebody has taken out of it, or marked as not counting."""
    counted = {bare(response) for response in file.counted}
    missing = [each for each in map(bare, kept) if each not in counted and unfit(each) is None]
    if not missing:
        return file
    # Before everything else: whoever took one away did so for what comes after it. The time is the rejection's own,
    # so that judging twice comes to the same file.
    put_back = (Heard(response=each, at=each.timestamp) for each in dict.fromkeys(missing))
    others = (each for each in file.responses if bare(each.response) not in missing)
    return msgspec.structs.replace(file, responses=(*put_back, *others))
