"""A process whose files may not grow for a while, again and again: `python -m tests.ecosystem.stores.filling`.

Prints how often it was refused. In between it goes on with the same store, and holds it to everything it took.
"""

import asyncio
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gert.errors import TraceError

from .ledgers import LEDGERS, check, note, written
from .lines import RUN, answers, events, open_again, open_store

FIRST, LAST, STEP = 1_000, 600_000, 700


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file grows beyond a size; Python has told the system not to end the process for that."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def fill_store(kind: str, folder: Path) -> int:
    """A batch at a time, until each has been refused or not."""
    lines, given = events(160, size=400), answers(160)
    done = refused = 0
    with open_store(kind, folder) as store:
        for size in range(FIRST, LAST, STEP):
            if done + 2 > len(lines):
                break
            try:
                with at_most(size):
                    store.append(RUN, done + 1, lines[done : done + 2], given[done : done + 2])
                done += 2
            except TraceError:
                refused += 1
            if refused % 7 == 3:
                store.append(RUN, done + 1, lines[done : done + 2], given[done : done + 2])
                done, refused = done + 2, refused + 1
            assert list(store.events(RUN)) == lines[:done]
            assert list(store.answers(RUN)) == given[:done]
    with open_again(kind, folder) as store:
        assert list(store.events(RUN)) == lines[:done]
        assert list(store.answers(RUN)) == given[:done]
        store.append(RUN, done + 1, lines[done:])
    return refused


async def fill_ledger(kind: str, place: str) -> int:
    said, refused = [], 0
    async with LEDGERS[kind](place) as ledger:
        for number, size in enumerate(range(FIRST, LAST // 4, STEP)):
            text = f"<{number}>" + "x" * 600
            try:
                with at_most(size):
                    await written(ledger, note(text))
                said.append(number)
            except TraceError:
                refused += 1
            if refused % 7 == 3:
                await written(ledger, note(text + "again"))
                refused += 1
    async with LEDGERS[kind](place) as ledger:
        await written(ledger, note("last"))
        found = b"".join(await check(ledger))
        assert all(found.count(f"<{number}>".encode()) == 1 for number in said)
    return refused


if __name__ == "__main__":
    _, what, kind, place = sys.argv
    count = fill_store(kind, Path(place)) if what == "store" else asyncio.run(fill_ledger(kind, place))
    sys.stdout.write(f"{count}\n")
