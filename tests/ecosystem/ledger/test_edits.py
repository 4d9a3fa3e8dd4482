"""Random edits of a sealed ledger: every one is found by verification when a key is set."""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.ledger.ledgers import answers, asks, note, stage, written
from tests.ecosystem.ledger.test_record import CALLS, ENDS, approved, drive
from tests.ecosystem.ledger.test_record import asks as ticket
from tests.postgres import execute

from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import RunNotFound
from gert.kernel.events.agent import ModelCompleted, ModelRequested, PauseRequested, RunStarted
from gert.kernel.foundation.signature import Keys, parse_key
from gert.kernel.ledger.port import Ledger

KEY = parse_key("a secret that is long enough", "main")
SAMPLE, ALL = 200, 5000

# What verification covers. A lease says who may write now, and a message that was not taken is in no record.
COLUMNS = {
    "runs": (
        "run_id", "kind", "tenant", "count", "hash", "answers", "answers_hash", "snapshot", "started_at",
        "updated_at", "seal", "status",
    ),
    "events": ("run_id", "seq", "type", "timestamp", "summary_type", "line"),
    "answers": ("run_id", "n", "line"),
    "calls": (
        "run_id", "seq", "kind", "key", "name", "tenant", "timestamp", "input_hash", "semantic_key", "outcome",
        "done_seq", "drift", "last_seq",
    ),
    "tickets": ("ticket_id", "run_id", "seq", "step_id", "created_at", "expires_at", "status", "done_seq"),
}  # fmt: skip


async def fill(path: Path) -> None:
    async with SqliteLedger(path, key=KEY) as ledger:
        await fill_ledger(ledger)


async def fill_ledger(ledger: Ledger) -> None:
    """A blocked agent run with open and ended calls, and a runbook run with answers, an open call and two tickets.

    The last answer of the runbook run is named by no event yet.
    """
    await written(ledger, RunStarted(), run_id="agent")
    await written(ledger, ModelRequested(model="m", prompt="q", step_key="k", input_hash="h"), run_id="agent")
    await written(ledger, ModelCompleted(request_seq=2, model="m", output_json="{}", cost_usd=0.5), run_id="agent")
    await written(ledger, asks("a", "order-1"), asks("b"), run_id="agent")
    await written(ledger, answers(4), note("x"), stage("s"), run_id="agent")
    await written(ledger, PauseRequested(reason="wait", blocked=True, unblock_key="k"), run_id="agent")
    await drive(ledger, CALLS, ticket("t1"), run_id="runbook")
    await drive(ledger, approved("t1"), ENDS, answers=[b'{"n":1}', b'{"n":2}'], run_id="runbook")
    await drive(ledger, CALLS, ticket("t2"), run_id="runbook")
    await drive(ledger, answers=[b'{"n":3}'], run_id="runbook")


async def is_found(path: Path) -> bool:
    async with SqliteLedger(path, read_only=True) as ledger:
        return await finds(ledger)


async def finds(ledger: Ledger) -> bool:
    """Whether verification of the runs that there were finds anything."""
    for run_id in ("agent", "runbook"):
        try:
            if not (await verify_run(ledger, run_id, Keys([KEY]))).proven:
                return True
        except RunNotFound:
            return True
    return False


def changed(value: Any, chance: random.Random) -> Any:
    """Another value, often one of the same kind."""
    if isinstance(value, bytes) and chance.random() < 0.1:
        return value + chance.choice((b"\n", b"\r\n", b" ", b"\x00"))
    if isinstance(value, bytes) and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return value[:at] + bytes([value[at] ^ (1 << chance.randrange(8))]) + value[at + 1 :]
    if isinstance(value, int) and chance.random() < 0.9:
        return value + chance.choice((-2, -1, 1, 2, 1000, 10**15))
    if isinstance(value, str) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return value[:at] + chance.choice("abcz019ö") + value[at + 1 :]
    return chance.choice((None, 0, 1, "", "x", b"", b"{}", 1.5, "success", "agent", "runbook"))


def edit(connection: sqlite3.Connection, chance: random.Random) -> str | None:
    """Make one edit, and say which; None where the row stays as it was or cannot be stored."""
    table = chance.choice(list(COLUMNS))
    rows = connection.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table} ORDER BY 1, 2").fetchall()
    key = COLUMNS[table][: 1 if table in ("runs", "tickets") else 2]
    row = list(chance.choice(rows))
    where = " AND ".join(f"{name} IS ?" for name in key)
    try:
        if chance.random() < 0.1:
            connection.execute(f"DELETE FROM {table} WHERE {where}", row[: len(key)])
            return f"DELETE {table} {row[: len(key)]}"
        if chance.random() < 0.1:
            return _insert(connection, table, row, chance)
        column = chance.randrange(len(row))
        value = changed(row[column], chance)
        if type(value) is type(row[column]) and value == row[column]:
            return None
        name = COLUMNS[table][column]
        connection.execute(f"UPDATE {table} SET {name} = ? WHERE {where}", (value, *row[: len(key)]))
    except sqlite3.IntegrityError:
        return None
    [stored] = connection.execute(f"SELECT count(*) FROM {table} WHERE {name} IS ? AND {where}", (
        row[column], *row[: len(key)],
    )).fetchone()  # fmt: skip
    return None if stored else f"UPDATE {table} SET {name} = {value!r} of {row[: len(key)]}"


