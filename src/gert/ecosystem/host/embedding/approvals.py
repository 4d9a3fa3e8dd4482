"""An approval provider of the embedding program, as a run uses it.

The provider says what people responded. gert says when the ticket was created, when it expires, and when a response was
received; it verifies signatures, and the rules of the kernel decide what counts.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gert.ecosystem.approvals.port import SignatureVerifier, StillOpen
from gert.ecosystem.approvals.responses import bare, recordable, unfit
from gert.ecosystem.host.embedding.calling import LONGEST_CALL, call_part, error_of, name_of
from gert.ecosystem.host.embedding.ports import ApprovalProvider, ApprovalResponse, ApprovalTicket
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, SubmitApproval, TicketAnswer
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import Ticket

METHOD: Final = "embedded"
SUBMIT_SECONDS: Final = 30.0
"""How long a provider may take to return a ticket."""
MOST_RESPONSES: Final = 100
"""Responses to one ticket; a provider that never stops must not fill the ledger."""


class EmbeddedApprovals:
    """Requests approval from the provider of the embedding program."""

    def __init__(self, provider: ApprovalProvider, verifier: SignatureVerifier, clock: Callable[[], datetime]) -> None:
        self._provider = provider
        self._verifier = verifier
        self._clock = clock
        self._name = name_of(provider)
        self._tickets: set[str] = set()
        self._responses: Counter[str] = Counter()

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Submit a request, and check the ticket."""
        if ask.request.require_signed_approvals and not self._verifier.has_keys:
            message = "`require_signed_approvals` asks for signed responses, and nothing can verify them"
            return TicketAnswer(failure=Failure("denied", message))
        try:
            ticket = await call_part(self._provider.submit, without_secrets(ask.request), SUBMIT_SECONDS)
        except TimeoutError:
            return self._no_ticket(f"returned no ticket within {SUBMIT_SECONDS:g} s")
        except Exception as error:
            return self._no_ticket(f"failed: {error_of(error)}")
        if not isinstance(ticket, ApprovalTicket) or not isinstance(ticket.ticket_id, str):
            return self._no_ticket(f"returned a `{type(ticket).__name__}`, expected an `ApprovalTicket`")
        if not is_safe_name(ticket.ticket_id):
            return self._no_ticket("returned a ticket whose id is not a plain name of at most 128 characters")
        if ticket.ticket_id in self._tickets:
            # A response to the first would count for the second.
            return self._no_ticket(f"returned the ticket `{ticket.ticket_id}` twice")
        self._tickets.add(ticket.ticket_id)
        created = self._clock()
        return TicketAnswer(
            ticket_id=ticket.ticket_id,
            method=METHOD,
            created_at=format_timestamp(created),
            expires_at=format_timestamp(created + timedelta(seconds=ask.request.approval_timeout)),
            admitted=ask.request.admitted,
        )

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        """Wait for one response, or until the time is over."""
        if self._responses[ask.ticket_id] >= MOST_RESPONSES:
            return self._failed(f"gave {MOST_RESPONSES} responses to `{ask.ticket_id}` that do not decide")
        self._responses[ask.ticket_id] += 1
        ticket = ApprovalTicket(
            ticket_id=ask.ticket_id,
            created=ask.created_at,
            expires=ask.expires_at,
            request=without_secrets(ask.request),
        )
        left = self._left(ask)
        if left <= 0:
            return ApprovalAnswer(expired=True)
        over = asyncio.timeout(left)
        try:
            async with over:
                given = await call_part(self._provider.wait, ticket)
        except StillOpen:
            raise
        except Exception as error:
            return ApprovalAnswer(expired=True) if over.expired() else self._failed(f"failed: {error_of(error)}")
        return ApprovalAnswer(responses=(self._received(given, ask),), more=True)

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        """Close a ticket without responses: they are collected only by waiting."""
        return ApprovalAnswer(failure=outdated)

    def _left(self, ask: AwaitApproval) -> float:
        if ask.expires_at is None:
            return LONGEST_CALL
        return (parse_timestamp(ask.expires_at) - self._clock()).total_seconds()

    def _received(self, given: Any, ask: AwaitApproval) -> Response:
        """The response in the words of the kernel, with its signature verified."""
        now = format_timestamp(self._clock())
        response = _response(given, now)
        flaw = response.unfit or unfit(response)
        if flaw is not None:
            return msgspec.structs.replace(recordable(response), unfit=flaw, received_at=now)
        ticket = Ticket(id=ask.ticket_id, request=ask.request, created_at=ask.created_at, expires_at=ask.expires_at)
        return msgspec.structs.replace(self._verifier.verify(bare(response), ticket), received_at=now)

    def _no_ticket(self, why: str) -> TicketAnswer:
        return TicketAnswer(failure=Failure("transport", f"the approval provider `{self._name}` {why}"))

    def _failed(self, why: str) -> ApprovalAnswer:
        return ApprovalAnswer(failure=Failure("transport", f"the approval provider `{self._name}` {why}"))


def without_secrets(request: ApprovalRequest) -> ApprovalRequest:
    """The request as it may leave gert: placeholders in place of references to secrets."""
    return msgspec.convert(masked(msgspec.to_builtins(request, enc_hook=str)), ApprovalRequest)


def _response(given: Any, now: str) -> Response:
    if not isinstance(given, ApprovalResponse):
        why = f"the response is a `{type(given).__name__}`, expected an `ApprovalResponse`"
        return Response(approver="unknown", approved=False, timestamp=now, unfit=why)
    return Response(
        approver=given.approver_id,
        approved=given.approved,
        timestamp=now if given.timestamp is None else given.timestamp,
        reason=given.reason,
        ticket_id=given.ticket_id,
        signature=given.signature,
        signature_alg=given.signature_alg,
        key_id=given.key_id,
    )
