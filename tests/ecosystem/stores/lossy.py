"""A disk that keeps what was synced and nothing else, and whose calls fail when they are told to.

Files are real. Beside them it is noted what a disk would hold of them: bytes once their file was synced, names once
their folder was. As with real ones, bytes that could not be synced are lost for good, although whoever reads the file
still sees them, and the next sync says that all is well.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.stores import append_file, run_file

CALLS = ("open", "write", "fsync", "fdatasync", "ftruncate", "replace", "unlink")


class KilledError(BaseException):
    """The process ended here: nothing of it runs any more."""


class Lossy:
    """What is on disk of one folder.

    fails: says before each call whether it fails, by its name and number; None where it does not
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = 0
        self.fails: Callable[[str, int], BaseException | None] = lambda name, number: None
        self._disk: dict[int, bytearray] = {}
        self._names: dict[str, int] = {}
        self._unsynced: dict[int, list[Callable[[bytearray], None]]] = {}
        self._real = {name: getattr(os, name) for name in CALLS}
        self._is_dead = False

    def survivors(self, where: Path) -> Path:
        """What is found after the power failed now."""
        where.mkdir()
        for name, number in self._names.items():
            (where / name).write_bytes(self._disk.get(number, b""))
        return where

    @contextmanager
    def in_use(self, patch: pytest.MonkeyPatch) -> Iterator["Lossy"]:
        """Let everything go through here; a process that was killed before is a new one now."""
        self.made, self._is_dead = 0, False
        with patch.context() as patched:
            for name in CALLS:
                patched.setattr(os, name, self._counted(name))
            for module in (append_file, run_file):
                patched.setattr(module, "sync_data", os.fdatasync)
            yield self

    def _counted(self, name: str) -> Callable[..., Any]:
        does = getattr(self, f"_{name}", None) or self._real[name]

        def call(*args: Any, **more: Any) -> Any:
            self.made += 1
            problem = KilledError() if self._is_dead else self.fails(name, self.made)
            self._is_dead = self._is_dead or isinstance(problem, KilledError)
            if problem is not None:
                if name in ("fsync", "fdatasync") and not self._is_dead:
                    self._unsynced.pop(os.fstat(args[0]).st_ino, None)
                raise problem
            return does(*args, **more)

        return call

    def _write(self, descriptor: int, data: bytes) -> int:
        at = os.fstat(descriptor).st_size if _appends(descriptor) else os.lseek(descriptor, 0, os.SEEK_CUR)
        written: int = self._real["write"](descriptor, data)
        piece = bytes(data[:written])

        def put(disk: bytearray) -> None:
            disk.extend(b"\0" * (at + len(piece) - len(disk)))
            disk[at : at + len(piece)] = piece

        self._note(descriptor, put)
        return written

    def _ftruncate(self, descriptor: int, size: int) -> None:
        self._real["ftruncate"](descriptor, size)

        def cut(disk: bytearray) -> None:
            del disk[size:]

        self._note(descriptor, cut)

    def _open(self, path: str, flags: int, mode: int = 0o777, **more: Any) -> int:
        descriptor: int = self._real["open"](path, flags, mode, **more)
        if flags & os.O_TRUNC:
            self._note(descriptor, lambda disk: disk.clear())
        return descriptor

    def _fsync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self._names = {entry.name: entry.inode() for entry in os.scandir(self.folder)}
        disk = self._disk.setdefault(found.st_ino, bytearray())
        for change in self._unsynced.pop(found.st_ino, []):
            change(disk)

    _fdatasync = _fsync

    def _note(self, descriptor: int, change: Callable[[bytearray], None]) -> None:
        self._unsynced.setdefault(os.fstat(descriptor).st_ino, []).append(change)


def _appends(descriptor: int) -> bool:

    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)
