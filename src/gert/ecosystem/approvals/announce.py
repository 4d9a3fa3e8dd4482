"""The channels of a run: they announce a ticket, and collect responses while the run waits.

A channel that fails leaves a note on the ticket, and a warning; it never ends a run.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeAlias

from gert.ecosystem.approvals.drop_box import DropBox
from gert.ecosystem.approvals.port import Channel
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.errors import GertError

LIMIT: Final = 5.0
"""Seconds a channel has to announce a ticket, and to stop listening."""

Warn: TypeAlias = Callable[[str], object]


class Channels:
    """The channels of one run, and the drop box that it publishes its requests in."""

    def __init__(
        self,
        tickets: Tickets,
        channels: Iterable[Channel],
        limit: float = LIMIT,
        drop_box: DropBox | None = None,
        warn: Warn | None = None,
    ) -> None:
        """Announce and listen over these channels.

        warn: called with what a note says about a request that did not reach people
        """
        self._warn = warn
        self._tickets = tickets
        self._drop_box = drop_box
        self._channels = tuple(channels)
        self._limit = limit
        self._listener: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._waiting = 0

    async def announce(self, view: TicketView) -> None:
        """Publish a ticket in the drop box, and announce it over all channels at once."""
        problem = await asyncio.to_thread(self._drop_box.publish, view) if self._drop_box is not None else None
        sent = await asyncio.gather(*(self._announced(channel, view) for channel in self._channels))
        for note in (None if problem is None else f"drop box: {problem}", *sent):
            if note is not None:
                await self._note(view.id, note)
                if self._warn is not None:
                    self._warn(f"request for approval of `{view.ticket.request.place}`: {note}")

    @asynccontextmanager
    async def listening(self, ticket_id: str) -> AsyncIterator[None]:
        """Let the channels listen, once for all lanes that wait."""
        self._waiting += 1
        if self._listener is None and self._channels:
            self._over = asyncio.Event()
            self._listener = asyncio.create_task(self._listen(ticket_id, self._over))
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._listener is not None:
                listener, self._listener = self._listener, None
                self._over.set()
                await self._end(listener)

    async def _announced(self, channel: Channel, view: TicketView) -> str | None:
        """The note to keep about an announcement."""
        try:
            async with asyncio.timeout(self._limit):
                note = await channel.announce(view)
        except TimeoutError:
            note = f"not announced within {self._limit:g} s"
        except Exception as problem:
            note = f"not announced: {_why(problem)}"
        return None if note is None else f"{channel.name}: {note}"

    async def _listen(self, ticket_id: str, over: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            for channel in self._channels:
                try:
                    await stack.enter_async_context(channel.listening(self._tickets))
                except Exception as problem:
                    await self._note(ticket_id, f"{channel.name}: it does not listen: {_why(problem)}")
            await over.wait()

    async def _end(self, listener: "asyncio.Task[None]") -> None:
        done, _ = await asyncio.wait({listener}, timeout=self._limit)
        if not done:
            listener.cancel()
            await asyncio.wait({listener}, timeout=self._limit)
        elif not listener.cancelled():
            listener.exception()  # however a channel ends, the responses are in the ledger

    async def _note(self, ticket_id: str, text: str) -> None:
        try:
            await self._tickets.note(ticket_id, text)
        except GertError:
            return  # the run that waits for the ticket finds out


def _why(problem: Exception) -> str:
    # The text of a foreign error may quote an address with a token in it.
    return problem.message if isinstance(problem, GertError) else type(problem).__name__
