"""Notifications between processes: which runs were written, sent beside the append and never inside it.

A notification in the transaction of an append would make all commits of a database wait for each other. So they are
sent a moment later on a connection of their own, one for all runs written meanwhile. A lost one does no harm: waiting
callers also poll.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from gert.ecosystem.ledger.waiters import Waiters

PAUSE: Final = 0.02
"""Seconds between two notifications of one process."""

LONGEST_REST: Final = 2.0
_NOTIFY: Final = "SELECT pg_notify($1, run) FROM unnest($2::text[]) AS run"

Connect = Callable[[], Awaitable[Any]]


class Notifier:
    """Notifies other processes which runs were written."""

    def __init__(self, connect: Connect, channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._written: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._connection: Any = None

    @property
    def pid(self) -> int | None:
        """The server process behind the connection that notifies."""
        return self._connection.get_server_pid() if self._connection is not None else None

    def wrote(self, run_id: str) -> None:
        """Notify others of a run soon."""
        self._written.add(run_id)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_on())

    async def close(self, timeout: float) -> None:
        """Send what is left, then disconnect."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        with suppress(Exception):
            async with asyncio.timeout(timeout):
                if self._written:
                    await self._send()
                if self._connection is not None:
                    await self._connection.close()
        self._drop()

    async def _send_on(self) -> None:
        while self._written:
            try:
                await self._send()
            except Exception:
                # Not sent this time; waiting callers poll.
                self._drop()
            await asyncio.sleep(PAUSE)
        self._task = None

    async def _send(self) -> None:
        runs, self._written = list(self._written), set()
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
                # It changes nothing that could be lost.
                await self._connection.execute("SET synchronous_commit = off")
            await self._connection.fetch(_NOTIFY, self._channel, runs)
        except asyncio.CancelledError:
            self._written.update(runs)
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


class Listener:
    """Listens for the runs other processes write: one connection for all waiting callers."""

    def __init__(self, connect: Connect, channel: str, waiting: Waiters, is_own: Callable[[int], bool]) -> None:
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
        """Stop listening."""
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
            except Exception:  # noqa: S110 - the server is away; waiting callers poll meanwhile
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
        await connection.add_listener(self._channel, self._on_notification)
        # No notification came for what was written before.
        self._waiting.wake()
        await lost.wait()

    def _on_notification(self, _: Any, pid: int, __: str, run_id: object) -> None:
        if not self._is_own(pid):
            self._waiting.wake(str(run_id))
