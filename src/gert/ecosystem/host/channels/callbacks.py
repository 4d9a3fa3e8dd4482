"""Signed answers from services: read, checked by the keys we hold, and only then put to a ticket."""

from typing import Final

import msgspec

from gert.ecosystem.approvals.responses import ResponseMessage
from gert.ecosystem.approvals.tickets import Answered, Tickets, TicketView
from gert.ecosystem.host.channels.web import Reply, as_json
from gert.errors import GertError

UNSIGNED: Final = "only signed answers are taken here"
UNRECORDED: Final = "the answer could not be recorded: send it again"


class Unrecorded(GertError):
    """A signed answer that could not be put to its ticket: whoever sent it may send it again."""


class Refused(msgspec.Struct, frozen=True):
    """An answer that was not put to the ticket, and so is not recorded: a stranger fills no record."""

    status: int
    why: str


async def called_back(tickets: Tickets, ticket_id: str, body: bytes) -> Reply:
    """Take one signed answer, and say what became of it."""
    try:
        said = msgspec.json.decode(body, type=ResponseMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _told(400, ticket_id, "this is not an answer: expected JSON with the fields of one")
    try:
        became = await put_signed(tickets, ticket_id, said)
    except Unrecorded:
        # Told that there is no such ticket, a service would not try again, and the answer be lost.
        return _told(503, ticket_id, UNRECORDED)
    except GertError:
        # Which tickets there are, and what is wrong with one, is told to those who can sign.
        return _told(404, ticket_id, "there is no such ticket to answer")
    if isinstance(became, Refused):
        return _told(became.status, ticket_id, became.why)
    return _told(200 if became.objection is None else 409, ticket_id, became.objection, became.view)


async def put_signed(tickets: Tickets, ticket_id: str, said: ResponseMessage) -> Answered | Refused:
    """Put an answer to a ticket if its signature holds; whether it counts, the ticket says."""
    if said.signature is None:
        return Refused(401, UNSIGNED)
    # (1) It is about this ticket.
    if said.ticket_id != ticket_id:
        return Refused(409, "the answer is for another ticket")
    # (2) Its signature holds, over this very answer, by a key we hold.
    response = said.response()
    checked = tickets.verifier.verify(response, (await tickets.get(ticket_id)).ticket)
    if not checked.verified:
        return Refused(409, f"the response has no valid signature: {checked.flaw or UNSIGNED}")
    # (3) Everything else is the same for all answers, however they come.
    try:
        return await tickets.answer(ticket_id, response)
    except GertError as problem:
        raise Unrecorded(problem.message, hint=problem.hint) from None


def _told(status: int, ticket_id: str, why: str | None, view: TicketView | None = None) -> Reply:
    document: dict[str, object] = {"ticket_id": ticket_id, "received": status == 200, "objection": why}
    if view is not None:
        document |= {"status": view.status, "approvals": view.approvals, "needed": view.needed}
    return as_json(status, document)
