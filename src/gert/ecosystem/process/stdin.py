"""Standard input of a process, written while it runs so that neither blocks the other."""

import asyncio
import contextlib
import os
import subprocess
import sys
from typing import Final

_FIRST_PART: Final = 65536


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
