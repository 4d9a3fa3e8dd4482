"""A SQLite file as gert makes it: how to tell it from others, how to open it, and how its errors read."""

import os
import sqlite3
import time
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.batch import MAX_ANSWER_BYTES
from gert.ecosystem.stores.folders import sync_folder_of
from gert.ecosystem.stores.sqlite_upgrade import upgrade, version_of
from gert.errors import Busy, TraceError

SCHEMA_VERSION: Final = sql.SCHEMA_VERSION
APPLICATION_ID: Final = 0x67657274  # `gert`
BUSY_MS: Final = 30_000

_SYNC_LEVELS: Final = {True: 2, False: 0}


def open_writer(path: str, *, sync: bool, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """A connection that writes; the file is made if it is not there, and brought up to this version."""
    create(path)
    connection = connect(f"{uri(path)}?mode=rw", busy_ms)
    try:
        # Before anything is written: whose file is this?
        if is_empty(connection):
            make_ours(connection)
        check_ours(connection, path)
        upgrade(connection, path)
        _make_durable(connection, path, sync=sync, busy_ms=busy_ms)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str, *, alone: bool = False, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """A connection that only reads; `alone` for those who only look, and leave nothing behind."""
    if alone and _is_at_rest(path):
        try:
            return _opened_at_rest(path, busy_ms)
        except sqlite3.OperationalError as error:
            if not _is_refused(error):
                raise
    try:
        return _probed(f"{uri(path)}?mode=ro", busy_ms)
    except sqlite3.OperationalError as error:
        # There is no room for the files beside it, nor a writer to mind.
        if not (_is_refused(error) and alone) or os.path.exists(path + "-wal"):
            raise
        return _probed(f"{uri(path)}?mode=ro&immutable=1", busy_ms)


def _is_at_rest(path: str) -> bool:
    """Whether all there is stands in the file itself: nothing would be taken into it from beside it."""
    beside = [path + suffix for suffix in ("-wal", "-journal")]
    try:
        return not any(os.path.exists(each) and os.stat(each).st_size for each in beside)
    except OSError:
        return False


def _opened_at_rest(path: str, busy_ms: int) -> sqlite3.Connection:
    """A connection that could write and does not.

    SQLite makes its files beside a ledger for everybody who reads it, and only those who could write take them away.
    """
    connection = _probed(f"{uri(path)}?mode=rw", busy_ms)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _is_refused(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def connect(address: str, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """A connection as all of ours are."""
    connection = sqlite3.connect(
        address, uri=True, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False
    )
    # The file may come from anyone: no code in its schema runs, and no row is larger than a line can be.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ANSWER_BYTES + (1 << 20))
    return connection


class Place:
    """Where the files of an open database are: SQLite itself would go on writing to files that have no name any more.

    The file of the latest commits is looked up when something is first written, as it belongs to others before that.

    every: how long to believe, in seconds, that files are where they were when they were last looked at
    """

    def __init__(self, path: str, *, every: float = 0.0) -> None:
        # As it is now: whoever goes to another folder, or lets a link lead elsewhere, does not move the file.
        self._path = os.path.realpath(path)
        self._files = {self._path: _number(self._path)}
        self._every = every
        self._until = 0.0

    def require(self) -> None:
        """Refuse to write where somebody removed or exchanged a file: nobody would find what is written."""
        if time.monotonic() < self._until:
            return
        for path, number in self._files.items():
            if _number(path) != number:
                raise TraceError(
                    f"`{path}` was removed or exchanged while it was open",
                    hint="nothing of the batch was kept; put it back, or begin again with another one",
                )
        wal = f"{self._path}-wal"
        if wal not in self._files and (number := _number(wal)) is not None:
            self._files[wal] = number
        self._until = time.monotonic() + self._every


def _number(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


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


def roll_back(connection: sqlite3.Connection) -> None:
    """Take back what a transaction began; where even that fails, SQLite does it before the next one."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def make_ours(connection: sqlite3.Connection) -> None:
    """Give an empty file our tables."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        if is_empty(connection):
            for statement in sql.schema("sqlite"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def check_ours(connection: sqlite3.Connection, path: str) -> int:
    """The version of a database; one of someone else, or of a gert that knows more than this one, is refused."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 100")}
    if application != APPLICATION_ID or not {"meta", "events", "answers"} <= tables:
        raise TraceError(f"`{path}` is not a database of gert", hint="choose another file")
    version = version_of(connection, path)
    if version > SCHEMA_VERSION:
        raise TraceError(
            f"`{path}` was made by a newer gert: expected version {SCHEMA_VERSION}, found {version}",
            hint="update gert",
        )
    if version == SCHEMA_VERSION and not {"runs", "calls"} <= tables:
        raise TraceError(f"`{path}` is not a database of gert", hint="choose another file")
    return version


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the database for the moment."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


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
    kind = Busy if is_busy(error) else TraceError
    return kind(f"`{path}` {reason}", hint=hint)


def uri(path: str) -> str:
    """The path as SQLite takes it together with options."""
    return "file:" + quote(os.path.abspath(path))


def _make_durable(connection: sqlite3.Connection, path: str, *, sync: bool, busy_ms: int) -> None:
    """Set how commits are kept, and read it back: a setting SQLite does not take is passed over without a word."""
    _use_wal(connection, busy_ms)
    connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
    [journal] = connection.execute("PRAGMA journal_mode").fetchone()
    [level] = connection.execute("PRAGMA synchronous").fetchone()
    if (journal, level) != ("wal", _SYNC_LEVELS[sync]):
        raise TraceError(f"`{path}` cannot be made durable", hint="is it on a file system that others write to?")


def _use_wal(connection: sqlite3.Connection, busy_ms: int) -> None:
    # SQLite does not wait for others when it changes this.
    until = time.monotonic() + busy_ms / 1000
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _probed(address: str, busy_ms: int) -> sqlite3.Connection:
    """A connection that was seen to work: opening alone does not touch the file."""
    connection = connect(address, busy_ms)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
