"""The port to the event loop, which the kernel itself does not know."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Started(Protocol[T_co]):
    """Work that was begun; awaiting it gives its result."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def cancel(self) -> object:
        """Give it up."""
        ...

    def __await__(self) -> Generator[Any, None, T_co]: ...


class Loop(Protocol):
    """The event loop a kernel runs in."""

    async def begin(self, work: Coroutine[Any, Any, T]) -> Started[T]:
        """Begin work, and return when it has ended or first waits for something."""
        ...

    async def until(self, subscribe: Callable[[Callable[[], None]], None]) -> None:
        """Wait until what `subscribe` is given is called."""
        ...
