"""Progress of a long read: one line on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, TextIO

PATIENCE: Final = 1.0
"""Seconds before the first line."""

PERIOD: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Counts the bytes read and prints the count from time to time."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._read = 0
        self._next = monotonic() + PATIENCE
        self._shown = False

    def on_read(self, count: int) -> None:
        """Count bytes that were read."""
        self._read += count
        if self._stream is None:
            return
        now = monotonic()
        if now >= self._next:
            self._next, self._shown = now + PERIOD, True
            self._stream.write(f"{_CLEAR}reading traces: {self._read / 1e6:,.0f} MB")
            self._stream.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._stream is not None and self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()


@contextmanager
def progress(*, wanted: bool = True) -> Iterator[Progress]:
    """Show progress on standard error if it is a terminal."""
    shown = Progress(sys.stderr if wanted and sys.stderr is not None and sys.stderr.isatty() else None)
    try:
        yield shown
    finally:
        shown.clear()
