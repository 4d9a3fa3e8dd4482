"""Signed responses that services send: decoded, verified with the keys of this process, then posted to the ticket."""

from typing import Final

import msgspec

from gert.ecosystem.approvals.responses import ResponseMessage
from gert.ecosystem.approvals.tickets import Answered, Tickets, TicketView
from gert.ecosystem.host.channels.web_server import Reply, json_reply
from gert.errors import GertError

UNSIGNED: Final = "a response must be signed"
UNRECORDED: Final = "the response could not be recorded: send it again"


class Unrecorded(GertError):
    """A signed response that could not be posted to its ticket; the service may send it again."""


class Refused(msgspec.Struct, frozen=True):
    """A response that was not posted, and so is not recorded: an unknown sender cannot fill the ledger."""

    status: int
    why: str


async def handle_callback(tickets: Tickets, ticket_id: str, body: bytes) -> Reply:
    """Post one signed response, and reply with the result."""
    try:
        said = msgspec.json.decode(body, type=ResponseMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _reply(400, ticket_id, "this is not a response: expected JSON with the fields of one")
    try:
        result = await post_signed(tickets, ticket_id, said)
    except Unrecorded:
        # After a 404 a service would not try again, and the response would be lost.
        return _reply(503, ticket_id, UNRECORDED)
    except GertError:
        # Only a sender that can sign learns which tickets exist, and what is wrong with one.
        return _reply(404, ticket_id, "there is no such ticket")
    if isinstance(result, Refused):
        return _reply(result.status, ticket_id, result.why)
    return _reply(200 if result.objection is None else 409, ticket_id, result.objection, result.view)


async def post_signed(tickets: Tickets, ticket_id: str, said: ResponseMessage) -> Answered | Refused:
    """Post a response if its signature is valid; the rules of the ticket decide whether it counts."""
    if said.signature is None:
        return Refused(401, UNSIGNED)
    # (1) It is for this ticket.
    if said.ticket_id != ticket_id:
        return Refused(409, "the response is for another ticket")
    # (2) Its signature is valid, covers this response, and is by a key we have.
    response = said.response()
    checked = tickets.verifier.verify(response, (await tickets.get(ticket_id)).ticket)
    if not checked.verified:
        return Refused(409, f"the response has no valid signature: {checked.flaw or UNSIGNED}")
    # (3) All other rules are the same for every response, whatever its channel.
    try:
        return await tickets.answer(ticket_id, response)
    except GertError as problem:
        raise Unrecorded(problem.message, hint=problem.hint) from None


def _reply(status: int, ticket_id: str, why: str | None, view: TicketView | None = None) -> Reply:
    document: dict[str, object] = {"ticket_id": ticket_id, "received": status == 200, "objection": why}
    if view is not None:
        document |= {"status": view.status, "approvals": view.approvals, "needed": view.needed}
    return json_reply(status, document)
