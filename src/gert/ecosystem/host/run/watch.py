"""Running a runbook again and again: a loop around `execute`, and not a scheduler (ecosystem-v0 §6.5)."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Literal

import msgspec

from gert.ecosystem.host.config.settings import require_sound, trace_file
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.driver.signals import Relay, handle_signals
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.host.run.world.console import Console
from gert.kernel.runbook.documents.runbook import Runbook

StopReason = Literal["stop-on", "count", "interrupted", "not-completed"]
"""Why no other run begins."""

_MOST_IN_A_SECOND: Final = 1000


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the loop.

    stopping: why it was the last one, if it was
    """

    number: int
    started: datetime
    executed: Executed
    stopping: StopReason | None = None


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, and when it ends; times are in seconds.

    interval: from the start of a run to the start of the next
    stop_on: outcome categories after which no other run begins
    trace_dir: where each run gets a trace of its own
    keep_going: continue after a run that did not complete
    """

    run: RunOptions
    interval: float
    stop_on: frozenset[str] = frozenset()
    count: int | None = None
    trace_dir: str | None = None
    keep_going: bool = False


def next_due(due: float, interval: float, now: float) -> float:
    """When the next run begins: an interval after the last began, or at once; ticks that passed are not made up for."""
    return max(due + interval, now)


class Watch:
    """A loop of runs, each on its own: what one leaves behind, the next does not see.

    A run that does not complete ends the loop, unless it keeps going; an error that is raised always does.
    The loop handles signals. Between runs the first one ends it. During a run the first Ctrl-C makes it the last
    run and a second cancels it, as SIGTERM and SIGHUP do at once; one more Ctrl-C at a terminal ends everything.
    """

    def __init__(
        self,
        options: WatchOptions,
        *,
        on_round: Callable[[Round], object],
        on_last: Callable[[], object],
        observers: Callable[[], Iterable[Observer]] = tuple,
    ) -> None:
        """Tell `on_round` of each run, and `on_last` when a signal has made a run the last one."""
        self._options = options
        self._on_round, self._on_last = on_round, on_last
        self._observers = observers
        self._relay = Relay()
        self._over = asyncio.Event()
        self._running: asyncio.Task[Executed] | None = None

    async def loop(self) -> Round | None:
        """Run until something ends it; give the last run, if there was one."""
        clock = asyncio.get_running_loop().time
        # One for all runs: what it has read from a pipe and no run took yet is for the next one.
        console = Console.standard()
        last: Round | None = None
        with handle_signals(self._press, self._over.is_set):
            due = clock()
            while not self._over.is_set():
                last = await self._round(1 if last is None else last.number + 1, console)
                self._on_round(last)
                if last.stopping is not None:
                    break
                due = next_due(due, self._options.interval, clock())
                await self._wait(due - clock())
        return last

    async def _round(self, number: int, console: Console) -> Round:
        started = now()
        options = self._options.run
        if self._options.trace_dir is not None:
            options = msgspec.structs.replace(options, trace=self._trace(self._options.trace_dir, started))
        self._relay = Relay()
        run = execute(options, observers=self._observers(), console=console, relay=self._relay)
        self._running = asyncio.create_task(run)
        try:
            executed = await self._running
        finally:
            self._running = None
        return Round(number=number, started=started, executed=executed, stopping=self._reason(number, executed))

    def _reason(self, number: int, executed: Executed) -> StopReason | None:
        if executed.interrupted:
            return "interrupted"
        if executed.status != "completed" and not self._options.keep_going:
            return "not-completed"
        outcome = executed.outcome
        if outcome is not None and outcome.category in self._options.stop_on:
            return "stop-on"
        if self._over.is_set():
            return "interrupted"
        return "count" if number == self._options.count else None

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._over.wait()
        except TimeoutError:
            return

    def _press(self, number: int) -> None:
        is_first = not self._over.is_set()
        self._over.set()
        if is_first and number == signal.SIGINT:
            if self._running is not None:
                self._on_last()
        elif self._relay.has_begun:
            self._relay(number)
        elif self._running is not None:
            # Nothing has begun that would have to be finished: it still asks for its inputs.
            self._running.cancel()

    def _trace(self, folder: str, started: datetime) -> str:
        program = require_sound(Workspace().program(self._options.run.file)).document
        runbook: Runbook = program.model
        stamp = f"{started:%Y-%m-%dT%H-%M-%SZ}"
        for again in range(1, _MOST_IN_A_SECOND):
            file = trace_file(os.path.abspath(folder), runbook.meta.name, stamp if again == 1 else f"{stamp}-{again}")
            if not os.path.lexists(file):
                break
        return file
