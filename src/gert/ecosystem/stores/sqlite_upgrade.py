"""From older databases to this version: step by step, once, whoever else tries."""

import sqlite3
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gert.ecosystem.stores import sql
from gert.errors import TraceError
from gert.kernel.foundation.canonical import sha256_hex

# From each run straight to the next one: `DISTINCT` would look at every event.
RUN_IDS: Final = """
WITH RECURSIVE run(id) AS (
    SELECT min(run_id) FROM main.events
    UNION ALL SELECT (SELECT min(run_id) FROM main.events WHERE run_id > id) FROM run WHERE id IS NOT NULL
) SELECT id FROM run WHERE id IS NOT NULL
"""

_ENDS: Final = """
SELECT seq, timestamp, line, (SELECT timestamp FROM events WHERE run_id = ?1 ORDER BY seq LIMIT 1)
FROM events WHERE run_id = ?1 ORDER BY seq DESC LIMIT 1
"""
_ADD_RUN: Final = (
    "INSERT INTO runs (run_id, tenant, count, hash, started_at, updated_at, lease_token) VALUES (?, ?, ?, ?, ?, ?, 0)"
)


class _Tenant(msgspec.Struct):
    tenant: str | None = None


_TENANT: Final = msgspec.json.Decoder(_Tenant)


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """The version a database says it has."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    version = str(row[0]) if row else ""
    if not version.isdecimal():
        raise TraceError(f"`{path}` does not say which version of gert made it")
    return int(version)


def upgrade(connection: sqlite3.Connection, path: str) -> None:
    """Bring a database of an older version up to this one."""
    if version_of(connection, path) >= sql.SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        for version in range(version_of(connection, path) + 1, sql.SCHEMA_VERSION + 1):
            _STEPS[version](connection)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(version),))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _to_2(connection: sqlite3.Connection) -> None:
    """What identifies a run is kept beside its events."""
    connection.execute("CREATE TABLE states (run_id TEXT PRIMARY KEY, state BLOB NOT NULL)")


def _to_3(connection: sqlite3.Connection) -> None:
    """The end of each run is kept, and events and calls are found by more than their numbers."""
    connection.execute("ALTER TABLE events ADD COLUMN summary_type TEXT")
    for name in ("runs", "calls"):
        connection.execute(sql.table(name, "sqlite"))
    # One run at a time: there may be more of them than memory holds.
    for (run_id,) in connection.execute(RUN_IDS):
        seq, updated, line, started = connection.execute(_ENDS, (run_id,)).fetchone()
        if not isinstance(line, bytes):
            raise TraceError(f"run `{run_id}` holds something that is not a line")
        connection.execute(_ADD_RUN, (run_id, _tenant_of(line), seq, sha256_hex(line), started, updated))
    for statement in sql.indexes():
        connection.execute(statement)


def _tenant_of(line: bytes) -> str | None:
    try:
        return _TENANT.decode(line).tenant
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # whoever verifies the run says what is wrong with it


# What a database of the version before lacks, by the version that has it.
_STEPS: Final[Mapping[int, Callable[[sqlite3.Connection], None]]] = {2: _to_2, 3: _to_3}

_VIEWS: Final = (
    "CREATE TEMP VIEW events AS SELECT run_id, seq, type, timestamp, line, NULL AS summary_type FROM main.events",
    f"CREATE TEMP VIEW run_ids AS {RUN_IDS}",
    """CREATE TEMP VIEW ends AS SELECT id AS run_id,
        (SELECT max(seq) FROM main.events WHERE run_id = id) AS count,
        (SELECT min(seq) FROM main.events WHERE run_id = id) AS first
    FROM run_ids""",
    """CREATE TEMP VIEW runs AS SELECT ends.run_id, NULL AS tenant, count, gert_hash(line) AS hash, NULL AS seal,
        NULL AS status, NULL AS snapshot,
        (SELECT timestamp FROM main.events WHERE run_id = ends.run_id AND seq = first) AS started_at,
        timestamp AS updated_at, NULL AS lease_worker, 0 AS lease_token, NULL AS lease_expires
    FROM ends JOIN main.events AS e ON e.run_id = ends.run_id AND e.seq = count""",
)


def view_as_newest(connection: sqlite3.Connection, version: int) -> None:
    """Let a database of an older version be read like one of this; nothing of it is written."""
    if version >= sql.SCHEMA_VERSION:
        return
    connection.create_function("gert_hash", 1, _hash, deterministic=True)
    [only] = connection.execute("PRAGMA query_only").fetchone()
    # What is temporary stands beside the database, and SQLite asks about it all the same.
    connection.execute("PRAGMA query_only = OFF")
    for statement in _VIEWS:
        connection.execute(statement)
    connection.execute(sql.table("calls", "sqlite").replace("CREATE TABLE", "CREATE TEMP TABLE"))
    connection.execute(f"PRAGMA query_only = {int(only)}")


def _hash(line: object) -> str:
    return sha256_hex(line) if isinstance(line, bytes) else ""
