"""The event loop of a kernel: that of asyncio."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class AsyncioLoop:
    """The loop that is running."""

    async def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin work, and return when it has ended or first waits for something."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.sleep(0)
        except BaseException:
            task.cancel()
            raise
        return task

    async def until(self, subscribe: Callable[[Callable[[], None]], None]) -> None:
        """Wait until what `subscribe` is given is called."""
        called = asyncio.get_running_loop().create_future()
        subscribe(lambda: None if called.done() else called.set_result(None))
        await called
