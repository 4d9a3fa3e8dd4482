"""Who may write where tickets lie: their owner alone, or on purpose the people of one group.

A folder is made right and afterwards only looked at: what somebody else has set up is refused with the commands that
would set it right, and never changed.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gert.errors import TraceError, UsageError
from gert.kernel.foundation.text import printable

if sys.platform != "win32":
    import grp

SETTING: Final = "approvals.shared_with"
FOLDER_MODE: Final = 0o2770
"""New files belong to the group, whoever of it makes them."""
FILE_MODE: Final = 0o660
STEP_MODE: Final = 0o710
"""On the way to the tickets: the group goes through, and sees nothing."""
KEEPING_MODE: Final = 0o3770
"""Everybody of the group adds files, and takes away only their own."""
_ACL: Final = "system.posix_acl_access"
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class Group:
    """The group that settings share tickets with."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = _group_id(name)

    def __str__(self) -> str:
        return printable(self.name)


def is_shared(path: str) -> bool:
    """Whether a folder of tickets is written in by a group; one that everybody writes in is refused."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # whoever uses it says what is wrong
    if os.name != "posix":
        return False
    if mode & stat.S_IWOTH:
        raise _open_to(path, "chmod o-w")
    return bool(mode & stat.S_IWGRP)


def require_private(path: str) -> None:
    """Refuse a folder that anybody else may write in, or owns: nobody has said that this is meant."""
    if is_shared(path):
        raise _open_to(path, "chmod 700", f"; or share it on purpose with `{SETTING}`")
    _require_owner(path, os.stat(path))


def make_shared(path: str, group: Group) -> None:
    """Make a folder for a group, and the way to it; what is there already has to be right."""
    if os.geteuid() != 0 and group.id not in (os.getegid(), *os.getgroups()):
        raise TraceError(
            f"you are not in the group `{group}`, and cannot share tickets with it",
            hint=f"`{SETTING}` names a group of yours; after joining one, log in again",
        )
    steps = []
    step = os.path.dirname(path)
    while not os.path.lexists(step):
        steps.append(step)
        step = os.path.dirname(step)
    _require_way(step, group)
    for each in reversed(steps):
        make_folder(each, STEP_MODE, group.id)
    if not os.path.lexists(path):
        make_folder(path, FOLDER_MODE, group.id)
    require_shared(path, group)


def require_shared(path: str, group: Group) -> None:
    """Refuse a folder that is not ours, not of this group, or open to others."""
    found = os.lstat(path)
    # (1) It is a folder, and not the way to another.
    if not stat.S_ISDIR(found.st_mode):
        raise TraceError(f"`{path}` is not a folder")
    # (2) Nobody beside the group writes in it.
    if found.st_mode & stat.S_IWOTH:
        raise _open_to(path, "chmod o-w")
    # (3) It belongs to whoever starts runs: its owner could make it anything.
    _require_owner(path, found)
    # (4) It is shared with this group and no other, and what is made in it will be.
    if found.st_gid != group.id or stat.S_IMODE(found.st_mode) != FOLDER_MODE:
        raise TraceError(
            f"`{path}` is not shared with the group `{group}` as `{SETTING}` says",
            hint=f"chgrp {group} {path} && chmod {FOLDER_MODE:o} {path}",
        )
    _require_way(os.path.dirname(path), group)


def _require_way(folder: str, group: Group) -> None:
    """Refuse a way to the tickets that the group cannot go, or can change; who else can, its owners decide."""
    step = os.path.realpath(folder)
    while True:
        found = os.stat(step)
        needed = stat.S_IXGRP if found.st_gid == group.id else stat.S_IXOTH
        if not found.st_mode & needed and not _has_acl(step):
            raise TraceError(
                f"the group `{group}` cannot go through `{step}`, and tickets lie below it",
                hint=f"chgrp {group} {step} && chmod g+x {step}; or choose another place with --state-dir",
            )
        changes = stat.S_IWOTH | (stat.S_IWGRP if found.st_gid == group.id else 0)
        if found.st_mode & changes and not found.st_mode & stat.S_ISVTX:
            # A rejection would be put there, and be gone when the right one is back.
            raise TraceError(
                f"others may write in `{step}`, and could put another folder in the place of the tickets",
                hint=f"chmod go-w {step}; or choose another place with --state-dir",
            )
        if step == os.path.dirname(step):
            return
        step = os.path.dirname(step)


def make_folder(path: str, mode: int, group_id: int) -> None:
    """Make a folder with this very mode, whatever the umask."""
    with made_folder(path) as folder:
        set_access(folder, mode, group_id)


@contextmanager
def made_folder(path: str) -> Iterator[int]:
    """Make a folder and open it: where others write, its name can be that of another a moment later."""
    os.mkdir(path, 0o700)
    try:
        folder = os.open(path, _FOLDER)
    except NotADirectoryError:
        raise _exchanged(path) from None
    try:
        if os.fstat(folder).st_uid != os.geteuid() or os.listdir(folder):
            raise _exchanged(path)
        yield folder
    finally:
        os.close(folder)


def set_access(descriptor: int, mode: int, group_id: int) -> None:
    """Give a group access to what we have just made; by no name, which can lead to something else."""
    os.chown(descriptor, -1, group_id)
    # Afterwards: a change of the group may take bits away.
    os.chmod(descriptor, mode)


def _require_owner(path: str, found: os.stat_result) -> None:
    if os.name == "posix" and found.st_uid not in (os.geteuid(), 0):
        raise TraceError(
            f"`{path}` belongs to another user, who could change what is approved",
            hint="choose another place with --state-dir or GERT_STATE_DIR",
        )


def _has_acl(path: str) -> bool:
    """Whether finer permissions than the mode shows hold: then nobody can tell by the mode."""
    if sys.platform != "linux":
        return False
    try:
        return bool(os.getxattr(path, _ACL))
    except OSError:
        return False


def _exchanged(path: str) -> TraceError:
    return TraceError(f"somebody has put something else in the place of `{path}`, which was made a moment ago")


def _open_to(path: str, remedy: str, more: str = "") -> TraceError:
    return TraceError(f"others may write in `{path}`, and so approve in anybody's name", hint=f"{remedy} {path}{more}")


def _group_id(name: str) -> int:
    if sys.platform == "win32":
        raise UsageError(
            f"tickets cannot be shared with the group `{printable(name)}`: this system has no such groups",
            hint=f"take `{SETTING}` out of the settings",
        )
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        if name.isascii() and name.isdigit() and len(name) < 10:
            return int(name)
    raise UsageError(
        f"there is no group `{printable(name)}` on this machine", hint=f"`{SETTING}` names a group, or its number"
    )
