"""The folder tickets lie in: files written whole, read with suspicion, and changed under a lock each.

A process that is killed leaves a file as it was before or as it is after, and no lock. A run uses a folder only if it
is what settings say; whoever answers goes by what the folder is.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gert.ecosystem.approvals.locks import locked
from gert.ecosystem.approvals.sharing import (
    FILE_MODE,
    FOLDER_MODE,
    SETTING,
    Group,
    is_shared,
    make_folder,
    make_shared,
    require_private,
    require_shared,
    set_access,
)
from gert.ecosystem.approvals.ticket_file import MAX_BYTES, TicketFile, decode, encode
from gert.errors import DocumentError, TraceError, UsageError
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import printable

SUFFIX: Final = ".json"
LOCKS: Final = "locks"
_SYSTEM: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# A pipe that somebody planted must not make us wait.
_READING: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SYSTEM
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SYSTEM


class TicketFolder:
    """Files of tickets by id; an id is a name, and never a path.

    shared_with: the group that may answer, for a run; without one the folder is its owner's alone
    """

    def __init__(self, path: str, shared_with: Group | None = None) -> None:
        self.path = path
        self.shared_with = shared_with

    @property
    def is_shared(self) -> bool:
        """Whether a group writes here; then no file proves who has written it."""
        return is_shared(self.path)

    def make(self) -> None:
        """Make the folder for its owner, or for the group; one that anybody else may write in is refused."""
        try:
            if self.shared_with is not None:
                make_shared(self.path, self.shared_with)
            else:
                os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
                with suppress(FileExistsError):
                    os.mkdir(self.path, 0o700)
                os.stat(self.path)
                require_private(self.path)
        except OSError as problem:
            raise self._unusable(problem) from None

    def require(self) -> None:
        """Refuse a folder that is not what settings say; one that is not there is found out elsewhere."""
        if not os.path.lexists(self.path):
            return
        try:
            if self.shared_with is not None:
                require_shared(self.path, self.shared_with)
            else:
                require_private(self.path)
        except OSError as problem:
            raise self._unusable(problem) from None

    def holds(self, ticket_id: str) -> bool:
        """Whether anything lies under the name of a ticket."""
        return os.path.lexists(self._file(ticket_id))

    def ids(self) -> list[str]:
        """The ids of all tickets; what is called otherwise was not put there by us."""
        try:
            names = os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:
            raise DocumentError(
                f"`{self.path}` cannot be read: permission denied",
                hint=f"whoever starts the runs can share their tickets with a group: `{SETTING}`",
            ) from None
        except OSError as problem:
            raise DocumentError(f"`{self.path}` cannot be read: {_why(problem)}") from None
        stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return sorted(stem for stem in stems if is_safe_name(stem))

    def stamp(self, ticket_id: str) -> tuple[int, int, int] | None:
        """Something that is another after every change, and cheap to look at."""
        try:
            found = os.lstat(self._file(ticket_id))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self, ticket_id: str) -> TicketFile:
        """The ticket of this very id."""
        path = self._file(ticket_id)
        try:
            with open(path, "rb", opener=lambda name, _: os.open(name, _READING)) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise DocumentError(f"`{path}` is not a regular file")
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise no_ticket(ticket_id, self.path) from None
        except OSError as problem:
            why = "it is a symbolic link" if os.path.islink(path) else _why(problem)
            raise DocumentError(f"`{path}` cannot be read: {why}") from None
        return decode(data, ticket_id, path)

    def write(self, file: TicketFile) -> None:
        """Write a ticket, whole or not at all; only under its lock."""
        data = encode(file)
        target = self._file(file.id)
        # One name for all attempts: whoever was killed while writing leaves at most this, for the next to replace.
        temporary = os.path.join(self.path, f".{file.id}.tmp")
        try:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            with open(temporary, "wb", opener=lambda path, _: os.open(path, _WRITING, 0o600)) as out:
                out.write(data)
                out.flush()
                if self.is_shared:
                    set_access(out.fileno(), FILE_MODE, os.stat(self.path).st_gid)
                os.fsync(out.fileno())
            os.replace(temporary, target)
            self._sync()
        except OSError as problem:
            raise TraceError(f"the ticket `{file.id}` cannot be written: {_why(problem)}") from None

    @contextmanager
    def lock(self, ticket_id: str) -> Iterator[None]:
        """Keep everybody else from changing a ticket."""
        self._file(ticket_id)
        locks, shared = os.path.join(self.path, LOCKS), self.is_shared
        try:
            with suppress(FileExistsError):
                if shared:
                    make_folder(locks, FOLDER_MODE, os.stat(self.path).st_gid)
                else:
                    os.mkdir(locks, 0o700)
            if not stat.S_ISDIR(os.lstat(locks).st_mode):
                raise TraceError(f"`{locks}` is not a folder", hint="it was put there by something else than gert")
        except OSError as problem:
            raise self._unusable(problem) from None
        with locked(os.path.join(locks, f"{ticket_id}.lock"), mode=FILE_MODE if shared else 0o600):
            yield

    def _file(self, ticket_id: str) -> str:
        if not is_safe_name(ticket_id):
            raise not_an_id(ticket_id)
        return os.path.join(self.path, ticket_id + SUFFIX)

    def _sync(self) -> None:
        """Make the new name durable; the file alone would still be the old one."""
        if os.name != "posix":
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as problem:
            # Some file systems know no such thing for folders, and keep names in their own way.
            if problem.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
        finally:
            os.close(descriptor)

    def _unusable(self, problem: OSError) -> TraceError:
        return TraceError(
            f"tickets cannot be kept in `{self.path}`: {_why(problem)}",
            hint="choose another place with --state-dir or GERT_STATE_DIR",
        )


def no_ticket(ticket_id: str, folder: str) -> UsageError:
    """There is none of this id in a folder."""
    return UsageError(
        f"there is no ticket `{ticket_id}` in `{folder}`",
        hint="`gert approvals list --all` shows those there are; --state-dir says where else to look",
    )


def not_an_id(text: str) -> UsageError:
    """This cannot be one."""
    return UsageError(f"`{printable(text)}` is not a ticket id", hint="`gert approvals list --all` shows them")


def _why(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()
