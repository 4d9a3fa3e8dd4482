"""How far a long reading has come: one line on standard error, for people who wait."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, TextIO

PATIENCE: Final = 1.0
"""Seconds before anything is said."""

PERIOD: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Counts what is read, and says so now and then."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._read = 0
        self._next = monotonic() + PATIENCE
        self._shown = False

    def on_read(self, count: int) -> None:
        """Take note of bytes that were read."""
        self._read += count
        if self._stream is None:
            return
        now = monotonic()
        if now >= self._next:
            self._next, self._shown = now + PERIOD, True
            self._stream.write(f"{_CLEAR}reading traces: {self._read / 1e6:,.0f} MB")
            self._stream.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._stream is not None and self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()


@contextmanager
def progress(*, wanted: bool = True) -> Iterator[Progress]:
    """Progress on standard error, where that is a terminal."""
    shown = Progress(sys.stderr if wanted and sys.stderr is not None and sys.stderr.isatty() else None)
    try:
        yield shown
    finally:
        shown.clear()
