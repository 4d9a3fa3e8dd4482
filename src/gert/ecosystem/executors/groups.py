"""Process groups: whether anything of one is still running."""

import os
import sys
from typing import Final

_PROC: Final = "/proc"


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a group, and tell whether there was one to get it."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, number)
    except PermissionError:
        return True  # it runs as somebody else
    except OSError:
        return False
    return True


def is_running(group: int) -> bool:
    """Whether anything in a group still runs; who is dead and only not reaped yet does not.

    In a container often nobody reaps orphans, and a group of them would look alive for ever.
    """
    if not signal_group(group, 0):
        return False
    members = _members(group)
    return members is None or any(state not in "ZX" for state in members)


def _members(group: int) -> list[str] | None:
    """The states of a group's processes, where the system shows them."""
    try:
        pids = [name for name in os.listdir(_PROC) if name.isdecimal()]
    except OSError:
        return None
    return [state for pid in pids for state, of in [_state(pid)] if of == group] or None


def _state(pid: str) -> tuple[str, int]:
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            # pid (name) state parent group …; the name may hold anything, so count from its last bracket.
            state, _, group, *_ = file.read(4096).rpartition(b")")[2].split()
    except (OSError, ValueError):
        return "", 0
    return state.decode(), int(group)
