"""The ports of approvals: a provider that a run asks, channels that reach people, and the verification of signatures.

A provider answers two requests of a run: `submit` returns a ticket at once, `wait` returns responses. A channel
announces a ticket and posts responses. Neither decides: `gert.kernel.governance.approval_rules` does, in the
run.
"""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, SubmitApproval, TicketAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket

if TYPE_CHECKING:
    from gert.ecosystem.approvals.tickets import Tickets, TicketView


class StillOpen(Exception):
    """Raised by a provider that does not wait: the ticket is open, and a resume waits for it again."""

    def __init__(self, ticket_id: str) -> None:
        super().__init__(f"the ticket `{ticket_id}` is open")
        self.ticket_id = ticket_id


class ApprovalProvider(Protocol):
    """Obtains approvals for a run (kernel-api, ApprovalProvider)."""

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Request approval; returns a ticket and never waits for a person."""

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        """Wait for responses to a ticket, or until its time is over; can be cancelled, and called again later."""

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        """Close a ticket that asks for something else than what would run now.

        The answer carries this failure and the responses so far: a rejection counts, whatever has changed.
        """


class Channel(Protocol):
    """A way to reach people; it decides nothing.

    Texts of a ticket come from runbooks and tools: a channel masks secrets
    (`gert.kernel.foundation.secret_refs.masked`) and escapes the texts for where they are shown.
    """

    @property
    def name(self) -> str:
        """The name of the channel in notes."""

    async def announce(self, ticket: "TicketView") -> str | None:
        """Announce an open ticket; returns why that failed.

        It has a few seconds and is then cancelled.
        """

    def listening(self, tickets: "Tickets") -> AbstractAsyncContextManager[None]:
        """Collect responses while a run waits, and post each with `tickets.answer`.

        Entered and left in one task, at most once at a time, however many tickets wait. `tickets.answer` returns at
        once why a response would not count, which the channel shows to the person.
        """


class SignatureVerifier(Protocol):
    """Verifies the signature on a response (ecosystem-v0 §6.4)."""

    @property
    def has_keys(self) -> bool:
        """Whether any signature could hold."""

    def verify(self, response: Response, ticket: Ticket) -> Response:
        """The response with `verified` set, or with `flaw` saying why not; one that is not signed has neither.

        What the response claims about its own signature is discarded first.
        """
