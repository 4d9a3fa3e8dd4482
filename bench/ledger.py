"""The ledger: durable appends, verification and questions, beside bare loops over the same lines."""

import asyncio
import hashlib
import sqlite3
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from bench.pairs import Work, paired
from bench.ratio import Ratio, report
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.ledger.verify_run import verify_run
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.chain import GENESIS
from gert.kernel.events.envelope import encode_payload
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Head

WINDOW = 32
AT_ONCE = 8
LONG = 50_000
SAID = RunSummary(summary_type="checkpoint::bench", summary_json='{"text":"' + "x" * 400 + '"}', step_key="bench")
LINE = encode_payload(SAID, 1, "bench", "2026-01-01T00:00:00.000000Z", None, None, GENESIS, "acme")


def write(head: Head, moment: str) -> Batch:
    """One more summary."""
    return build_batch(head, moment, "acme", (Entry(SAID),))


def appending(ledger: Ledger, run_id: str, entries: int = WINDOW) -> Work:
    """A window of appends, one after the other."""

    async def work() -> None:
        for _ in range(entries):
            await ledger.append(run_id, write)

    return work


def appending_at_once(ledger: Ledger, runs: int = AT_ONCE) -> Work:
    """The same number of appends, to several runs side by side, as a worker makes them."""

    async def work() -> None:
        await asyncio.gather(*(appending(ledger, f"bench-{n}", WINDOW // runs)() for n in range(runs)))

    return work


async def fill(ledger: Ledger, run_id: str, events: int) -> None:
    """Make a run of so many events."""
    entries = [Entry(SAID)] * 1000
    for _ in range(events // 1000):
        await ledger.append(run_id, lambda head, moment: build_batch(head, moment, "acme", entries))


def bare_sqlite(path: Path) -> tuple[sqlite3.Connection, Work]:
    """The floor: the same lines into a table with the same key, one commit each."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE events (run_id TEXT, seq INTEGER, line BLOB, PRIMARY KEY (run_id, seq))")
    numbers = count(1)

    async def work() -> None:
        for _ in range(WINDOW):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO events VALUES (?, ?, ?)", ("bench", next(numbers), LINE))
            connection.execute("COMMIT")

    return connection, work


async def bare_postgres(dsn: str) -> tuple[Any, Work]:
    """The floor: the same lines into a table with the same key, one commit each."""
    import asyncpg

    connection = await asyncpg.connect(dsn)
    await connection.execute("DROP TABLE IF EXISTS bare")
    await connection.execute("CREATE TABLE bare (run_id TEXT, seq BIGINT, line BYTEA, PRIMARY KEY (run_id, seq))")
    numbers = count(1)

    async def work() -> None:
        for _ in range(WINDOW):
            await connection.execute("INSERT INTO bare VALUES ($1, $2, $3)", "bench", next(numbers), LINE)

    return connection, work


def bare_reading(path: Path, run_id: str) -> Work:
    """The floor of verification: read the same lines and hash them."""

    async def work() -> None:
        with sqlite3.connect(path) as connection:
            for (line,) in connection.execute("SELECT line FROM events WHERE run_id = ? ORDER BY seq", (run_id,)):
                hashlib.sha256(line).hexdigest()

    return work


async def on_sqlite(folder: Path) -> list[Ratio]:
    """Everything SQLite is measured by."""
    connection, floor = bare_sqlite(folder / "bare.db")
    path = folder / "ledger.db"
    async with SqliteLedger(path) as ledger:
        ratios = [
            await paired("a durable append / a bare SQLite commit", appending(ledger, "bench"), floor, 1 / 0.7),
            await paired(f"the same, to {AT_ONCE} runs at once", appending_at_once(ledger), floor, 1 / 0.7),
        ]
        await fill(ledger, "short", 1000)
        await fill(ledger, "long", LONG)

        async def verified() -> None:
            report = await verify_run(ledger, "long")
            if not report.holds:
                raise SystemExit("the ledger does not verify")

        ratios.append(
            await paired(f"verifying {LONG:,} events / hashing them", verified, bare_reading(path, "long"), 1 / 0.35, 9)
        )

        def asking(run_id: str) -> Work:
            async def work() -> None:
                for _ in range(WINDOW):
                    await ledger.head(run_id)
                    await ledger.summary(run_id, "checkpoint::bench")

            return work

        name = f"status and newest summary at {LONG:,} events / at 1,000"
        ratios.append(await paired(name, asking("long"), asking("short"), 1.2))
    connection.close()
    return ratios


async def on_postgres(dsn: str) -> list[Ratio]:
    """Everything Postgres is measured by."""
    from gert.ecosystem.ledger.postgres.ledger import PostgresLedger

    connection, floor = await bare_postgres(dsn)
    async with PostgresLedger(dsn) as ledger:
        ratios = [
            await paired("a durable append / a bare Postgres commit", appending(ledger, "bench"), floor, 1 / 0.7),
            await paired(f"the same, to {AT_ONCE} runs at once", appending_at_once(ledger), floor, 1 / 0.7),
        ]
    await connection.close()
    return ratios


def main() -> int:
    """Measure and report."""
    from bench.server import postgres

    with tempfile.TemporaryDirectory() as name, postgres() as dsn:
        ratios = asyncio.run(on_sqlite(Path(name)))
        if dsn is not None:
            ratios += asyncio.run(on_postgres(dsn))
        return report(ratios)
