"""The SQLite file of a ledger: creating, recognizing and opening it, and its error messages."""

import os
import random
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final, TypeVar
from urllib.parse import quote

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.folders import sync_folder_of
from gert.errors import Busy, TraceError
from gert.kernel.foundation.text import os_reason
from gert.kernel.ledger.append_rules import MAX_ANSWER_BYTES

T = TypeVar("T")

APPLICATION_ID: Final = 0x67657274  # `gert`
MEMORY: Final = ":memory:"

_SYNC_LEVELS: Final = {True: 2, False: 0}
_REST: Final = (0.001, 0.02)
_NETWORK: Final = ("nfs", "cifs", "smb", "9p", "ceph", "gluster", "lustre", "afs", "fuse.sshfs", "beegfs", "gpfs")


def open_writer(path: str, *, sync: bool, patience: float) -> sqlite3.Connection:
    """A connection that writes; the file is made if it is not there."""
    if path == MEMORY:
        connection = connect(MEMORY, uri=False)
        create_tables(connection)
        return connection
    _create_ledger(path)
    connection = connect(f"{uri(path)}?mode=rw")
    try:
        # Before anything is written: whose file is this?
        until = time.monotonic() + patience
        retried(lambda: create_tables(connection) if is_empty(connection) else None, until)
        retried(lambda: require_ledger_file(connection, path), until)
        retried(lambda: _make_durable(connection, path, sync=sync), until)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str, *, alone: bool = False, patience: float = 0.0) -> sqlite3.Connection:
    """A connection that only reads; `alone` for a command that only looks and leaves nothing behind."""
    until = time.monotonic() + patience
    if alone and _is_at_rest(path):
        try:
            return _lenient(retried(lambda: _opened_at_rest(path), until))
        except sqlite3.OperationalError as error:
            if not _is_refused(error):
                raise
    try:
        found = retried(lambda: _probed(f"{uri(path)}?mode=ro", path), until)
        return _lenient(found) if alone else found
    except sqlite3.OperationalError as error:
        # There is no room for the files beside it, and no writer either.
        if not (_is_refused(error) and alone) or os.path.exists(path + "-wal"):
            raise
        return _lenient(_probed(f"{uri(path)}?mode=ro&immutable=1", path))


def _lenient(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A connection that gives text which is not UTF-8 as bytes: one such value does not hide all other rows."""
    connection.text_factory = _text
    return connection


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def retried(attempt: Callable[[], T], until: float) -> T:
    """Try again while another process has the database, each time after a rest of random length.

    Many processes that rest equally long would meet again and again, and some of them would never have a turn.
    """
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        time.sleep(random.uniform(*_REST))  # noqa: S311 - no secret depends on it


def connect(address: str, *, uri: bool = True) -> sqlite3.Connection:
    """A connection as all of gert's are."""
    connection = sqlite3.connect(address, uri=uri, timeout=0, isolation_level=None, check_same_thread=False)
    # The file may come from anyone: no code in its schema runs, and no row is larger than a line can be.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ANSWER_BYTES + (1 << 20))
    return connection


class FileGuard:
    """Notices that the files of an open database were removed or exchanged: SQLite would continue to write to them.

    The file of the latest commits is looked up when something is first written, as it belongs to others before that.

    every: how long to believe, in seconds, that files are where they were
    """

    def __init__(self, path: str, *, every: float) -> None:
        # As it is now: a change of the working folder, or of a link, does not move the file.
        self._path = os.path.realpath(path)
        self._files = {self._path: _number(self._path)}
        self._every = every
        self._until = 0.0

    def require(self) -> None:
        """Refuse to write where a file is not the one that was opened."""
        if time.monotonic() < self._until:
            return
        self.require_there()
        wal = f"{self._path}-wal"
        if wal not in self._files and (number := _number(wal)) is not None:
            self._files[wal] = number
        self._until = time.monotonic() + self._every

    def require_there(self) -> None:
        """Refuse to go on where a file is not the one that was opened."""
        for path, number in list(self._files.items()):  # a copy: a thread that writes may add to them
            if _number(path) != number:
                raise TraceError(
                    f"`{path}` was removed or exchanged while it was open",
                    hint="nothing of the batch was kept; put it back, or begin again with another one",
                )


def _number(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create_ledger(path: str) -> None:
    """Make a ledger that is not there: whole under another name first, so that no reader sees it half made."""
    if os.path.lexists(path):
        return
    new = f"{path}.new-{secrets.token_hex(8)}"
    try:
        create(new)
        with closing(connect(f"{uri(new)}?mode=rw")) as connection:
            create_tables(connection)
        # Another process may have been faster; then its file stays.
        os.link(new, path)
        sync_folder_of(path)
    except (OSError, sqlite3.Error, TraceError):
        # A file system without hard links, a name that is too long, no space: the plain way works, or says why not.
        create(path)
    finally:
        with suppress(OSError):
            os.unlink(new)


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
        raise TraceError(f"`{path}` cannot be created: {os_reason(problem)}") from problem
    except ValueError:
        raise TraceError(f"`{path}` is not a path") from None


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the file is still without any table."""
    return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo a transaction; where even that fails, SQLite does it before the next one."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def create_tables(connection: sqlite3.Connection) -> None:
    """Give an empty file the tables of a ledger."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        if is_empty(connection):
            for statement in sql.schema("sqlite"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(sql.SCHEMA_VERSION),))
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def require_ledger_file(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database of another program, or of another version of gert."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 100")}
    if application != APPLICATION_ID or "meta" not in names:
        raise TraceError(f"`{path}` is not a ledger of gert", hint="choose another file")
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    version = row[0] if row is not None else None
    if version != str(sql.SCHEMA_VERSION):
        raise TraceError(
            f"`{path}` was made by another version of gert: expected ledger version {sql.SCHEMA_VERSION},"
            f" found {version}",
            hint="use the gert that wrote it: update gert, or export its runs with the earlier one",
        )
    if not sql.tables() <= names:
        raise TraceError(f"`{path}` is not a ledger of gert", hint="choose another file")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process has the database for the moment."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


