"""Signatures on responses: made with the key of the approver, verified with the keys of the run (ecosystem-v0 §6.4)."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from gert.ecosystem.approvals.responses import bare
from gert.errors import CanonicalError, IntegrityError
from gert.kernel.foundation.signature import Key, Keys, Signature, sign, verify
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket, signed_message
from gert.kernel.governance.decide import person_key


class KeyVerifier:
    """Verifies signatures with keys.

    owners: the people a key speaks for, by the id it is asked for; None where it may speak for any person, as the key
    of a service does that has authenticated them
    is_strict: whether an approval needs a key with an owner: with a key that speaks for any person, one person could
    approve under several names
    """

    def __init__(
        self,
        keys: Keys,
        owners: Callable[[str | None], Iterable[str] | None] = lambda _: None,
        *,
        is_strict: bool = False,
    ) -> None:
        self._keys = keys
        self._owners = owners
        self._is_strict = is_strict

    @property
    def has_keys(self) -> bool:
        """Whether there is any key."""
        return len(self._keys) > 0

    def verify(self, response: Response, ticket: Ticket) -> Response:
        """The response with the result of verifying its signature."""
        return verified(response, ticket, self._check)

    def _check(self, response: Response, message: bytes) -> None:
        signature = Signature(response.signature_alg or "", response.key_id, response.signature or "")
        verify(self._keys, signature, message)
        self._check_owner(response)

    def _check_owner(self, response: Response) -> None:
        owners = self._owners(response.key_id)
        if owners is None and self._is_strict and response.approved:
            raise IntegrityError(f"the key `{response.key_id}` has no owner")
        if owners is not None and person_key(response.approver) not in {person_key(each) for each in owners}:
            raise IntegrityError(f"the key `{response.key_id}` does not speak for `{response.approver}`")


NO_KEYS: Final = KeyVerifier(Keys())
"""Verifies no signature; it has nothing to say about responses without one."""


def verified(response: Response, ticket: Ticket, check: Callable[[Response, bytes], None]) -> Response:
    """The response with the result of verifying its signature.

    check: raises IntegrityError unless the signature of the response covers these bytes
    """
    said = bare(response)
    if said.signature is None:
        # Half a signature is not none: removing the rest must not turn it into an unsigned response.
        part = said.signature_alg is not None or said.key_id is not None
        return msgspec.structs.replace(said, flaw="the signature is missing") if part else said
    try:
        # It is bound to the ticket of the run, and not to what the response says it is about.
        check(said, signed_message(ticket.id, said, ticket.request.request_hash))
    except (IntegrityError, CanonicalError) as problem:
        return msgspec.structs.replace(said, flaw=problem.message)
    return msgspec.structs.replace(said, verified=True)


def sign_response(response: Response, ticket: Ticket, key: Key) -> Response:
    """The response, bound to a ticket and signed."""
    said = msgspec.structs.replace(bare(response), ticket_id=ticket.id, request_hash=ticket.request.request_hash)
    signature = sign(key, signed_message(ticket.id, said, ticket.request.request_hash))
    return msgspec.structs.replace(
        said, signature=signature.value, signature_alg=signature.alg, key_id=signature.key_id
    )
