"""Whoever wants to hear of events is told after they are durable, in order, and apart from those who write them."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final

from gert.kernel.agent.types.payloads import KernelEvent, event_from_line
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Expect, Held, Overtaken, Write, Written

OnEvent = Callable[[KernelEvent], Awaitable[None]]

MOST_WAITING: Final = 10_000
"""Events that wait for a listener that is slow; the oldest are passed over beyond that, and it is said."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of events that wait, likewise."""

MOST_HELD: Final = 256
"""Appends of one run that are held back for one that came before them."""

MOST_RUNS: Final = 256
"""Runs whose last event is remembered while nobody appends to them."""

PATIENCE: Final = 5.0
"""Seconds a listener has to finish when the store is closed."""

_LOG: Final = logging.getLogger("gert.agent")


class Listener:
    """Calls a function for each event; what it raises is logged, and harms nobody."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._waiting: deque[bytes] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._passed_over = 0
        self._bytes = 0

    def hear(self, lines: Sequence[bytes]) -> None:
        """Take lines that were written."""
        self._waiting.extend(lines)
        self._bytes += sum(map(len, lines))
        # The newest is told, whatever its size.
        while len(self._waiting) > MOST_WAITING or (self._bytes > MOST_BYTES and len(self._waiting) > 1):
            self._next()
            self._passed_over += 1
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def close(self) -> None:
        """Let the listener finish, for a while."""
        task = self._telling
        if task is None or task is asyncio.current_task():
            return
        _, late = await asyncio.wait({task}, timeout=PATIENCE)
        if late:
            task.cancel()
            _LOG.warning("a listener did not finish in %s s; %d events were not told", PATIENCE, len(self._waiting))

    async def _tell(self) -> None:
        while self._waiting:
            line = self._next()
            if self._passed_over:
                _LOG.warning("a listener is too slow: %d events were passed over", self._passed_over)
                self._passed_over = 0
            try:
                await self._on_event(event_from_line(line))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # Nobody cancelled us: something the listener waited for was.
                _LOG.exception("a listener failed")
            except Exception:
                _LOG.exception("a listener failed")

    def _next(self) -> bytes:
        line = self._waiting.popleft()
        self._bytes -= len(line)
        return line


class InOrder:
    """Puts what was appended to one run in the order of its numbers: appends that overlap may be heard in another.

    pending: how many are under way
    """

    def __init__(self) -> None:
        self.pending = 0
        self._told = 0
        self._heard: list[tuple[int, list[bytes]]] = []

    def hear(self, batch: Batch) -> None:
        """Take what was appended."""
        lines = [row.line for row in batch.events]
        heappush(self._heard, (batch.head.count - len(lines), lines))

    def tell(self) -> list[bytes]:
        """What nothing is missing before; where nobody appends any more, all of it."""
        told: list[bytes] = []
        while self._heard and (self._heard[0][0] == self._told or not self.pending or len(self._heard) > MOST_HELD):
            start, lines = heappop(self._heard)
            told += lines
            self._told = start + len(lines)
        return told


class ListenedLedger:
    """A ledger whose appends somebody listens to; everything else is the ledger's own."""

    def __init__(self, ledger: Ledger, listener: Listener) -> None:
        self._ledger = ledger
        self._listener = listener
        self._runs: dict[str, InOrder] = {}

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), adopt: bool = False
    ) -> Written | Overtaken | Held:
        """Append, then tell; also where whoever appends waits no more, since it is written all the same."""
        run = self._runs.setdefault(run_id, InOrder())
        run.pending += 1
        appending = asyncio.ensure_future(self._ledger.append(run_id, write, expects=expects, adopt=adopt))
        appending.add_done_callback(partial(self._heard, run_id, run))
        return await asyncio.shield(appending)

    def _heard(self, run_id: str, run: InOrder, appending: "asyncio.Future[Written | Overtaken | Held]") -> None:
        run.pending -= 1
        if not appending.cancelled() and appending.exception() is None:
            answer = appending.result()
            if isinstance(answer, Written):
                run.hear(answer.batch)
        if lines := run.tell():
            self._listener.hear(lines)
        if not run.pending and len(self._runs) > MOST_RUNS:
            self._runs.pop(run_id, None)

    async def close(self) -> None:
        """Let the listener finish, then close the ledger."""
        await self._listener.close()
        await self._ledger.close()
        # What was under way has ended, and is told, too.
        await self._listener.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)
