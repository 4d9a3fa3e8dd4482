"""A lock that holds across processes, and that the system takes away from one that dies."""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gert.errors import TraceError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PATIENCE: Final = 10.0
"""Seconds to wait for whoever holds a lock; nobody needs it for longer than a few writes."""

# A pipe that somebody planted must not make us wait.
_SYSTEM: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_FLAGS: Final = os.O_RDWR | os.O_CREAT | _SYSTEM
_FIRST_LOOK: Final = 0.001
_LATER_LOOK: Final = 0.05


@contextmanager
def locked(path: str, patience: float = PATIENCE, mode: int = 0o600) -> Iterator[None]:
    """Hold the lock of this file; it stays where it is, because whoever removed it would leave two locks.

    mode: who else may lock it, whatever the umask
    """
    try:
        descriptor = os.open(path, _FLAGS, mode)
    except OSError as problem:
        raise TraceError(f"`{path}` cannot be locked: {(problem.strerror or str(problem)).lower()}") from None
    try:
        _admit(descriptor, path, mode)
        _take(descriptor, path, patience)
        # Closing gives the lock back, here and where a process is killed.
        yield
    finally:
        os.close(descriptor)


def _admit(descriptor: int, path: str, mode: int) -> None:
    """Refuse what is no file, and let everybody lock it who should, if it is ours to say."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise TraceError(f"`{path}` cannot be locked: it is not a regular file")
    if found.st_size or found.st_nlink > 1:
        # Somebody has put another file of ours here, for us to let them into it.
        raise TraceError(f"`{path}` cannot be locked: it is not a lock")
    if os.name == "posix" and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != mode:
        os.chmod(descriptor, mode)


def _take(descriptor: int, path: str, patience: float) -> None:
    end = time.monotonic() + patience
    pause = _FIRST_LOOK
    while not _took(descriptor):
        if time.monotonic() >= end:
            raise TraceError(
                f"`{path}` is locked by another process for more than {patience:g} s",
                hint="end that process, or try again",
            )
        time.sleep(pause)
        pause = min(pause * 2, _LATER_LOOK)


def _took(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as problem:
        # Two people could both be told that theirs was the last answer needed.
        why = (problem.strerror or str(problem)).lower()
        raise TraceError(f"the file system cannot lock a file: {why}", hint="choose another --state-dir") from None
    return True
