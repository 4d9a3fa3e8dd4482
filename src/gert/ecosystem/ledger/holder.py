"""The process that holds a lease: how it is named, and whether one of this host has ended."""

import os
import socket
from functools import cache
from typing import Final

from gert.kernel.ledger.record import Holder

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_START_FIELD: Final = 19
"""The place of `starttime` after the name of the program in `/proc/PID/stat`."""


def this_process() -> Holder | None:
    """This process; None where the system does not identify processes well enough."""
    return _process(os.getpid())


@cache
def _process(pid: int) -> Holder | None:
    started = _started(pid)
    boot = _boot()
    if started is None or boot is None:
        return None
    return Holder(socket.gethostname(), boot, _namespace(), pid, started)


def is_running(holder: Holder) -> bool | None:
    """Whether a process of this host is running; None where that cannot be known.

    Another boot may be another machine of the same name, so the lease of a process from before a restart runs out.
    """
    here = this_process()
    if here is None or (holder.host, holder.boot, holder.namespace) != (here.host, here.boot, here.namespace):
        return None
    return _started(holder.pid) == holder.started


def is_gone(holder: Holder) -> bool:
    """Whether a process of this host is known to have ended."""
    return is_running(holder) is False


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since boot; a process that only waits to be reaped has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[_START_FIELD].decode()


def _boot() -> str | None:
    try:
        with open(_BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return None


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
