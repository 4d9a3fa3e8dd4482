"""Connections to Postgres, some of them: taken, given back, and made anew when the server was gone.

Our own, and not asyncpg's: that one resets a connection each time it is given back, which takes as long as an append.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

from gert.errors import TraceError

IDLE_SECONDS: Final = 300.0
"""A connection that was idle for longer may have been cut by something in between, which nobody tells us."""


class Link:
    """A connection, and the statements that were prepared on it."""

    __slots__ = ("connection", "generation", "idle_since", "statements")

    def __init__(self, connection: Any, generation: int) -> None:
        self.connection = connection
        self.generation = generation
        self.idle_since = 0.0
        self.statements: dict[str, Any] = {}

    async def prepared(self, query: str) -> Any:
        """A statement; only the first time does it cost a round trip."""
        statement = self.statements.get(query)
        if statement is None:
            statement = self.statements[query] = await self.connection.prepare(query)
        return statement


class Pool:
    """At most so many connections, on the event loop that uses them first."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, most: int, patience: float) -> None:
        self._connect = connect
        self._most = most
        self._patience = patience
        self._idle: list[Link] = []
        self._open = 0
        self._waiting: deque[asyncio.Future[Link | None]] = deque()
        self.generation = 0

    @property
    def in_use(self) -> int:
        """How many connections somebody has now, or is making."""
        return self._open - len(self._idle)

    def take_now(self) -> Link | None:
        """A connection that is idle, if there is one: without waiting for anything."""
        while self._idle:
            link = self._idle.pop()
            if self._is_good(link):
                return link
            self._drop(link)
        return None

    async def take(self) -> Link:
        """A connection that nobody else has until it is given back."""
        link = self.take_now()
        if link is not None:
            return link
        if self._open < self._most:
            self._open += 1
            return await self._make()
        return await self._wait()

    def give_back(self, link: Link) -> None:
        """Let others have a connection; one that is broken, or of an older generation, goes."""
        if link.generation != self.generation or link.connection.is_closed():
            self._drop(link)
        elif not self._waiting or not self._hand_on(link):
            link.idle_since = monotonic()
            self._idle.append(link)

    async def fill(self, least: int) -> None:
        """Have so many connections ready."""
        links = [await self.take() for _ in range(min(least, self._most))]
        for link in links:
            self.give_back(link)

    def renew(self, generation: int) -> None:
        """Trust no connection as old as this one; however many find out at once, it is done once."""
        if generation != self.generation:
            return
        self.generation += 1
        while self._idle:
            self._drop(self._idle.pop())

    async def close(self, timeout: float) -> None:
        """End the connections nobody has."""
        links, self._idle = self._idle, []
        self._open -= len(links)
        await asyncio.gather(*(link.connection.close(timeout=timeout) for link in links), return_exceptions=True)

    def _is_good(self, link: Link) -> bool:
        return (
            link.generation == self.generation
            and not link.connection.is_closed()
            and monotonic() - link.idle_since < IDLE_SECONDS
        )

    async def _make(self) -> Link:
        """Connect, in a place that was counted already."""
        generation = self.generation
        try:
            connection = await self._connect()
        except BaseException:
            self._leave()
            raise
        return Link(connection, generation)

    async def _wait(self) -> Link:
        turn: asyncio.Future[Link | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._patience):
                link = await turn
        except BaseException as error:
            self._refuse(turn)
            if isinstance(error, TimeoutError):
                raise TraceError(
                    f"all {self._most} connections to the database are in use",
                    hint="allow more of them: `max_pool_size`",
                ) from None
            raise
        return link if link is not None else await self._make()

    def _refuse(self, turn: "asyncio.Future[Link | None]") -> None:
        """Pass on what came for somebody who has stopped waiting."""
        if not turn.done() or turn.cancelled():
            if turn in self._waiting:
                self._waiting.remove(turn)
        elif (link := turn.result()) is not None:
            self.give_back(link)
        else:
            self._leave()

    def _hand_on(self, link: Link | None) -> bool:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(link)
                return True
        return False

    def _drop(self, link: Link) -> None:
        link.connection.terminate()
        self._leave()

    def _leave(self) -> None:
        """Give up a place; whoever waits connects in it."""
        if not self._hand_on(None):
            self._open -= 1
