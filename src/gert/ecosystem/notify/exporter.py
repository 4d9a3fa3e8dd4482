"""Export runs as spans while they are recorded: a bounded queue, a thread of its own, and a bounded wait at the end.

The run only hands over lines that are durable. Decoding, folding and sending happen in the thread. What does not fit
the queue is read from the ledger again later. What a collector does not take is offered again while the run continues;
what is left at its end is dropped, with one warning.
"""

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from gert.errors import GertError
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch
from gert.kernel.ledger.spans.run_spans import RunSpans
from gert.kernel.ledger.spans.span import Span

MAX_LINES: Final = 20_000
"""Events that wait for the thread."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the events that wait for the thread."""
MAX_RUNS: Final = 1000
"""Runs whose open spans are kept."""
FLUSH_SECONDS: Final = 1.0
"""Seconds that the end of a run waits for the collector."""
START_SECONDS: Final = 5.0
"""Seconds that the end of a run waits for the library that sends, which is loaded while the run continues."""
MAX_KEPT: Final = 4096
"""Spans that are kept for a collector which did not take them."""
AGAIN: Final = "`gert run export RUN --format otlp --send` sends a recorded run again"
_LONGEST_PAUSE: Final = 30.0
_BATCH: Final = 256
_DELAY: Final = 1.0
_PAGE: Final = 500
_LOOK: Final = 0.05


class SpanSink(Protocol):
    """Takes spans to where they are shown."""

    def send(self, spans: Sequence[Span], *, last: bool) -> str | None:
        """Send spans, and what they measure; return why that failed. `last`: nothing may follow for a while."""

    def stop(self) -> None:
        """Give up what is under way."""


class _Lines(NamedTuple):
    """Lines of one run; those of a past process are folded and not sent."""

    run_id: str
    lines: Sequence[bytes]
    is_past: bool = False


class _Reading:
    """How much of a run was handed over."""

    __slots__ = ("end", "next", "past", "task")

    def __init__(self, start: int, past: int) -> None:
        self.next, self.end, self.past = start, start, past
        self.task: asyncio.Task[None] | None = None


