"""A mark in the lock of a folder, which tells whether anybody has written since: looking at one file instead of all.

Whoever writes takes the mark away before, and leaves another one after, which nobody ever left before. Where a writer
died there is none, and a folder without a mark may have changed.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gert.ecosystem.stores.append_file import Lock
from gert.errors import TraceError

_SIZE: Final = 32
_NONE: Final = b" " * _SIZE
_FLAGS: Final = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def read_mark(path: str) -> bytes | None:
    """The mark, or None where there is none."""
    try:
        with open(path, "rb") as file:
            mark = file.read(_SIZE)
    except OSError:
        return None
    return mark if len(mark) == _SIZE and mark.isalnum() else None


@contextmanager
def changing(lock: Lock) -> Iterator[bytes]:
    """Change something while there is no mark; gives the one that is there afterwards."""
    mark = secrets.token_hex(_SIZE // 2).encode()
    lock.require()
    try:
        descriptor = os.open(lock.path, _FLAGS)
        try:
            _write(descriptor, _NONE)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise TraceError(f"`{lock.path}` cannot be written: {why}", hint="nothing of the batch was kept") from problem
    try:
        yield mark
        # What was changed is changed. Without a mark the others look at all files, and miss nothing.
        with suppress(OSError):
            _write(descriptor, mark)
    finally:
        os.close(descriptor)


def _write(descriptor: int, mark: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, mark)
