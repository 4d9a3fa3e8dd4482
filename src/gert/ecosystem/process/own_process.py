"""What gert does to its own process, where the process is gert's alone: it adopts orphans and refuses inspection.

A program that uses gert as a library is left as it is.
"""

import os
import sys
from collections.abc import Iterable
from functools import cache
from threading import Event
from typing import Final

_SET_DUMPABLE: Final = 4
_SET_CHILD_SUBREAPER: Final = 36
_OURS: Final = "GERT_"

_owned: Final = Event()
_adopts: Final = Event()
_direct: Final[set[int]] = set()
"""Processes gert started itself and has not reaped."""


def take_over(names: Iterable[str]) -> None:
    """Note that the process is gert's alone; `names` are the variables of its environment.

    Where keys are among them, other processes of the same user cannot read them from now on.
    """
    _owned.set()
    if any(name.startswith(_OURS) and "KEY" in name for name in names):
        refuse_inspection()


def is_owned() -> bool:
    """Whether the process is gert's alone."""
    return _owned.is_set()


def hold_secrets() -> None:
    """Before secrets are used that the settings name: keep other processes of the user from reading them."""
    if _owned.is_set():
        refuse_inspection()


def prepare_for_tools() -> None:
    """Before the first tool: adopt what tools leave behind, and keep tools from looking into this process."""
    if _owned.is_set() and sys.platform == "linux":
        refuse_inspection()
        adopt_orphans()


@cache
def refuse_inspection() -> bool:
    """Let no process of the same user read the memory and the environment of this one, or trace it.

    What gert starts is not affected: a process that runs another program can be inspected again. There is no core dump.
    """
    return _prctl(_SET_DUMPABLE, 0)


@cache
def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent has ended."""
    if _prctl(_SET_CHILD_SUBREAPER, 1):
        _adopts.set()
    return _adopts.is_set()


def started(pid: int) -> None:
    """Note a child that its own code waits for."""
    _direct.add(pid)


def reaped(pid: int) -> None:
    """Note that a child was waited for."""
    _direct.discard(pid)


def reap_orphans() -> None:
    """Reap adopted processes that have ended, which nothing else waits for; no other child loses its exit status."""
    while _adopts.is_set() and sys.platform == "linux":
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or not is_adopted(ended.si_pid):
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def is_adopted(pid: int) -> bool:
    """Whether a child of this process was started by a tool: tools run in sessions of their own, and gert does not."""
    if not _adopts.is_set() or pid in _direct or sys.platform == "win32":
        return False
    try:
        return os.getsid(pid) != os.getsid(0)
    except OSError:
        return False


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes  # seldom needed, and not small

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
