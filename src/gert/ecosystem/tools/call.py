"""Call Python functions, plain or async, with a time limit."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from threading import Thread
from typing import Any, Final, TypeVar

from gert.errors import ToolError, ToolTransientError

T = TypeVar("T")

GRACE_SECONDS: Final = 1.0
"""How long to wait for a cancelled function."""


async def call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function; one that is not async runs on its own thread, so that it does not block the loop."""
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await function(**arguments)
        found = await _on_a_thread(function, arguments)
        return await found if inspect.isawaitable(found) else found
    except SystemExit as error:
        # Passed on, it would end the loop and every other call.
        raise RuntimeError(f"the tool called exit({error.code})") from error


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Wait for work with a time limit; then cancel it and raise TimeoutError.

    If the work still returns while it is cancelled, its result counts.
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
        _raise_timeout(task, seconds)
    return task.result()


async def _stop(task: asyncio.Task[Any]) -> None:
    # A task that ignores its cancellation is abandoned, and its later exception is dropped.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_SECONDS)


def _raise_timeout(task: asyncio.Task[Any], seconds: float) -> None:
    """Raise TimeoutError, unless the work returned or raised an error with an outcome."""
    if task.done() and not task.cancelled():
        error = task.exception()
        if error is None or isinstance(error, ToolError):
            return
    raise TimeoutError(f"no result within {seconds:g} s")


async def _on_a_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a plain function on a daemon thread.

    Not in the loop's thread pool: a function that never returns would occupy one of its few threads, and would keep the
    process from exiting. A function cannot be stopped: after a timeout it runs on, and its result is dropped.
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
        # Ctrl-C reaches only the main thread; passed on, this would end the loop.
        raise RuntimeError("the tool raised KeyboardInterrupt") from error
    if error is not None:
        raise error
    return value
