"""The open calls of a kernel, so that closing it can wait for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from gert.errors import RunError, UsageError

_INSIDE: ContextVar[frozenset[int]] = ContextVar("gert_kernels_at_work", default=frozenset())


class OpenCalls:
    """Counts calls. Once it is closing, only calls inside other calls may begin."""

    __slots__ = ("_closing", "_count", "_when_idle")

    def __init__(self) -> None:
        self._count = 0
        self._closing = False
        self._when_idle: list[Callable[[], None]] = []

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call while this is entered; RunError if the kernel is closed."""
        inside = _INSIDE.get()
        if self._closing and id(self) not in inside:
            raise RunError("the kernel is closed", hint="close it when all work is done, or create another")
        self._count += 1
        token = _INSIDE.set(inside | {id(self)})
        try:
            yield
        finally:
            # A task that is garbage-collected is closed in another context than its own.
            with suppress(ValueError):
                _INSIDE.reset(token)
            self._count -= 1
            if not self._count:
                self._notify()

    def close(self) -> None:
        """Refuse new calls; UsageError inside a call, which would wait for itself."""
        if id(self) in _INSIDE.get():
            raise UsageError("a step cannot close the kernel that runs it", hint="close it after the step")
        self._closing = True

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once no call is open; immediately if none is."""
        self._when_idle.append(callback)
        if not self._count:
            self._notify()

    def _notify(self) -> None:
        waiting, self._when_idle = self._when_idle, []
        for callback in waiting:
            callback()
