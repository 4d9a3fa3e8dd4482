"""News between processes: who wrote to a run tells the others, beside the append and never in it.

A notification in the transaction of an append would make all commits of a database wait for each other. So they go
out a moment later on a connection of their own, one for all runs written meanwhile. One that is lost is made up for
by those who wait: they look now and then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from gert.ecosystem.stores.waiting import Waiting

PAUSE: Final = 0.02
"""Seconds between two notifications of one process."""

LONGEST_REST: Final = 2.0
_NOTIFY: Final = "SELECT pg_notify($1, run) FROM unnest($2::text[]) AS run"

Connect = Callable[[], Awaitable[Any]]


class Telling:
    """Tells other processes which runs were written."""

    def __init__(self, connect: Connect, channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._written: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._connection: Any = None

    @property
    def pid(self) -> int | None:
        """Who tells, as the server knows it."""
        return self._connection.get_server_pid() if self._connection is not None else None

    def wrote(self, run_id: str) -> None:
        """Tell of a run soon."""
        self._written.add(run_id)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tell_on())

    async def close(self, timeout: float) -> None:
        """Tell what is left to tell, and let go."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        with suppress(Exception):
            async with asyncio.timeout(timeout):
                if self._written:
                    await self._tell()
                if self._connection is not None:
                    await self._connection.close()
        self._drop()

    async def _tell_on(self) -> None:
        while self._written:
            try:
                await self._tell()
            except Exception:
                # Nobody is told this time; those who wait look for themselves.
                self._drop()
            await asyncio.sleep(PAUSE)
        self._task = None

    async def _tell(self) -> None:
        runs, self._written = list(self._written), set()
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
            # It changes nothing that could be lost.
            await self._connection.execute("SET synchronous_commit = off")
        try:
            await self._connection.fetch(_NOTIFY, self._channel, runs)
        except asyncio.CancelledError:
            self._written.update(runs)
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


class Listening:
    """Hears which runs other processes have written: one connection for all who wait."""

    def __init__(self, connect: Connect, channel: str, waiting: Waiting, is_own: Callable[[int], bool]) -> None:
        self._connect = connect
        self._channel = channel
        self._waiting = waiting
        self._is_own = is_own
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen from now on."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen_on())

    async def close(self) -> None:
        """Listen no longer."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _listen_on(self) -> None:
        rest = PAUSE
        while True:
            connection = None
            try:
                connection = await self._connect()
                await self._listen(connection)
                rest = PAUSE
            except Exception:  # noqa: S110 - the server is away; those who wait look for themselves meanwhile
                pass
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(rest)
            rest = min(rest * 2, LONGEST_REST)

    async def _listen(self, connection: Any) -> None:
        """Listen until the connection is lost."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(self._channel, self._hear)
        # What was written before we listened, nobody told us.
        self._waiting.wake()
        await lost.wait()

    def _hear(self, _: Any, pid: int, __: str, run_id: object) -> None:
        if not self._is_own(pid):
            self._waiting.wake(str(run_id))
