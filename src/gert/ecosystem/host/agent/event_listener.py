"""Call `on_event` for each event after it is durable, in order, in a task of its own."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final

from gert.kernel.agent.types.payloads import KernelEvent, event_from_line
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Appended, Batch, Expect, Write, Written

OnEvent = Callable[[KernelEvent], Awaitable[None]]

MAX_WAITING: Final = 10_000
"""Events that wait for a slow listener; beyond that the oldest are dropped, with a warning."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of waiting events; beyond that the oldest are dropped, with a warning."""

MAX_HELD: Final = 256
"""Batches of one run that are held back for an earlier one."""

MAX_RUNS: Final = 256
"""Runs whose last event is remembered while no append is pending."""

CLOSE_SECONDS: Final = 5.0
"""Seconds a listener may take to finish when the store is closed."""

_LOG: Final = logging.getLogger("gert.agent")


class EventListener:
    """Calls a function for each event; an exception it raises is logged."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0
        self._bytes = 0

    def add(self, lines: Sequence[bytes]) -> None:
        """Add lines that were committed."""
        self._waiting.extend(lines)
        self._bytes += sum(map(len, lines))
        # The newest line is always kept.
        while len(self._waiting) > MAX_WAITING or (self._bytes > MAX_BYTES and len(self._waiting) > 1):
            self._next()
            self._dropped += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def close(self) -> None:
        """Wait for the listener to finish, at most `CLOSE_SECONDS`."""
        task = self._task
        if task is None or task is asyncio.current_task():
            return
        _, late = await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if late:
            task.cancel()
            _LOG.warning("a listener did not finish in %s s; %d events were dropped", CLOSE_SECONDS, len(self._waiting))

    async def _deliver(self) -> None:
        while self._waiting:
            line = self._next()
            if self._dropped:
                _LOG.warning("a listener is too slow: %d events were dropped", self._dropped)
                self._dropped = 0
            try:
                await self._on_event(event_from_line(line))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # This task was not cancelled: something that the listener awaited was.
                _LOG.exception("a listener failed")
            except Exception:
                _LOG.exception("a listener failed")

    def _next(self) -> bytes:
        line = self._waiting.popleft()
        self._bytes -= len(line)
        return line


class OrderedBatches:
    """Sorts the batches of one run by number: overlapping appends may return in another order.

    pending: appends that have not returned
    """

    def __init__(self) -> None:
        self.pending = 0
        self._next_seq = 0
        self._batches: list[tuple[int, list[bytes]]] = []

    def add(self, batch: Batch) -> None:
        """Add a batch that was committed."""
        lines = [row.line for row in batch.events]
        heappush(self._batches, (batch.head.count - len(lines), lines))

    def ready(self) -> list[bytes]:
        """Return the lines that no earlier batch is missing before; all of them if no append is pending."""
        ready: list[bytes] = []
        while self._batches and (
            self._batches[0][0] == self._next_seq or not self.pending or len(self._batches) > MAX_HELD
        ):
            start, lines = heappop(self._batches)
            ready += lines
            self._next_seq = start + len(lines)
        return ready


class ObservedLedger:
    """A ledger that reports its appends to a listener; everything else is delegated."""

    def __init__(self, ledger: Ledger, listener: EventListener) -> None:
        self._ledger = ledger
        self._listener = listener
        self._runs: dict[str, OrderedBatches] = {}

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), adopt: bool = False
    ) -> Appended:
        """Append, then report; also if the caller is cancelled, since the append is committed in any case."""
        run = self._runs.setdefault(run_id, OrderedBatches())
        run.pending += 1
        appending = asyncio.ensure_future(self._ledger.append(run_id, write, expects=expects, adopt=adopt))
        appending.add_done_callback(partial(self._appended, run_id, run))
        return await asyncio.shield(appending)

    def _appended(self, run_id: str, run: OrderedBatches, appending: "asyncio.Future[Appended]") -> None:
        run.pending -= 1
        if not appending.cancelled() and appending.exception() is None:
            answer = appending.result()
            if isinstance(answer, Written):
                run.add(answer.batch)
        if lines := run.ready():
            self._listener.add(lines)
        if not run.pending and len(self._runs) > MAX_RUNS:
            self._runs.pop(run_id, None)

    async def close(self) -> None:
        """Wait for the listener, then close the ledger."""
        await self._listener.close()
        await self._ledger.close()
        # Appends that were pending have returned, and are reported, too.
        await self._listener.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)
