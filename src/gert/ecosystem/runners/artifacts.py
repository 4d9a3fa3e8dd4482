"""Artifacts of an execution: written to temporary names, synced, and put in place whole, never over another file.

Folders are opened one by one without following links, so neither a plan nor another user can lead a write out of the
state directory.
"""

import errno
import os
import secrets
import stat
from contextlib import suppress
from typing import Final, Self

from gert.errors import Refused
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.text import os_reason
from gert.kernel.runner.plan import check_path

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_READ: Final = 128 * 1024 * 1024


class StateFolder:
    """The state directory, held open while a plan is executed."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._root = os.open(path, _FOLDER)
        except OSError as problem:
            raise _refusal(path, problem, "artifacts/state", "the state directory") from None
        found = os.fstat(self._root)
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & stat.S_IWOTH:
            os.close(self._root)
            raise Refused(
                "artifacts/state",
                f"the state directory `{path}` belongs to another user, or anyone may write to it",
                hint="choose another one with --state-dir",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def require_new(self, paths: dict[str, str]) -> None:
        """Refuse artifacts that are there already: a plan never replaces what another execution wrote."""
        for name, path in paths.items():
            check_path(name, path)
            folder = self._open_folder(path, create=False)
            if folder is None:
                continue
            try:
                os.stat(path.rpartition("/")[2], dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            finally:
                os.close(folder)
            raise Refused("artifacts/exists", f"the artifact `{path}` is there already")

    def write(self, path: str, data: bytes) -> str:
        """Write a new file whole and durably, and return the digest of its content."""
        check_path("artifact", path)
        name = path.rpartition("/")[2]
        folder = self._open_folder(path, create=True)
        assert folder is not None  # noqa: S101 - it was created
        partial = f".{name}.{secrets.token_hex(8)}.partial"
        try:
            _write_all(os.open(partial, _NEW, 0o600, dir_fd=folder), data)
            # Unlike a rename, a link never replaces a file.
            os.link(partial, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(partial, dir_fd=folder)
            os.fsync(folder)
        except OSError as problem:
            with suppress(OSError):
                os.unlink(partial, dir_fd=folder)
            raise _refusal(path, problem, "record/write", "the artifact") from None
        finally:
            os.close(folder)
        return digest(data)

    def read(self, path: str) -> bytes | None:
        """Read an artifact without following links; None if it is not there."""
        check_path("artifact", path)
        folder = self._open_folder(path, create=False)
        if folder is None:
            return None
        try:
            # A pipe in its place would block.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(path.rpartition("/")[2], flags, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise _refusal(path, problem, "artifacts/path", "the artifact") from None
        finally:
            os.close(folder)
        with open(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Refused("artifacts/path", f"the artifact `{path}` is not a regular file")
            return opened.read(MAX_READ)

    def _open_folder(self, path: str, *, create: bool) -> int | None:
        """Open the folder of a path, part by part; None if it is not there and is not to be created."""
        current = os.dup(self._root)
        for part in path.split("/")[:-1]:
            try:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=current)
                below = os.open(part, _FOLDER, dir_fd=current)
            except FileNotFoundError:
                os.close(current)
                return None
            except OSError as problem:
                os.close(current)
                raise _refusal(path, problem, "artifacts/path", "the folder of the artifact") from None
            os.close(current)
            current = below
            if os.fstat(current).st_uid not in (0, os.geteuid()):
                os.close(current)
                raise Refused("artifacts/path", f"a folder of the artifact `{path}` belongs to another user")
        return current


def _write_all(file: int, data: bytes) -> None:
    with open(file, "wb", buffering=0) as opened:
        rest = memoryview(data)
        while rest:
            rest = rest[opened.write(rest) :]
        os.fsync(opened.fileno())


def _refusal(path: str, problem: OSError, rule: str, what: str) -> Refused:
    if problem.errno in (errno.ELOOP, errno.ENOTDIR):
        return Refused(rule, f"{what} `{path}` is a symbolic link, or no folder")
    return Refused(rule, f"{what} `{path}` cannot be used: {os_reason(problem)}")
