"""Failures of a model or a tool for tests."""

import asyncio
import os
from dataclasses import dataclass
from typing import Final, NoReturn

from gert.errors import ModelTimeoutError

DEAD: Final = 137
"""The exit code of a killed process, as shells report it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure.

    error: the exception that is raised
    hangs: it waits until it is cancelled
    dies: it ends the whole process without cleanup
    after_effect: a tool runs first, then fails
    """

    error: BaseException | None = None
    hangs: bool = False
    dies: bool = False
    after_effect: bool = False

    async def happen(self) -> NoReturn:
        """Fail."""
        if self.dies:
            # Like a crash: nothing is flushed or closed.
            os._exit(DEAD)
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        raise AssertionError("nothing sets this event")


def fails(error: BaseException, *, after_effect: bool = False) -> Trouble:
    """Fail with an exception."""
    return Trouble(error=error, after_effect=after_effect)


def times_out(message: str = "the scripted model timed out") -> Trouble:
    """Fail with a timeout of a model."""
    return Trouble(error=ModelTimeoutError(message, category="timeout"))


def hangs(*, after_effect: bool = False) -> Trouble:
    """Hang until the call is cancelled or times out."""
    return Trouble(hangs=True, after_effect=after_effect)


def dies(*, after_effect: bool = False) -> Trouble:
    """End the process: only for a worker in its own process."""
    return Trouble(dies=True, after_effect=after_effect)
