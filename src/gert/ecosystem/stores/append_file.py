"""A file of lines that only grows, by whole batches, and that one process writes."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

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
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, lines: Sequence[bytes]) -> None:
        """Write the lines in one piece, or leave the file as it was; durable once `make_durable` returns."""
        self._check_sound()
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

    def set_aside(self, good: int, torn: bytes) -> None:
        """Move what stands after the last good byte to a file beside this one, and only then take it off."""
        # A link planted there must not lead the bytes elsewhere, and what was set aside before stays.
        beside = _open(self.path + TORN_SUFFIX, create=True)
        try:
            write_all(beside, torn + b"\n")
            os.fsync(beside)
        except OSError as problem:
            raise TraceError(f"`{self.path}{TORN_SUFFIX}` cannot be written: {_why(problem)}") from problem
        finally:
            os.close(beside)
        self.cut(good)
        self._check_sound()
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

    def _check_sound(self) -> None:
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


@contextmanager
def exclusive(path: str, what: str) -> Iterator[None]:
    """Hold a file as a lock; the system lets go of it when the process ends, however it does."""
    descriptor = _open(path, create=True)
    try:
        if sys.platform != "win32":
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"{what} is being driven by another process", hint="wait for it to end") from None
            except OSError as problem:
                raise TraceError(f"`{path}` cannot be locked: {_why(problem)}") from problem
        yield
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, in as many pieces as it takes."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


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


def sync_folder_of(path: str) -> None:
    """Make the name of a new file durable; the file alone would be without one."""
    if os.name != "posix":
        return
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open(path: str, *, create: bool) -> int:
    try:
        descriptor = _open_new(path) if create else None
        if descriptor is None:
            descriptor = os.open(path, _FLAGS)
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


def _open_new(path: str) -> int | None:
    """Create the file for its owner alone; `None` if it is there."""
    try:
        descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        return None
    try:
        sync_folder_of(path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _why(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()
