"""Durable folders: a file survives a loss of power only if the names of all folders above it do."""

import errno
import os
from typing import Final

_NOT_FOR_FOLDERS: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def make_folder(path: str) -> None:
    """Make a folder for its owner alone, and those above it that are not there yet."""
    missing: list[str] = []
    above = path
    while above and not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700 if folder == path else 0o777)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
        sync_folder_of(folder)


def sync_folder_of(path: str) -> None:
    """Make the name of a new file or folder durable."""
    if os.name != "posix":
        return
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as problem:
        # Some file systems cannot sync folders, and keep names durable in another way.
        if problem.errno not in _NOT_FOR_FOLDERS:
            raise
    finally:
        os.close(folder)
