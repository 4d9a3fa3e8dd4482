"""Standard input of a process, written while it runs so that neither blocks the other.

`StdinPipe` writes one input and ends it; `StdinStream` stays open for messages.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final, Protocol

_FIRST_PART: Final = 65536


class Stdin(Protocol):
    """The input of a process."""

    source: int
    """The descriptor that the process is started with."""

    async def write(self, pipe: asyncio.WriteTransport | None) -> None:
        """Begin to write, on Windows to the pipe of the process, once it is started."""

    def close(self) -> None:
        """Stop writing."""


class StdinPipe:
    """The input of a process, on a pipe: before Python 3.12 asyncio would use a socket, and a process cannot open
    /dev/stdin if that is a socket.

    What fits into the pipe is written before the process starts.
    """

    def __init__(self, data: bytes) -> None:
        self._rest = data
        self._open: list[int] = []
        self._writer: asyncio.WriteTransport | None = None
        self.source = subprocess.PIPE
        """The descriptor that the process is started with."""
        if sys.platform != "win32":
            self.source, write_end = self._open = list(os.pipe())
            os.set_blocking(write_end, False)
            self._rest = data[os.write(write_end, data[:_FIRST_PART]) :]

    async def write(self, pipe: asyncio.WriteTransport | None) -> None:
        """Write the rest, on Windows to the pipe of the process; it is no error if the process stops reading."""
        if sys.platform == "win32":
            self._writer = pipe
        elif self._rest:
            file = open(self._open.pop(), "wb", buffering=0)  # noqa: SIM115 - the transport closes it
            self._writer, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, file)
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.write(self._rest)
                self._writer.write_eof()
        self._rest = b""
        self.close_ends()

    def close_ends(self) -> None:
        """Close gert's copies of the descriptors."""
        while self._open:
            os.close(self._open.pop())

    def close(self) -> None:
        """Stop writing."""
        self.close_ends()
        if self._writer is not None and self._writer.get_write_buffer_size() > 0:
            self._writer.abort()


class StdinStream:
    """An input that stays open: messages are sent while the process runs, in order, and never block.

    What the process does not read is kept, up to `limit` bytes. `on_broken` is called once if it closes its input.
    """

    def __init__(self, limit: int, on_broken: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self._on_broken = on_broken
        self._rest = bytearray()
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._writer: asyncio.WriteTransport | None = None
        self.source = subprocess.PIPE
        self._reading_end: int | None = None
        self._descriptor: int | None = None
        if sys.platform != "win32":
            self.source, self._descriptor = os.pipe()
            self._reading_end = self.source
            os.set_blocking(self._descriptor, False)

    async def write(self, pipe: asyncio.WriteTransport | None) -> None:
        """The process has started."""
        self._writer = pipe
        self._close_reading_end()

    def send(self, data: bytes) -> bool:
        """Send data, or queue it; False if the input is closed or more is queued than the limit."""
        if not self._is_open:
            return False
        if self._writer is not None:
            self._writer.write(data)
            return self._writer.get_write_buffer_size() <= self._limit
        if not self._rest:
            data = data[self._written(data) :]
            if data and self._descriptor is not None and self._is_open:
                self._loop.add_writer(self._descriptor, self._flush)
        self._rest += data
        return len(self._rest) <= self._limit

    def close(self) -> None:
        """End the input; what is still queued is dropped."""
        self._is_open = False
        self._close_reading_end()
        if self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        del self._rest[: self._written(memoryview(self._rest)[:_FIRST_PART])]
        if not self._rest and self._descriptor is not None:
            self._loop.remove_writer(self._descriptor)

    def _written(self, data: "bytes | memoryview") -> int:
        if self._descriptor is None:
            return 0
        try:
            return os.write(self._descriptor, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.close()
            self._on_broken()
            return len(data)

    def _close_reading_end(self) -> None:
        if self._reading_end is not None:
            os.close(self._reading_end)
            self._reading_end = None