def _insert(connection: sqlite3.Connection, table: str, row: list[Any], chance: random.Random) -> str | None:
    """Add a row like another one."""
    if table == "runs":
        return None  # a run of its own
    place = COLUMNS[table].index("ticket_id" if table == "tickets" else "n" if table == "answers" else "seq")
    row[place] = f"{row[place]}x" if table == "tickets" else row[place] + chance.choice((1, 2, 3, 50))
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(COLUMNS[table])}) VALUES ({marks})", row)
    return f"INSERT {table} {row}"


def missed(folder: Path, seeds: range, make: Callable[[sqlite3.Connection, random.Random], str | None]) -> list[str]:
    """The edits that verification does not find."""
    whole, path = folder / "whole.db", folder / "edited.db"
    asyncio.run(fill(whole))
    assert not asyncio.run(is_found(whole))
    found, made = [], 0
    for seed in seeds:
        shutil.copy(whole, path)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            what = make(connection, random.Random(seed))
        if what is not None:
            made += 1
            if not asyncio.run(is_found(path)):
                found.append(f"{seed}: {what}")
    assert made > len(seeds) * 0.8
    return found


def test_every_edit_of_a_sample_is_found(tmp_path: Path) -> None:
    assert missed(tmp_path, range(SAMPLE), edit) == []


@pytest.mark.soak
def test_every_edit_is_found(tmp_path: Path) -> None:
    assert missed(tmp_path, range(SAMPLE, SAMPLE + ALL), edit) == []


UNIQUE = {("runs", "run_id"), ("tickets", "ticket_id"), ("events", "seq"), ("answers", "n"), ("calls", "seq")}
"""Columns that cannot be the same in every row."""


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, columns in COLUMNS.items() for column in columns if (table, column) not in UNIQUE],
)
def test_no_column_can_be_overwritten(tmp_path: Path, table: str, column: str) -> None:
    asyncio.run(fill(tmp_path / "runs.db"))
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
        where = "WHERE seq = 2" if (table, column) == ("events", "run_id") else ""
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = 'forged' {where}")
    assert asyncio.run(is_found(tmp_path / "runs.db"))


REMOVE = ("DELETE FROM runs WHERE run_id = 'runbook'", "UPDATE runs SET count = 0 WHERE run_id = 'agent'")
ORPHANS = {"agent": ["calls", "events"], "runbook": ["answers", "calls", "events", "inbox", "tickets"]}


async def _removed(ledger: Ledger, change: Callable[[str], object]) -> None:
    async with ledger:
        await fill_ledger(ledger)
        await ledger.post("runbook", "note", b"x")
        assert await ledger.orphans() == {}
        for statement in REMOVE:
            await asyncio.to_thread(change, statement)
        assert await ledger.orphans() == ORPHANS


def test_rows_of_a_removed_run_are_found(tmp_path: Path) -> None:
    def change(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
            connection.execute(statement)

    asyncio.run(_removed(SqliteLedger(tmp_path / "runs.db"), change))


# --- Postgres


def test_rows_of_a_removed_run_are_found_on_postgres(dsn: str) -> None:
    asyncio.run(_removed(PostgresLedger(dsn), lambda statement: _execute(dsn, statement)))


EDITS = {
    "text": "coalesce({0}, '') || 'x'",
    "bigint": "coalesce({0}, 0) + 1000",
    "bytea": r"coalesce({0}, '') || '\x20'::bytea",
}


def _execute(dsn: str, statement: str) -> list[Any]:
    [(schema,)] = execute(dsn, "SELECT schemaname FROM pg_tables WHERE tablename = 'answers'")
    return execute(dsn, f"SET search_path TO {schema}", statement)


def _types(dsn: str, table: str) -> dict[str, str]:
    rows = _execute(dsn, f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{table}'")
    return dict(rows)


async def _is_found_on(dsn: str) -> bool:
    async with PostgresLedger(dsn, read_only=True) as ledger:
        return await finds(ledger)


def test_every_column_and_row_is_verified_on_postgres(dsn: str) -> None:
    """One edit of each column in each kind of row, and one removal of each: all are found, and none without an edit."""

    async def begin() -> None:
        async with PostgresLedger(dsn, key=KEY) as ledger:
            await fill_ledger(ledger)

    asyncio.run(begin())
    assert not asyncio.run(_is_found_on(dsn))
    missed = []
    for table, columns in COLUMNS.items():
        types = _types(dsn, table)
        _execute(dsn, f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")
        row = f"ctid = (SELECT ctid FROM {table} ORDER BY {columns[0]} DESC, {columns[1]} DESC LIMIT 1)"
        edits = [f"UPDATE {table} SET {name} = {EDITS[types[name]].format(name)} WHERE {row}" for name in columns]
        for edit in (*edits, f"DELETE FROM {table} WHERE {row}"):
            _execute(dsn, edit)
            if not asyncio.run(_is_found_on(dsn)):
                missed.append(edit)
            _execute(dsn, f"DELETE FROM {table}")
            _execute(dsn, f"INSERT INTO {table} SELECT * FROM kept_{table}")
    assert missed == []
    assert not asyncio.run(_is_found_on(dsn))
