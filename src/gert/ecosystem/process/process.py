"""One process in its own group: start it, write its input, capture its output, and stop it with its descendants.

A signal reaches its group, and on Linux also descendants that left the group. On Windows, which has no such groups,
only the process itself is stopped.

A process is done when it has exited and its output has ended. A background process it left may hold its output open;
then it is done when no more output arrives for a moment, and the background process runs on.
"""

import asyncio
import contextlib
import signal
import sys
from typing import Final, Protocol

from gert.ecosystem.process.child import Child, start
from gert.ecosystem.process.command import Command
from gert.ecosystem.process.descendants import MARK, Descendants
from gert.ecosystem.process.process_group import signal_group
from gert.ecosystem.process.process_table import clock, is_available
from gert.ecosystem.process.stdin import Stdin, StdinPipe

if sys.platform == "win32":
    _POLITE, _KILL = signal.CTRL_BREAK_EVENT, signal.SIGTERM  # the second ends a process there at once
else:
    _POLITE, _KILL = signal.SIGTERM, signal.SIGKILL

_MAX_QUIET_WAITS: Final = 8
"""How often further output on a stream that is held open may delay the end."""

_FIRST_LOOK, _LONGEST_LOOK = 0.005, 0.05
_REAP_WAIT: Final = 2.0
"""Even a killed process may stay if it hangs in the operating system's kernel."""


class Sink(Protocol):
    """Takes what a process prints on one stream."""

    fed: int
    """Bytes that came."""

    def feed(self, data: bytes) -> None:
        """Data arrived; an exception ends the process."""

    def close(self) -> None:
        """Nothing more will arrive; may be called more than once."""


class Process:
    """A running process and its captured output."""

    def __init__(self, stdout: Sink, stderr: Sink, quiet: float) -> None:
        self._captures = {1: stdout, 2: stderr}
        self._quiet = quiet
        self._loop = asyncio.get_running_loop()
        self._child: Child | None = None
        self._descendants: Descendants | None = None
        self._stdin: Stdin | None = None
        self._exited = asyncio.Event()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._waits = 0
        self._fed = -1
        self._timer: asyncio.TimerHandle | None = None
        self._problem: Exception | None = None
        self._is_doomed = False

    async def start(self, command: Command, stdin: Stdin | None = None) -> None:
        """Start it with an input, or with the one of its command; OSError or ValueError if the system refuses."""
        self._stdin = StdinPipe(command.stdin) if command.stdin is not None else stdin
        began = clock()
        self._child = await start(command, self._stdin, self)
        self._descendants = Descendants(self._child.pid, command.environment[MARK.encode()], began)
        if self._is_doomed:
            self.kill()
        if self._stdin is not None:
            try:
                await self._stdin.write(self._child.stdin)
            except Exception:
                self.kill()  # it must not run without its input
                raise

    async def done(self) -> int | None:
        """Wait until it is done and return its exit status: negative for a signal, None if unknown."""
        await self._done
        if self._problem is not None:
            raise self._problem
        for capture in self._captures.values():
            capture.close()
        return self._child.status if self._child is not None else None

    async def stop(self, grace: float) -> None:
        """Terminate it and its descendants, and kill them after the grace period or when this is cancelled."""
        if self._child is None:
            return
        try:
            self._signal(_POLITE)
            await self._wait_ended(grace)
        finally:
            self.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP_WAIT):
                await self._exited.wait()
                await self._wait_ended(_REAP_WAIT, _KILL)

    def drain(self, stream: int) -> None:
        """Read what has arrived on a stream by now."""
        if self._child is not None:
            self._child.drain(stream)

    def kill(self) -> None:
        """Kill it and its descendants, immediately or as soon as it is started."""
        self._is_doomed = True
        self._signal(_KILL)

    def close(self) -> None:
        """Release it; output that is still open is no longer read."""
        if self._timer is not None:
            self._timer.cancel()
        if self._stdin is not None:
            self._stdin.close()
        # Break the reference cycle, so that neither object nor the loop waits for the garbage collector.
        child, self._child = self._child, None
        if child is not None:
            child.close()
        if self._descendants is not None:
            self._descendants.close()

    # Callbacks of the child.

    def printed(self, stream: int, data: bytes) -> None:
        """Capture output; if the capture fails, the process is ended."""
        try:
            self._captures[stream].feed(data)
        except Exception as problem:
            self._fail(problem)

    def closed(self, stream: int) -> None:
        """A stream has ended."""
        try:
            self._captures[stream].close()
        except Exception as problem:
            self._fail(problem)

    def exited(self) -> None:
        """Wait a moment for the output to end, unless it has."""
        self._exited.set()
        if self._child is None or not self._child.is_silent:
            self._look()

    def ended(self) -> None:
        """It has exited and its output has ended."""
        if not self._done.done():  # it may have been stopped meanwhile
            self._done.set_result(None)

    def _fail(self, problem: Exception) -> None:
        self._problem = problem
        self.ended()

    def _look(self) -> None:
        fed = sum(capture.fed for capture in self._captures.values())
        if self._waits and (fed == self._fed or self._waits > _MAX_QUIET_WAITS):
            self.ended()
            return
        self._waits += 1
        self._fed = fed
        self._timer = self._loop.call_later(self._quiet, self._look)

    async def _wait_ended(self, grace: float, repeated: int | None = None) -> None:
        """Wait until it and its descendants have ended; send `repeated` to those still running at each check."""
        until = self._loop.time() + grace
        pause = _FIRST_LOOK
        while self._is_running() and (left := until - self._loop.time()) > 0:
            if repeated is not None:
                self._signal(repeated)
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_LOOK)

    def _is_running(self) -> bool:
        if self._child is None or self._descendants is None or sys.platform == "win32":
            return not self._exited.is_set()
        return self._descendants.are_running() if is_available() else signal_group(self._child.pid, 0)

    def _signal(self, number: int) -> None:
        if self._child is None:
            return
        if sys.platform == "win32":
            with contextlib.suppress(OSError, ValueError):
                self._child.signal(number)
        else:
            signal_group(self._child.pid, number)
            if self._descendants is not None:
                self._descendants.signal(number)
