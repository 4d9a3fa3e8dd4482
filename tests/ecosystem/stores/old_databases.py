"""Databases as earlier versions of gert made them."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

APPLICATION_ID = 0x67657274

VERSION_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE events (
        run_id TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, timestamp TEXT NOT NULL, line BLOB NOT NULL,
        PRIMARY KEY (run_id, seq)
    )""",
    """CREATE TABLE answers (
        run_id TEXT NOT NULL, n INTEGER NOT NULL, line BLOB NOT NULL,
        PRIMARY KEY (run_id, n)
    )""",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
VERSION_2 = (*VERSION_1, "CREATE TABLE states (run_id TEXT PRIMARY KEY, state BLOB NOT NULL)")
SCHEMAS = {1: VERSION_1, 2: VERSION_2}


def make_old(path: Path, version: int, runs: Mapping[str, Sequence[bytes]]) -> None:
    """A database of an older version, with these runs."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        for statement in SCHEMAS[version]:
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(version),))
        for run_id, lines in runs.items():
            connection.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                [
                    (run_id, seq, "step_start", f"2026-02-28T14:30:00.{seq:06d}Z", line)
                    for seq, line in enumerate(lines, start=1)
                ],
            )
            connection.execute("INSERT INTO answers VALUES (?, 1, ?)", (run_id, b'{"an":"answer"}'))
        connection.execute("COMMIT")
