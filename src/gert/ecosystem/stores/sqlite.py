"""Many runs in one SQLite file, each line as it was given beside the few columns people search by."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike, fspath
from threading import Lock
from types import TracebackType
from typing import Final, Self

from gert.ecosystem.stores.append_file import exclusive
from gert.ecosystem.stores.batch import MAX_ANSWER_BYTES, check_batch, check_next, columns_of
from gert.ecosystem.stores.sqlite_file import check_ours, create, is_empty, make_ours, upgrade, uri, worded
from gert.errors import TraceError

BUSY_SECONDS: Final = 30

_LAST_EVENT: Final = "SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ?"
_LAST_ANSWER: Final = "SELECT coalesce(max(n), 0) FROM answers WHERE run_id = ?"
_ADD_EVENT: Final = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
_ADD_ANSWER: Final = "INSERT INTO answers VALUES (?, ?, ?)"
_EVENTS: Final = "SELECT line FROM events WHERE run_id = ? AND seq > ? ORDER BY seq"
_ANSWERS: Final = "SELECT line FROM answers WHERE run_id = ? AND n > ? ORDER BY n"
# From each run straight to the next one: `DISTINCT` would look at every event.
_RUNS: Final = """
WITH RECURSIVE run(id) AS (
    SELECT min(run_id) FROM events
    UNION ALL SELECT (SELECT min(run_id) FROM events WHERE run_id > id) FROM run WHERE id IS NOT NULL
) SELECT id FROM run WHERE id IS NOT NULL
"""


class SqliteStore:
    """A database of runs; made if it is not there, unless it is only to be read."""

    def __init__(self, path: str | PathLike[str], *, sync: bool = True, read_only: bool = False) -> None:
        self.path = fspath(path)
        self.durable = sync
        self._lock = Lock()
        self._read_only = read_only
        self._writer: sqlite3.Connection | None = None
        if read_only:
            with self._refusing(), closing(self._connect_reader()) as reader:
                check_ours(reader, self.path)
            return
        create(self.path)
        with self._refusing():
            self._writer = self._connect(f"{uri(self.path)}?mode=rw")
            try:
                self._prepare(self._writer, sync=sync)
            except BaseException:
                self.close()
                raise

    def append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes] = ()) -> None:
        """Write a batch in one transaction."""
        check_batch(run_id, first_seq, events, answers)
        rows = [(run_id, at.seq, at.type, at.timestamp, line) for line in events for at in (columns_of(line),)]
        with self._lock, self._refusing():
            if self._writer is None:
                raise TraceError("the store is closed, or open only for reading")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                self._insert(self._writer, run_id, first_seq, rows, answers)
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def events(self, run_id: str, since: int = 0) -> Iterator[bytes]:
        """The lines after the number `since`."""
        return self._lines(_EVENTS, run_id, since)

    def answers(self, run_id: str) -> Iterator[bytes]:
        """The answers, in order."""
        return self._lines(_ANSWERS, run_id, 0)

    def write_state(self, run_id: str, state: bytes) -> None:
        """Keep what identifies a run, in place of what was kept before."""
        with self._lock, self._refusing():
            if self._writer is None:
                raise TraceError("the store is closed, or open only for reading")
            self._writer.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (run_id, state))

    def state(self, run_id: str) -> bytes | None:
        """What identifies a run, if it was kept."""
        with self._refusing(), closing(self._connect_reader()) as reader:
            if not reader.execute("SELECT count(*) FROM sqlite_master WHERE name = 'states'").fetchone()[0]:
                return None
            row = reader.execute("SELECT state FROM states WHERE run_id = ?", (run_id,)).fetchone()
        return row[0] if row is not None and isinstance(row[0], bytes) else None

    @contextmanager
    def lease(self, run_id: str) -> Iterator[None]:
        """Be the only one who drives a run, as long as this process lives; TraceError where somebody else does."""
        with exclusive(f"{self.path}-{run_id}.lock", f"run `{run_id}`"):
            yield

    def runs(self) -> Iterator[str]:
        """The runs, by id."""
        with self._refusing(), closing(self._connect_reader()) as reader:
            for (run_id,) in reader.execute(_RUNS):
                yield str(run_id)

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _insert(
        self,
        writer: sqlite3.Connection,
        run_id: str,
        first_seq: int,
        rows: Sequence[tuple[str, int, str, str, bytes]],
        answers: Sequence[bytes],
    ) -> None:
        [last] = writer.execute(_LAST_EVENT, (run_id,)).fetchone()
        check_next(run_id, last, first_seq)
        if answers:
            [known] = writer.execute(_LAST_ANSWER, (run_id,)).fetchone()
            writer.executemany(_ADD_ANSWER, [(run_id, n, line) for n, line in enumerate(answers, start=known + 1)])
        writer.executemany(_ADD_EVENT, rows)

    def _lines(self, query: str, run_id: str, since: int) -> Iterator[bytes]:
        # A connection of its own: a reader sees one state of the database and never waits for the writer.
        with self._refusing(), closing(self._connect_reader()) as reader:
            for (line,) in reader.execute(query, (run_id, since)):
                if not isinstance(line, bytes):
                    raise TraceError(f"`{self.path}` holds something that is not a line in run `{run_id}`")
                yield line

    def _prepare(self, connection: sqlite3.Connection, *, sync: bool) -> None:
        # Before anything is written: whose file is this?
        if is_empty(connection):
            make_ours(connection)
        check_ours(connection, self.path)
        upgrade(connection)
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")

    def _connect_reader(self) -> sqlite3.Connection:
        try:
            return self._probed(f"{uri(self.path)}?mode=ro")
        except sqlite3.OperationalError as error:
            # On a medium nobody can write to there is no room for the files beside it, nor a writer to mind.
            refused = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            if not (refused and self._read_only) or os.path.exists(self.path + "-wal"):
                raise
            return self._probed(f"{uri(self.path)}?mode=ro&immutable=1")

    def _probed(self, address: str) -> sqlite3.Connection:
        """A connection that was seen to work: opening alone does not touch the file."""
        connection = self._connect(address)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, address: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # The file may come from anyone: no code in its schema runs, and no row is larger than a line can be.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ANSWER_BYTES + (1 << 20))
        return connection

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Word what SQLite says as our own error."""
        try:
            yield
        except sqlite3.Error as error:
            raise worded(self.path, error) from error
