"""Files below one folder: no path leads out of it, neither by `..` nor by a link, and none into `.git`."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gert.errors import ToolPermanentError, UsageError
from gert.kernel.foundation.text import os_reason

_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_REFUSED: Final = frozenset({"", ".", "..", ".git"})
"""Forbidden parts of a path: a process that writes to `.git` chooses the programs that git starts."""

_LONGEST_PATH: Final = 1000


class Rooted:
    """Reads and writes files below a folder."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        if not os.path.isdir(self.root):
            raise UsageError(f"there is no folder `{root}`")
        if os.open not in os.supports_dir_fd:
            raise UsageError("this system cannot confine files to a folder")

    def read(self, path: str, limit: int, *, end: bool = False) -> bytes:
        """Return the beginning of a file, or its end."""
        with self._folder_of(path) as (folder, name):
            with self._explained(path):
                file = os.open(name, _READ, dir_fd=folder)
            try:
                found = os.fstat(file)
                if not stat.S_ISREG(found.st_mode):
                    raise ToolPermanentError(f"`{path}` is not a file")
                if end:
                    os.lseek(file, max(0, found.st_size - limit), os.SEEK_SET)
                return b"".join(_chunks(file, limit))
            finally:
                os.close(file)

    def write(self, path: str, data: bytes) -> None:
        """Replace a file, or create it with its folders; it is never half written."""
        with self._folder_of(path, create=True) as (folder, name):
            unfinished = f".{name[:100]}.gert-{os.getpid()}"
            mode = self._mode(folder, name, path)
            with self._explained(path):
                file = os.open(unfinished, _NEW, mode, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=folder)
                raise

    def _mode(self, folder: int, name: str, path: str) -> int:
        """Return the permissions of a file that is replaced; a link or a folder is not replaced."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return 0o644
        if not stat.S_ISREG(found.st_mode):
            raise ToolPermanentError(f"`{path}` is not a file")
        return stat.S_IMODE(found.st_mode)

    @contextmanager
    def _folder_of(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a file, part by part, and return it with the name of the file."""
        *above, name = parts_of(path)
        folder = os.open(self.root, _FOLDER)
        try:
            for part in above:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                with self._explained(path):
                    inner = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ToolPermanentError(f"`{path}` cannot be opened: {os_reason(error)}") from error


def parts_of(path: str) -> list[str]:
    """Split a relative path; ToolPermanentError if it leads out of its folder or into `.git`."""
    parts = path.replace("\\", "/").split("/") if path and len(path) <= _LONGEST_PATH else [""]
    if "\0" in path or any(part.casefold().rstrip(" .") in _REFUSED for part in parts):
        raise ToolPermanentError(f"`{path[:_LONGEST_PATH]}` is not a path below the folder of this tool")
    return parts


def _chunks(file: int, limit: int) -> Iterator[bytes]:
    while limit > 0 and (data := os.read(file, min(limit, 1 << 20))):
        limit -= len(data)
        yield data
