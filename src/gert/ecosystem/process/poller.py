"""Poll the descriptors of all children through one epoll descriptor, where the system has epoll.

A reader costs the loop a handle, a key and many calls, and every child has three descriptors.
"""

import asyncio
import select
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary


class Poller(Protocol):
    """Calls back when a descriptor can be read or has ended."""

    def add(self, descriptor: int, callback: Callable[..., object], *args: Any) -> None:
        """Poll a descriptor; OSError if the system allows no more."""

    def remove(self, descriptor: int) -> None:
        """Stop polling a descriptor, which is still open."""


class _LoopPoller:
    """Polls with the readers of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add(self, descriptor: int, callback: Callable[..., object], *args: Any) -> None:
        """Poll a descriptor."""
        self._loop.add_reader(descriptor, callback, *args)

    def remove(self, descriptor: int) -> None:
        """Stop polling a descriptor."""
        self._loop.remove_reader(descriptor)


if sys.platform == "linux":

    class _EpollPoller:
        """Polls with one epoll descriptor that the loop reads."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            # No reference to the loop: the loop refers to this poller.
            self._callbacks: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
            self._epoll = select.epoll()
            loop.add_reader(self._epoll.fileno(), self._ready)

        def add(self, descriptor: int, callback: Callable[..., object], *args: Any) -> None:
            """Poll a descriptor; its end is always reported."""
            self._epoll.register(descriptor, select.EPOLLIN)
            self._callbacks[descriptor] = callback, args

        def remove(self, descriptor: int) -> None:
            """Stop polling a descriptor."""
            if self._callbacks.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)

        def _ready(self) -> None:
            for descriptor, _ in self._epoll.poll(0):
                # An earlier callback may have closed it.
                known = self._callbacks.get(descriptor)
                if known is not None:
                    known[0](*known[1])


_POLLERS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Poller]] = WeakKeyDictionary()


def poller_of(loop: asyncio.AbstractEventLoop) -> Poller:
    """Return the poller of a loop."""
    if sys.platform != "linux":
        return _LoopPoller(loop)
    poller = _POLLERS.get(loop)
    if poller is None:
        poller = _POLLERS[loop] = _EpollPoller(loop)
    return poller
