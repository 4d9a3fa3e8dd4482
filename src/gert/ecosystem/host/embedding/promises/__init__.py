"""What gert relies on in a part, as suites that every implementation can be run through: gert's own, and yours.

    from gert.testing import input_resolver_promises

    @pytest.mark.parametrize("promise", input_resolver_promises(make), ids=str)
    def test_my_resolver(promise):
        promise()

A suite is a list of promises; each is a sentence and a check. They need no test framework.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 10.0
"""Seconds after which a check that hangs has failed."""
MOMENT: Final = 0.05
"""Seconds in which something that must not happen would have happened."""


class Promise:
    """One promise: `str()` is its sentence, and calling it checks it."""

    def __init__(self, sentence: str, check: Callable[[], Awaitable[None]]) -> None:
        self.sentence = sentence
        self._check = check

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"Promise({self.sentence!r})"

    def __call__(self) -> None:
        """Check it; AssertionError if it is not kept."""
        asyncio.run(self.kept())

    async def kept(self) -> None:
        """Check it within a running event loop."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._check()
        except TimeoutError:
            raise AssertionError(f"not kept within {PATIENCE:g} s: {self.sentence}") from None


def promises(
    checks: Iterable[Callable[[T], Awaitable[None]]],
    make: Callable[[], Any],
    adapt: Callable[[Any], T] = lambda made: made,
) -> list[Promise]:
    """The promises of a suite: the first line of a check's docstring is its sentence, and each gets a new subject.

    make: creates what `adapt` turns into the subject; it may be async, or return an async context manager
    """

    async def run(check: Callable[[T], Awaitable[None]]) -> None:
        made = make()
        if isinstance(made, AbstractAsyncContextManager):
            async with made as entered:
                await check(adapt(entered))
        else:
            await check(adapt(await made if inspect.isawaitable(made) else made))

    return [Promise((check.__doc__ or "").splitlines()[0].rstrip("."), partial(run, check)) for check in checks]


def require(condition: object, otherwise: str) -> None:
    """Fail with a reason."""
    if not condition:
        raise AssertionError(otherwise)


async def cancel(task: "asyncio.Task[Any]", what: str) -> None:
    """Cancel a task; it has to end within a moment."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=PATIENCE / 2)
    require(done, f"{what} continues although it was cancelled")
