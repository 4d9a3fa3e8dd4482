"""The port to the event loop, which the kernel does not import."""

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Started(Protocol[T_co]):
    """A started task; awaiting it returns its result."""

    def done(self) -> bool:
        """Whether it has ended."""

    def cancel(self) -> object:
        """Cancel it."""

    def __await__(self) -> Generator[Any, None, T_co]: ...


class Loop(Protocol):
    """The event loop a kernel runs in."""

    async def begin(self, work: Coroutine[Any, Any, T]) -> Started[T]:
        """Start a task, and return when it has ended or first waits."""

    async def all(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run coroutines concurrently until all have ended; an exception is returned in place of a result."""

    async def until(self, subscribe: Callable[[Callable[[], None]], None]) -> None:
        """Wait until the callback passed to `subscribe` is called."""
