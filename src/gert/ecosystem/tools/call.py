"""Calling Python functions, plain or async, for a bounded time."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from threading import Thread
from typing import Any, Final, TypeVar

from gert.errors import ToolError, ToolTransientError

T = TypeVar("T")

GRACE_SECONDS: Final = 1.0
"""How long a function that was told to stop is waited for."""


async def call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function; one that is not async runs on a thread of its own, and keeps nobody waiting."""
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await function(**arguments)
        found = await _on_a_thread(function, arguments)
        return await found if inspect.isawaitable(found) else found
    except SystemExit as error:
        # Let through, it would end the loop and everybody's calls with it.
        raise RuntimeError(f"it wants to end the process with {error.code}") from error


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Wait for work for so long; then it is told to stop, and TimeoutError is raised.

    Work that ends nevertheless while it is told to stop has ended: its result counts.
    """
    if seconds is None:
        return await work
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if not task.done():
        await _stop(task)
        _say_if_known(task, seconds)
    return task.result()


async def _stop(task: asyncio.Task[Any]) -> None:
    # Whoever swallows its cancellation is left behind, and what it raises later is of no interest.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_SECONDS)


def _say_if_known(task: asyncio.Task[Any], seconds: float) -> None:
    """Raise TimeoutError, unless the work returned after all or said itself what became of it."""
    if task.done() and not task.cancelled():
        error = task.exception()
        if error is None or isinstance(error, ToolError):
            return
    raise TimeoutError(f"no result within {seconds:g} s")


async def _on_a_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a plain function beside the loop.

    Not in the loop's own pool: a function that never returns would take one of its few threads for good, and would
    keep the process from ending. A function cannot be stopped; when nobody waits any more it runs on, unheard.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function, **arguments)
        except BaseException as found:
            error = found
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            return  # the loop is closed

    try:
        Thread(target=work, name="gert-tool", daemon=True).start()
    except RuntimeError as full:
        raise ToolTransientError("no thread is left to run the tool") from full
    value, error = await ended
    if isinstance(error, KeyboardInterrupt):
        # People interrupt the main thread only; let through, it would end the loop.
        raise RuntimeError("it wants to interrupt the process") from error
    if error is not None:
        raise error
    return value
