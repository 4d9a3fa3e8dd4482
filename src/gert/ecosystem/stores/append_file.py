"""A file of lines that only grows, by whole batches, and that one process writes."""

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final

from gert.ecosystem.stores.folders import sync_folder_of
from gert.errors import Busy, TraceError

if sys.platform != "win32":
    import fcntl

TORN_SUFFIX: Final = ".torn"
_FLAGS: Final = (
    os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)
_MODE: Final = 0o600
_SKIPPED: Final = 1 << 20

# The size of a file that grew is written too: without it nobody would find the new bytes. Its times are not.
sync_data: Final = getattr(os, "fdatasync", os.fsync)


class AppendFile:
    """One file, locked, with the size it has after the last whole batch."""

    def __init__(self, path: str, *, sync: bool, create: bool) -> None:
        self.path = path
        self._sync = sync
        self._failed: str | None = None
        self._fd = _open(path, create=create)
        try:
            self._lock()
            self.size = os.fstat(self._fd).st_size
            if create and sync and not self.size:
                _keep_name(path)
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, lines: Sequence[bytes]) -> None:
        """Write the lines in one piece, or leave the file as it was; durable once `make_durable` returns."""
        self.require_sound()
        data = b"\n".join(lines) + b"\n"
        try:
            write_all(self._fd, data)
        except BaseException as problem:
            self.cut(self.size)
            if isinstance(problem, OSError):
                raise self._unwritten(problem) from problem
            raise
        self.size += len(data)

    def make_durable(self) -> None:
        """Wait until everything that was written is on disk."""
        if not self._sync:
            return
        try:
            sync_data(self._fd)
        except OSError as problem:
            # The system may have dropped what it could not write, and would call the next attempt a success.
            self._failed = f"it could not be made durable: {_why(problem)}"
            raise self._unwritten(problem) from problem

    def _unwritten(self, problem: OSError) -> TraceError:
        return TraceError(f"`{self.path}` cannot be written: {_why(problem)}", hint="nothing of the batch was kept")

    def cut(self, size: int) -> None:
        """Take back what was written beyond a size."""
        try:
            os.ftruncate(self._fd, size)
            self.size = size
        except OSError as problem:
            self._failed = f"what was half written could not be taken back: {_why(problem)}"

    def settle(self) -> None:
        """Make durable what another process left: it may have died before that, or failed in it."""
        if self._sync:
            _keep_name(self.path)
        self.make_durable()

    def set_aside(self, good: int, torn: bytes) -> None:
        """Move what stands after the last good byte to a file beside this one, and only then take it off."""
        path = self.path + TORN_SUFFIX
        # A link planted there must not lead the bytes elsewhere, and what was set aside before stays.
        beside = _open(path, create=True)
        try:
            _put(beside, torn + b"\n")
            sync_folder_of(path)
        except OSError as problem:
            raise TraceError(f"`{path}` cannot be written: {_why(problem)}") from problem
        finally:
            os.close(beside)
        self.cut(good)
        self.require_sound()
        try:
            os.fsync(self._fd)
        except OSError as problem:
            raise TraceError(f"`{self.path}` cannot be made durable: {_why(problem)}") from problem

    def reader(self) -> BinaryIO:
        """Open the file a second time to read it from the beginning."""
        try:
            return open(self.path, "rb", opener=lambda path, _: os.open(path, _FLAGS & ~(os.O_RDWR | os.O_APPEND)))
        except OSError as problem:
            raise TraceError(f"`{self.path}` cannot be read: {_why(problem)}") from problem

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def require_sound(self) -> None:
        """Refuse to go on with a file that failed before, or that somebody else has changed."""
        if self._fd < 0:
            raise TraceError("the store is closed")
        if self._failed is not None:
            raise TraceError(f"`{self.path}` takes nothing more: {self._failed}")
        found = os.fstat(self._fd)
        if found.st_size != self.size or found.st_nlink == 0:
            what = "removed" if found.st_nlink == 0 else "changed by someone else"
            raise TraceError(f"`{self.path}` was {what} while a run was writing it")

    def _lock(self) -> None:
        if sys.platform == "win32":
            return  # nothing there locks a file without also keeping others from reading it
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"`{self.path}` is being written by another run", hint="wait for it to end, or choose another file"
            ) from None
        except OSError:
            return  # a file system without locks


class Lock:
    """A file that is held as a lock; whoever removes it lets others in, and is found out by `require`."""

    def __init__(self, path: str, what: str, descriptor: int) -> None:
        self.path = path
        self._what = what
        self._file = os.fstat(descriptor)

    def require(self) -> None:
        """Refuse to go on where somebody took the lock away: another process may have it by now."""
        if not self.is_in_place():
            raise TraceError(
                f"`{self.path}`, which keeps others from {self._what}, was removed or exchanged",
                hint="nothing more is written: somebody else may be writing by now",
            )

    def is_in_place(self) -> bool:
        """Whether whoever else wants the lock finds this file."""
        try:
            return os.path.samestat(self._file, os.stat(self.path))
        except OSError:
            return False


@contextmanager
def exclusive(path: str, what: str) -> Iterator[Lock]:
    """Hold a file as a lock; the system lets go of it when the process ends, however it does."""
    descriptor = _open(path, create=True)
    try:
        busy = Busy(f"{what} is being driven by another process", hint="wait for it to end")
        if sys.platform != "win32":
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise busy from None
            except OSError as problem:
                raise TraceError(f"`{path}` cannot be locked: {_why(problem)}") from problem
        lock = Lock(path, what, descriptor)
        # Between opening and locking somebody may have put another file there, which others lock.
        if not lock.is_in_place():
            raise busy
        yield lock
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, in as many pieces as it takes."""
    rest = memoryview(data)
    while rest:
        written = os.write(descriptor, rest)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))  # asked again, it would take nothing for ever
        rest = rest[written:]


def _put(descriptor: int, data: bytes) -> None:
    """Add to a file durably; of what does not fit, no piece is left to fill the disk each time it is tried."""
    size = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def read_lines(file: BinaryIO, longest: int) -> Iterator[bytes]:
    """Lines as they stand, with their line breaks; of one that is too long, only enough to see that it is."""
    while line := file.readline(longest + 2):
        if len(line) < longest + 2 or line.endswith(b"\n"):
            yield line
            continue
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(_SKIPPED)
        yield line[:-1] + rest[-1:]


def _keep_name(path: str) -> None:
    """Make the name of a file durable, whoever gave it: one who died may not have come to it."""
    try:
        sync_folder_of(path)
    except OSError as problem:
        raise TraceError(f"`{path}` cannot be made durable: {_why(problem)}") from problem


def _open(path: str, *, create: bool) -> int:
    try:
        descriptor = _open_or_make(path) if create else os.open(path, _FLAGS)
    except FileNotFoundError:
        missing = os.path.dirname(path) if create else path
        raise TraceError(f"there is no {'folder' if create else 'file'} `{missing}`") from None
    except OSError as problem:
        reason = "is a symbolic link" if os.path.islink(path) else f"cannot be opened: {_why(problem)}"
        raise TraceError(f"`{path}` {reason}") from problem
    except ValueError:
        raise TraceError(f"`{path}` is not a path") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TraceError(f"`{path}` is not a regular file")
    return descriptor


def _open_or_make(path: str) -> int:
    """Open a file, or make it for its owner alone."""
    try:
        # Not at once with the making: in folders that all may write to, that is refused for files of others.
        return os.open(path, _FLAGS)
    except FileNotFoundError:
        return os.open(path, _FLAGS | os.O_CREAT, _MODE)


def _why(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()
