"""A server on standard input and output ends with the program that started it, also where its input stays open."""

import asyncio
import os
from collections.abc import Awaitable
from typing import Any, Final

_LOOK: Final = 1.0


async def parent_ended() -> None:
    """Wait until the process that started this one has ended."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(_LOOK)


async def while_parent_lives(work: Awaitable[Any]) -> None:
    """Do the work of a server; when the parent has ended, so does this process, whatever still reads its input."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(parent_ended())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            os._exit(0)  # a thread may wait for input that never ends; runs have processes of their own
        tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
