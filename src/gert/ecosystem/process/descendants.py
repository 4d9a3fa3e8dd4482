"""Find every process that a call started, also those that left its group, by a mark in their environment.

The mark is derived from the run and the call, so `gert resume` finds processes that a killed gert left running without
any record of them. A gert that a tool started appends its own mark: both calls find its processes.

A process is found by the mark, by the session the call was started in, or as a child of one that is found. One that
cleared its environment, left the session and lost its parent is found only where no other call can have started it.
"""

import os
import time
from collections.abc import Iterable
from typing import Final

from gert.ecosystem.process.own_process import is_adopted
from gert.ecosystem.process.process_table import (
    ProcessInfo,
    ProcessTable,
    clock,
    command_line,
    is_running,
    is_unreadable,
    listed_at,
    send,
    variable,
)
from gert.kernel.foundation.canonical import sha256_hex

MARK: Final = "_GERT_CALL"
"""The variable that holds the mark; the variables that begin with GERT_ are gert's own, and no tool gets them."""

_NAME: Final = MARK.encode()
_INIT: Final = 1
_SLACK: Final = 1.0
"""Seconds by which the clocks of gert and of the process table may differ."""
_SHARED: Final = 0.05
"""Seconds for which calls that are stopped together share one process table."""
_MAX_PASSES: Final = 20
"""How often to look again for processes that were started while others were killed."""


def mark_for(run_id: str, key: str) -> str:
    """Return the mark of a call; it can be derived again from the record of the run."""
    return f"{run_id}/{sha256_hex(key.encode('utf-8', 'surrogatepass'))[:16]}"


def marked(marks: Iterable[str]) -> list[tuple[str, int, str]]:
    """Return the running processes with one of these marks: the mark, the process id and the command line.

    The children of such a process are not listed.
    """
    wanted = {mark.encode(): mark for mark in marks}
    if not wanted:
        return []
    entries = ProcessTable().entries
    found = {pid: mark for pid in entries if pid != os.getpid() for mark in _marks(pid) & wanted.keys()}
    return [(wanted[found[pid]], pid, command_line(pid)) for pid in sorted(found) if entries[pid].parent not in found]


def closed_orphans(since: float) -> list[tuple[int, str]]:
    """Return unreadable processes of this user that a killed gert may have left, with their command lines.

    They started after `since` (as `time.time` counts), their environment cannot be read, and they are what a tool of a
    killed gert is: outside the session of their parent, which is a process that adopts orphans.
    """
    table = ProcessTable()
    started = since - time.time() + table.taken_at - _SLACK
    own = table.ancestors(os.getpid())
    candidates = [each for each in table.entries.values() if each.pid not in own and each.started >= started]
    return [
        (each.pid, command_line(each.pid))
        for each in sorted(candidates, key=lambda entry: entry.pid)
        if each.pid != os.getpid() and _is_orphan(each, table, own) and is_unreadable(each.pid)
    ]


def _is_orphan(entry: ProcessInfo, table: ProcessTable, own: set[int]) -> bool:
    parent = table.entries.get(entry.parent)
    if parent is None or parent.session == entry.session:
        return parent is None
    is_outer_gert = parent.pid in own and is_unreadable(parent.pid)
    return parent.pid == _INIT or is_outer_gert or _is_systemd(parent.pid)


def _is_systemd(pid: int) -> bool:
    """Whether a process is the systemd of a user, which adopts what init adopts elsewhere."""
    return os.path.basename(command_line(pid).partition(" ")[0]) == "systemd"


def _marks(pid: int) -> set[bytes]:
    return set((variable(pid, _NAME) or b"").split())


class Descendants:
    """The processes that one call started; they are looked up only when the call is stopped."""

    _live: Final[set["Descendants"]] = set()
    _last: ProcessTable | None = None
    _ended = 0.0
    """When a call last ended without being stopped; processes that it left running must not be killed."""
    _given: Final[set[bytes]] = set()
    """The marks of all calls of this gert, also of those that ended."""

    def __init__(self, root: int, marks: bytes, began: float) -> None:
        self._root = root
        *outer, self._mark = marks.split()
        self._outer = frozenset(outer)
        self._given.add(self._mark)
        self._began = began
        self._known: list[ProcessInfo] = []
        self._is_stopping = False
        self._live.add(self)

    def close(self) -> None:
        """The call has ended."""
        self._live.discard(self)
        if not self._is_stopping:
            Descendants._ended = clock()

    def find(self, since: float | None = None) -> list[ProcessInfo]:
        """Return the running processes of the call, from a process table taken after `since`."""
        self._is_stopping = True
        table = self._table(clock() - _SHARED if since is None else since)
        mine = table.with_descendants({pid for pid, entry in table.entries.items() if self._is_mine(entry)})
        mine |= table.with_descendants(self._unmarked(table, mine))
        return [table.entries[pid] for pid in sorted(mine - {os.getpid()})]

    def are_running(self) -> bool:
        """Whether any of them still runs; the table is read again only when all known ones have ended."""
        self._known = [entry for entry in self._known if is_running(entry)] or self.find(clock())
        return bool(self._known)

    def signal(self, number: int) -> None:
        """Send a signal to all of them, and to those they start meanwhile."""
        since: float | None = None
        sent: set[ProcessInfo] = set()
        for _ in range(_MAX_PASSES):
            found = set(self.find(since)) - sent
            if not found:
                return
            for entry in found:
                send(entry, number)
            sent |= found
            since = clock()

    def _table(self, since: float) -> ProcessTable:
        last = Descendants._last
        if last is None or last.taken_at < since:
            last = Descendants._last = ProcessTable()
        return last

    def _is_mine(self, entry: ProcessInfo) -> bool:
        if self._root in (entry.session, entry.group):
            return True
        # Earlier processes are not its own, although a resumed run uses the same mark again.
        return entry.started >= self._began - _SLACK and self._mark in _marks(entry.pid)

    def _unmarked(self, table: ProcessTable, mine: set[int]) -> set[int]:
        """Return orphans without a known mark, if only calls that are being stopped can have started them.

        Only marks of gert's calls count: a tool can set any value in the environment of its children.
        """
        adopted = {pid for pid, each in table.entries.items() if each.parent == os.getpid() and is_adopted(pid)} - mine
        marks = {pid: _marks(pid) for pid in adopted}
        stopping = {call._mark for call in self._live}
        has_ended = self._given - stopping
        if any(not call._is_stopping for call in self._live) or any(has_ended & each for each in marks.values()):
            return set()
        began, ended = listed_at(min(call._began for call in self._live)), listed_at(self._ended)
        if not all(ended < table.entries[pid].started >= began for pid in adopted):
            return set()
        return {pid for pid in adopted if not marks[pid] & (stopping | self._outer)}
