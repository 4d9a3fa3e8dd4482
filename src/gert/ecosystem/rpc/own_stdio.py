"""Serve JSON-RPC on our own standard input and output.

The two descriptors are taken over: what handlers and the programs they start print goes to standard error, and they
read an empty input, so that nothing else can break into the protocol.
"""

import asyncio
import contextlib
import io
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from gert.ecosystem.rpc.lines import MAX_LINE
from gert.ecosystem.rpc.peer import Handler, Peer

_CHUNK: Final = 64 * 1024
_SAFE_WRITE: Final = 4096 if sys.platform != "win32" else _CHUNK
"""Bytes that a pipe takes without blocking, once it is reported as writable (PIPE_BUF)."""


async def serve_stdio(handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the client closes our standard input."""
    async with own_stdio(handlers) as peer:
        await peer.ended()


@contextlib.asynccontextmanager
async def own_stdio(handlers: Mapping[str, Handler]) -> AsyncIterator[Peer]:
    """Connect a peer to our standard input and output; handlers may be added to `peer.handlers` later."""
    source, target = _move_stdio()
    output = _Output(target, 4 * MAX_LINE)
    peer = Peer("the client", output.send, handlers=handlers, is_strict=False)
    stop = _read(source, peer)
    try:
        yield peer
    finally:
        peer.end("the server ended")
        stop()
        await output.close()


def _move_stdio() -> tuple[int, int]:
    """Return private copies of standard input and output, and put harmless ones in their place."""
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return source, target


def _read(source: int, peer: Peer) -> Callable[[], object]:
    """Feed a peer with what arrives; returns what stops it."""
    loop = asyncio.get_running_loop()
    finishing: list[asyncio.Task[None]] = []  # the loop itself keeps no task alive

    def take(data: bytes) -> None:
        if data:
            peer.feed(data)
        else:
            finishing.append(loop.create_task(peer.finish("the client closed the connection")))

    def readable() -> None:
        data = os.read(source, _CHUNK)  # does not block: it is readable
        if not data:
            loop.remove_reader(source)
        take(data)

    try:
        loop.add_reader(source, readable)
    except (NotImplementedError, PermissionError):
        # Windows cannot poll pipes, and no system polls files.
        threading.Thread(target=_pump, args=(source, loop, take), name="gert-stdin", daemon=True).start()
        return lambda: None
    return lambda: loop.remove_reader(source)


def _pump(source: int, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], None]) -> None:
    data = b"\n"
    while data:
        data = os.read(source, _CHUNK)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(take, data)


class _Output:
    """Writes to a pipe without making it non-blocking, because other processes may share it."""

    def __init__(self, target: int, limit: int) -> None:
        self._target = target
        self._limit = limit
        self._rest = bytearray()
        self._is_polled = self._is_broken = False
        self._loop = asyncio.get_running_loop()

    def send(self, data: bytes) -> bool:
        """Write data, or queue it; False if the reader is gone or does not read."""
        self._rest += data
        if not self._is_polled:
            self._flush()
        return not self._is_broken and len(self._rest) <= self._limit

    async def close(self) -> None:
        """Write what is queued, for a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                while self._rest and not self._is_broken:
                    await asyncio.sleep(0.01)
        if self._is_polled:
            self._loop.remove_writer(self._target)
        os.close(self._target)

    def _flush(self) -> None:
        while self._rest and self._is_writable():
            try:
                del self._rest[: os.write(self._target, self._rest[:_SAFE_WRITE])]
            except OSError:
                self._is_broken = True
                self._rest.clear()
        if bool(self._rest) != self._is_polled:
            self._is_polled = bool(self._rest)
            if self._is_polled:
                self._loop.add_writer(self._target, self._flush)
            else:
                self._loop.remove_writer(self._target)

    def _is_writable(self) -> bool:
        if sys.platform == "win32":
            return True
        poll = select.poll()
        poll.register(self._target, select.POLLOUT)
        return bool(poll.poll(0))
