"""Processes that append to a ledger in a folder, each of which dies at a later call of the system than the last.

What one leaves behind is what the next finds. Between two of them the run is checked, and whether what one appended
is there is printed, beside how it ended: `python -m tests.ecosystem.stores.dying FOLDER`.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gert.ecosystem.stores import append_file, run_file
from gert.ecosystem.stores.jsonl_ledger import JsonlLedger
from gert.kernel.agent.ledger import Held

from .ledgers import asks, check, note, says, written

COUNTED = ("open", "write", "fsync", "fdatasync", "replace", "ftruncate", "lseek", "close", "unlink")
MOST = 200
KILLED = 9


def dies_at(number: int, names: Sequence[str] = COUNTED) -> None:
    """Let this process die before it makes so many of these calls of the system."""
    made = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            if made == number:
                os._exit(KILLED)
            return call(*args, **more)

        return count

    for name in names:
        setattr(os, name, counted(getattr(os, name)))
    for module in (append_file, run_file):
        setattr(module, "sync_data", os.fdatasync)  # noqa: B010 - it is not to be exchanged elsewhere


async def append(folder: str, number: int) -> None:
    async with JsonlLedger(folder) as ledger:
        await written(ledger, note(f"<{number}>"), asks("k", f"order-{number}"))
        os._exit(0)


async def look(folder: str, number: int) -> tuple[int, bool]:
    """How often what was appended is there, and whether its key is held."""
    async with JsonlLedger(folder) as ledger:
        found = b"".join(await check(ledger)).count(f"<{number}>".encode())
        held = await ledger.append("other", says(asks("k", f"order-{number}")))
        return found, isinstance(held, Held)


async def begin(folder: str) -> None:
    async with JsonlLedger(folder) as ledger:
        await written(ledger, note("first"))


def main(folder: str) -> None:
    asyncio.run(begin(folder))
    for number in range(1, MOST):
        child = os.fork()
        if not child:
            dies_at(number)
            asyncio.run(append(folder, number))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found, held = asyncio.run(look(folder, number))
        sys.stdout.write(f"{code} {found} {int(held)}\n")
        if code != KILLED:
            return


if __name__ == "__main__":
    main(sys.argv[1])
