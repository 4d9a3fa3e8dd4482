"""The output of steps that are running: written to the ledger in batches, for `gert logs` in another process.

It is no part of the record. The append that stores the answer of a step drops its live output: the answer holds it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from gert.ecosystem.host.run.observer import SilentObserver
from gert.errors import GertError
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import StepStart
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import MAX_OUTPUT, Output

EVERY: Final = 0.3
"""Seconds between two writes."""

QUICK: Final = 0.5
"""Seconds that a step runs before its output is written; most steps end sooner, and need no write."""


class LiveOutput(SilentObserver):
    """Watches a run, and writes what its tools print; a ledger that cannot be written does not stop the run.

    written: steps that have live output in the ledger, left by an earlier process of the run
    """

    def __init__(
        self, run_id: str, written: Iterable[str] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run_id = run_id
        self._ledger: Ledger | None = None
        self._clock = clock
        self._started: dict[str, float] = {}
        self._waiting: dict[str, list[Output]] = {}
        self._written = {*written}
        self._timer: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[None]] = set()

    def begin(self, ledger: Ledger) -> None:
        """Write to this ledger from now on."""
        self._ledger = ledger

    def ended(self, path: str) -> list[str]:
        """Forget what a step printed, since its answer is to be stored; the keys of its output in the ledger."""
        self._started.pop(path, None)
        self._waiting.pop(path, None)
        if path not in self._written:
            return []
        self._written.discard(path)
        return [path]

    # --- as an observer

    def said(self, event: Envelope, payload: Payload) -> None:
        """Note when a step starts."""
        if isinstance(payload, StepStart) and event.path is not None:
            self._started[event.path] = self._clock()

    def printed(self, path: str, stream: str, text: str) -> None:
        """Keep what a tool printed for the next write."""
        if self._ledger is None:
            return
        self._started.setdefault(path, self._clock())
        pieces = self._waiting.setdefault(path, [])
        if pieces and pieces[-1].stream == stream:
            pieces[-1] = Output(path, stream, (pieces[-1].text + text)[-MAX_OUTPUT:])
        else:
            pieces.append(Output(path, stream, text[-MAX_OUTPUT:]))
        while len(pieces) > 1 and sum(len(piece.text) for piece in pieces) > MAX_OUTPUT:
            del pieces[0]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._flush)

    def close(self) -> None:
        """Write nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._ledger = None, None
        self._waiting.clear()

    # --- writing

    def _flush(self) -> None:
        """Write the output of steps that have been running for a while; look again where others are waiting."""
        self._timer = None
        now = self._clock()
        due = [path for path in self._waiting if now - self._started.get(path, now) >= QUICK]
        pieces = [piece for path in due for piece in self._waiting.pop(path)]
        if pieces and self._ledger is not None:
            self._written.update(due)
            write = asyncio.get_running_loop().create_task(self._write(self._ledger, pieces))
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._flush)

    async def _write(self, ledger: Ledger, pieces: list[Output]) -> None:
        # The run does not depend on it; an append that fails says so.
        with suppress(GertError):
            await ledger.write_output(self._run_id, pieces)
