"""The mirror of a run: its lines in a JSONL file, byte for byte those of the ledger.

It is written at every commit, synced when the run ends or is resumed, and never read to decide anything. A mirror
that cannot be written does not stop the run: the ledger has everything, and `gert trace export` writes it again.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from typing import Final

from gert.ecosystem.ledger.folders import sync_folder_of
from gert.errors import TraceError, UsageError
from gert.kernel.events.envelope import MAX_LINE_BYTES, decode
from gert.kernel.foundation.text import os_reason

ASIDE: Final = ".aside"
_FLAGS: Final = (
    os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)
_MODE: Final = 0o600
_CLOSED: Final = -1


class Mirror:
    """One file that only grows.

    problem: why it is not complete, if it is not
    """

    def __init__(self, path: str, descriptor: int = _CLOSED, before: Sequence[bytes] | None = None) -> None:
        self.path = path
        self.problem: str | None = None
        self._fd = descriptor
        self._before = before

    @classmethod
    def begin(cls, path: str) -> "Mirror":
        """The mirror of a new run; a file that holds something else is refused: UsageError."""
        mirror = cls(path, _open(path))
        if os.fstat(mirror._fd).st_size:
            found = mirror._first_run()
            mirror.close()
            what = f"already holds run `{found}`" if found else "is not empty"
            raise UsageError(f"`{path}` {what}", hint="choose another file for the trace")
        return mirror

    @classmethod
    def complete(cls, path: str, lines: Sequence[bytes]) -> "Mirror":
        """The mirror of a run that is resumed: missing lines are added at the first write.

        A file that is not a prefix of the ledger is moved aside and written again; one that cannot be opened is left.
        """
        return cls(path, before=lines)

    def write(self, lines: Sequence[bytes]) -> None:
        """Add lines; after a failure the mirror stays as it is."""
        before, self._before = self._before, None
        if before is not None:
            self._catch_up(before)
        self._write(_joined(lines))

    def _catch_up(self, lines: Sequence[bytes]) -> None:
        try:
            self._fd = _open(self.path)
            rest = self._missing(lines)
            if rest is None:
                os.close(self._fd)
                os.replace(self.path, self.path + ASIDE)
                self._fd = _open(self.path)
                aside = f"it was moved to `{self.path}{ASIDE}` and written again"
                self.problem = f"`{self.path}` was not a copy of the ledger; {aside}"
                rest = _joined(lines)
        except UsageError as problem:
            self.problem = problem.message
            return
        self._write(rest)

    def _write(self, rest: bytes) -> None:
        if self._fd < 0 or self._is_broken:
            return
        data = memoryview(rest)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as problem:
            self._is_broken = True
            self.problem = f"`{self.path}` is not complete: {os_reason(problem)}"

    def close(self) -> None:
        """Make the file durable, and close it."""
        if self._fd < 0:
            return
        try:
            os.fsync(self._fd)
            sync_folder_of(self.path)
            if not os.path.samestat(os.stat(self.path), os.fstat(self._fd)):
                self.problem = f"`{self.path}` was replaced while the run was mirrored to it"
        except OSError as problem:
            self.problem = f"`{self.path}` may not be complete: {os_reason(problem)}"
        finally:
            os.close(self._fd)
            self._fd = _CLOSED

    _is_broken = False

    def _missing(self, lines: Iterable[bytes]) -> bytes | None:
        """What the file lacks, half a line included; None where it holds something else."""
        missing: list[bytes] = []
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            for line in lines:
                whole = line + b"\n"
                found = b"" if missing else file.read(len(whole))
                if not whole.startswith(found):
                    return None
                if found != whole:
                    missing.append(whole[len(found) :])
            return None if file.read(1) else b"".join(missing)

    def _first_run(self) -> str | None:
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            try:
                return decode(file.readline(MAX_LINE_BYTES)).run_id
            except TraceError:
                return None


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, _FLAGS | os.O_CREAT, _MODE)
    except FileNotFoundError:
        raise UsageError(f"there is no folder `{os.path.dirname(path)}`") from None
    except OSError as problem:
        reason = "is a symbolic link" if os.path.islink(path) else f"cannot be opened: {os_reason(problem)}"
        raise UsageError(f"`{path}` {reason}") from None
    except ValueError:
        raise UsageError(f"`{path}` is not a path") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"`{path}` is not a regular file")
    return descriptor