class Exporter:
    """Exports the runs of a ledger; it belongs to the event loop that uses the ledger.

    make: makes the sink, in the thread; ImportError where its library is not installed
    captures: prompts, arguments, results and messages of errors are exported as well
    on_problem: called once, from any thread, with the first problem
    """

    def __init__(
        self,
        make: Callable[[], SpanSink],
        *,
        captures: bool = False,
        flush_seconds: float = FLUSH_SECONDS,
        on_problem: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.problem: str | None = None
        self._make = make
        self._captures = captures
        self._flush_seconds = flush_seconds
        self._on_problem = on_problem
        self._runs: OrderedDict[str, _Reading] = OrderedDict()
        self._condition = threading.Condition()
        self._queue: deque[_Lines | Callable[[], None]] = deque()
        self._lines = self._bytes = 0
        self._thread: threading.Thread | None = None
        self._sink: SpanSink | None = None
        self._is_ready = threading.Event()
        self._has_given_up = self._is_behind = self._is_closed = False

    # --- in the event loop

    def wrote(self, ledger: Ledger, batch: Batch) -> None:
        """Hand over an append, or have it read later where the thread is behind."""
        lines = [row.line for row in batch.events]
        run_id, end = batch.head.run_id, batch.head.count
        start = end - len(lines)
        found = self._runs.get(run_id)
        if found is None:
            found = self._remember(run_id, _Reading(0, start))
        found.end = max(found.end, end)
        if found.task is not None or end <= found.next:
            return
        if found.next == start and self._put(_Lines(run_id, lines)):
            found.next = end
        else:
            self._read(ledger, run_id, found)

    def recorded(self, ledger: Ledger, run_id: str) -> None:
        """Read and export a run that another process has recorded."""
        if run_id not in self._runs:
            found = self._remember(run_id, _Reading(0, 0))
            found.end = -1
            self._read(ledger, run_id, found)

    async def flush(self) -> None:
        """Send what was handed over, within a limited time; a collector that was too slow once is not waited for."""
        if self._has_given_up or not (self._is_behind or self._reads()):
            return
        self._is_behind = False
        sent = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(START_SECONDS):
                while not self._is_ready.is_set() and self._thread is not None:
                    await asyncio.sleep(_LOOK)
            async with asyncio.timeout(self._flush_seconds):
                if tasks := self._reads():
                    await asyncio.wait(tasks)
                self._signal(sent)
                await sent
        except TimeoutError:
            self._give_up()

    def close(self) -> None:
        """End the thread, once it has done what was handed over."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()

    def _reads(self) -> list["asyncio.Task[None]"]:
        loop = asyncio.get_running_loop()
        tasks = (each.task for each in self._runs.values())
        return [task for task in tasks if task is not None and task.get_loop() is loop]

    def _remember(self, run_id: str, reading: _Reading) -> _Reading:
        self._runs[run_id] = reading
        idle = next((name for name, each in self._runs.items() if each.task is None), None)
        if len(self._runs) > 10 * MAX_RUNS and idle is not None and idle != run_id:
            del self._runs[idle]
        return reading

    def _read(self, ledger: Ledger, run_id: str, found: _Reading) -> None:
        found.task = asyncio.get_running_loop().create_task(self._catch_up(ledger, run_id, found))

    async def _catch_up(self, ledger: Ledger, run_id: str, found: _Reading) -> None:
        try:
            while not self._has_given_up and (found.end < 0 or found.next < found.end):
                is_past = found.next < found.past
                most = min(_PAGE, found.past - found.next) if is_past else _PAGE
                lines = await ledger.lines(run_id, found.next, most)
                if not lines:
                    return
                while not self._put(_Lines(run_id, lines, is_past)):
                    await asyncio.sleep(_LOOK)
                found.next += len(lines)
        except (GertError, OSError) as error:
            self._fail(f"telemetry: run `{run_id}` could not be read again ({type(error).__name__})")
        finally:
            found.end = max(found.end, found.next)
            found.task = None

    def _give_up(self) -> None:
        self._has_given_up = True
        for task in self._reads():
            task.cancel()
        if self._sink is not None:
            self._sink.stop()
        self._fail(f"telemetry was not exported: the collector did not answer in time ({AGAIN})")

    def _signal(self, sent: "asyncio.Future[None]") -> None:
        loop = asyncio.get_running_loop()

        def done() -> None:
            if not sent.done():
                sent.set_result(None)

        def call() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(done)

        with self._condition:
            self._begin()
            self._queue.append(call)
            self._condition.notify()

    def _put(self, item: _Lines) -> bool:
        """Queue lines for the thread; False where there is no room for them now."""
        size = sum(map(len, item.lines))
        with self._condition:
            is_full = self._lines + len(item.lines) > MAX_LINES or self._bytes + size > MAX_BYTES
            # One append may be larger than the queue; it is taken when nothing else waits.
            if self._has_given_up or self._is_closed:
                return True  # nothing waits for it any more
            if is_full and self._queue:
                return False
            self._begin()
            self._is_behind = True
            self._queue.append(item)
            self._lines += len(item.lines)
            self._bytes += size
            self._condition.notify()
        return True

    def _begin(self) -> None:
        if self._thread is None:
            # A daemon: whatever a collector does, the process ends.
            self._thread = threading.Thread(target=self._work, name="gert-telemetry", daemon=True)
            self._thread.start()

    def _fail(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem
            self._on_problem(problem)

    # --- in the thread

    def _work(self) -> None:
        folds: OrderedDict[str, RunSpans] = OrderedDict()
        pending: list[Span] = []
        since = pause = 0.0
        self._prepare()
        while not self._is_over:
            item = self._take(None if not pending else max(since + _DELAY + pause - time.monotonic(), 0.0))
            if isinstance(item, _Lines):
                since = since if pending else time.monotonic()
                pending += self._folded(folds, item)
            is_due = time.monotonic() - since >= _DELAY + pause or (len(pending) >= _BATCH and not pause)
            if callable(item) or (pending and is_due):
                is_sent = self._send(pending, last=callable(item))
                # A collector that restarts gets them later; at the end of a run nothing waits for it.
                pending = [] if is_sent or callable(item) else self._kept(pending)
                since, pause = time.monotonic(), min(max(2 * pause, _DELAY), _LONGEST_PAUSE) if pending else 0.0
            if callable(item):
                item()
        if pending:
            self._send(pending, last=True)
        if self._sink is not None:
            self._sink.stop()

    @property
    def _is_over(self) -> bool:
        with self._condition:
            return self._is_closed and (self._has_given_up or not self._queue)

    def _take(self, seconds: float | None) -> "_Lines | Callable[[], None] | None":
        with self._condition:
            if not self._queue and not self._is_closed:
                self._condition.wait(seconds)
            if not self._queue:
                return None
            item = self._queue.popleft()
            if isinstance(item, _Lines):
                self._lines -= len(item.lines)
                self._bytes -= sum(map(len, item.lines))
            return item

    def _folded(self, folds: "OrderedDict[str, RunSpans]", item: _Lines) -> list[Span]:
        run = folds.pop(item.run_id, None) or RunSpans(item.run_id, captures=self._captures)
        found: list[Span] = []
        for line in item.lines:
            try:
                found += run.add(decode(line))
            except GertError:
                continue  # `gert run verify` names lines that cannot be read
        if not run.is_over:
            folds[item.run_id] = run
            if len(folds) > MAX_RUNS:
                folds.popitem(last=False)
        return [] if item.is_past else found

    def _prepare(self) -> None:
        """Load what sends, while the run continues."""
        try:
            self._sink = self._make()
        except ImportError:
            self._fail("telemetry was not exported: the extra `otel` is not installed: pip install 'gert[otel]'")
        except Exception as error:  # an error of the library must not stop the run
            self._fail(f"telemetry was not exported: the exporter failed ({type(error).__name__})")
        self._is_ready.set()

    def _send(self, spans: Sequence[Span], *, last: bool) -> bool:
        """Send spans, and return whether they were taken; the last failure is reported."""
        if self._sink is None:
            return True  # reported when it could not be made
        try:
            problem = self._sink.send(spans, last=last)
        except Exception as error:  # an error of the library must not stop the run
            problem = f"the exporter failed ({type(error).__name__})"
        if problem is not None and last:
            self._fail(f"telemetry was not exported: {problem} ({AGAIN})")
        return problem is None

    def _kept(self, spans: list[Span]) -> list[Span]:
        if len(spans) > MAX_KEPT:
            self._fail(f"telemetry was not exported: the collector takes nothing ({AGAIN})")
        return spans[-MAX_KEPT:]
