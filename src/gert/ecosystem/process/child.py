"""A child process, as the system gives it: started at once, its output read as it comes, its end told.

On POSIX its descriptors are watched and nothing else, and where there is one the descriptor of the process itself.
asyncio's own way takes several turns of the loop and before Python 3.12 a thread for every process, and it loses a
process whose start is cancelled. On Windows, where pipes cannot be watched, it is asyncio's.
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
from gert.ecosystem.process.poller import watch_of
from gert.ecosystem.process.process_group import signal_group
from gert.ecosystem.process.spawn import spawn
from gert.ecosystem.process.stdin import Feed

_CHUNK: Final = 256 * 1024


class Listener(Protocol):
    """Who is told."""

    def printed(self, stream: int, data: bytes) -> None:
        """Something came on standard output (1) or standard error (2)."""

    def exited(self) -> None:
        """It has exited."""

    def ended(self) -> None:
        """It has exited, and its output has ended."""


class Child(Protocol):
    """A process that was started."""

    pid: int
    stdin: asyncio.WriteTransport | None
    """Where its input goes, if the feed has no pipe of its own."""
    is_silent: bool
    """Its output has ended."""

    @property
    def status(self) -> int | None:
        """Its exit status, below zero for a signal; None while it runs, or where somebody else has taken it."""

    def signal(self, number: int) -> None:
        """Send it a signal."""

    def close(self) -> None:
        """Let go of it; output that is still open is no longer read."""


@cache
def _nothing() -> int:
    """An input that is empty: one for all children, instead of one opened and closed for each."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


async def start(command: Command, feed: Feed | None, listener: Listener) -> Child:
    """Start a process; OSError and ValueError say why the system would not."""
    if sys.platform == "win32":
        return await _start_watched(command, feed, listener)
    # Nothing is awaited here, so nobody can be cancelled between the start of a process and knowing of it.
    return PosixChild(command, feed, listener)


class PosixChild:
    """A child on a system whose pipes can be watched."""

    def __init__(self, command: Command, feed: Feed | None, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._watch = watch_of(self._loop)
        self.stdin: asyncio.WriteTransport | None = None
        self.status: int | None = None
        self.is_over = self.is_silent = False
        self._process: int | None = None
        self.pid, self._outputs = _started(command, feed)
        started(self.pid)
        try:
            for stream, descriptor in self._outputs.items():
                os.set_blocking(descriptor, False)
                self._watch.add(descriptor, self._read, stream)
            self._process = self._watch_process()
        except BaseException:
            # Too many files, or no thread to be had: what cannot be watched must not run.
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

    def close(self) -> None:
        """Let go of it."""
        for stream in list(self._outputs):
            self._close(stream)
        self._unwatch_process()
        if self.is_over:
            reap_orphans()
        else:
            # One that was killed and is not gone hangs in the kernel, and nobody waits any more.
            self._reap()

    def _read(self, stream: int) -> None:
        try:
            data = os.read(self._outputs[stream], _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._listener.printed(stream, data)
            return
        self._close(stream)
        self.is_silent = not self._outputs
        if self.is_silent and self.is_over:
            self._listener.ended()

    def _close(self, stream: int) -> None:
        descriptor = self._outputs.pop(stream)
        self._watch.remove(descriptor)
        os.close(descriptor)

    def _watch_process(self) -> int | None:
        """Have the loop told of its end: by a descriptor, or by a thread that waits for it."""
        try:
            descriptor = int(os.pidfd_open(self.pid))  # type: ignore[attr-defined, unused-ignore]
        except (AttributeError, OSError):
            Thread(target=self._wait, name=f"gert-child-{self.pid}", daemon=True).start()
            return None
        try:
            self._watch.add(descriptor, self._exited)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._exited)

    def _reap(self) -> None:
        """Take its exit status, if it has exited; one that somebody else has taken is not known."""
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
        self._unwatch_process()
        self._listener.exited()
        if not self._outputs:
            self._listener.ended()

    def _unwatch_process(self) -> None:
        if self._process is not None:
            self._watch.remove(self._process)
            os.close(self._process)
            self._process = None


def _started(command: Command, feed: Feed | None) -> tuple[int, dict[int, int]]:
    """A process, and where its output is read.

    The pipes are ours: those of `Popen` come as files, which are looked at and closed as files.
    """
    opened: list[int] = []
    try:
        opened += os.pipe()
        opened += os.pipe()
        pid = spawn(command, feed.source if feed is not None else _nothing(), opened[1], opened[3])
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    os.close(opened[1])
    os.close(opened[3])
    return pid, {1: opened[0], 2: opened[2]}


async def _start_watched(command: Command, feed: Feed | None, listener: Listener) -> Child:
    """Start a process with asyncio's own means."""
    flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Protocol(listener),
        command.name,
        *command.arguments,
        executable=command.program,
        stdin=feed.source if feed is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=command.folder,
        env=command.environment,
        creationflags=flags,
    )
    return _WatchedChild(transport)


class _Protocol(asyncio.SubprocessProtocol):
    """Hands on what asyncio tells."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Something came."""
        self._listener.printed(fd, data)

    def process_exited(self) -> None:
        """It has exited."""
        self._listener.exited()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its output has ended, too."""
        self._listener.ended()


class _WatchedChild:
    """A child that asyncio looks after."""

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

    def close(self) -> None:
        """Let go of it."""
        self._transport.close()
