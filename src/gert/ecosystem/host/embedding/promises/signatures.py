"""The promises of signature verifiers."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gert.ecosystem.approvals import port
from gert.ecosystem.host.embedding.ports import SignatureVerifier
from gert.ecosystem.host.embedding.promises import Promise, promises, require
from gert.ecosystem.host.embedding.promises.approvals import example_request
from gert.ecosystem.host.embedding.verifier import EmbeddedVerifier
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket, signed_message

Sign = Callable[[bytes, str], tuple[str, str | None, str | None]]
"""Signs a message as an approver does: returns the signature, its algorithm, and the id of the key."""

_NOON: Final = "2026-01-02T12:00:00Z"
_STRANGE: Final = ("", " ", "0" * 64, "=", "\N{SNOWMAN}", "a" * 1000, "\0", "'; drop", "../../key")


class Notary(NamedTuple):
    """A verifier under test, as a run uses it, and the keys of two approvers, bob and carol."""

    verifier: port.SignatureVerifier
    sign: Sign

    def signed(self, by: str = "bob", **changes: Any) -> Response:
        """A response that bob signed; `changes` are made afterwards."""
        response = Response(approver="bob", approved=True, timestamp=_NOON, ticket_id=TICKET.id)
        signature, algorithm, key_id = self.sign(signed_message(TICKET.id, response, TICKET.request.request_hash), by)
        response = replace(response, signature=signature, signature_alg=algorithm, key_id=key_id)
        return replace(response, **changes)

    def refuses(self, what: str, response: Response, ticket: Ticket | None = None) -> None:
        """Require that a signature does not hold, and that the verifier says why."""
        found = self.verifier.verify(response, ticket or TICKET)
        require(not found.verified and found.flaw, f"the signature still holds: {what}")


TICKET: Final = Ticket(id="ticket-1", request=example_request())


async def _confirms(notary: Notary) -> None:
    """a signature of the approver holds, for an approval and for a rejection."""
    for approved in (True, False):
        response = Response(approver="bob", approved=approved, timestamp=_NOON, ticket_id=TICKET.id)
        message = signed_message(TICKET.id, response, TICKET.request.request_hash)
        signature, algorithm, key_id = notary.sign(message, "bob")
        signed = replace(response, signature=signature, signature_alg=algorithm, key_id=key_id)
        found = notary.verifier.verify(signed, TICKET)
        require(found.verified and found.flaw is None, f"the signature does not hold: {found.flaw}")


async def _binds_the_response(notary: Notary) -> None:
    """a response that was changed after it was signed does not hold."""
    notary.refuses("approved became rejected", notary.signed(approved=False))
    notary.refuses("the approver was changed", notary.signed(approver="carol"))
    notary.refuses("the time was changed", notary.signed(timestamp="2026-01-02T12:00:01Z"))


async def _binds_the_request(notary: Notary) -> None:
    """a signature for another ticket or another request does not hold."""
    signed = notary.signed()
    notary.refuses("it is used for another ticket", signed, replace(TICKET, id="ticket-2"))
    other = example_request(inputs={"name": "database"})
    notary.refuses("it is used for another request", signed, replace(TICKET, request=other))


async def _binds_the_key(notary: Notary) -> None:
    """a key speaks for its owner only."""
    notary.refuses("carol signed for bob", notary.signed(by="carol"))


async def _refuses_strange_signatures(notary: Notary) -> None:
    """a signature that is none does not hold, and raises nothing."""
    genuine = notary.signed().signature or ""
    for text in (*_STRANGE, genuine[:-4], genuine[::-1], genuine.swapcase()):
        if text != genuine:
            notary.refuses(f"the signature is {text[:20]!r}", notary.signed(signature=text))


async def _refuses_strange_keys(notary: Notary) -> None:
    """an unknown key or algorithm does not hold, and raises nothing."""
    for text in _STRANGE:
        notary.refuses(f"the algorithm is {text[:20]!r}", notary.signed(signature_alg=text))
    notary.refuses("the key is unknown", notary.signed(key_id="nobody"))


async def _takes_no_word_for_it(notary: Notary) -> None:
    """a response without a signature is not verified, whatever it claims."""
    bare = Response(approver="bob", approved=True, timestamp=_NOON, ticket_id=TICKET.id, verified=True)
    require(not notary.verifier.verify(bare, TICKET).verified, "a response without a signature is verified")
    notary.refuses("the signature was removed", notary.signed(signature=None, key_id="bob", verified=True))


_CHECKS: Final = (
    _confirms,
    _binds_the_response,
    _binds_the_request,
    _binds_the_key,
    _refuses_strange_signatures,
    _refuses_strange_keys,
    _takes_no_word_for_it,
)


def notary_promises(make: Callable[[], Any]) -> list[Promise]:
    """The promises of a verifier as a run uses it; `make` returns a `Notary`."""
    return promises(_CHECKS, make)


def signature_verifier_promises(make: Callable[[], Any]) -> list[Promise]:
    """The promises of a signature verifier.

    make: returns a new verifier, and a function `sign(message, approver)` that signs as bob or carol and returns the
        signature, its algorithm and the id of the key; it may be async
    """

    def notary(made: tuple[SignatureVerifier, Sign]) -> Notary:
        verifier, sign = made
        return Notary(EmbeddedVerifier(verifier), sign)

    return promises(_CHECKS, make, notary)
