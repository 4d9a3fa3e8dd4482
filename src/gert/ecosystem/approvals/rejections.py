"""Rejections in a shared folder, kept where nobody but whoever gave one can take it away.

Everybody of the group can write a ticket's file, and so could take a rejection out of it again before the run looks.
An approval that is taken away only leaves a ticket open; a rejection that is would let another's approval count.

The place of a ticket says whose it is, in a file that only the run could have put there: places lie where everybody of
the group can give them each other's names.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from gert.ecosystem.approvals.sharing import KEEPING_MODE, made_folder, set_access
from gert.ecosystem.approvals.ticket_file import bare
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.requests import Response

SUFFIX: Final = ".rejections"
SIGN: Final = ".ticket"
"""The file that says of which ticket a place is; nobody but its owner can take it away."""
_RUNS: Final = "runs"
MOST_KEPT: Final = 200
"""More files than this are an attempt to hide one among them."""
_MOST_BYTES: Final = 64 * 1024
_MODE: Final = 0o640
_SYSTEM: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SYSTEM
_READING: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SYSTEM
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SYSTEM
_NO_FILE: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOENT, errno.EACCES)
"""What says that something is no rejection: a link, a pipe, a folder, gone again, or not for our eyes."""


class Rejections:
    """The rejections of one ticket: a folder of the run's, a file of each person's."""

    def __init__(self, folder: str, ticket_id: str) -> None:
        self._ticket_id = ticket_id
        self._path = os.path.join(folder, ticket_id + SUFFIX)

    def make(self, group_id: int) -> None:
        """Make the place, before anybody can answer; one that is there already has to be ours."""
        if os.path.lexists(self._path) and not self._is_empty():
            with self._ours():
                return
        # Whole at once, or not at all: a folder takes the place of an empty one, and of nothing else.
        fresh = f"{self._path}.{secrets.token_hex(4)}"
        try:
            with made_folder(fresh) as folder:
                try:
                    with open(os.open(SIGN, _WRITING, 0o600, dir_fd=folder), "wb") as sign:
                        sign.write(self._ticket_id.encode())
                        set_access(sign.fileno(), _MODE, group_id)
                    set_access(folder, KEEPING_MODE, group_id)
                    os.rename(fresh, self._path)
                except OSError:
                    with suppress(OSError):
                        os.unlink(SIGN, dir_fd=folder)
                        os.rmdir(fresh)
                    raise
        except OSError as problem:
            raise self._unusable(problem) from None

    def keep(self, response: Response) -> None:
        """Keep a rejection, in a file of our own."""
        try:
            with self._opened() as folder:
                if not self._is_signed(folder) or os.fstat(folder).st_uid not in self._starters():
                    raise self._replaced()
                descriptor = os.open(f"{secrets.token_hex(8)}.json", _WRITING, 0o600, dir_fd=folder)
                with open(descriptor, "wb") as file:
                    file.write(msgspec.json.encode(bare(response)))
                    file.flush()
                    set_access(descriptor, _MODE, os.fstat(folder).st_gid)
                    os.fsync(descriptor)
                os.fsync(folder)
        except OSError as problem:
            raise self._unusable(problem) from None

    def kept(self) -> list[Response]:
        """Every rejection anybody has kept; what is none of gert's was put there by whoever wants to confuse us."""
        with self._ours() as folder:
            names = sorted(name for name in os.listdir(folder) if name != SIGN)
            if len(names) > MOST_KEPT:
                raise IntegrityError(
                    f"`{self._path}` holds {len(names)} rejections: expected at most {MOST_KEPT}",
                    hint="somebody of the group has filled it",
                )
            found = [_read(name, folder) for name in names]
        return [each for each in found if each is not None and not each.approved]

    def _starters(self) -> set[int]:
        """Who can have made the place: whose folder the tickets lie in, or for whom the administrator made it."""
        tickets = os.path.dirname(os.path.abspath(self._path))
        owner, state = os.stat(tickets).st_uid, os.path.dirname(tickets)
        if owner != 0:
            return {owner}
        found = os.stat(state)
        starters = {owner, found.st_uid}
        if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            # Nobody else can have put runs of their own there.
            with suppress(OSError):
                starters.add(os.lstat(os.path.join(state, _RUNS)).st_uid)
        return starters

    @contextmanager
    def _ours(self) -> Iterator[int]:
        """The folder, if it is the very one the run has made."""
        try:
            with self._opened() as folder:
                found = os.fstat(folder)
                # In a folder with the sticky bit, only its owner and that of a file can take the file away.
                is_kept = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == KEEPING_MODE
                if not is_kept or not self._is_signed(folder):
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

    def _is_empty(self) -> bool:
        """Whether it was never finished, or put there by somebody who could not put anything into it."""
        try:
            with self._opened() as folder:
                return not os.listdir(folder)
        except OSError:
            return False

    def _is_signed(self, folder: int) -> bool:
        """Whether the owner of a folder says that it is of this ticket."""
        try:
            with open(os.open(SIGN, _READING, dir_fd=folder), "rb") as sign:
                found = os.fstat(sign.fileno())
                is_his = stat.S_ISREG(found.st_mode) and found.st_uid == os.fstat(folder).st_uid
                return is_his and sign.read(_MOST_BYTES) == self._ticket_id.encode()
        except OSError:
            return False

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
    except OSError as problem:
        if problem.errno in _NO_FILE:
            return None
        # It may well be one, and only cannot be read now.
        why = (problem.strerror or str(problem)).lower()
        raise TraceError(f"the rejection `{name}` cannot be read: {why}", hint="try again") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
