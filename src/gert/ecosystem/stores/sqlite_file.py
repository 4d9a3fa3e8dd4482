"""A SQLite file as gert makes it: its tables, how to tell it from others, and how its errors read."""

import os
import sqlite3
from typing import Final
from urllib.parse import quote

from gert.ecosystem.stores.append_file import sync_folder_of
from gert.errors import TraceError

SCHEMA_VERSION: Final = 2
APPLICATION_ID: Final = 0x67657274  # `gert`

# With row ids: lines are long, and kept inside the index of their numbers they would take twice the space.
_SCHEMA: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE events (
        run_id TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, timestamp TEXT NOT NULL, line BLOB NOT NULL,
        PRIMARY KEY (run_id, seq)
    )""",
    """CREATE TABLE answers (
        run_id TEXT NOT NULL, n INTEGER NOT NULL, line BLOB NOT NULL,
        PRIMARY KEY (run_id, n)
    )""",
    "CREATE TABLE states (run_id TEXT PRIMARY KEY, state BLOB NOT NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

# What a database of an older version lacks, by the version that has it.
_UPGRADES: Final = {2: ("CREATE TABLE states (run_id TEXT PRIMARY KEY, state BLOB NOT NULL)",)}


def create(path: str) -> None:
    """Make an empty file for its owner alone; SQLite gives its other files the same permissions."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        sync_folder_of(path)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise TraceError(f"there is no folder `{os.path.dirname(path)}`") from None
    except OSError as problem:
        raise TraceError(f"`{path}` cannot be created: {(problem.strerror or str(problem)).lower()}") from problem
    except ValueError:
        raise TraceError(f"`{path}` is not a path") from None


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the file is still without any table."""
    return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])


def make_ours(connection: sqlite3.Connection) -> None:
    """Give an empty file our tables."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        if is_empty(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_ours(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database of someone else, or of a gert that knows more than this one."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 100")}
    if application != APPLICATION_ID or not {"meta", "events", "answers"} <= tables:
        raise TraceError(f"`{path}` is not a database of gert", hint="choose another file")
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    version = str(row[0]) if row else ""
    if not version.isdecimal():
        raise TraceError(f"`{path}` does not say which version of gert made it")
    if int(version) > SCHEMA_VERSION:
        raise TraceError(
            f"`{path}` was made by a newer gert: expected version {SCHEMA_VERSION}, found {version}",
            hint="update gert",
        )


_REASONS: Final = {
    sqlite3.SQLITE_NOTADB: ("is not a database", "choose another file"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a copy, or save what is left: sqlite3 FILE .recover"),
    sqlite3.SQLITE_READONLY: ("cannot be written: it is read-only", None),
    sqlite3.SQLITE_BUSY: ("is locked by another process", "try again when that has ended"),
    sqlite3.SQLITE_FULL: ("cannot be written: no space left on device", "nothing of the batch was kept"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "is it a file, and may you read it?"),
    sqlite3.SQLITE_TOOBIG: ("holds a line that is too large", None),
    sqlite3.SQLITE_CONSTRAINT: ("already holds an event of this number", None),
}


def worded(path: str, error: sqlite3.Error) -> TraceError:
    """What SQLite said, as our own error."""
    code = getattr(error, "sqlite_errorcode", None)
    # The lower eight bits are the kind of error; the rest says where in SQLite it came up.
    reason, hint = _REASONS.get(-1 if code is None else code & 0xFF, (f"cannot be used: {error}", None))
    return TraceError(f"`{path}` {reason}", hint=hint)


def uri(path: str) -> str:
    """The path as SQLite takes it together with options."""
    return "file:" + quote(os.path.abspath(path))


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a database of an older version up to this one, once, whoever else tries."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        [value] = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        for version in range(int(value) + 1, SCHEMA_VERSION + 1):
            for statement in _UPGRADES[version]:
                connection.execute(statement)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
