"""Settings of gert's own process: adopt orphans and refuse inspection.

A program that uses gert as a library is not changed.
"""

import os
import sys
from collections.abc import Iterable
from functools import cache
from threading import Event
from typing import Final

_GET_DUMPABLE: Final = 3
_SET_DUMPABLE: Final = 4
_SET_CHILD_SUBREAPER: Final = 36
_GERT_PREFIX: Final = "GERT_"
_SECRET: Final = ("KEY", "TOKEN", "LEDGER")
"""What the names of gert's own variables contain if they hold keys, or an address with a password."""

_owned: Final = Event()
_adopts: Final = Event()
_direct: Final[set[int]] = set()
"""Processes that gert started and has not reaped."""


def claim_process(names: Iterable[str]) -> None:
    """Declare that this process runs only gert; `names` are the variables of its environment.

    If keys or tokens of gert are among them, other processes of the same user cannot read them from now on.
    """
    _owned.set()
    if any(name.startswith(_GERT_PREFIX) and any(word in name for word in _SECRET) for name in names):
        refuse_inspection()


def is_owned() -> bool:
    """Whether this process runs only gert."""
    return _owned.is_set()


def protect_secrets() -> None:
    """Keep other processes of the user from reading secrets; call it before secrets of the settings are used."""
    if _owned.is_set():
        refuse_inspection()


def prepare_for_tools() -> None:
    """Adopt orphans and refuse inspection by tools; call it before the first tool."""
    if _owned.is_set() and sys.platform == "linux":
        refuse_inspection()
        adopt_orphans()


@cache
def refuse_inspection() -> bool:
    """Keep processes of the same user from reading this one's memory and environment, or tracing it.

    Tools are not affected: a process that executes another program can be inspected again. There is no core dump.
    """
    return _prctl(_SET_DUMPABLE, 0)


def keep_secrets_in_memory() -> bool:
    """Let no secret of this process reach a file or another process: no inspection, no core dump, private files."""
    if sys.platform == "win32":
        return False
    import resource  # only runners hold secrets for so long that a core dump matters

    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return refuse_inspection()


def is_closed() -> bool:
    """Whether this process leaves no core dump and cannot be inspected, as the system says."""
    if sys.platform != "linux":
        return False
    import ctypes  # rarely needed, and slow to import

    return bool(ctypes.CDLL(None).prctl(_GET_DUMPABLE, 0, 0, 0, 0) == 0)


@cache
def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent has ended."""
    if _prctl(_SET_CHILD_SUBREAPER, 1):
        _adopts.set()
    return _adopts.is_set()


def started(pid: int) -> None:
    """Record a child that gert waits for."""
    _direct.add(pid)


def reaped(pid: int) -> None:
    """Record that a child was reaped."""
    _direct.discard(pid)


def reap_orphans() -> None:
    """Reap adopted processes that have ended; no other child loses its exit status."""
    while _adopts.is_set() and sys.platform == "linux":
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or not is_adopted(ended.si_pid):
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def is_adopted(pid: int) -> bool:
    """Whether a tool started a child of this process: tools run in other sessions than gert."""
    if not _adopts.is_set() or pid in _direct or sys.platform == "win32":
        return False
    try:
        return os.getsid(pid) != os.getsid(0)
    except OSError:
        return False


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes  # rarely needed, and slow to import

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
