"""Many runs in one SQLite file, each line as it was given beside the few columns people search by."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike, fspath
from threading import Lock
from types import TracebackType
from typing import Final, Self

from gert.ecosystem.stores import sqlite_file
from gert.ecosystem.stores.append_file import Lock as FileLock
from gert.ecosystem.stores.append_file import exclusive
from gert.ecosystem.stores.batch import check_batch, check_next, columns_of
from gert.ecosystem.stores.sqlite_file import Place, check_ours, open_reader, open_writer, roll_back, worded
from gert.ecosystem.stores.sqlite_upgrade import RUN_IDS
from gert.errors import TraceError
from gert.kernel.foundation.canonical import sha256_hex

_END: Final = """
SELECT (SELECT count FROM runs WHERE run_id = ?1), (SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ?1)
"""
_LAST_ANSWER: Final = "SELECT coalesce(max(n), 0) FROM answers WHERE run_id = ?"
_ADD_EVENT: Final = "INSERT INTO events (run_id, seq, type, timestamp, line) VALUES (?, ?, ?, ?, ?)"
_ADD_ANSWER: Final = "INSERT INTO answers VALUES (?, ?, ?)"
# A head that was sealed is not sealed any more: whoever writes here has no key.
_END_RUN: Final = """
INSERT INTO runs (run_id, count, hash, started_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (run_id) DO UPDATE SET count = ?2, hash = ?3, seal = NULL, updated_at = ?5,
    started_at = CASE WHEN count = 0 THEN ?4 ELSE started_at END
"""
_EVENTS: Final = "SELECT line FROM events WHERE run_id = ? AND seq > ? ORDER BY seq"
_ANSWERS: Final = "SELECT line FROM answers WHERE run_id = ? AND n > ? ORDER BY n"
_LAST: Final = "SELECT line FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT ?"
_LAST_TIME: Final = "SELECT timestamp FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1"


class SqliteStore:
    """A database of runs; made if it is not there, unless it is only to be read."""

    def __init__(self, path: str | PathLike[str], *, sync: bool = True, read_only: bool = False) -> None:
        self.path = fspath(path)
        self.durable = sync
        self._lock = Lock()
        self._read_only = read_only
        self._writer: sqlite3.Connection | None = None
        self._leases: dict[str, FileLock] = {}
        with self._refusing():
            if read_only:
                with closing(self._connect_reader()) as reader:
                    check_ours(reader, self.path)
            else:
                self._writer = open_writer(self.path, sync=sync, busy_ms=sqlite_file.BUSY_MS)
        self._place = Place(self.path)

    def append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes] = ()) -> None:
        """Write a batch in one transaction."""
        check_batch(run_id, first_seq, events, answers)
        rows = [(run_id, at.seq, at.type, at.timestamp, line) for line in events for at in (columns_of(line),)]
        with self._lock, self._refusing():
            writer = self._writing()
            writer.execute("BEGIN IMMEDIATE")
            try:
                self._require_place(run_id)
                self._insert(writer, run_id, first_seq, rows, answers)
                writer.execute("COMMIT")
            except BaseException:
                roll_back(writer)
                raise

    def events(self, run_id: str, since: int = 0) -> Iterator[bytes]:
        """The lines after the number `since`."""
        return self._lines(_EVENTS, run_id, since)

    def last_lines(self, run_id: str, limit: int) -> list[bytes]:
        """The last lines of a run, the very last first."""
        return list(self._lines(_LAST, run_id, limit))

    def last_time(self, run_id: str) -> str:
        """The timestamp of the last event of a run."""
        with self._refusing(), closing(self._connect_reader()) as reader:
            row = reader.execute(_LAST_TIME, (run_id,)).fetchone()
        return str(row[0]) if row is not None else ""

    def answers(self, run_id: str) -> Iterator[bytes]:
        """The answers, in order."""
        return self._lines(_ANSWERS, run_id, 0)

    def write_state(self, run_id: str, state: bytes) -> None:
        """Keep what identifies a run, in place of what was kept before."""
        with self._lock, self._refusing():
            writer = self._writing()
            writer.execute("BEGIN IMMEDIATE")
            try:
                self._require_place(run_id)
                writer.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (run_id, state))
                writer.execute("COMMIT")
            except BaseException:
                roll_back(writer)
                raise

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
        with exclusive(f"{self.path}-{run_id}.lock", f"run `{run_id}`") as lock:
            self._leases[run_id] = lock
            try:
                yield
            finally:
                del self._leases[run_id]

    def runs(self) -> Iterator[str]:
        """The runs, by id."""
        with self._refusing(), closing(self._connect_reader()) as reader:
            for (run_id,) in reader.execute(RUN_IDS):
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

    def _writing(self) -> sqlite3.Connection:
        if self._writer is None:
            raise TraceError("the store is closed, or open only for reading")
        return self._writer

    def _require_place(self, run_id: str) -> None:
        """Refuse to write what nobody would find, and to a run somebody else may be driving by now."""
        self._place.require()
        lease = self._leases.get(run_id)
        if lease is not None:
            lease.require()

    def _insert(
        self,
        writer: sqlite3.Connection,
        run_id: str,
        first_seq: int,
        rows: Sequence[tuple[str, int, str, str, bytes]],
        answers: Sequence[bytes],
    ) -> None:
        counted, last = writer.execute(_END, (run_id,)).fetchone()
        if (counted or 0) != last:
            raise is_cut(self.path, run_id, counted or 0, last)
        check_next(run_id, last, first_seq)
        if answers:
            [known] = writer.execute(_LAST_ANSWER, (run_id,)).fetchone()
            writer.executemany(_ADD_ANSWER, [(run_id, n, line) for n, line in enumerate(answers, start=known + 1)])
        if rows:
            writer.executemany(_ADD_EVENT, rows)
            _, seq, _, updated, line = rows[-1]
            writer.execute(_END_RUN, (run_id, seq, sha256_hex(line), rows[0][3], updated))

    def _lines(self, query: str, run_id: str, since: int) -> Iterator[bytes]:
        # A connection of its own: a reader sees one state of the database and never waits for the writer.
        with self._refusing(), closing(self._connect_reader()) as reader:
            for (line,) in reader.execute(query, (run_id, since)):
                if not isinstance(line, bytes):
                    raise is_no_line(self.path, run_id)
                yield line

    def _connect_reader(self) -> sqlite3.Connection:
        return open_reader(self.path, alone=self._read_only)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Word what SQLite says as our own error."""
        try:
            yield
        except sqlite3.Error as error:
            raise worded(self.path, error) from error


def is_cut(path: str, run_id: str, counted: int, found: int) -> TraceError:
    """Say that a run does not end where it should."""
    return TraceError(
        f"run `{run_id}` in `{path}` does not end where it should: expected {counted} events, found {found}",
        hint="nothing is added to it; `gert run verify-ledger` says more",
    )


def is_no_line(path: str, run_id: str) -> TraceError:
    """Say that something else stands where a line should."""
    return TraceError(f"`{path}` holds something that is not a line in run `{run_id}`")
