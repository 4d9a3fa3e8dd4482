"""The responses that a run has received and not taken: read from its inbox in order, with signatures verified."""

from collections.abc import Iterable
from typing import Final

import msgspec

from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.approvals.responses import is_rejection, messages_of, response_in
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Message

MOST_TAKEN: Final = 50
"""Responses that a run takes at once; further ones follow."""


async def untaken(ledger: Ledger, run_id: str, ticket_id: str) -> list[Message]:
    """The next responses to take, in order, with every rejection: none waits behind approvals that decide."""
    rejections: list[Message] = []
    others: list[Message] = []
    async for each in messages_of(ledger, run_id, ticket_id):
        if each.kind == "approval" and each.taken is None:
            kept = rejections if is_rejection(each) else others
            if len(kept) < MOST_TAKEN:
                kept.append(each)
            if len(rejections) == MOST_TAKEN:
                break
    return sorted((rejections + others)[:MOST_TAKEN], key=lambda each: each.id)


def verified(verifier: SignatureVerifier, messages: Iterable[Message], ticket: Ticket) -> tuple[Response, ...]:
    """The responses in messages, with their signatures verified."""
    return tuple(_verified(verifier, response_in(message), ticket) for message in messages)


def _verified(verifier: SignatureVerifier, response: Response, ticket: Ticket) -> Response:
    if response.unfit is not None:
        return response
    found = verifier.verify(response, ticket)
    return msgspec.structs.replace(found, received_at=response.received_at, message_id=response.message_id)
