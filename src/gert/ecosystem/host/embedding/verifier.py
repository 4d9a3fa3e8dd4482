"""A signature verifier of the embedding program, as a run uses it: what it does not confirm does not hold."""

from gert.ecosystem.approvals.signatures import verified
from gert.ecosystem.host.embedding.calling import error_of, name_of
from gert.ecosystem.host.embedding.ports import SignatureVerifier, SignedResponse
from gert.errors import IntegrityError
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket


class EmbeddedVerifier:
    """Passes complete signatures, with the bytes they must cover, to the verifier of the embedding program."""

    def __init__(self, verifier: SignatureVerifier) -> None:
        self._verifier = verifier

    @property
    def has_keys(self) -> bool:
        """The program says which signatures hold."""
        return True

    def verify(self, response: Response, ticket: Ticket) -> Response:
        """The response with the result of verifying its signature."""
        return verified(response, ticket, self._check)

    def _check(self, response: Response, message: bytes) -> None:
        said = SignedResponse(
            message=message,
            signature=response.signature or "",
            signature_alg=response.signature_alg,
            key_id=response.key_id,
            approver_id=response.approver,
            approved=response.approved,
        )
        try:
            holds = self._verifier.verify(said)
        except Exception as error:
            raise IntegrityError(f"the verifier `{name_of(self._verifier)}` failed: {error_of(error)}") from None
        # Only True: a coroutine that was never awaited, or any other object, confirms nothing.
        if holds is not True:
            raise IntegrityError(f"the verifier `{name_of(self._verifier)}` does not confirm the signature")
