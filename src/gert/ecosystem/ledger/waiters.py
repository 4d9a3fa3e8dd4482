"""Callers that wait for events of a run: woken when this process writes it, and by polling for other processes."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress

from gert.errors import GertError, TraceError

Look = Callable[[Sequence[str]], Awaitable[Hashable]]


class Waiters:
    """The waiting callers, by run; all on one event loop."""

    def __init__(self, poll_interval: float) -> None:
        self._poll_interval = poll_interval
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._closed = False

    def wake(self, run_id: str | None = None) -> None:
        """Wake the callers that wait for a run, or for any."""
        if run_id is None:
            self._wake_all()
        else:
            self._wake(run_id)

    async def until(
        self, run_id: str, is_there: Callable[[], Awaitable[bool]], look: Look | None, timeout: float
    ) -> bool:
        """Wait until something is there, `timeout` seconds at most; whether it is."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        woken = asyncio.Event()
        self._waiters.setdefault(run_id, set()).add(woken)
        try:
            while True:
                # Before the check: an event that is written in between wakes the caller.
                woken.clear()
                if self._closed:
                    raise is_closed()
                if await is_there():
                    return True
                if loop.time() >= deadline:
                    return False
                if look is not None and self._polling is None and not self._closed:
                    self._polling = loop.create_task(self._poll(look))
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await woken.wait()
        finally:
            self._leave(run_id, woken)

    def close(self) -> None:
        """Wake all callers: the ledger is closed."""
        self._closed = True
        self._wake_all()
        self._stop_polling()

    def _leave(self, run_id: str, woken: asyncio.Event) -> None:
        waiters = self._waiters[run_id]
        waiters.discard(woken)
        if not waiters:
            del self._waiters[run_id]
        if not self._waiters:
            self._stop_polling()

    def _wake(self, run_id: str) -> None:
        for woken in self._waiters.get(run_id, ()):
            woken.set()

    def _wake_all(self) -> None:
        for run_id in self._waiters:
            self._wake(run_id)

    def _stop_polling(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _poll(self, look: Look) -> None:
        """Wake all callers whenever another process has written."""
        seen: Hashable = None
        try:
            while True:
                await asyncio.sleep(self._poll_interval)
                found = await look(list(self._waiters))
                if found != seen:
                    self._wake_all()
                seen = found
        except GertError:
            # Each caller gets the error from its own read, and polling starts again.
            self._polling = None
            self._wake_all()


def is_closed() -> TraceError:
    """The error of a closed ledger."""
    return TraceError("the ledger is closed", hint="open it again")
