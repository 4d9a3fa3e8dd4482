"""Looking at the ends of a trace without reading what lies between."""

import os
from collections.abc import Iterator
from io import FileIO
from typing import Final

from gert.errors import TraceError
from gert.kernel.events.envelope import MAX_LINE_BYTES

# Without waiting: opening a pipe that nobody writes to would not return.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_WINDOW: Final = 64 * 1024
MOST_LAST: Final = 8
"""Lines that are looked at from the end; after the end of a run come a few notices at most."""


def open_file(path: str) -> FileIO:
    """Open a trace to read it, whatever it is; TraceError where it is not there or not ours to read."""
    try:
        return FileIO(path, opener=lambda name, _: os.open(name, _FLAGS))
    except FileNotFoundError:
        raise TraceError(f"there is no file `{path}`") from None
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or "it is not a path"
        raise TraceError(f"`{path}` cannot be read: {why.lower()}") from None


def first_line(file: FileIO) -> bytes:
    """The first line, if it was written whole; never more than a line can be."""
    file.seek(0)
    data = b""
    while b"\n" not in data and len(data) <= MAX_LINE_BYTES:
        chunk = file.read(_WINDOW)
        if not chunk:
            return b""
        data += chunk
    return data.partition(b"\n")[0]


def last_lines(file: FileIO) -> list[bytes]:
    """The last whole lines, the very last first: from as much of the end as holds one, and no more."""
    size = file.seek(0, os.SEEK_END)
    window = _WINDOW
    while True:
        start = max(0, size - window)
        file.seek(start)
        whole, broken, _ = _read(file, size - start).rpartition(b"\n")
        lines = whole.split(b"\n") if broken else []
        # The first may have begun before the window.
        lines = lines if start == 0 else lines[1:]
        if lines or start == 0 or window > MAX_LINE_BYTES:
            return lines[: -MOST_LAST - 1 : -1]
        window *= 8


def _read(file: FileIO, size: int) -> bytes:
    return b"".join(_pieces(file, size))


def _pieces(file: FileIO, left: int) -> Iterator[bytes]:
    while left > 0 and (piece := file.read(left)):
        left -= len(piece)
        yield piece
