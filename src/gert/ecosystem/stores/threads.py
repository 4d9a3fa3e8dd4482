"""Blocking work off the event loop: one thread that writes, one that reads, and the way back.

Tasks queue up; the writer takes all that wait and does them together. Whoever waits for a task may be cancelled at
any time: the task is done all the same, and nobody else notices.
"""

import asyncio
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

OnDone = Callable[[Any], object]

_MOST_TOGETHER: Final = 256


class Task:
    """Something to be done on another thread, what came of it, and who waits for that."""

    __slots__ = ("call", "error", "future", "loop", "on_done", "result")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, on_done: OnDone | None = None) -> None:
        self.call = call
        self.loop = loop
        self.on_done = on_done
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, passed_on: type[BaseException] | tuple[type[BaseException], ...] = ()) -> None:
        """Do it; what it raises is kept for whoever waits, except what concerns all."""
        self.result = self.error = None
        try:
            self.result = self.call()
        except passed_on:
            raise
        except BaseException as error:
            self.error = error

    def settle(self) -> None:
        """Tell whoever still waits, on their own event loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, StopIteration):
            # A future does not take it.
            self.future.set_exception(RuntimeError("the work ended with StopIteration"))
        else:
            self.future.set_exception(self.error)


DoAll = Callable[[Sequence[Task]], None]
"""Does tasks, each on its own account, and leaves in each what came of it."""


class Closes(Protocol):
    """Something that is let go of in the end."""

    def close(self) -> object:
        """Let go of it."""
        ...


class Writes(Closes, Protocol):
    """Something that does tasks together."""

    def do_all(self, tasks: Sequence[Task]) -> None:
        """Do tasks, each on its own account, and leave in each what came of it."""
        ...


class Hands(Protocol):
    """Where the work of a ledger is done."""

    async def write(self, call: Callable[[], T]) -> T:
        """Do something that changes the record."""
        ...

    async def read(self, call: Callable[[], T]) -> T:
        """Do something that only looks."""
        ...

    async def close(self) -> None:
        """Finish what was begun, and let go."""
        ...


class Inline:
    """The hands of a ledger that never waits for anything."""

    def __init__(self, on_done: OnDone) -> None:
        self._on_done = on_done

    async def write(self, call: Callable[[], T]) -> T:
        """Do it here and now."""
        result = call()
        self._on_done(result)
        return result

    async def read(self, call: Callable[[], T]) -> T:
        """Do it here and now."""
        return call()

    async def close(self) -> None:
        """There is nothing to let go of."""


class Threads:
    """Two threads, each started when it is first needed.

    writer, reader: whose methods are called; closed on the threads, as the last thing they do
    on_done: called on the event loop with what came of each change, also where nobody waits for it any more
    """

    def __init__(self, writer: "Writes | None", reader: "Closes", on_done: OnDone) -> None:
        do_all, close = (writer.do_all, writer.close) if writer is not None else (_run_each, _nothing)
        self._writing = _Worker("gert-ledger-writer", do_all, close, on_done, _MOST_TOGETHER)
        self._reading = _Worker("gert-ledger-reader", _run_each, reader.close, None, 1)

    async def write(self, call: Callable[[], T]) -> T:
        """Do something that changes the record, together with what else waits."""
        result: T = await self._writing.do(call)
        return result

    async def read(self, call: Callable[[], T]) -> T:
        """Do something that only looks."""
        result: T = await self._reading.do(call)
        return result

    async def close(self) -> None:
        """Finish what was begun, and end both threads."""
        # Both are told before either is waited for: a close that is cancelled closes all the same.
        endings = [worker.stop() for worker in (self._writing, self._reading)]
        for ending in endings:
            await ending


class _Worker:
    """A thread and the tasks that wait for it."""

    def __init__(
        self, name: str, do_all: DoAll, close: Callable[[], object], on_done: OnDone | None, most: int
    ) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._on_done = on_done
        self._close = close
        self._started = self._ended = False
        # What a thread holds does not hold the ledger: one that was forgotten is collected, and its threads end.
        self._thread = Thread(target=_work, args=(self._tasks, do_all, close, most), name=name, daemon=True)

    def do(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        if not self._started:
            self._start()
        task = Task(call, asyncio.get_running_loop(), self._on_done)
        self._tasks.put(task)
        return task.future

    def stop(self) -> "asyncio.Future[Any]":
        """Let the thread end after what waits for it."""
        task = _Last(self._close, asyncio.get_running_loop())
        if self._started and not self._ended:
            self._tasks.put(task)
        else:
            if not self._ended:
                task.run()
            task.settle()
        self._ended = True
        return task.future

    def _start(self) -> None:
        self._started = True
        self._thread.start()
        weakref.finalize(self, self._tasks.put, None).atexit = False


class _Last(Task):
    """The last task of a thread."""


def _nothing() -> None:
    """Let go of nothing."""


def _run_each(tasks: Sequence[Task]) -> None:
    for task in tasks:
        task.run()


def _work(tasks: "SimpleQueue[Task | None]", do_all: DoAll, close: Callable[[], object], most: int) -> None:
    """Do what waits until there is a last task, or None where nobody is left to wait for one."""
    while True:
        together = _waiting(tasks, most)
        last = together[-1]
        if last is not None and not isinstance(last, _Last):
            _do(do_all, together)
            # Nothing of what was done is held while waiting for more.
            del together, last
            continue
        _do(do_all, together[:-1])
        if last is None:
            close()
        else:
            _do(_run_each, [last])
        return


def _waiting(tasks: "SimpleQueue[Task | None]", most: int) -> list[Task | None]:
    found = [tasks.get()]
    while found[-1] is not None and not isinstance(found[-1], _Last) and len(found) < most and not tasks.empty():
        found.append(tasks.get())
    return found


def _do(do_all: DoAll, waiting: Sequence[Task | None]) -> None:
    tasks = [task for task in waiting if task is not None]
    if not tasks:
        return
    try:
        do_all(tasks)
    except BaseException as error:
        for task in tasks:
            task.error = error
    # An event loop that was closed has nobody left who waits.
    with suppress(RuntimeError):
        tasks[0].loop.call_soon_threadsafe(_settle, tasks)


def _settle(tasks: Sequence[Task]) -> None:
    for task in tasks:
        if task.on_done is not None and task.error is None:
            task.on_done(task.result)
        task.settle()
