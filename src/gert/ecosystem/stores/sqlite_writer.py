"""Writes a ledger in a SQLite file: everything that waits in one transaction, each change on its own account."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from msgspec import structs

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.settling import acquired, check_follows, released, renewed, rival, settled
from gert.ecosystem.stores.sqlite import is_cut
from gert.ecosystem.stores.sqlite_file import is_busy, open_writer, worded
from gert.ecosystem.stores.sqlite_rows import call_of, encode, lease_of, snapshot_of
from gert.ecosystem.stores.threads import Task
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

_END: Final = """
SELECT tenant, count, hash, snapshot, started_at, updated_at, seal, lease_worker, lease_token, lease_expires,
    (SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ?1)
FROM runs WHERE run_id = ?1
"""
_LAST_CALL: Final = sql.for_sqlite(sql.LAST_CALL)
_HELD: Final = f"SELECT {sql.CALL_COLUMNS} FROM calls WHERE tenant = ? AND name = ? AND semantic_key = ? AND held = 1"  # noqa: S608
_ADD_EVENT: Final = "INSERT INTO events (run_id, seq, type, timestamp, summary_type, line) VALUES (?, ?, ?, ?, ?, ?)"
_ADD_RUN: Final = """
INSERT INTO runs (tenant, count, hash, seal, status, snapshot, started_at, updated_at, run_id, lease_token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
"""
_END_RUN: Final = """
UPDATE runs SET tenant = ?, count = ?, hash = ?, seal = ?, status = ?, snapshot = ?, started_at = ?, updated_at = ?
WHERE run_id = ?
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

_NOTHING: Final = (None, 0, GENESIS, None, "", "", None, None, 0, None, 0)


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
        self._attempts = max(1, max_retry_attempts)
        self._backoff = retry_backoff_seconds
        self._key = key
        self._clock = clock
        try:
            self._connection = open_writer(path, sync=sync, busy_ms=busy_timeout_ms)
        except sqlite3.Error as error:
            raise worded(path, error) from error
        self._execute = self._connection.execute

    def do_all(self, tasks: Sequence[Task]) -> None:
        """Do tasks in one transaction; where SQLite refuses one of them, each in its own."""
        try:
            self._transact(tasks)
        except sqlite3.Error as error:
            if len(tasks) == 1:
                tasks[0].error = worded(self._path, error)
            elif is_busy(error):
                # Nobody got in; waiting as long for each of them would help nobody.
                for task in tasks:
                    task.error = worded(self._path, error)
            else:
                for task in tasks:
                    self.do_all([task])

    def append(
        self, run_id: str, write: Write, expects: Sequence[Expect], fence: int | None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run; nothing is changed before everything is settled."""
        row = self._execute(_END, (run_id,)).fetchone()
        is_new = row is None
        tenant, count, hashed, snapshot, started, updated, seal, worker, token, expires, last = row or _NOTHING
        if count != last:
            raise is_cut(self._path, run_id, count, last)
        moment = self._clock()
        if token or fence is not None:
            may_append(lease_of(run_id, worker, token, expires), fence, moment)
        for key, last_seq in expects:
            if self._execute(_LAST_CALL, (run_id, key)).fetchone()[0] != last_seq:
                return Overtaken(key)
        head = Head(run_id, tenant, count, hashed, snapshot_of(snapshot, run_id), started, updated, seal)
        batch = write(head, format_timestamp(moment))
        check_follows(head, batch)
        calls, ends = settled(batch)
        if calls and (other := rival(run_id, calls, ends, self._holder)) is not None:
            return Held(other)
        if not batch.rows:
            return Written(batch)
        if self._key is not None:
            batch = batch._replace(head=structs.replace(batch.head, seal=seal_head(batch.head, self._key)))
        self._put(run_id, batch, calls, ends, is_new)
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

    def _put(self, run_id: str, batch: Batch, calls: Sequence[Call], ends: Sequence[End], is_new: bool) -> None:
        head, execute = batch.head, self._execute
        for seq, kind, timestamp, summary_type, line in batch.rows:
            execute(_ADD_EVENT, (run_id, seq, kind, timestamp, summary_type, line))
        status, data = (None, None) if head.snapshot is None else (head.snapshot.status, encode(head.snapshot))
        execute(
            _ADD_RUN if is_new else _END_RUN,
            (head.tenant, head.count, head.hash, head.seal, status, data, head.started_at, head.updated_at, run_id),
        )
        for end in ends:
            is_holding = int(end.outcome in HOLDING)
            execute(_END_CALL, (end.outcome, end.done_seq, end.drift, is_holding, run_id, end.seq))
        for call in calls:
            execute(_ADD_CALL, (*structs.astuple(call), int(call.held)))

    def _holder(self, call: Call) -> Call | None:
        row = self._execute(_HELD, (call.tenant, call.name, call.semantic_key)).fetchone()
        return call_of(row) if row is not None else None

    def _lease(self, run_id: str) -> Lease | None:
        row = self._execute(_LEASE, (run_id,)).fetchone()
        return lease_of(run_id, *row) if row is not None else None

    def _keep(self, lease: Lease | None) -> Lease | None:
        if lease is not None:
            expires = format_timestamp(lease.expires_at) if lease.worker_id is not None else None
            self._execute(_SET_LEASE, (lease.run_id, GENESIS, lease.worker_id, lease.token, expires))
        return lease

    def _transact(self, tasks: Sequence[Task]) -> None:
        self._begin()
        try:
            for task in tasks:
                task.run(passed_on=sqlite3.Error)
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            raise

    def _begin(self) -> None:
        """Wait for the database as long as SQLite does, and then a few times more."""
        for attempt in range(1, self._attempts + 1):
            try:
                self._execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                if not is_busy(error) or attempt == self._attempts:
                    raise
                time.sleep(self._backoff * 2 ** (attempt - 1))
