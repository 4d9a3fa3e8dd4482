"""The pipes of a child process as the streams of the MCP SDK.

The SDK would start the process itself; here it is started, watched and stopped as every other process of gert. Messages
are handed over without tasks in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest, jsonrpc_message_adapter

from gert.ecosystem.rpc.lines import Lines, LineTooLong
from gert.errors import InputError, RpcLost

MAX_STRAY: Final = 100
"""Lines of text, which are no messages; some servers print a banner on standard output."""

MAX_ASKED: Final = 10
MAX_UNASKED: Final = 10_000
"""Messages between two messages of gert."""


class Pipes:
    """One connection: bytes of the process in, messages of the SDK out, and back."""

    def __init__(
        self, title: str, send: Callable[[bytes], bool], *, on_end: Callable[[], None], limit: int, **_: Any
    ) -> None:
        self._title = title
        self._send = send
        self._on_end = on_end
        self._lines = Lines(limit)
        self._queue: deque[SessionMessage] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._stray = self._unasked = 0
        self.on_stray: Callable[[bytes], object] = lambda _: None
        """Called with a line that is no message."""
        self.asked: list[str] = []
        """The methods that the server called during the last call; gert refuses them."""
        self.lost: RpcLost | None = None
        self.is_stuck = False
        self.is_idle = True
        self.reader = _Reader(self)
        self.writer = _Writer(self)

    # --- the side of the process

    def feed(self, data: bytes) -> None:
        """Take what the process printed."""
        try:
            for line in self._lines.feed(data):
                self._take(line)
        except LineTooLong:
            self.end(f"{self._title} broke the protocol: a message is longer than {self._lines.limit} bytes")

    def end(self, reason: str, *, by_exit: bool = False) -> None:
        """End the connection: the SDK fails calls in flight."""
        if self.lost is not None:
            return
        self.lost = RpcLost(reason, by_exit=by_exit)
        self._wake()
        self._on_end()

    def _take(self, line: bytes) -> None:
        if self.lost is not None or not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._strayed(line)
            return
        self._unasked += 1
        if self._unasked > MAX_UNASKED:
            self.end(f"{self._title} broke the protocol: it sent {MAX_UNASKED} unrequested messages")
            return
        if isinstance(message, JSONRPCRequest) and len(self.asked) < MAX_ASKED:
            self.asked.append(message.method)
        self._queue.append(SessionMessage(message))
        self._wake()

    def _strayed(self, line: bytes) -> None:
        if line.lstrip().startswith(b"{"):
            self.end(f"{self._title} broke the protocol: it sent something that is no JSON-RPC message")
            return
        self._stray += 1
        self.on_stray(line + b"\n")
        if self._stray > MAX_STRAY:
            self.end(f"{self._title} broke the protocol: it prints text on standard output, not MCP messages")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- the side of the SDK

    async def next(self) -> SessionMessage:
        """Wait for the next message."""
        while not self._queue:
            if self.lost is not None:
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._queue.popleft()

    def send(self, item: SessionMessage) -> None:
        """Send a message; it never waits for the process to read."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if len(line) > self._lines.limit:
            raise InputError(f"the call is {len(line)} bytes, more than the limit of {self._lines.limit}")
        self._unasked = 0
        if self.lost is None and not self._send(line):
            self.end(f"{self._title} does not read its standard input")
        if self.lost is not None:
            raise anyio.BrokenResourceError


class _Stream:
    """The process is stopped by its owner, so leaving a stream closes nothing."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes

    async def aclose(self) -> None:
        """Leave it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class _Reader(_Stream):
    async def receive(self) -> SessionMessage:
        """Wait for the next message."""
        return await self._pipes.next()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self._pipes.next()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Writer(_Stream):
    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        self._pipes.send(item)
