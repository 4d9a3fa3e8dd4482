"""What approvals are made of: whoever is asked, the ways to tell people, and the check of a signature.

A provider answers the two questions of a run: `submit` gives a ticket at once, `wait` gives what people said. A
channel only carries words: it tells people about a ticket, and deposits their answers with the tickets. Neither
decides. What counts is decided by `gert.kernel.engine.approval_rules`, and finally by the run.
"""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from gert.kernel.engine.approval_rules import Ticket
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, Response, SubmitApproval, TicketAnswer
from gert.kernel.events.runbook.parts import Failure

if TYPE_CHECKING:
    from gert.ecosystem.approvals.ticket_file import TicketFile
    from gert.ecosystem.approvals.tickets import Tickets


class StillOpen(Exception):
    """Raised by a provider that does not wait: the ticket is open, and whoever resumes the run asks again."""

    def __init__(self, ticket_id: str) -> None:
        super().__init__(f"the ticket `{ticket_id}` is open")
        self.ticket_id = ticket_id


class ApprovalProvider(Protocol):
    """Whoever is asked for approval (kernel-api, ApprovalProvider)."""

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Ask; the answer is a ticket, and never waits for a person."""

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        """Wait until a ticket is decided or its time is over; can be cancelled, and asked again later."""

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        """Close a ticket that asks for something else than what would run now.

        The answer carries this failure, and what people have answered: a rejection counts, whatever has changed.
        """


class Channel(Protocol):
    """A way to reach people: it carries words and decides nothing.

    Texts of a ticket come from runbooks and tools: whoever shows them masks secrets first
    (`gert.kernel.foundation.secret_refs.masked`) and escapes them for where they are shown.
    """

    @property
    def name(self) -> str:
        """What the channel is called in notes."""

    async def announce(self, ticket: "TicketFile") -> str | None:
        """Tell people that a ticket is open; a text says why they could not be told.

        It is given a few seconds and then cancelled. A run that was killed announces the same ticket once more.
        """

    def listening(self, tickets: "Tickets") -> AbstractAsyncContextManager[None]:
        """Collect answers while a run waits, and deposit each with `tickets.answer`.

        Entered and left in one task, at most once at a time, however many tickets wait. `tickets.answer` says at once
        whether an answer counts and why not, which is what the person should be told. It writes to disk: where
        many answers come, call it in a thread.
        """


class SignatureVerifier(Protocol):
    """Checks the signature on an answer (ecosystem-v0 §6.4)."""

    @property
    def has_keys(self) -> bool:
        """Whether any signature could hold; where none can, nobody needs to be asked to sign."""

    def has_key_for(self, response: Response) -> bool:
        """Whether there is a key to check the signature on an answer with."""

    def verify(self, response: Response, ticket: Ticket) -> Response:
        """The answer with `verified` set, or with `flaw` saying why not; one that is not signed has neither.

        Whatever the answer says of itself is forgotten first: nobody vouches for their own signature.
        """
