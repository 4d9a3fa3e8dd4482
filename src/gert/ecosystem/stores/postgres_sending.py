"""One statement on its way, which goes on when whoever waits for it is cancelled."""

import asyncio
from collections.abc import Coroutine, Generator
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
        loop = asyncio.get_running_loop()
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
            # As a task would do, with a future of ours in between: that one is cancelled, and not what it stands for.
            waits_for._asyncio_future_blocking = False
            passed_on = loop.create_future()
            waits_for.add_done_callback(lambda _, end=passed_on: end.done() or end.set_result(None))
            yield from passed_on

    async def rest(self) -> T:
        """Go on where the awaiting of it was cancelled."""
        if self._waits_for is not None:
            await asyncio.wait((self._waits_for,))
        return await self
