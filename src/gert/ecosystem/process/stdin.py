"""Standard input for a process: written while it runs, so that neither waits for the other."""

import asyncio
import contextlib
import os
import subprocess
import sys
from typing import Final

_FIRST_PART: Final = 65536


class Feed:
    """Text for a process, on a pipe: asyncio's own would be a socket before Python 3.12, and /dev/stdin of a
    process that has a socket there cannot be opened.

    What fits into the pipe is there before the process is.
    """

    def __init__(self, data: bytes) -> None:
        self._rest = data
        self._open: list[int] = []
        self._writer: asyncio.WriteTransport | None = None
        self.source = subprocess.PIPE
        """What the process is started with."""
        if sys.platform != "win32":
            self.source, write_end = self._open = list(os.pipe())
            os.set_blocking(write_end, False)
            self._rest = data[os.write(write_end, data[:_FIRST_PART]) :]

    async def begin(self, pipe: asyncio.WriteTransport | None) -> None:
        """Write what is left, on Windows to the pipe of the process; one that stops reading is no error."""
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
        """Close our copies of what the process has, and of what nobody needs."""
        while self._open:
            os.close(self._open.pop())

    def close(self) -> None:
        """Write no more."""
        self.close_ends()
        if self._writer is not None and self._writer.get_write_buffer_size() > 0:
            self._writer.abort()
