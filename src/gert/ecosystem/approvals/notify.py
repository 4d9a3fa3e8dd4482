"""Channels at work: people are told about a ticket, and listened to while a run waits.

A channel that fails is one way less to answer, and a note on the ticket. It never ends a run.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from gert.ecosystem.approvals.port import Channel
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import GertError

LIMIT: Final = 5.0
"""Seconds a channel has to tell people, and to stop listening."""


class Channels:
    """The channels of one run."""

    def __init__(self, tickets: Tickets, channels: Iterable[Channel], limit: float = LIMIT) -> None:
        self._tickets = tickets
        self._channels = tuple(channels)
        self._limit = limit
        self._listener: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._waiting = 0

    async def announce(self, file: TicketFile) -> None:
        """Tell people over all channels at once."""
        notes = await asyncio.gather(*(self._announced(channel, file) for channel in self._channels))
        for note in filter(None, notes):
            await self._note(file.id, note)

    @asynccontextmanager
    async def listening(self, ticket_id: str) -> AsyncIterator[None]:
        """Have the channels listen, once for all lanes that wait."""
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

    async def _announced(self, channel: Channel, file: TicketFile) -> str | None:
        """What is to be noted about telling people."""
        try:
            async with asyncio.timeout(self._limit):
                note = await channel.announce(file)
        except TimeoutError:
            note = f"nobody was told within {self._limit:g} s"
        except Exception as problem:
            note = f"nobody was told: {_why(problem)}"
        return None if note is None else f"{channel.name}: {note}"

    async def _listen(self, ticket_id: str, over: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            for channel in self._channels:
                try:
                    await stack.enter_async_context(channel.listening(self._tickets))
                except Exception as problem:
                    await self._note(ticket_id, f"{channel.name}: nobody listens: {_why(problem)}")
            await over.wait()

    async def _end(self, listener: "asyncio.Task[None]") -> None:
        done, _ = await asyncio.wait({listener}, timeout=self._limit)
        if not done:
            listener.cancel()
            await asyncio.wait({listener}, timeout=self._limit)
        elif not listener.cancelled():
            listener.exception()  # whatever a channel ends with, the answers are on disk

    async def _note(self, ticket_id: str, text: str) -> None:
        try:
            await asyncio.to_thread(self._tickets.note, ticket_id, text)
        except GertError:
            return  # whoever waits for the ticket finds out


def _why(problem: Exception) -> str:
    # The text of a foreign error may quote an address with a token in it.
    return problem.message if isinstance(problem, GertError) else type(problem).__name__
