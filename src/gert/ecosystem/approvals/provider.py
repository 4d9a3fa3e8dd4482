"""Approval by tickets: a request in the ledger, channels that announce it, and responses from the run's inbox."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gert.ecosystem.approvals.announce import Channels, Warn
from gert.ecosystem.approvals.drop_box import DropBox
from gert.ecosystem.approvals.inbox import untaken, verified
from gert.ecosystem.approvals.port import Channel, SignatureVerifier, StillOpen
from gert.ecosystem.approvals.responses import messages_of
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import Busy, Unavailable
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, SubmitApproval, TicketAnswer
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.governance.approval import as_recorded, ticket_id_for
from gert.kernel.governance.approval_rules import CLOCK_SKEW, Ticket
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.runbook_fold import TICKET

GRACE: Final = CLOCK_SKEW.total_seconds()
"""Seconds after the timeout when a run stops waiting even if the clock of the ledger was set back."""
MAX_REQUEST: Final = 8 * 1024 * 1024
"""Bytes of a request; approvers have to be able to read it."""
_POLL_SECONDS: Final = 5.0
"""Seconds between reads of the inbox: on a server, messages may become visible in another order."""
_POLL_FILES_SECONDS: Final = 0.5


class TicketApprovals:
    """Requests approval with tickets, for one run.

    must_sign: others can write to the ledger, so an approval needs a signature by a key that has an owner
    detach: raise `StillOpen` instead of waiting
    warn: called for a request that did not reach people
    """

    def __init__(
        self,
        run_id: str,
        verifier: SignatureVerifier,
        *,
        must_sign: bool = False,
        channels: Iterable[Channel] = (),
        drop_box: DropBox | None = None,
        detach: bool = False,
        warn: Warn | None = None,
    ) -> None:
        self._run_id = run_id
        self._verifier = verifier
        self._must_sign = must_sign
        self._given = tuple(channels)
        self._drop_box = drop_box
        self._detach = detach
        self._warn = warn
        self._unannounced: set[str] = set()
        self._ledger: Ledger
        self._tickets: Tickets
        self._channels: Channels

    def attach(self, ledger: Ledger) -> None:
        """Use the ledger that the run is recorded in."""
        self._ledger = ledger
        self._tickets = Tickets(ledger, self._verifier)
        self._channels = Channels(self._tickets, self._given, drop_box=self._drop_box, warn=self._warn)

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Give the request a ticket; it is open once the run has recorded it."""
        wanting = self._wanting_signatures(ask)
        if wanting is not None and not self._verifier.has_keys:
            message = f"{wanting} asks for signed answers, and no key to verify them with is set (GERT_APPROVAL_KEY_…)"
            return TicketAnswer(failure=Failure("denied", message))
        size = len(msgspec.json.encode(as_recorded(ask.request)))
        if size > MAX_REQUEST:
            message = f"the request is too large to be approved: expected at most {MAX_REQUEST} bytes, found {size}"
            return TicketAnswer(failure=Failure("transport", message))
        now = await self._ledger.time()
        ticket_id = ticket_id_for(self._run_id, ask.key)
        self._unannounced.add(ticket_id)
        return TicketAnswer(
            ticket_id=ticket_id,
            method=TICKET,
            created_at=format_timestamp(now),
            expires_at=format_timestamp(now + timedelta(seconds=ask.request.approval_timeout)),
            admitted=ask.request.admitted,
            must_sign=self._must_sign,
        )

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        """Wait for responses, or until the time is over."""
        if ask.ticket_id in self._unannounced:
            self._unannounced.discard(ask.ticket_id)
            await self._channels.announce(await self._tickets.get(ask.ticket_id))
        answer = await self._received(ask)
        if answer is not None:
            return answer
        if self._detach:
            raise StillOpen(ask.ticket_id)
        async with self._channels.listening(ask.ticket_id):
            return await self._watch(ask)

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        """Give up a ticket that asks for something else than what would run, with the responses to it."""
        await self._collect(ask)
        messages = await untaken(self._ledger, self._run_id, ask.ticket_id)
        return ApprovalAnswer(responses=verified(self._verifier, messages, _ticket(ask)), failure=outdated)

    async def settle(self) -> None:
        """The run has ended: its requests are withdrawn from the drop box."""
        if self._drop_box is not None:
            rows = await self._ledger.tickets(run_id=self._run_id)
            await asyncio.to_thread(self._drop_box.remove, [row.ticket_id for row in rows])

    def _wanting_signatures(self, ask: SubmitApproval) -> str | None:
        """What asks for signed responses, if anything does."""
        if ask.request.require_signed_approvals:
            return "`require_signed_approvals`"
        return "a ledger that others can write to" if self._must_sign else None

    async def _watch(self, ask: AwaitApproval) -> ApprovalAnswer:
        loop = asyncio.get_running_loop()
        end = loop.time() + ask.request.approval_timeout + GRACE
        last = 0
        pause = _POLL_FILES_SECONDS if self._drop_box is not None else _POLL_SECONDS
        while loop.time() < end:
            try:
                # Which messages there are is read first: one that comes in between wakes the wait.
                async for each in messages_of(self._ledger, self._run_id, since=last):
                    last = each.id
                answer = await self._received(ask)
                if answer is not None:
                    return answer
                left = _left(ask, await self._ledger.time())
                await self._ledger.wait_for_message(self._run_id, last, min(pause, left + 0.01))
            except (Busy, Unavailable):
                # The ledger may be back before the time is over.
                await asyncio.sleep(pause)
        return ApprovalAnswer(expired=True)

    async def _received(self, ask: AwaitApproval) -> ApprovalAnswer | None:
        """The responses that were received, or that the time is over; None while the ticket is open."""
        # First the time, then the responses: none that came in time is missed.
        now = await self._ledger.time()
        await self._collect(ask)
        messages = await untaken(self._ledger, self._run_id, ask.ticket_id)
        if messages:
            return ApprovalAnswer(responses=verified(self._verifier, messages, _ticket(ask)), more=True)
        return ApprovalAnswer(expired=True) if _left(ask, now) < 0 else None

    async def _collect(self, ask: AwaitApproval) -> None:
        if self._drop_box is not None:
            await self._drop_box.collect(self._ledger, self._run_id, _ticket(ask))


def _ticket(ask: AwaitApproval) -> Ticket:
    return Ticket(id=ask.ticket_id, request=ask.request, created_at=ask.created_at, expires_at=ask.expires_at)


def _left(ask: AwaitApproval, now: datetime) -> float:
    """The seconds a ticket still has."""
    if ask.expires_at is None:
        return float("inf")
    return (parse_timestamp(ask.expires_at) - now).total_seconds()
