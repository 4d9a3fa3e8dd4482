"""Reads a ledger in a SQLite file, on a connection of its own: nobody who reads holds up the writer."""

import sqlite3
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.core import Page
from gert.ecosystem.stores.rows import call_of, head_of, lease_of
from gert.ecosystem.stores.sqlite import is_no_line
from gert.ecosystem.stores.sqlite_file import check_ours, open_reader, worded
from gert.ecosystem.stores.sqlite_upgrade import version_of, view_as_newest
from gert.kernel.agent.ledger import Call, Head, Lease, SchemaInfo

P = ParamSpec("P")
T = TypeVar("T")

_HEAD: Final = sql.for_sqlite(sql.HEAD)
_LINES: Final = "SELECT seq, line FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
_LINE: Final = "SELECT line FROM events WHERE run_id = ? AND seq = ?"
_CALLS: Final = sql.for_sqlite(sql.CALLS)
_OPEN_CALLS: Final = sql.for_sqlite(sql.OPEN_CALLS)
_HOLDER: Final = sql.for_sqlite(sql.HOLDER)
_SUMMARY: Final = sql.for_sqlite(sql.SUMMARY)
_SUMMARIES: Final = sql.for_sqlite(sql.SUMMARIES)
_LATEST_SUMMARIES: Final = sql.for_sqlite(sql.LATEST_SUMMARIES)
_LEASE: Final = "SELECT lease_worker, lease_token, lease_expires FROM runs WHERE run_id = ?"
_COUNT: Final = "SELECT count FROM runs WHERE run_id = ?"
_HANDFUL: Final = 32
_MOST: Final = (1 << 63) - 1


def _worded(method: "Callable[Concatenate[SqliteReader, P], T]") -> "Callable[Concatenate[SqliteReader, P], T]":
    """Word what SQLite says as our own error."""

    @wraps(method)
    def reading(self: "SqliteReader", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise worded(self.path, error) from error

    return reading


class SqliteReader:
    """One connection, on which everything that only looks is done; opened when it is first needed."""

    def __init__(self, path: str, *, alone: bool, busy_timeout_ms: int) -> None:
        self.path = path
        self._alone = alone
        self._busy_ms = busy_timeout_ms
        self._connection: sqlite3.Connection | None = None

    @_worded
    def check(self) -> None:
        """Refuse what is no database of ours."""
        self._connect()

    @_worded
    def head(self, run_id: str) -> Head | None:
        """The end of a run."""
        row = self._execute(_HEAD, (run_id,)).fetchone()
        return head_of(row) if row is not None else None

    @_worded
    def page(self, run_id: str, since: int, limit: int, most_bytes: int | None) -> Page:
        """Lines after a number."""
        lines: list[bytes] = []
        last, room = since, _MOST if most_bytes is None else most_bytes
        with closing(self._execute(_LINES, (run_id, since, limit))) as cursor:
            # By the handful: a page is read faster than line by line, and yet ends where there is no more room.
            while room > 0 and (rows := cursor.fetchmany(_HANDFUL)):
                last = rows[-1][0]
                found = [line for _, line in rows]
                self._check(found, run_id)
                lines += found
                room -= sum(map(len, found))
        return Page(last, lines)

    @_worded
    def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Lines by their numbers."""
        found = {seq: self._execute(_LINE, (run_id, seq)).fetchone() for seq in seqs}
        lines = {seq: row[0] for seq, row in found.items() if row is not None}
        self._check(list(lines.values()), run_id)
        return lines

    @_worded
    def calls(self, run_id: str, key: str, limit: int) -> list[Call]:
        """The requests under a key, the newest first."""
        return [call_of(row) for row in self._execute(_CALLS, (run_id, key, limit))]

    @_worded
    def open_calls(self, run_id: str, limit: int) -> list[Call]:
        """The requests without an end, the oldest first."""
        return [call_of(row) for row in self._execute(_OPEN_CALLS, (run_id, limit))]

    @_worded
    def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The call that holds a semantic key, or else the newest that had it."""
        row = self._execute(_HOLDER, (tenant, name, semantic_key)).fetchone()
        return call_of(row) if row is not None else None

    @_worded
    def count_calls(self, name: str, run_id: str | None, tenant: str | None, since: str) -> int:
        """How often a tool was requested."""
        conditions = {"name = ?": name, "timestamp >= ?": since, "run_id = ?": run_id, "tenant = ?": tenant}
        chosen = {condition: value for condition, value in conditions.items() if value is not None}
        query = f"SELECT count(*) FROM calls WHERE kind = 'tool' AND {' AND '.join(chosen)}"  # noqa: S608 - constants
        return int(self._execute(query, tuple(chosen.values())).fetchone()[0])

    @_worded
    def summaries(self, run_id: str, summary_type: str | None, limit: int) -> list[bytes]:
        """The newest summaries, the newest first."""
        if summary_type is None:
            return self._lines(run_id, _SUMMARIES, (run_id, limit))
        return self._lines(run_id, _SUMMARY, (run_id, summary_type, limit))

    @_worded
    def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The newest summary of each type that begins with a prefix, by type."""
        return self._lines(run_id, _LATEST_SUMMARIES, (run_id, prefix))

    @_worded
    def runs(self, tenant: str | None, since: str | None, status: str | None, limit: int | None) -> list[Head]:
        """Runs, the last written first."""
        conditions = {"tenant = ?": tenant, "updated_at >= ?": since, "status = ?": status}
        chosen = {condition: value for condition, value in conditions.items() if value is not None}
        query = (
            f"SELECT {sql.HEAD_COLUMNS} FROM runs WHERE {' AND '.join(('count > 0', *chosen))}"  # noqa: S608 - constants
            " ORDER BY updated_at DESC, run_id DESC LIMIT ?"
        )
        most = limit if limit is not None else -1
        return [head_of(row) for row in self._execute(query, (*chosen.values(), most))]

    @_worded
    def lease(self, run_id: str) -> Lease | None:
        """The lease of a run as it was last written."""
        row = self._execute(_LEASE, (run_id,)).fetchone()
        return lease_of(run_id, *row) if row is not None else None

    @_worded
    def count(self, run_id: str) -> int:
        """How many events a run has."""
        row = self._execute(_COUNT, (run_id,)).fetchone()
        return int(row[0]) if row is not None else 0

    @_worded
    def look(self, run_ids: Sequence[str]) -> Hashable:
        """A number that changes whenever another connection has written; each connection counts for itself."""
        return id(self), int(self._execute("PRAGMA data_version", ()).fetchone()[0])

    @_worded
    def schema_info(self) -> SchemaInfo:
        """What the database says of itself."""
        return SchemaInfo("sqlite", str(version_of(self._connect(), self.path)))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, query: str, values: Sequence[Any]) -> sqlite3.Cursor:
        return (self._connection or self._connect()).execute(query, values)

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = open_reader(self.path, alone=self._alone, busy_ms=self._busy_ms)
            try:
                view_as_newest(connection, check_ours(connection, self.path))
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _lines(self, run_id: str, query: str, values: Sequence[Any]) -> list[bytes]:
        found = [line for (line,) in self._execute(query, values)]
        self._check(found, run_id)
        return found

    def _check(self, lines: Sequence[Any], run_id: str) -> None:
        if not {*map(type, lines)} <= {bytes}:
            raise is_no_line(self.path, run_id)
