"""Writing new files to a folder: all of them or none, without losing existing files."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gert.errors import UsageError
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import os_reason

_MAX_LISTED: Final = 20
_NEW: Final = "new-"


class WrittenFiles(msgspec.Struct, frozen=True):
    """The files that were written, that replaced others, and that were kept as they were."""

    written: list[str]
    replaced: list[str]
    kept: list[str]


def write_all(root: str, contents: Mapping[str, bytes], *, yields: frozenset[str], force: bool = False) -> WrittenFiles:
    """Write files below a folder, which is created if needed.

    yields: files that are skipped if they exist
    force: replace existing files; folders are never replaced
    """
    kept = [path for path in contents if path in yields and os.path.lexists(os.path.join(root, path))]
    wanted = {path: data for path, data in contents.items() if path not in kept}
    taken = [path for path in wanted if os.path.lexists(os.path.join(root, path))]
    blocked = list(dict.fromkeys(_blocked(root, wanted)))
    if blocked or (taken and not force):
        raise _in_the_way(root, blocked or taken, can_force=not blocked)
    try:
        _Transaction(root).write(wanted, force=force)
    except OSError as problem:
        reason = os_reason(problem)
        raise UsageError(f"cannot write the project to `{root}`: {reason}", hint="no file was changed") from None
    return WrittenFiles([path for path in wanted if path not in taken], taken, kept)


def _blocked(root: str, paths: Iterable[str]) -> Iterable[str]:
    """What `force` does not replace: files in place of folders, and folders in place of files."""
    if os.path.lexists(root) and not os.path.isdir(root):
        yield root
        return
    for path in paths:
        full = os.path.join(root, path)
        if os.path.isdir(full) and not os.path.islink(full):
            yield path
        above = os.path.dirname(path)
        while above:
            if os.path.lexists(os.path.join(root, above)) and not os.path.isdir(os.path.join(root, above)):
                yield above
            above = os.path.dirname(above)


def _in_the_way(root: str, paths: list[str], *, can_force: bool) -> UsageError:
    hint = "pass --force to replace them" if can_force else "move them, or choose another folder"
    return UsageError(
        f"these files already exist in `{root}`: {listing(paths, _MAX_LISTED)}; nothing was written", hint=hint
    )


class _Transaction:
    """One attempt: every change can be undone."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._undo: list[Callable[[], object]] = []

    def write(self, contents: Mapping[str, bytes], *, force: bool) -> None:
        try:
            self._folder(self._root)
            # Every file is on this disk before the first one gets its name.
            stage = os.path.join(self._root, f".gert-init-{secrets.token_hex(6)}")
            os.mkdir(stage, 0o700)
            self._undo.append(lambda: _clear(stage))
            self._move_in(stage, contents, force=force)
        except BaseException:
            self._roll_back()
            raise
        shutil.rmtree(stage, ignore_errors=True)

    def _move_in(self, stage: str, contents: Mapping[str, bytes], *, force: bool) -> None:
        staged = {path: os.path.join(stage, f"{_NEW}{number}") for number, path in enumerate(contents)}
        for path, data in contents.items():
            with open(staged[path], "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for number, path in enumerate(contents):
            target = os.path.join(self._root, path)
            self._folder(os.path.dirname(target))
            if force and os.path.lexists(target):
                self._set_aside(target, os.path.join(stage, f"old-{number}"))
            _name(staged[path], target)
            self._undo.append(lambda target=target: os.unlink(target))  # type: ignore[misc]

    def _set_aside(self, target: str, backup: str) -> None:
        os.rename(target, backup)
        self._undo.append(lambda: os.rename(backup, target))

    def _folder(self, path: str) -> None:
        """Create a folder and its missing parents."""
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for each in reversed(missing):
            os.mkdir(each)
            self._undo.append(lambda each=each: os.rmdir(each))  # type: ignore[misc]

    def _roll_back(self) -> None:
        while self._undo:
            try:
                self._undo.pop()()
            except OSError:
                continue  # another process changed it meanwhile; the rest can still be undone


def _clear(stage: str) -> None:
    """Remove unused files; a file of the user that could not be restored stays here."""
    for name in os.listdir(stage):
        if name.startswith(_NEW):
            os.unlink(os.path.join(stage, name))
    os.rmdir(stage)


def _name(staged: str, target: str) -> None:
    """Give a file its name without replacing one that was created meanwhile."""
    try:
        os.link(staged, target)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system supports links.
        if os.path.lexists(target):
            raise
        os.rename(staged, target)
