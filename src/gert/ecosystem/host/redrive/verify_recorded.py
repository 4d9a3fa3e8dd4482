"""Recorded approvals, heard again: what a log of answers says of a signature is checked, and not believed.

Nobody signs a log. Whoever can write to it could add an approval and say that it was validly signed; the signature
itself they cannot make.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gert.ecosystem.approvals.signatures import KeyVerifier
from gert.ecosystem.host.config.approval_keys import approval_verifier
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import Database
from gert.errors import IntegrityError
from gert.kernel.engine.approval_rules import Ticket
from gert.kernel.engine.requests import AnyAnswer, ApprovalAnswer, Ask, AwaitApproval, Response


class Rehearing:
    """Checks the answers of a log as they were checked when they came."""

    def __init__(self, environ: Mapping[str, str], database: Database | None) -> None:
        self._environ = environ
        # On a ledger that others can write to, only keys with an owner approve.
        self._is_strict = isinstance(database, Dsn)

    @cached_property
    def _verifier(self) -> KeyVerifier:
        return approval_verifier(self._environ, is_strict=self._is_strict)

    def hear(self, ask: Ask[Any], answer: AnyAnswer) -> None:
        """Refuse an approval that claims a signature it does not have."""
        if not isinstance(ask, AwaitApproval) or not isinstance(answer, ApprovalAnswer):
            return
        ticket = Ticket(id=ask.ticket_id, request=ask.request, created_at=ask.created_at, expires_at=ask.expires_at)
        for response in answer.responses:
            if _claims_signature(response, ask):
                self._require_signature(response, ticket)

    def _require_signature(self, response: Response, ticket: Ticket) -> None:
        found = self._verifier.verify(response, ticket)
        if not found.verified:
            raise IntegrityError(
                f"the log has an approval of `{ticket.id}` by `{response.approver}` whose signature does not hold: "
                + (found.flaw or "there is none"),
                hint="set the keys that answers were checked with before; if they are set, the log was changed",
            )


def _claims_signature(response: Response, ask: AwaitApproval) -> bool:
    if not response.approved or response.flaw is not None:
        return False  # it opens nothing
    # Only a scenario scripts answers, and no run that goes on was made of one.
    return (
        response.verified
        or response.signature is not None
        or (response.scripted and ask.request.require_signed_approvals)
    )
