"""Descriptors a loop is told of: those of all children behind one of our own, where the system can do that.

A reader costs a loop a handle, a key and many calls, and every child comes and goes with three descriptors.
"""

import asyncio
import select
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary


class Watch(Protocol):
    """Calls back when there is something to be read, and when it has ended."""

    def add(self, descriptor: int, callback: Callable[..., object], *args: Any) -> None:
        """Watch a descriptor; OSError where the system watches no more."""

    def remove(self, descriptor: int) -> None:
        """Watch it no longer; it is still open."""


class _LoopWatch:
    """The loop's own readers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add(self, descriptor: int, callback: Callable[..., object], *args: Any) -> None:
        """Watch a descriptor."""
        self._loop.add_reader(descriptor, callback, *args)

    def remove(self, descriptor: int) -> None:
        """Watch it no longer."""
        self._loop.remove_reader(descriptor)


if sys.platform == "linux":

    class _EpollWatch:
        """A descriptor that is ready when one of those behind it is."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            # The loop is not kept: it keeps us, and we end with it.
            self._callbacks: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
            self._epoll = select.epoll()
            loop.add_reader(self._epoll.fileno(), self._ready)

        def add(self, descriptor: int, callback: Callable[..., object], *args: Any) -> None:
            """Watch a descriptor; that it has ended is always told."""
            self._epoll.register(descriptor, select.EPOLLIN)
            self._callbacks[descriptor] = callback, args

        def remove(self, descriptor: int) -> None:
            """Watch it no longer."""
            if self._callbacks.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)

        def _ready(self) -> None:
            for descriptor, _ in self._epoll.poll(0):
                # One that was called before may have closed it.
                known = self._callbacks.get(descriptor)
                if known is not None:
                    known[0](*known[1])


_WATCHES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Watch]] = WeakKeyDictionary()


def watch_of(loop: asyncio.AbstractEventLoop) -> Watch:
    """The watch of a loop."""
    if sys.platform != "linux":
        return _LoopWatch(loop)
    watch = _WATCHES.get(loop)
    if watch is None:
        watch = _WATCHES[loop] = _EpollWatch(loop)
    return watch
