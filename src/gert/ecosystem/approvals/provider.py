"""Approvals that can wait: a ticket on disk, people told over channels, and answers that come whenever they come."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from gert.ecosystem.approvals.evaluate import Terms
from gert.ecosystem.approvals.notify import Channels
from gert.ecosystem.approvals.port import Channel, StillOpen
from gert.ecosystem.approvals.ticket_file import RunRef, TicketFile
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import DocumentError, GertError, IntegrityError, TraceError, UsageError
from gert.kernel.engine.approval_rules import CLOCK_SKEW, tally
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, Response, SubmitApproval, TicketAnswer
from gert.kernel.events.runbook.parts import Failure

METHOD: Final = "ticket"
_FIRST_LOOK: Final = 0.1
_LATER_LOOK: Final = 1.0
GRACE: Final = CLOCK_SKEW.total_seconds()
"""Seconds beyond the time to answer after which nobody waits any more, whatever the clock says."""
# What says that a ticket cannot be used; anything else may pass.
_NO_TICKET: Final = (UsageError, DocumentError, IntegrityError)


class TicketApprovals:
    """Asks with tickets, for one run.

    detach: whether a ticket nobody has decided ends the wait with `StillOpen`
    """

    def __init__(
        self, tickets: Tickets, run: RunRef, *, channels: Iterable[Channel] = (), detach: bool = False
    ) -> None:
        self._tickets = tickets
        self._run = run
        self._channels = Channels(tickets, channels)
        self._detach = detach

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Open a ticket and tell people; the same question leads to the same ticket."""
        wanting = self._wanting_signatures(ask)
        if wanting is not None and not self._tickets.verifier.has_keys:
            message = f"{wanting} asks for signed answers, and no key to verify them with is set (GERT_APPROVAL_KEY_…)"
            return TicketAnswer(failure=Failure("denied", message))
        run = msgspec.structs.replace(self._run, key=ask.key)
        try:
            file = await asyncio.to_thread(self._tickets.open, ask.request, run, METHOD)
        except GertError as problem:
            return TicketAnswer(failure=Failure("transport", problem.message))
        if file.status == "pending":
            await self._channels.announce(file)
        return TicketAnswer(
            ticket_id=file.id,
            method=METHOD,
            created_at=file.ticket.created_at,
            expires_at=file.ticket.expires_at,
        )

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        """Wait until the ticket is decided by what this run asks and the keys it holds, or its time is over."""
        try:
            file = await self._look(ask)
            if file.status == "pending" and self._detach:
                raise StillOpen(ask.ticket_id)
            if file.status == "pending":
                async with self._channels.listening(ask.ticket_id):
                    file = await self._watch(ask)
        except _NO_TICKET as problem:
            # Nothing can be approved by a ticket that is gone or is another.
            return ApprovalAnswer(failure=Failure("denied", problem.message))
        if file.status == "abandoned":
            return ApprovalAnswer(failure=Failure("denied", "the request for approval was abandoned"))
        return ApprovalAnswer(responses=handed_over(file), expired=file.status == "expired")

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        """Close a ticket that asks for something else than what would run, and give what was answered."""
        terms = Terms(request=ask.request, created_at=ask.created_at, expires_at=ask.expires_at)
        try:
            file = await asyncio.to_thread(self._tickets.withdraw, ask.ticket_id, terms, outdated.message)
        except _NO_TICKET as problem:
            # It may have been rejected before it was gone or replaced.
            return ApprovalAnswer(failure=Failure("denied", problem.message))
        except TraceError:
            if self._detach:
                raise StillOpen(ask.ticket_id) from None  # it is locked, or cannot be written now
            raise
        return ApprovalAnswer(responses=handed_over(file), failure=outdated)

    async def settle(self) -> list[str]:
        """The run has ended: the tickets it leaves open are abandoned, so that nobody answers for nothing."""
        left = await asyncio.to_thread(self._tickets.all, "pending", run_id=self._run.run_id)
        closed: list[str] = []
        for file in left:
            try:
                await asyncio.to_thread(self._tickets.abandon, file.id)
            except TraceError:
                break  # the folder cannot be written, or somebody holds a lock: the run has ended all the same
            except GertError:
                continue  # it is gone, or is none any more
            closed.append(file.id)
        return closed

    def _wanting_signatures(self, ask: SubmitApproval) -> str | None:
        """What asks for signed answers, if anything does."""
        if ask.request.require_signed_approvals:
            return "`require_signed_approvals`"
        group = self._tickets.shared_with
        return f"a folder of tickets that is shared with the group `{group}`" if group is not None else None

    async def _look(self, ask: AwaitApproval) -> TicketFile:
        return await asyncio.to_thread(self._tickets.judge, ask.ticket_id, ask.request, ask.created_at, ask.expires_at)

    async def _watch(self, ask: AwaitApproval) -> TicketFile:
        """Look whenever the file has changed, whenever this process took an answer, and when the time is over."""
        answered = asyncio.Event()
        loop = asyncio.get_running_loop()
        # A clock that is set back would have us wait for as much longer.
        end = loop.time() + ask.request.approval_timeout + GRACE

        def tell(ticket_id: str) -> None:
            if ticket_id == ask.ticket_id:
                loop.call_soon_threadsafe(answered.set)

        unsubscribe = self._tickets.subscribe(tell)
        try:
            while True:
                # The stamp is taken first: what changes in between is looked at once more, and never missed.
                seen = self._tickets.stamp(ask.ticket_id)
                file = await self._look(ask)
                if file.status != "pending":
                    return file
                if loop.time() >= end:
                    return msgspec.structs.replace(file, status="expired")
                # However often somebody touches the file, we look only so often.
                pause = _FIRST_LOOK
                await _either(answered, pause)
                while not (answered.is_set() or self._has_moved(file, seen) or loop.time() >= end):
                    pause = min(pause * 1.5, _LATER_LOOK)
                    await _either(answered, pause)
                answered.clear()
        finally:
            unsubscribe()

    def _has_moved(self, file: TicketFile, seen: object) -> bool:
        return self._tickets.stamp(file.id) != seen or file.is_over(self._tickets.clock())


def handed_over(file: TicketFile) -> tuple[Response, ...]:
    """What the run is told: all that was said, but nothing that would count and whose author was told otherwise."""
    told: list[Response] = []
    counting: list[Response] = []
    for heard in file.responses:
        counts = tally(file.ticket, [*counting, heard.response]).objections[-1] is None
        if counts and heard.objection is not None:
            continue
        told.append(heard.response)
        counting += [heard.response] if counts else []
    return tuple(told)


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but not for longer."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
