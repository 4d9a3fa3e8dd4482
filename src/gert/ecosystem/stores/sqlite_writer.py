"""Writes a ledger in a SQLite file: everything that waits in one transaction, each change on its own account."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from msgspec import structs

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.naming import stamps_of
from gert.ecosystem.stores.rows import call_of, encode, head_of, lease_of
from gert.ecosystem.stores.settling import acquired, check_follows, released, renewed, rival, settled
from gert.ecosystem.stores.sqlite import is_cut
from gert.ecosystem.stores.sqlite_file import Place, is_busy, open_writer, roll_back, worded
from gert.ecosystem.stores.tasks import Task
from gert.kernel.agent.ledger import (
    HOLDING,
    Batch,
    Call,
    End,
    Expect,
    Head,
    Held,
    Lease,
    Overtaken,
    Write,
    Written,
    may_append,
)
from gert.kernel.agent.verifying import seal_head
from gert.kernel.events.chain import GENESIS
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.signature import Key

_END: Final = (
    f"SELECT {sql.HEAD_COLUMNS}, lease_worker, lease_token, lease_expires,"  # noqa: S608 - constants
    " (SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ?1) FROM runs WHERE run_id = ?1"
)
_LAST_CALL: Final = sql.for_sqlite(sql.LAST_CALL)
_HOLDERS: Final = sql.for_sqlite(sql.HOLDERS)
_ADD_EVENT: Final = "INSERT INTO events (run_id, seq, type, timestamp, summary_type, line) VALUES (?, ?, ?, ?, ?, ?)"
# A run may have a row before it has events: somebody took its lease.
_BEGIN_RUN: Final = """
INSERT INTO runs (count, hash, seal, status, snapshot, updated_at, run_id, tenant, started_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (run_id) DO UPDATE SET count = ?1, hash = ?2, seal = ?3, status = ?4, snapshot = ?5, updated_at = ?6,
    tenant = ?8, started_at = ?9
"""
# What an index holds is left alone: SQLite would write the index again, whether it changed or not.
_END_RUN: Final = """
UPDATE runs SET count = ?, hash = ?, seal = ?, status = ?, snapshot = ?, updated_at = ? WHERE run_id = ?
"""
_ADD_CALL: Final = f"INSERT INTO calls ({sql.CALL_COLUMNS}, held) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
# A call that turns out to have happened after all holds its key again, unless another has it by now.
_END_CALL: Final = """
UPDATE calls SET outcome = coalesce(?1, outcome), done_seq = coalesce(?2, done_seq), drift = coalesce(?3, drift),
    held = CASE WHEN ?1 IS NULL THEN held WHEN ?4 = 0 OR semantic_key IS NULL THEN 0
        ELSE held OR NOT EXISTS (
            SELECT 1 FROM calls AS other WHERE other.tenant = calls.tenant AND other.name = calls.name
                AND other.semantic_key = calls.semantic_key AND other.held = 1
        ) END
WHERE run_id = ?5 AND seq = ?6
"""
_LEASE: Final = "SELECT lease_worker, lease_token, lease_expires FROM runs WHERE run_id = ?"
_SET_LEASE: Final = """
INSERT INTO runs (run_id, count, hash, started_at, updated_at, lease_worker, lease_token, lease_expires)
VALUES (?1, 0, ?2, '', '', ?3, ?4, ?5)
ON CONFLICT (run_id) DO UPDATE SET lease_worker = ?3, lease_token = ?4, lease_expires = ?5
"""

LOOK_EVERY: Final = 0.05
"""How long, in seconds, a ledger that somebody takes away may be written on: looking costs an eighth of an append."""

_MOST_KEPT: Final = 1000

T = TypeVar("T")


class SqliteWriter:
    """One connection, on which everything that changes the record is done."""

    def __init__(
        self,
        path: str,
        *,
        sync: bool,
        busy_timeout_ms: int,
        max_retry_attempts: int,
        retry_backoff_seconds: float,
        key: Key | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._path = path
        self._busy_ms = busy_timeout_ms
        self._is_patient = True
        self._attempts = max(1, max_retry_attempts)
        self._backoff = retry_backoff_seconds
        self._key = key
        self._clock = clock
        self._stamp = stamps_of(clock)
        try:
            self._connection = open_writer(path, sync=sync, busy_ms=busy_timeout_ms)
        except sqlite3.Error as error:
            raise worded(path, error) from error
        self._execute = self._connection.execute
        self._place = Place(path, every=LOOK_EVERY)
        # Runs as this connection left them, as long as no other has written.
        self._ends: dict[str, _End] = {}
        self._seen: int | None = None

    def do_all(self, tasks: Sequence[Task], *, patiently: bool = True) -> bool:
        """Do tasks in one transaction; where SQLite refuses one of them, each in its own."""
        try:
            self._begin(patiently)
        except sqlite3.Error as error:
            if is_busy(error) and not patiently:
                return False
            for task in tasks:
                task.error = worded(self._path, error)
            return True
        try:
            self._transact(tasks)
        except (sqlite3.Error, _HalfDoneError) as error:
            if len(tasks) == 1:
                tasks[0].error = worded(self._path, error) if isinstance(error, sqlite3.Error) else error.__cause__
            else:
                for task in tasks:
                    self.do_all([task])
        return True

    def do_alone(self, call: Callable[["SqliteWriter"], T]) -> T:
        """Do one thing in a transaction of its own; Busy where somebody else has the database."""
        # On the way of every step of an agent, between two waits for the disk: each call less is felt.
        execute = self._execute
        try:
            if self._is_patient:
                self._be_patient(False)
            execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise worded(self._path, error) from error
        try:
            self._look()
            result = call(self)
            execute("COMMIT")
        except BaseException as error:
            self._undo()
            if isinstance(error, sqlite3.Error):
                raise worded(self._path, error) from error
            if isinstance(error, _HalfDoneError) and error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        return result

    def append(
        self, run_id: str, write: Write, expects: Sequence[Expect], fence: int | None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run; nothing is changed before everything is settled."""
        head, lease = self._ends.get(run_id) or self._end_of(run_id)
        if lease is not None or fence is not None:
            may_append(lease, fence, self._clock())
        for key, last_seq in expects:
            if self._execute(_LAST_CALL, (run_id, key)).fetchone()[0] != last_seq:
                return Overtaken(key)
        batch = write(head, self._stamp())
        check_follows(head, batch)
        calls, ends = settled(batch) if batch.calls else (batch.calls, batch.ends)
        if calls and (other := rival(run_id, calls, ends, self._holders)) is not None:
            return Held(other)
        if not batch.rows:
            return Written(batch)
        if self._key is not None:
            batch = batch._replace(head=structs.replace(batch.head, seal=seal_head(batch.head, self._key)))
        try:
            self._put(run_id, batch, calls, ends)
        except sqlite3.Error:
            raise
        except BaseException as error:
            raise _HalfDoneError from error
        self._remember(_End(batch.head, lease))
        return Written(batch)

    def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Take or prolong a lease."""
        return self._keep(acquired(self._lease(run_id), run_id, worker_id, ttl_seconds, self._clock()))

    def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Prolong a lease."""
        return self._keep(renewed(self._lease(run_id), worker_id, ttl_seconds, self._clock()))

    def release(self, run_id: str, worker_id: str) -> bool:
        """Give a lease back."""
        return self._keep(released(self._lease(run_id), worker_id, self._clock())) is not None

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _end_of(self, run_id: str) -> "_End":
        row = self._execute(_END, (run_id,)).fetchone()
        if row is None:
            return _End(Head(run_id), None)
        *columns, worker, token, expires, last = row
        head = head_of(columns)
        if head.count != last:
            raise is_cut(self._path, run_id, head.count, last)
        return _End(head, lease_of(run_id, worker, token, expires))

    def _remember(self, end: "_End") -> None:
        if len(self._ends) >= _MOST_KEPT:
            self._ends.clear()
        self._ends[end.head.run_id] = end

    def _put(self, run_id: str, batch: Batch, calls: Sequence[Call], ends: Sequence[End]) -> None:
        head, execute = batch.head, self._execute
        for seq, kind, timestamp, summary_type, line in batch.rows:
            execute(_ADD_EVENT, (run_id, seq, kind, timestamp, summary_type, line))
        status, data = (None, None) if head.snapshot is None else (head.snapshot.status, encode(head.snapshot))
        end = (head.count, head.hash, head.seal, status, data, head.updated_at, run_id)
        if head.count > len(batch.rows):
            execute(_END_RUN, end)
        else:
            execute(_BEGIN_RUN, (*end, head.tenant, head.started_at))
        for seq, outcome, done_seq, drift in ends:
            execute(_END_CALL, (outcome, done_seq, drift, int(outcome in HOLDING), run_id, seq))
        for call in calls:
            execute(_ADD_CALL, (*structs.astuple(call), int(call.held)))

    def _holders(self, call: Call) -> Iterator[Call]:
        return map(call_of, self._execute(_HOLDERS, (call.tenant, call.name, call.semantic_key)).fetchall())

    def _lease(self, run_id: str) -> Lease | None:
        row = self._execute(_LEASE, (run_id,)).fetchone()
        return lease_of(run_id, *row) if row is not None else None

    def _keep(self, lease: Lease | None) -> Lease | None:
        if lease is not None:
            expires = format_timestamp(lease.expires_at) if lease.worker_id is not None else None
            self._execute(_SET_LEASE, (lease.run_id, GENESIS, lease.worker_id, lease.token, expires))
            self._ends.pop(lease.run_id, None)
        return lease

    def _transact(self, tasks: Sequence[Task]) -> None:
        try:
            self._look()
            for task in tasks:
                task.run(self, (sqlite3.Error, _HalfDoneError))
            self._execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def _look(self) -> None:
        """Forget where runs end if another connection has written; refuse where the files are not there any more."""
        self._place.require()
        [version] = self._execute("PRAGMA data_version").fetchone()
        if version != self._seen:
            self._ends.clear()
            self._seen = version

    def _undo(self) -> None:
        self._ends.clear()
        roll_back(self._connection)

    def _be_patient(self, patiently: bool) -> None:
        self._execute(f"PRAGMA busy_timeout = {self._busy_ms if patiently else 0}")
        self._is_patient = patiently

    def _begin(self, patiently: bool) -> None:
        """Wait for other processes as long as SQLite does, and then a few times more; or not at all."""
        if self._is_patient != patiently:
            self._be_patient(patiently)
        for attempt in range(1, self._attempts + 1):
            try:
                self._execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                if not is_busy(error) or attempt == self._attempts or not patiently:
                    raise
                time.sleep(self._backoff * 2 ** (attempt - 1))


class _End(NamedTuple):
    """Where a run ends, and who has it."""

    head: Head
    lease: Lease | None


class _HalfDoneError(Exception):
    """A change was begun and cannot be finished: what was begun with it must be done again without it."""
