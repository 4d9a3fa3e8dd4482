"""Split a stream of bytes into lines of bounded length."""

from collections.abc import Iterator
from typing import Final

MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of one message."""


class LineTooLong(Exception):
    """A line is longer than the limit."""


class Lines:
    """Collects lines; the bytes of an unfinished line are kept, up to the limit."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_empty(self) -> bool:
        """Whether no line is unfinished."""
        return not self._size

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that are complete now, without their ends; LineTooLong at a line beyond the limit."""
        if b"\n" not in data:
            self._keep(data)
            return
        first, *lines = data.split(b"\n")
        if self._size:
            self._keep(first)
            first = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
        rest = lines.pop()
        for line in (first, *lines):
            if len(line) > self.limit:
                raise LineTooLong
            yield line
        self._keep(rest)

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.limit:
            self._parts.clear()
            raise LineTooLong
        if data:
            self._parts.append(data)