_REASONS: Final = {
    sqlite3.SQLITE_NOTADB: ("is not a database", "choose another file"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a copy, or save what is left: sqlite3 FILE .recover"),
    sqlite3.SQLITE_READONLY: ("cannot be written: it is read-only", None),
    sqlite3.SQLITE_BUSY: ("is locked by another process", "try again when that has ended"),
    sqlite3.SQLITE_FULL: ("cannot be written: no space left on device", "free space, then resume the run"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: disk I/O error", "look at the disk, then resume the run"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "is it a file, and may you read it?"),
    sqlite3.SQLITE_TOOBIG: ("holds a line that is too large", None),
    sqlite3.SQLITE_CONSTRAINT: ("already holds an event of this number", None),
}


def as_gert_error(path: str, error: sqlite3.Error) -> TraceError:
    """The error of SQLite as an error of gert."""
    code = getattr(error, "sqlite_errorcode", None)
    # The lower eight bits are the kind of error; the rest says where in SQLite it came up.
    reason, hint = _REASONS.get(-1 if code is None else code & 0xFF, (f"cannot be used: {error}", None))
    kind = Busy if is_busy(error) else TraceError
    return kind(f"`{path}` {reason}", hint=hint)


def uri(path: str) -> str:
    """The path as SQLite takes it together with options."""
    return "file:" + quote(os.path.abspath(path))


def is_on_network(path: str) -> bool:
    """Whether a file lies on a file system that several hosts share, as far as the system reports."""
    try:
        with open("/proc/self/mounts") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return False
    real = os.path.realpath(path)
    above = [(point, kind) for point, kind in mounts if real.startswith(point.rstrip("/") + "/")]
    _, kind = max(above, key=lambda each: len(each[0]), default=("", ""))
    return kind.startswith(_NETWORK)


def _make_durable(connection: sqlite3.Connection, path: str, *, sync: bool) -> None:
    """Set how commits are kept, and read it back: SQLite passes over a setting that it does not take."""
    # The log of WAL is shared through memory, which other hosts do not see.
    wanted = "delete" if is_on_network(path) else "wal"
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        connection.execute(f"PRAGMA journal_mode = {wanted}")
    connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
    [journal] = connection.execute("PRAGMA journal_mode").fetchone()
    [level] = connection.execute("PRAGMA synchronous").fetchone()
    if (journal, level) != (wanted, _SYNC_LEVELS[sync]):
        raise TraceError(f"`{path}` cannot be made durable", hint="does its file system support locks?")


def _is_at_rest(path: str) -> bool:
    """Whether everything is in the file itself, and nothing in a journal beside it."""
    beside = [path + suffix for suffix in ("-wal", "-journal")]
    try:
        return not any(os.path.exists(each) and os.stat(each).st_size for each in beside)
    except OSError:
        return False


def _opened_at_rest(path: str) -> sqlite3.Connection:
    """A connection that could write and does not.

    SQLite makes its files beside a ledger for every reader, and only a connection that could write removes them.
    """
    connection = _probed(f"{uri(path)}?mode=rw", path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _is_refused(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def _probed(address: str, path: str) -> sqlite3.Connection:
    """A connection that was seen to work: opening alone does not touch the file."""
    connection = connect(address)
    try:
        require_ledger_file(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection
