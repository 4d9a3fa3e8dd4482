"""One statement on its way, which goes on when whoever waits for it is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Sending(Generic[T]):
    """Awaits a statement of asyncpg where it stands, and keeps it whole when that is cancelled.

    Cancelled, asyncpg would have the server take the statement back. A task for each append would prevent that too;
    it would also cost a good part of what the append itself costs, and here only whoever is cancelled pays for one.
    """

    __slots__ = ("_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work: Coroutine[Any, Any, T] | None = work
        self._waits_for: asyncio.Future[Any] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it was sent, and what came of it is not known yet."""
        return self._work is not None

    def __await__(self) -> Generator[Any, None, T]:
        work = self._work
        if work is None:
            raise RuntimeError("awaited after its end")
        while True:
            try:
                waits_for = work.send(None)
            except StopIteration as end:
                self._work = None
                result: T = end.value
                return result
            except BaseException:
                self._work = None
                raise
            self._waits_for = waits_for
            if waits_for is None:
                yield
                continue
            try:
                yield _Aside(waits_for)
            except BaseException as error:
                # What the future ended with is for whoever waits for it further down, and told there.
                if not _ended_with(waits_for, error):
                    raise

    async def rest(self) -> T:
        """Go on where the awaiting of it was cancelled."""
        if self._waits_for is not None:
            await asyncio.wait((self._waits_for,))
        return await self


def _ended_with(future: "asyncio.Future[Any]", error: BaseException) -> bool:
    if not future.done():
        return False
    if future.cancelled():
        return isinstance(error, asyncio.CancelledError)
    return future.exception() is error


class _Aside:
    """What a task waits for instead of a future: told when that is done, and cancelled without it.

    A future of ours between the two would do the same one turn of the event loop later, and a turn costs about a
    sixth of an append. Tasks take whatever behaves like this for a future.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_future")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        future._asyncio_future_blocking = False
        self._asyncio_future_blocking = True
        self._future = future

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it belongs to."""
        return self._future.get_loop()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Have the task told."""
        self._callback = callback
        self._context = context
        self._future.add_done_callback(callback, context=context)

    def cancel(self, msg: object = None) -> bool:
        """Tell the task that it was cancelled, and the future nothing."""
        future, loop = self._future, self._future.get_loop()
        if future.done():
            return False
        future.remove_done_callback(self._callback)
        gone = loop.create_future()
        gone.cancel(msg)
        loop.call_soon(self._callback, gone, context=self._context)
        return True
