"""Blocking work beside an event loop: one thread that writes, one that reads, and no thread for what takes no time.

Whoever appends in one turn of the event loop is written together, and so is whoever comes while the writer is busy.
Handing work to a thread and back costs more than a quick disk takes to keep it, so a few appends that wait for
nobody are done at once, as long as the last ones were quick. Whoever waits may be cancelled at any time: the work is
done all the same, and nobody else notices.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from gert.ecosystem.stores.core import ManyWriter, Reader, Writer
from gert.ecosystem.stores.port import QUICK_SECONDS
from gert.ecosystem.stores.tasks import Job, Task, Then, Worker
from gert.errors import Busy

T = TypeVar("T")

OnDone = Callable[[Any], object]

_FEW: Final = 8
_GLANCES: Final = 16


class Hands(Protocol):
    """Where the work of a ledger is done."""

    async def write(self, call: Callable[[Writer], T]) -> T:
        """Do something that changes the record."""
        ...

    async def read(self, call: Callable[[Reader], T]) -> T:
        """Do something that reads as much as it likes."""
        ...

    async def glance(self, call: Callable[[Reader], T]) -> T:
        """Do something that reads a few rows by their keys."""
        ...

    async def close(self) -> None:
        """Finish what was begun, and let go."""
        ...


class Inline:
    """The hands of a ledger that never waits for anything."""

    def __init__(self, writer: Writer, reader: Reader, on_done: OnDone) -> None:
        self._writer = writer
        self._reader = reader
        self._on_done = on_done
        self._reads = 0

    async def write(self, call: Callable[[Writer], T]) -> T:
        """Do it here and now."""
        result = self._writer.do_alone(call)
        self._on_done(result)
        await asyncio.sleep(0)  # others want a turn
        return result

    async def read(self, call: Callable[[Reader], T]) -> T:
        """Do it here and now."""
        self._reads += 1
        if self._reads % _GLANCES == 0:
            await asyncio.sleep(0)
        return call(self._reader)

    glance = read

    async def close(self) -> None:
        """There is nothing to let go of."""


class Threads:
    """Two threads, each started when it is first needed.

    near, far: what reads here, and what reads on the thread
    on_done: told on the event loop what came of each change, also where nobody waits for it any more
    quick: how long the event loop may stand still for something that is done here; 0 to do nothing here
    """

    def __init__(
        self, writer: ManyWriter | None, near: Reader, far: Reader, on_done: OnDone, *, quick: float = QUICK_SECONDS
    ) -> None:
        self._writer = writer
        self._near = near
        self._on_done = on_done
        self._quick = quick
        self._asked: list[Task] = []
        self._under_way = 0
        self._stood_still = 0.0
        self._has_company = False
        self._took_writing = self._took_reading = 0.0
        self._glances = 0
        self._writing = None if writer is None else Worker("gert-ledger-writer", writer.do_all, writer.close)
        self._reading = Worker("gert-ledger-reader", partial(_run_each, far), far.close, most=1)

    async def write(self, call: Callable[[Writer], T]) -> T:
        """Do something that changes the record, together with what else is to be done."""
        writer = self._writer
        if writer is None or self._asked or self._has_company or self._under_way or self._took_writing >= self._quick:
            return await self._awaited(call)
        began = perf_counter()
        try:
            result = writer.do_alone(call)
        except Busy:
            return await self._awaited(call)
        took = self._took_writing = perf_counter() - began
        self._on_done(result)
        self._stood_still += took
        if self._stood_still >= self._quick:
            await self._give_way()
        return result

    async def _awaited(self, call: Callable[[Writer], T]) -> T:
        """What comes of a change that is done with others, in this turn of the event loop or on the thread."""
        loop = asyncio.get_running_loop()
        task = Task(call)
        task.future = loop.create_future()
        self._asked.append(task)
        if len(self._asked) == 1:
            loop.call_soon(self._begin, loop)
        result: T = await task.future
        return result

    async def _give_way(self) -> None:
        """Let others have a turn; whoever asks meanwhile is written together."""
        self._stood_still = 0.0
        self._has_company = True
        try:
            await asyncio.sleep(0)
        finally:
            self._has_company = False

    async def read(self, call: Callable[[Reader], T]) -> T:
        """Read as much as it likes, on the thread."""
        return await self._read_away(call, _settle)

    async def glance(self, call: Callable[[Reader], T]) -> T:
        """Read a few rows here, as long as that is quick."""
        if self._took_reading >= self._quick:
            return await self._read_away(call, self._have_glanced)
        self._glances += 1
        if self._glances % _GLANCES == 0:
            await asyncio.sleep(0)  # others want a turn
        began = perf_counter()
        try:
            return call(self._near)
        except Busy:
            return await self._read_away(call, self._have_glanced)
        finally:
            self._took_reading = perf_counter() - began

    async def close(self) -> None:
        """Finish what was begun, and end both threads."""
        loop = asyncio.get_running_loop()
        tasks, self._asked = self._asked, []
        if tasks:
            self._hand_over(tasks, loop)
        self._near.close()
        try:
            # Whoever reads lets go first: SQLite takes its log back into the file with the last connection, if that
            # one may write. Otherwise all that is new would stand beside the file, and a copy of it would lack that.
            await self._reading.end(loop)
        finally:
            # Told in any case: a close that is cancelled closes all the same.
            ended = self._writing.end(loop) if self._writing is not None else None
        if ended is not None:
            await ended

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do what was asked for in this turn of the event loop."""
        tasks, self._asked = self._asked, []
        self._has_company = len(tasks) > 1
        if tasks and not self._is_done_here(tasks):
            self._hand_over(tasks, loop)

    def _is_done_here(self, tasks: Sequence[Task]) -> bool:
        """Do a little work at once, where that is quick and means to wait for nobody."""
        if self._writer is None or self._under_way or len(tasks) > _FEW or self._took_writing >= self._quick:
            return False
        began = perf_counter()
        try:
            if not self._writer.do_all(tasks, patiently=False):
                return False
        except Exception as error:
            for task in tasks:
                task.error = error
        self._have_written(tasks, perf_counter() - began)
        return True

    def _hand_over(self, tasks: Sequence[Task], loop: asyncio.AbstractEventLoop) -> None:
        if self._writing is None:
            return
        try:
            self._writing.do(Job(tasks, loop, self._are_back))
            self._under_way += 1
        except Exception as error:
            # There is no thread to be had: whoever waits is told, and not left to wait.
            for task in tasks:
                task.error = error
                task.settle()

    def _are_back(self, tasks: Sequence[Task], took: float) -> None:
        self._under_way -= 1
        self._have_written(tasks, took)

    def _have_written(self, tasks: Sequence[Task], took: float) -> None:
        self._took_writing = took
        for task in tasks:
            if task.error is None:
                self._on_done(task.result)
            task.settle()

    def _have_glanced(self, tasks: Sequence[Task], took: float) -> None:
        self._took_reading = took
        _settle(tasks, took)

    async def _read_away(self, call: Callable[[Reader], T], then: Then) -> T:
        loop = asyncio.get_running_loop()
        task = Task(call)
        task.future = loop.create_future()
        self._reading.do(Job([task], loop, then))
        result: T = await task.future
        return result


def _run_each(reader: Reader, tasks: Sequence[Task]) -> None:
    for task in tasks:
        task.run(reader)


def _settle(tasks: Sequence[Task], took: float) -> None:
    for task in tasks:
        task.settle()
