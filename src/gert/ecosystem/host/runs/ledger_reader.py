"""A blocking, read-only view of a ledger, for commands."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from datetime import datetime
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, Final, Self, TypeVar, cast

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import Database, ledger_name, mask_password, open_ledger
from gert.ecosystem.host.run.record.lease import is_driven
from gert.ecosystem.ledger.waiters import is_closed
from gert.errors import GertError, TraceError, Unavailable
from gert.kernel.ledger.port import Ledger, OnUnreadable
from gert.kernel.ledger.record import Head, RunFilter

T = TypeVar("T")

_BATCH: Final = 500
_BATCH_BYTES: Final = 4 << 20
_FIRST_HEADS: Final = 256
_MORE: Final = 4
_TURN: Final = 0.1


class LedgerReader:
    """Reads a ledger in a SQLite file or on Postgres; opened at the first read, usable from any thread.

    A ledger belongs to one event loop, so this one has its own, on its own thread.
    """

    def __init__(self, place: Database) -> None:
        self._place = place
        self._ledger: Ledger | None = None
        # The file that was opened: it may be replaced by another, and is then no longer written.
        self._opened: tuple[int, int] | None = None
        self._starting = Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="gert-reader", daemon=True)

    @property
    def name(self) -> str:
        """The name of the ledger, for messages."""
        return ledger_name(self._place)

    def head(self, run_id: str) -> Head | None:
        """The end of a run."""
        return self.ask(lambda ledger: ledger.head(run_id))

    def heads(
        self,
        *,
        tenant: str | None = None,
        since: datetime | None = None,
        on_unreadable: OnUnreadable = lambda _, __: None,
    ) -> Iterator[Head]:
        """The runs that were last written at `since` or later, the last first; no more are read than are wanted.

        on_unreadable: called for each run that cannot be read
        """
        seen: set[str] = set()
        unreadable: dict[str, GertError] = {}
        limit = _FIRST_HEADS
        while True:
            before = set(unreadable)
            chosen = RunFilter(tenant=tenant, since=since, limit=limit)
            found = self.ask(partial(_runs, chosen=chosen, on_unreadable=unreadable.__setitem__))
            for run_id in unreadable.keys() - before:
                on_unreadable(run_id, unreadable[run_id])
            for head in found:
                if head.run_id not in seen:
                    seen.add(head.run_id)
                    yield head
            if len(found) + len(unreadable) < limit:
                return
            limit *= _MORE

    def lines(self, run_id: str, since: int = 0) -> Generator[bytes, None, None]:
        """The lines of a run after a number, without line breaks."""
        stream = self.ask(partial(_stream, run_id=run_id, since=since))
        try:
            while batch := self.ask(lambda _: _some(stream)):
                yield from batch
        finally:
            if not self._loop.is_closed():
                self.ask(lambda _: _end(stream))

    def is_held(self, run_id: str) -> bool:
        """Whether a process drives the run."""
        return self.ask(lambda ledger: is_driven(ledger, run_id))

    def wait(self, run_id: str, after: int, timeout: float, stop: Event) -> None:
        """Wait until a run has more than `after` events, for `timeout` seconds at most, or until `stop` is set."""
        pending = self._begin(lambda ledger: ledger.wait(run_id, after, timeout))
        try:
            while not stop.is_set():
                # In short turns, so that signals are handled; the ledger itself waits only once.
                done, _ = wait_for([pending], timeout=_TURN)
                if done:
                    self._result(pending)
                    return
                self._require_same()
        finally:
            pending.cancel()

    def ask(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        """Run a read of the ledger, and wait for its result."""
        return self._result(self._begin(read))

    def close(self) -> None:
        """Close the ledger."""
        if self._loop.is_closed():
            return
        if self._thread.ident is not None:
            try:
                asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> "Future[T]":
        with self._starting:
            if self._loop.is_closed():
                raise is_closed()
            if self._thread.ident is None:
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._run(read), self._loop)

    def _result(self, pending: "Future[T]") -> T:
        try:
            return pending.result()
        except GertError as problem:
            raise mask_password(self._place, problem) from None
        except BaseException:
            pending.cancel()
            raise

    async def _run(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        try:
            if self._ledger is None:
                self._opened = _number_of(self._place)
                self._ledger = open_ledger(self._place, {}, read_only=True)
            return await read(self._ledger)
        except Exception as problem:
            if isinstance(problem, GertError) or not isinstance(self._place, Dsn):
                raise
            # The message of a driver may contain the address, with a password.
            raise Unavailable(f"the database cannot be used: {type(problem).__name__}: {problem}") from None

    async def _close(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            await ledger.close()
        await self._loop.shutdown_asyncgens()

    def _require_same(self) -> None:
        if _number_of(self._place) != self._opened:
            raise TraceError(
                f"`{self.name}` was removed or replaced",
                hint="run the command again to see what is there now",
            )


class Follower:
    """Reads a run from where it was read last.

    seen: the number of the last line that was given
    """

    def __init__(self, run_id: str, reader: LedgerReader, since: int = 0) -> None:
        self._run_id = run_id
        self._archive = reader
        self.seen = since

    def lines(self) -> Iterator[bytes]:
        """The lines that were not read here yet."""
        for line in self._archive.lines(self._run_id, self.seen):
            self.seen += 1
            yield line

    def wait(self, seconds: float, stop: Event) -> None:
        """Wait until there may be more, for so long at most."""
        self._archive.wait(self._run_id, self.seen, seconds, stop)


def _number_of(place: Database) -> tuple[int, int] | None:
    """The device and inode of a ledger file; None where it is gone, or on a server."""
    if isinstance(place, Dsn):
        return None
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


async def _runs(ledger: Ledger, *, chosen: RunFilter, on_unreadable: OnUnreadable) -> list[Head]:
    return await ledger.runs(chosen, on_unreadable)


async def _stream(ledger: Ledger, *, run_id: str, since: int) -> AsyncGenerator[bytes, None]:
    return cast("AsyncGenerator[bytes, None]", ledger.stream(run_id, since))


async def _some(stream: AsyncGenerator[bytes, None]) -> list[bytes]:
    """The next lines: none where there are no more."""
    batch: list[bytes] = []
    size = 0
    async for line in stream:
        batch.append(line)
        size += len(line)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            break
    return batch


async def _end(stream: AsyncGenerator[bytes, None]) -> None:
    await stream.aclose()
