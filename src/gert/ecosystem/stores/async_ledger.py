"""The async side of every ledger that is written in this process: who may use it, and how long it lives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from gert.ecosystem.stores.core import Page, Reader, Writer
from gert.ecosystem.stores.names import check_expects, check_name, check_tool
from gert.ecosystem.stores.naming import new_id, utc_now
from gert.ecosystem.stores.settling import check_run_id, holds
from gert.ecosystem.stores.threads import Hands
from gert.ecosystem.stores.waiting import Waiting, is_closed
from gert.errors import TraceError
from gert.kernel.agent.ledger import Call, Expect, Head, Held, Lease, Overtaken, SchemaInfo, Write, Written
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.names import is_run_id

T = TypeVar("T")

POLL_INTERVAL: Final = 0.2
"""How often, in seconds, those who wait look for what other processes have written."""

_PAGE: Final = 500
_PAGE_BYTES: Final = 8 << 20
_FEW: Final = 16
_FOR_EVER: Final = 365 * 86_400.0


class AsyncLedger:
    """A ledger that belongs to one event loop: the first that uses it.

    hands: what does its work, given whom to tell of what was written
    shared: other processes may write to it, too
    """

    def __init__(
        self,
        hands: Callable[[Callable[[Any], object]], Hands],
        *,
        durable: bool,
        shared: bool,
        read_only: bool = False,
        clock: Callable[[], datetime] = utc_now,
        ids: Callable[[], str] | None = None,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        self._durable = durable
        self._read_only = read_only
        self._shared = shared
        self._clock = clock
        self._ids = ids if ids is not None else lambda: new_id(clock())
        self._waiting = Waiting(poll_interval)
        self._hands = hands(self._waiting.done)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power."""
        return self._durable

    def now(self) -> datetime:
        """The time."""
        return self._clock()

    def new_id(self) -> str:
        """An id nobody else has."""
        return self._ids()

    # --- changes

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), fence: int | None = None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run."""
        check_run_id(run_id)
        if expects:
            check_expects(expects)
        return await self._change(lambda writer: writer.append(run_id, write, expects, fence))

    async def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Take the lease of a run, or renew it."""
        check_run_id(run_id)
        return await self._change(lambda writer: writer.acquire(run_id, worker_id, ttl_seconds))

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Prolong a lease that is still held."""
        check_run_id(run_id)
        return await self._change(lambda writer: writer.renew(run_id, worker_id, ttl_seconds))

    async def release(self, run_id: str, worker_id: str) -> bool:
        """Give a lease back."""
        check_run_id(run_id)
        return await self._change(lambda writer: writer.release(run_id, worker_id))

    # --- one run

    async def head(self, run_id: str) -> Head | None:
        """The end of a run."""
        run_id = _known(run_id)
        return await self._glance(lambda reader: reader.head(run_id))

    async def lines(self, run_id: str, since: int = 0, limit: int = 1000) -> list[bytes]:
        """The lines of a run after a number."""
        run_id = _known(run_id)
        look = self._glance if limit <= _FEW else self._read
        return (await look(lambda reader: reader.page(run_id, since, limit, None))).lines

    async def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """The lines of these numbers."""
        run_id = _known(run_id)
        look = self._glance if len(seqs) <= _FEW else self._read
        return await look(lambda reader: reader.lines_at(run_id, seqs))

    async def calls(self, run_id: str, key: str, limit: int = 100) -> list[Call]:
        """The requests under a key, the newest first."""
        check_name("step key", key)
        run_id = _known(run_id)
        return await self._glance(lambda reader: reader.calls(run_id, key, limit))

    async def open_calls(self, run_id: str, limit: int = 1000) -> list[Call]:
        """The requests without an end, the oldest first."""
        run_id = _known(run_id)
        return await self._glance(lambda reader: reader.open_calls(run_id, limit))

    async def summary(self, run_id: str, summary_type: str) -> bytes | None:
        """The line of the newest summary of a type."""
        return next(iter(await self.summaries(run_id, summary_type, 1)), None)

    async def summaries(self, run_id: str, summary_type: str | None = None, limit: int = 20) -> list[bytes]:
        """The lines of the newest summaries, the newest first."""
        check_name("summary type", summary_type)
        run_id = _known(run_id)
        look = self._glance if summary_type is not None and limit <= _FEW else self._read
        return await look(lambda reader: reader.summaries(run_id, summary_type, limit))

    async def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The line of the newest summary of each type that begins with a prefix, by type."""
        check_name("summary type", prefix)
        run_id = _known(run_id)
        return await self._read(lambda reader: reader.latest_summaries(run_id, prefix))

    async def lease(self, run_id: str) -> Lease | None:
        """Who holds a run now."""
        run_id = _known(run_id)
        return holds(await self._glance(lambda reader: reader.lease(run_id)), self._clock())

    # --- many runs

    async def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The call that holds a semantic key, or else the newest that had it."""
        check_tool(tenant, name, semantic_key)
        return await self._glance(lambda reader: reader.holder(tenant, name, semantic_key))

    async def count_calls(
        self, name: str, *, run_id: str | None = None, tenant: str | None = None, since: datetime | None = None
    ) -> int:
        """How often a tool was requested."""
        check_tool(tenant, name, None)
        earliest = format_timestamp(since) if since is not None else ""
        known = _known(run_id) if run_id is not None else None
        return await self._read(lambda reader: reader.count_calls(name, known, tenant, earliest))

    async def runs(
        self,
        *,
        tenant: str | None = None,
        since: datetime | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        """The runs, the last written first."""
        check_name("tenant", tenant)
        check_name("status", status)
        earliest = format_timestamp(since) if since is not None else None
        return await self._read(lambda reader: reader.runs(tenant, earliest, status, limit))

    async def schema_info(self) -> SchemaInfo:
        """What the record says of itself."""
        return await self._read(lambda reader: reader.schema_info())

    # --- what is to come

    async def wait(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has more than `after` events."""
        self._check_usable()
        run_id = _known(run_id)

        async def has_more() -> bool:
            return await self._glance(lambda reader: reader.count(run_id)) > after

        return await self._waiting.until(run_id, has_more, self._look_for_others if self._shared else None, timeout)

    async def stream(
        self, run_id: str, since: int = 0, *, follow: bool = False, idle_timeout: float | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a run, and with `follow` those to come."""
        run_id = _known(run_id)
        patience = _FOR_EVER if idle_timeout is None else idle_timeout
        is_announced = False
        while True:
            page = await self._page(run_id, since)
            for line in page.lines:
                yield line
            if page.lines:
                since, is_announced = page.last, False
                continue
            if is_announced:
                raise TraceError(f"run `{run_id}` has no lines after event {since}, and says it has")
            if not follow or not await self.wait(run_id, since, patience):
                return
            is_announced = True

    async def _page(self, run_id: str, since: int) -> Page:
        return await self._read(lambda reader: reader.page(run_id, since, _PAGE, _PAGE_BYTES))

    # --- its life

    async def close(self) -> None:
        """Finish what was begun, and let go."""
        loop = asyncio.get_running_loop()
        if self._closing is None:
            self._closing = loop.create_future()
            self._waiting.close()
            closing = loop.create_task(self._hands.close())
            closing.add_done_callback(self._closed)
        if self._closing.get_loop() is loop:
            await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        self._check_usable()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _closed(self, closing: "asyncio.Task[None]") -> None:
        if self._closing is not None and not self._closing.done():
            if closing.cancelled() or (error := closing.exception()) is None:
                self._closing.set_result(None)
            else:
                self._closing.set_exception(error)

    def _change(self, call: Callable[[Writer], T]) -> Awaitable[T]:
        self._check_usable()
        if self._read_only:
            raise TraceError("the ledger is open only for reading")
        return self._hands.write(call)

    def _read(self, call: Callable[[Reader], T]) -> Awaitable[T]:
        self._check_usable()
        return self._hands.read(call)

    def _glance(self, call: Callable[[Reader], T]) -> Awaitable[T]:
        self._check_usable()
        return self._hands.glance(call)

    async def _look_for_others(self, run_ids: Sequence[str]) -> Hashable:
        return await self._glance(lambda reader: reader.look(run_ids))

    def _check_usable(self) -> None:
        if self._closing is not None:
            raise is_closed()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise TraceError(
                "the ledger belongs to another event loop",
                hint="use it from the loop that used it first, or open one for each loop; "
                "call `asyncio.run` once, around everything",
            )


def _known(run_id: str) -> str:
    """The id, or that of no run for what cannot be one."""
    return run_id if is_run_id(run_id) else ""
