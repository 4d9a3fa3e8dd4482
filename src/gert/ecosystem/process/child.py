"""A child process: start it, read its output as it arrives, and report its exit.

On POSIX gert polls its pipes and, where available, its pidfd. asyncio's subprocesses take several turns of the loop,
before Python 3.12 a thread for every process, and lose a process whose start is cancelled. On Windows, where pipes
cannot be polled, asyncio is used.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from functools import cache
from threading import Thread
from typing import Final, Protocol

from gert.ecosystem.process.command import Command
from gert.ecosystem.process.own_process import reap_orphans, reaped, started
from gert.ecosystem.process.poller import poller_of
from gert.ecosystem.process.process_group import signal_group
from gert.ecosystem.process.spawn import spawn
from gert.ecosystem.process.stdin import Stdin

_CHUNK: Final = 256 * 1024
_MOST_DRAINED: Final = 16
"""Chunks that are read without a turn for others."""


class ChildListener(Protocol):
    """Receives the output and the end of a child."""

    def printed(self, stream: int, data: bytes) -> None:
        """Data arrived on standard output (1) or standard error (2)."""

    def closed(self, stream: int) -> None:
        """The stream has ended."""

    def exited(self) -> None:
        """It has exited."""

    def ended(self) -> None:
        """It has exited, and its output has ended."""


class Child(Protocol):
    """A started process."""

    pid: int
    stdin: asyncio.WriteTransport | None
    """The transport of its input, if `Stdin` has no pipe of its own."""
    is_silent: bool
    """Its output has ended."""

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs, or if other code reaped it."""

    def signal(self, number: int) -> None:
        """Send it a signal."""

    def drain(self, stream: int) -> None:
        """Read what has arrived on a stream, without waiting; only where pipes can be polled."""

    def close(self) -> None:
        """Release it; output that is still open is no longer read."""


@cache
def _empty_input() -> int:
    """Return a descriptor of an empty input, shared by all children."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


async def start(command: Command, stdin: Stdin | None, listener: ChildListener) -> Child:
    """Start a process; OSError or ValueError if the system refuses."""
    if sys.platform == "win32":
        return await _start_with_asyncio(command, stdin, listener)
    # Nothing is awaited here, so a cancellation cannot lose a process that has started.
    return PosixChild(command, stdin, listener)


class PosixChild:
    """A child on a system whose pipes can be polled."""

    def __init__(self, command: Command, stdin: Stdin | None, listener: ChildListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._poller = poller_of(self._loop)
        self.stdin: asyncio.WriteTransport | None = None
        self.status: int | None = None
        self.is_over = self.is_silent = False
        self._process: int | None = None
        self.pid, self._outputs = _spawned(command, stdin)
        started(self.pid)
        try:
            for stream, descriptor in self._outputs.items():
                os.set_blocking(descriptor, False)
                self._poller.add(descriptor, self._read, stream)
            self._process = self._poll_process()
        except BaseException:
            # Too many open files, or no thread left: a process that cannot be monitored must not run.
            signal_group(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.is_over = True
            reaped(self.pid)
            self.close()
            raise

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if not self.is_over:
            os.kill(self.pid, number)

    def drain(self, stream: int) -> None:
        """Read what has arrived on a stream."""
        for _ in range(_MOST_DRAINED):
            if stream not in self._outputs or not self._read(stream):
                return

    def close(self) -> None:
        """Release it."""
        for stream in list(self._outputs):
            self._close(stream)
        self._unpoll_process()
        if self.is_over:
            reap_orphans()
        else:
            # A killed process may hang in the operating system's kernel; do not wait for it.
            self._reap()

    def _read(self, stream: int) -> bool:
        """Read what has arrived; False if there is nothing more for now."""
        try:
            data = os.read(self._outputs[stream], _CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if data:
            self._listener.printed(stream, data)
            return True
        self._close(stream)
        self.is_silent = not self._outputs
        self._listener.closed(stream)
        if self.is_silent and self.is_over:
            self._listener.ended()
        return False

    def _close(self, stream: int) -> None:
        descriptor = self._outputs.pop(stream)
        self._poller.remove(descriptor)
        os.close(descriptor)

    def _poll_process(self) -> int | None:
        """Report its exit to the loop: by a pidfd, or by a thread that waits for it."""
        try:
            descriptor = int(os.pidfd_open(self.pid))  # type: ignore[attr-defined, unused-ignore]
        except (AttributeError, OSError):
            Thread(target=self._wait, name=f"gert-child-{self.pid}", daemon=True).start()
            return None
        try:
            self._poller.add(descriptor, self._exited)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exited)

    def _reap(self) -> None:
        """Reap it if it has exited; its status is unknown if other code reaped it."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            self.is_over = True
        else:
            if pid:
                self.is_over, self.status = True, os.waitstatus_to_exitcode(status)
        if self.is_over:
            reaped(self.pid)

    def _exited(self) -> None:
        if not self.is_over:
            self._reap()
        if not self.is_over:
            return
        self._unpoll_process()
        self._listener.exited()
        if not self._outputs:
            self._listener.ended()

    def _unpoll_process(self) -> None:
        if self._process is not None:
            self._poller.remove(self._process)
            os.close(self._process)
            self._process = None


def _spawned(command: Command, stdin: Stdin | None) -> tuple[int, dict[int, int]]:
    """Start a process and return its id with the descriptors of its output.

    gert opens the pipes itself: `Popen` would wrap them in file objects.
    """
    opened: list[int] = []
    try:
        opened += os.pipe()
        opened += os.pipe()
        pid = spawn(command, stdin.source if stdin is not None else _empty_input(), opened[1], opened[3])
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    os.close(opened[1])
    os.close(opened[3])
    return pid, {1: opened[0], 2: opened[2]}


async def _start_with_asyncio(command: Command, stdin: Stdin | None, listener: ChildListener) -> Child:
    """Start a process with asyncio."""
    flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Protocol(listener),
        command.name,
        *command.arguments,
        executable=command.program,
        stdin=stdin.source if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=command.folder,
        env=command.environment,
        creationflags=flags,
    )
    return _AsyncioChild(transport)


class _Protocol(asyncio.SubprocessProtocol):
    """Passes asyncio's callbacks on."""

    def __init__(self, listener: ChildListener) -> None:
        self._listener = listener

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Data arrived."""
        self._listener.printed(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A stream has ended."""
        if fd:
            self._listener.closed(fd)

    def process_exited(self) -> None:
        """It has exited."""
        self._listener.exited()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its output has ended, too."""
        self._listener.ended()


class _AsyncioChild:
    """A child that asyncio manages."""

    def __init__(self, transport: asyncio.SubprocessTransport) -> None:
        self._transport = transport
        self.pid = transport.get_pid() or 0
        pipe = transport.get_pipe_transport(0)
        self.stdin = pipe if isinstance(pipe, asyncio.WriteTransport) else None
        self.is_silent = False

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._transport.get_returncode()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._transport.send_signal(number)

    def drain(self, stream: int) -> None:
        """asyncio reads when it is ready."""

    def close(self) -> None:
        """Release it."""
        self._transport.close()
