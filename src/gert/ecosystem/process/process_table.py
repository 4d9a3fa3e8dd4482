"""The processes of this machine, as Linux lists them; elsewhere the table is empty."""

import contextlib
import os
import signal
import sys
import time
from typing import Final

import msgspec

_PROC: Final = "/proc"
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_LONGEST_COMMAND: Final = 200


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process that has not ended; `started` is in seconds since the machine started."""

    pid: int
    parent: int
    group: int
    session: int
    started: float


class ProcessTable:
    """All processes at one moment."""

    def __init__(self) -> None:
        self.taken_at = clock()
        self.entries = {entry.pid: entry for entry in map(_entry, _pids()) if entry is not None}
        self._children: dict[int, list[int]] = {}
        for entry in self.entries.values():
            self._children.setdefault(entry.parent, []).append(entry.pid)

    def ancestors(self, pid: int) -> set[int]:
        """The processes that started a process, and those that started them."""
        found: set[int] = set()
        while (entry := self.entries.get(pid)) is not None and entry.parent not in found:
            pid = entry.parent
            found.add(pid)
        return found

    def with_descendants(self, pids: set[int]) -> set[int]:
        """These processes and everything they started, as far as the parents in between still run."""
        found, waiting = set(pids), list(pids)
        while waiting:
            for child in self._children.get(waiting.pop(), ()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        return found


def clock() -> float:
    """The time that `ProcessInfo.started` is measured in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def listed_at(moment: float) -> float:
    """What `ProcessInfo.started` says of a process that starts at a moment: the system counts whole ticks."""
    return int(moment * _TICKS) / _TICKS


def is_available() -> bool:
    """Whether this system lists its processes."""
    return os.path.exists(f"{_PROC}/self/stat")


def variable(pid: int, name: bytes) -> bytes | None:
    """Return a variable from the environment of a process; None if it is not set or cannot be read."""
    try:
        with open(f"{_PROC}/{pid}/environ", "rb") as file:
            block = b"\0" + file.read()
    except OSError:
        return None
    _, found, rest = block.partition(b"\0" + name + b"=")
    return rest.partition(b"\0")[0] if found else None


def is_unreadable(pid: int) -> bool:
    """Whether the environment of a process of this user cannot be read, as with setuid programs and agents."""
    try:
        with open(f"{_PROC}/{pid}/environ", "rb"):
            return False
    except PermissionError:
        return sys.platform != "win32" and os.getuid() in _users(pid)
    except OSError:
        return False


def _users(pid: int) -> set[int]:
    """Return the real, effective and saved user of a process; its files in /proc may belong to root."""
    try:
        with open(f"{_PROC}/{pid}/status", "rb") as file:
            lines = [line.split()[1:4] for line in file if line.startswith(b"Uid:")]
    except OSError:
        return set()
    return {int(number) for numbers in lines for number in numbers}


def command_line(pid: int) -> str:
    """Return the command line of a process, for display."""
    try:
        with open(f"{_PROC}/{pid}/cmdline", "rb") as file:
            words = file.read(_LONGEST_COMMAND + 1).rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    text = b" ".join(words).decode("utf-8", "replace")
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}…"


def is_running(entry: ProcessInfo) -> bool:
    """Whether the process of an entry still runs."""
    now = _entry(entry.pid)
    return now is not None and now.started == entry.started


def send(entry: ProcessInfo, number: int) -> None:
    """Send a signal to a process; not to another process that has the same id by now."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):  # it has ended, or it belongs to another user
        if not hasattr(os, "pidfd_open"):
            if is_running(entry):
                os.kill(entry.pid, number)
            return
        descriptor = os.pidfd_open(entry.pid)
        try:
            if is_running(entry):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _pids() -> list[int]:
    if sys.platform != "linux":
        return []
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]
    except OSError:
        return []


def _entry(pid: int) -> ProcessInfo | None:
    """Read a process from /proc; None once it has ended, even if it was not reaped."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb") as file:
            # pid (name) state parent group session …; the name may contain brackets, so count from the last one.
            fields = file.read(4096).rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return None
        return ProcessInfo(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]) / _TICKS)
    except (OSError, ValueError, IndexError):
        return None
