"""Something to be done for somebody who waits, and a thread that does it."""

import asyncio
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, Final, NamedTuple

from gert.ecosystem.stores.waiting import is_closed

_MOST_TOGETHER: Final = 256


class Task:
    """A call, what came of it, and who waits for that."""

    __slots__ = ("call", "error", "future", "result")

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call = call
        # Without one nobody waits: whoever asked is there when it is done.
        self.future: asyncio.Future[Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, subject: Any, passed_on: type[BaseException] | tuple[type[BaseException], ...] = ()) -> None:
        """Do it; what it raises is kept for whoever waits, except what concerns others too."""
        self.result = self.error = None
        try:
            self.result = self.call(subject)
        except passed_on:
            raise
        except BaseException as error:
            self.error = error

    def settle(self) -> None:
        """Tell whoever still waits, on their own event loop."""
        if self.future is None or self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, StopIteration):
            # A future does not take it, and whoever waits would wait for ever.
            self.future.set_exception(RuntimeError("the work ended with StopIteration"))
        else:
            self.future.set_exception(self.error)


Then = Callable[[Sequence[Task], float], object]
"""Takes tasks that were done, and how many seconds it took."""


class Job(NamedTuple):
    """Tasks for a thread, and what to do with them afterwards, on the event loop they come from."""

    tasks: Sequence[Task]
    loop: asyncio.AbstractEventLoop
    then: Then
    is_last: bool = False


class Worker:
    """A thread, started when it is first needed, and the jobs that wait for it.

    do_all: does tasks, each on its own account; as many together as wait, up to `most` jobs
    close: called as the last thing
    """

    def __init__(
        self,
        name: str,
        do_all: Callable[[Sequence[Task]], object],
        close: Callable[[], object],
        *,
        most: int = _MOST_TOGETHER,
    ) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._close = close
        self._ended = False
        # What the thread holds does not hold the ledger: one that was forgotten is collected, and its threads end.
        self._thread = Thread(target=_work, args=(self._jobs, do_all, close, most), name=name, daemon=True)

    def do(self, job: Job) -> None:
        """Do a job after those that wait; TraceError where nobody is left to do it."""
        if self._ended:
            raise is_closed()
        if self._thread.ident is None:
            self._thread.start()
            weakref.finalize(self, self._jobs.put, None).atexit = False
        self._jobs.put(job)

    def end(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        """Let the thread end after what waits for it."""
        ended: asyncio.Future[None] = loop.create_future()
        if self._ended or self._thread.ident is None:
            if not self._ended:
                self._close()
            ended.set_result(None)
        else:
            self._jobs.put(Job((), loop, partial(_has_ended, ended), is_last=True))
        self._ended = True
        return ended


def _has_ended(ended: "asyncio.Future[None]", _: Sequence[Task], __: float) -> None:
    if not ended.done():
        ended.set_result(None)


def _work(
    jobs: "SimpleQueue[Job | None]",
    do_all: Callable[[Sequence[Task]], object],
    close: Callable[[], object],
    most: int,
) -> None:
    """Do what waits, until a job is the last, or None says that nobody is left who could ask for more."""
    while True:
        together, last, is_over = _waiting(jobs, most)
        if together:
            _do(together, do_all)
        if is_over:
            try:
                close()
            finally:
                # Whoever waits for the end is told of it, however it came.
                if last is not None:
                    _do([last], lambda _: None)
            return
        # Nothing of what was done is held while waiting for more.
        del together, last


def _waiting(jobs: "SimpleQueue[Job | None]", most: int) -> tuple[list[Job], Job | None, bool]:
    """Jobs to be done together, and then the last one, or whether it was the end without one."""
    together: list[Job] = []
    while len(together) < most and (not together or not jobs.empty()):
        job = jobs.get()
        if job is None or job.is_last:
            return together, job, True
        together.append(job)
    return together, None, False


def _do(jobs: Sequence[Job], do_all: Callable[[Sequence[Task]], object]) -> None:
    tasks = [task for job in jobs for task in job.tasks]
    began = perf_counter()
    try:
        do_all(tasks)
    except BaseException as error:
        for task in tasks:
            task.error = error
    took = perf_counter() - began
    # Of an event loop that was closed nobody waits any more.
    with suppress(RuntimeError):
        jobs[0].loop.call_soon_threadsafe(_finish, jobs, took)


def _finish(jobs: Sequence[Job], took: float) -> None:
    for job in jobs:
        job.then(job.tasks, took)
