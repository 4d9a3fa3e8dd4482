"""Runs that tests put into a SQLite ledger line by line, and runs that are cut back to an earlier moment."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from os import PathLike

import msgspec

from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.events.vocabulary import RunKind
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import Key
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import summary_type_of
from gert.kernel.ledger.record import Batch, Event, Head, Written
from gert.kernel.ledger.run_checks import Recomputed

_TABLES = ("runs", "events", "answers", "calls", "tickets", "inbox", "output")


async def append_run(
    ledger: Ledger, lines: Sequence[bytes], answers: Sequence[bytes] = (), private: bytes | None = None
) -> None:
    """Append the lines of one run to a ledger that does not have it, with everything that follows from them."""
    found, events = Recomputed(decode(lines[0]).run_id), []
    found.add_answers(answers)
    for line in lines:
        event = decode(line)
        events.append(Event(event.seq, event.type, event.timestamp, summary_type_of(event.payload), line))
    found.add_events(events)
    kind: RunKind = "runbook" if events[0].type == "run_start" else "agent"
    head = msgspec.structs.replace(found.head, count=len(lines), hash=sha256_hex(lines[-1]), kind=kind)
    batch = Batch(
        head, events, tuple(found.calls.values()), (), answers, tuple(found.tickets.values()), private=private
    )  # fmt: skip

    def write(_: Head, __: str) -> Batch:
        return batch

    assert isinstance(await ledger.append(head.run_id, write), Written)


def store_run(
    path: str | PathLike[str],
    lines: Sequence[bytes],
    answers: Sequence[bytes] = (),
    private: bytes | None = None,
    key: Key | None = None,
) -> None:
    """Store a run in a SQLite file; with a key its head is sealed."""

    async def work() -> None:
        async with SqliteLedger(path, sync=False, key=key) as ledger:
            await append_run(ledger, lines, answers, private)

    asyncio.run(work())


def load_run(path: str | PathLike[str], run_id: str) -> tuple[list[bytes], list[bytes], bytes | None]:
    """The lines and answers of a run, and what is kept beside it."""

    async def work() -> tuple[list[bytes], list[bytes], bytes | None]:
        async with SqliteLedger(path, read_only=True) as ledger:
            lines, answers = await ledger.lines(run_id, 0, 100_000), await ledger.answers(run_id, 0, 100_000)
            return lines, answers, await ledger.private(run_id)

    return asyncio.run(work())


def remove_run(path: str | PathLike[str], run_id: str) -> None:
    """Take a run out of a SQLite file."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as found:
        for table in _TABLES:
            found.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))


def replace_run(path: str | PathLike[str], lines: Sequence[bytes], answers: Sequence[bytes]) -> None:
    """Put other lines and answers in the place of a run."""
    run_id = decode(lines[0]).run_id
    private = load_run(path, run_id)[2]
    remove_run(path, run_id)
    store_run(path, lines, answers, private)


def store_notes(path: str | PathLike[str], run_id: str, count: int) -> None:
    """Store an agent run that has noted something so many times."""

    async def work() -> None:
        async with SqliteLedger(path, sync=False) as ledger:
            await append_notes(ledger, run_id, count)

    asyncio.run(work())


async def append_notes(ledger: Ledger, run_id: str, count: int) -> None:
    """Append an agent run that has noted something so many times."""
    notes = [Entry(RunSummary(summary_type="note", summary_json=str(number))) for number in range(count)]
    assert isinstance(await ledger.append(run_id, lambda head, now: build_batch(head, now, "acme", notes)), Written)
