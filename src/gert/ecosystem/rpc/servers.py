"""The servers of one run, by name: started on first use, reused, started again once after a crash, stopped together."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gert.ecosystem.rpc.child_peer import ChildPeer, Server
from gert.errors import RpcError, RpcLost

__all__ = ["Answered", "Server", "Servers"]

_MAX_CRASHES: Final = 2


class Answered(msgspec.Struct, frozen=True):
    """The answer to a call, what the server printed on standard error meanwhile, and its greeting."""

    result: Any
    stderr: str
    greeting: Any = None


class _Slot:
    """One server.

    child: the process that is called
    latest: the last one that was started, even if it cannot be used
    crashes: how many calls in a row failed because a process of it crashed; one that was `counted` counts once
    """

    def __init__(self) -> None:
        self.child: ChildPeer | None = None
        self.latest: ChildPeer | None = None
        self.lock = asyncio.Lock()
        self.crashes = 0
        self.counted: ChildPeer | None = None
        self.reason = ""


class Servers:
    """A pool of servers."""

    def __init__(self) -> None:
        self._entries: dict[str, _Slot] = {}
        self._children: set[ChildPeer] = set()
        self._is_closed = False

    async def call(
        self, server: Server, method: str, params: Any = None, *, timeout: float | None = None, retries: bool = False
    ) -> Answered:
        """Call a server, and start it first if it does not run.

        retries: if it exits during the call, it is started again and called once more; only for calls that may happen
            twice
        """
        entry = self._entry(server.name)
        try:
            try:
                answered = await self._call(entry, server, method, params, timeout)
            except RpcLost as lost:
                if not (retries and lost.by_exit) or self._is_closed:
                    raise
                answered = await self._call(entry, server, method, params, timeout)
        except RpcError as problem:
            self._count(entry, problem)
            raise
        entry.crashes = 0
        return answered

    def stderr(self, name: str) -> Callable[[], str]:
        """Return what gives, later, all that a server has printed on standard error from now on."""
        return self._printed(self._entry(name))

    def _printed(self, entry: _Slot) -> Callable[[], str]:
        before = entry.latest
        began = before.stderr.position if before is not None else 0

        def printed() -> str:
            now = entry.latest
            return now.printed(began if now is before else 0) if now is not None else ""

        return printed

    async def close(self) -> None:
        """Stop all servers at the same time; nothing of them runs when this returns."""
        self._is_closed = True
        children, self._children = self._children, set()
        await asyncio.gather(*(child.stop() for child in children))

    def kill_all(self) -> None:
        """Kill all servers; their calls then fail."""
        for child in self._children:
            child.kill()

    def _entry(self, name: str) -> _Slot:
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Slot()
        return entry

    async def _call(self, entry: _Slot, server: Server, method: str, params: Any, timeout: float | None) -> Answered:
        printed = self._printed(entry)
        child = await self._running(entry, server)
        result = await child.call(method, params, timeout=timeout)
        return Answered(result, printed(), child.greeting)

    async def _running(self, entry: _Slot, server: Server) -> ChildPeer:
        """Return the running server, after starting it if necessary."""
        child = entry.child
        if child is not None and child.is_usable and child.program == server.command.program:
            return child
        async with entry.lock:
            if entry.child is not None and entry.child.is_usable and entry.child.program == server.command.program:
                return entry.child
            entry.child = None
            if self._is_closed:
                raise RpcLost(f"{server.title} was stopped", sent=False)
            if entry.crashes >= _MAX_CRASHES:
                raise RpcLost(f"{entry.reason}; it crashed twice in a row and is not started again", sent=False)
            child = entry.latest = ChildPeer(server)
            self._children.add(child)
            try:
                await child.start()
            finally:
                if not child.is_usable:
                    self._children.discard(child)
            entry.child = child
            return child

    def _count(self, entry: _Slot, problem: RpcError) -> None:
        """Count a crash; calls at the same time that fail because of it count once."""
        if entry.latest is not None and entry.latest.has_failed and entry.latest is not entry.counted:
            entry.counted = entry.latest
            entry.crashes += 1
            entry.reason = problem.message
