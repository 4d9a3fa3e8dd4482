"""The calls under way in a kernel, so that closing it can wait for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from gert.errors import RunError, UsageError

_INSIDE: ContextVar[frozenset[int]] = ContextVar("gert_kernels_at_work", default=frozenset())


class Work:
    """Counts calls. Once it is closing, only calls made from within others may begin."""

    __slots__ = ("_closing", "_count", "_when_idle")

    def __init__(self) -> None:
        self._count = 0
        self._closing = False
        self._when_idle: list[Callable[[], None]] = []

    @contextmanager
    def call(self) -> Iterator[None]:
        """Make a call; RunError where the kernel is closed."""
        inside = _INSIDE.get()
        if self._closing and id(self) not in inside:
            raise RunError("the kernel is closed", hint="close it when all work is done, or make another")
        self._count += 1
        token = _INSIDE.set(inside | {id(self)})
        try:
            yield
        finally:
            # A task that is discarded is closed in another context than its own.
            with suppress(ValueError):
                _INSIDE.reset(token)
            self._count -= 1
            if not self._count:
                self._tell()

    def close(self) -> None:
        """Let no more calls begin; UsageError from within a call, which would wait for itself."""
        if id(self) in _INSIDE.get():
            raise UsageError("a step cannot close the kernel that takes it", hint="close it after the step")
        self._closing = True

    def when_idle(self, tell: Callable[[], None]) -> None:
        """Call `tell` once no call is under way; at once where none is."""
        self._when_idle.append(tell)
        if not self._count:
            self._tell()

    def _tell(self) -> None:
        waiting, self._when_idle = self._when_idle, []
        for tell in waiting:
            tell()
