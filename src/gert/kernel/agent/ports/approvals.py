"""The port to people who approve tool calls: who asks them, and what they answered."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket
from gert.kernel.ledger.port import Ledger


class TicketState(NamedTuple):
    """A ticket with the responses to it.

    counted: those that the run has counted
    received: those that wait in the inbox, with their signatures verified
    is_over: its time is over, by the clock of the ledger
    """

    ticket: Ticket
    counted: tuple[Response, ...] = ()
    received: tuple[Response, ...] = ()
    is_over: bool = False


class ApprovalPort(Protocol):
    """Reaches the people who approve tool calls; it decides nothing."""

    @property
    def actor(self) -> str | None:
        """The person who runs the agent: who asks, and who approves where no other approver is named."""

    @property
    def can_verify(self) -> bool:
        """Whether there is a key to verify signatures with."""

    def must_sign(self, ledger: Ledger) -> bool:
        """Whether others can write to a ledger, so that a response from the inbox needs a signature."""

    def people(self, approvers: Sequence[str]) -> tuple[str, ...]:
        """Return approvers with groups resolved to people."""

    async def look(self, ledger: Ledger, run_id: str, ticket_id: str) -> TicketState:
        """Read a ticket and the responses to it."""

    async def announce(self, ledger: Ledger, ticket_id: str) -> None:
        """Tell people that a ticket is open; a failure is a note on the ticket."""

    def listening(self, ledger: Ledger, ticket_id: str) -> AbstractAsyncContextManager[None]:
        """Collect responses over channels while a caller waits for a ticket."""
