"""Rejections in a shared folder, kept where nobody but whoever gave one can take it away.

Everybody of the group can write a ticket's file, and so could take a rejection out of it again before the run looks.
An approval that is taken away only leaves a ticket open; a rejection that is would let another's approval count.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from gert.ecosystem.approvals.sharing import KEEPING_MODE, set_access
from gert.ecosystem.approvals.ticket_file import bare
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.asks import Response

SUFFIX: Final = ".rejections"
MOST_KEPT: Final = 200
"""More files than this are an attempt to hide one among them."""
_MOST_BYTES: Final = 64 * 1024
_MODE: Final = 0o640
_SYSTEM: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SYSTEM
_READING: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SYSTEM
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SYSTEM


class Rejections:
    """The rejections of one ticket: a folder of the run's, a file of each person's."""

    def __init__(self, folder: str, ticket_id: str) -> None:
        self._ticket_id = ticket_id
        self._path = os.path.join(folder, ticket_id + SUFFIX)

    def make(self, group_id: int) -> None:
        """Make the place, before anybody can answer; one that is there already has to be ours."""
        try:
            os.mkdir(self._path, 0o700)
            set_access(self._path, KEEPING_MODE, group_id)
        except FileExistsError:
            with self._ours():
                return
        except OSError as problem:
            raise self._unusable(problem) from None

    def keep(self, response: Response) -> None:
        """Keep a rejection, in a file of our own."""
        try:
            with self._opened() as folder:
                descriptor = os.open(f"{secrets.token_hex(8)}.json", _WRITING, 0o600, dir_fd=folder)
                with open(descriptor, "wb") as file:
                    file.write(msgspec.json.encode(bare(response)))
                    file.flush()
                    set_access(descriptor, _MODE, os.fstat(folder).st_gid)
                    os.fsync(descriptor)
        except OSError as problem:
            raise self._unusable(problem) from None

    def kept(self) -> list[Response]:
        """Every rejection anybody has kept; what is none of gert's was put there by whoever wants to confuse us."""
        with self._ours() as folder:
            names = sorted(os.listdir(folder))
            if len(names) > MOST_KEPT:
                raise IntegrityError(
                    f"`{self._path}` holds {len(names)} rejections: expected at most {MOST_KEPT}",
                    hint="somebody of the group has filled it",
                )
            found = [_read(name, folder) for name in names]
        return [each for each in found if each is not None and not each.approved]

    @contextmanager
    def _ours(self) -> Iterator[int]:
        """The folder, if it is the very one the run has made."""
        try:
            with self._opened() as folder:
                found = os.fstat(folder)
                # In a folder with the sticky bit, only its owner and that of a file can take the file away.
                if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != KEEPING_MODE:
                    raise self._replaced()
                yield folder
        except OSError:
            raise self._replaced() from None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self._path, _FOLDER)
        try:
            yield folder
        finally:
            os.close(folder)

    def _replaced(self) -> IntegrityError:
        return IntegrityError(
            f"the rejections of the ticket `{self._ticket_id}` are not where the run keeps them: somebody has taken"
            " them away or put others in their place",
            hint="abandon the run and begin a new one",
        )

    def _unusable(self, problem: OSError) -> TraceError:
        why = (problem.strerror or str(problem)).lower()
        return TraceError(f"rejections cannot be kept in `{self._path}`: {why}")


def _read(name: str, folder: int) -> Response | None:
    try:
        with open(os.open(name, _READING, dir_fd=folder), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return msgspec.json.decode(file.read(_MOST_BYTES), type=Response)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
