"""A child process that speaks JSON-RPC on its standard input and output.

It is stopped in order: a farewell call if it has one, the end of its input, SIGTERM, SIGKILL; then every process it
left running is killed. The same happens at once when it breaks the protocol.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final

import msgspec

from gert.ecosystem.process.command import Command
from gert.ecosystem.process.descendants import MARK
from gert.ecosystem.process.find_program import shown
from gert.ecosystem.process.process import Process
from gert.ecosystem.process.stdin import StdinStream
from gert.ecosystem.rpc.lines import MAX_LINE
from gert.ecosystem.rpc.peer import GRACE, Handler, Listener, Peer
from gert.ecosystem.rpc.stderr import StderrTail
from gert.errors import RpcLost
from gert.kernel.foundation.redaction import Redactor

_STARTS: Final = count()

MAX_UNREAD: Final = 4 * MAX_LINE
"""Bytes that wait for a process that does not read its input."""

_QUIET: Final = 0.25
"""Seconds that a process which closed its output, or left it to a descendant, has to exit."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A program that answers JSON-RPC calls.

    name: its key in the pool
    title: what messages call it: "the extension `judge`"
    redactor: masks what it prints on standard error
    greet: the first calls on a new connection; its result is kept, its failure stops the process
    farewell: the method that is called before the process is stopped
    handlers, on_notification: answer and receive what the program sends
    on_stderr: shows what it prints on standard error, line by line
    grace: seconds for each way to stop it, and for a cancelled call to be answered
    """

    name: str
    title: str
    command: Command
    redactor: Redactor
    greet: Callable[[Peer], Awaitable[Any]] | None = None
    farewell: str | None = None
    handlers: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    on_notification: Listener | None = None
    on_stderr: Callable[[str], None] | None = None
    limit: int = MAX_LINE
    grace: float = GRACE


class _Stdout:
    """Passes standard output to the peer."""

    def __init__(self, feed: Callable[[bytes], None], closed: Callable[[], None]) -> None:
        self._feed = feed
        self.close = closed
        self.fed = 0

    def feed(self, data: bytes) -> None:
        """Data arrived."""
        self.fed += len(data)
        self._feed(data)


class ChildPeer:
    """A running server and the connection to it.

    connect: creates the peer, or what takes its place: another implementation of JSON-RPC that is fed, ended and lost
    """

    def __init__(self, server: Server, connect: Callable[..., Any] = Peer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._stdin = StdinStream(MAX_UNREAD, self._input_closed)
        self.peer: Peer = connect(
            server.title,
            self._stdin.send,
            handlers=server.handlers,
            on_notification=server.on_notification,
            on_end=self._connection_ended,
            mask=lambda text: server.redactor.text(text).value,
            limit=server.limit,
            grace=server.grace,
        )
        self.stderr = StderrTail(server.redactor, server.on_stderr)
        self._process = Process(_Stdout(self.peer.feed, self._output_closed), self.stderr, _QUIET)
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._has_exited = self._is_violated = False
        self.greeting: Any = None
        self.status: int | None = None
        """Its exit status, once it has exited by itself."""
        self.has_failed = False
        """It could not be started or greeted, or its connection ended although it was not stopped."""

    @property
    def program(self) -> str:
        """The program that runs: an approval may be about another of the same name."""
        return self._server.command.program

    @property
    def is_usable(self) -> bool:
        """Whether it can be called."""
        return self.peer.lost is None and not self.peer.is_stuck and not self._is_stopping

    async def start(self) -> None:
        """Start the process and greet it; RpcError if it cannot be used."""
        name = shown(self._server.command.name)
        try:
            await self._process.start(_marked(self._server.command), self._stdin)
        except (OSError, ValueError, RuntimeError) as problem:
            self.has_failed = True
            await self._process.stop(0.0)
            self._process.close()
            self._stdin.close()
            raise RpcLost(f"{self._server.title} cannot be started: {name}: {_reason(problem)}", sent=False) from None
        self._watcher = self._loop.create_task(self._watch())
        if self._server.greet is not None:
            try:
                self.greeting = await self._server.greet(self.peer)
            except BaseException as problem:
                self.has_failed = isinstance(problem, Exception)
                await self.stop(farewell=False)
                raise

    async def call(self, method: str, params: Any, *, timeout: float | None = None) -> Any:
        """Call it; if a cancelled call leaves it stuck, it is stopped as soon as it has no other calls."""
        try:
            return await self.peer.call(method, params, timeout=timeout)
        finally:
            if self.peer.is_stuck and self.peer.is_idle:
                await self.stop(farewell=False)

    def printed(self, since: int) -> str:
        """Return what it printed on standard error after a position; what came before an answer is read before it."""
        self._process.drain(2)
        return self.stderr.since(since)

    async def exits(self, within: float) -> bool:
        """Wait until it has exited by itself; False if it does not in this time."""
        if self._watcher is not None:
            await asyncio.wait([self._watcher], timeout=within)
        return self._has_exited

    def end_input(self) -> None:
        """Close its standard input."""
        self._stdin.close()

    async def stop(self, *, farewell: bool = True) -> None:
        """Stop it and everything it started; nothing of it runs when this returns, even if it is cancelled."""
        self._is_stopping = True
        if self._watcher is None:
            return
        until = self._loop.time() + (self._server.grace if farewell else 0.0)
        try:
            if farewell and self._server.farewell is not None and not self.peer.is_stuck:
                await self._say_farewell(self._server.farewell, until)
            self.peer.end(f"{self._server.title} was stopped")
            await asyncio.wait([self._watcher], timeout=max(0.0, until - self._loop.time()))
        finally:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])

    async def _say_farewell(self, method: str, until: float) -> None:
        """Call the last method; the connection ends after any answer."""
        called = self._loop.create_task(self.peer.call(method, {}))
        try:
            await asyncio.wait([called], timeout=until - self._loop.time())
        finally:
            self.peer.end(f"{self._server.title} was stopped")
            await asyncio.gather(called, return_exceptions=True)

    def kill(self) -> None:
        """Kill it and its descendants."""
        self._process.kill()

    async def _watch(self) -> None:
        """Wait until it exits, or has to be stopped; then end what it left, and release it."""
        try:
            self.status = await self._process.done()
            self._has_exited = True
            self.peer.end(self._exit_text(self.status), by_exit=True)
        except Exception as problem:
            self.peer.end(f"the connection to {self._server.title} failed: {type(problem).__name__}: {problem}")
        finally:
            try:
                await self._process.stop(0.0 if self._is_violated else self._server.grace)
            finally:
                self._release()

    def _release(self) -> None:
        self.peer.end(f"{self._server.title} was stopped")
        if self._timer is not None:
            self._timer.cancel()
        self._process.close()
        self._stdin.close()

    def _connection_ended(self) -> None:
        """Close its input; if it still runs although it was not stopped, it broke the protocol and is killed."""
        self._stdin.close()
        self.has_failed = self.has_failed or not self._is_stopping
        if self._watcher is not None and not (self._is_stopping or self._has_exited):
            self._is_violated = True
            self._watcher.cancel()

    def _output_closed(self) -> None:
        if self._timer is None and self.peer.lost is None:
            self._timer = self._loop.call_later(_QUIET, self._broken_off, "output")

    def _input_closed(self) -> None:
        if self._timer is None and self.peer.lost is None:
            self._timer = self._loop.call_later(_QUIET, self._broken_off, "input")

    def _broken_off(self, stream: str) -> None:
        self.peer.end(f"{self._server.title} closed its standard {stream}{self._stderr_note}")

    def _exit_text(self, status: int | None) -> str:
        how = "ended"
        if status is not None:
            how = f"exited with {status}" if status >= 0 else f"was killed by signal {-status}"
        return f"{self._server.title} {how}{self._stderr_note}"

    @property
    def _stderr_note(self) -> str:
        line = self.stderr.last_line
        return f": {line}" if line else ""


def _marked(command: Command) -> Command:
    """Add a mark of its own, so that processes of another start of the same server are not taken for its own."""
    name = MARK.encode()
    marks = b" ".join([*command.environment.get(name, b"").split(), f"rpc/{os.getpid()}/{next(_STARTS)}".encode()])
    return msgspec.structs.replace(command, environment={**command.environment, name: marks})


def _reason(problem: Exception) -> str:
    number = problem.errno if isinstance(problem, OSError) else None
    return os.strerror(number).lower() if number else str(problem)
