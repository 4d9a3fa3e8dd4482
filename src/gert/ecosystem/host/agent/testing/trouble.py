"""What can go wrong with a model or a tool, for a test to say when."""

import asyncio
import os
from dataclasses import dataclass
from typing import Final, NoReturn

from gert.errors import ModelTimeoutError

DEAD: Final = 137
"""The exit code of a process that died, as shells tell it of one that was killed."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that goes wrong.

    error: what is raised
    hangs: it waits until it is cancelled
    dies: it ends the whole process, at once and without a word
    after_effect: a tool does its work first; a model has none
    """

    error: BaseException | None = None
    hangs: bool = False
    dies: bool = False
    after_effect: bool = False

    async def happen(self) -> NoReturn:
        """Go wrong."""
        if self.dies:
            # As a machine dies: nothing is flushed, closed or told.
            os._exit(DEAD)
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        raise AssertionError("nothing sets this event")


def fails(error: BaseException, *, after_effect: bool = False) -> Trouble:
    """It raises this."""
    return Trouble(error=error, after_effect=after_effect)


def times_out(message: str = "no answer in time, says the script") -> Trouble:
    """A model does not answer in time."""
    return Trouble(error=ModelTimeoutError(message, category="timeout"))


def hangs(*, after_effect: bool = False) -> Trouble:
    """It does not come back until it is cancelled, or its time is up."""
    return Trouble(hangs=True, after_effect=after_effect)


def dies(*, after_effect: bool = False) -> Trouble:
    """The process is killed: only for a worker that is a process of its own."""
    return Trouble(dies=True, after_effect=after_effect)
