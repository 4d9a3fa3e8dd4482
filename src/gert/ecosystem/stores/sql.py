"""The tables of a ledger and every question put to them, written once for SQLite and Postgres.

Placeholders are numbered as Postgres numbers them; `for_sqlite` gives the same statement in the words of SQLite.
Times are text, in UTC with microseconds, so that they sort alike everywhere.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

Backend = Literal["sqlite", "postgres"]

SCHEMA_VERSION: Final = 3

_TYPES: Final[Mapping[Backend, Mapping[str, str]]] = {
    "sqlite": {"bytes": "BLOB", "number": "INTEGER"},
    "postgres": {"bytes": "BYTEA", "number": "BIGINT"},
}

# Kept in the order of their keys, where that spares a second tree; lines are long and stay out of it.
_KEYED: Final[Mapping[Backend, str]] = {"sqlite": " WITHOUT ROWID", "postgres": ""}

# `C`: text is compared by its bytes, as SQLite does and as ids that sort by time need it.
_COLLATION: Final[Mapping[Backend, str]] = {"sqlite": "", "postgres": ' COLLATE "C"'}

_TABLES: Final = {
    "meta": "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL){keyed}",
    "events": """CREATE TABLE events (
        run_id TEXT{c} NOT NULL, seq {number} NOT NULL, type TEXT NOT NULL, timestamp TEXT{c} NOT NULL,
        line {bytes} NOT NULL, summary_type TEXT{c},
        PRIMARY KEY (run_id, seq)
    )""",
    "answers": """CREATE TABLE answers (
        run_id TEXT{c} NOT NULL, n {number} NOT NULL, line {bytes} NOT NULL,
        PRIMARY KEY (run_id, n)
    )""",
    "states": "CREATE TABLE states (run_id TEXT{c} PRIMARY KEY, state {bytes} NOT NULL)",
    # One row for each run: where it ends, how it stands, and who drives it. Whoever appends and whoever takes a
    # lease change the same row, so one of them is first.
    "runs": """CREATE TABLE runs (
        run_id TEXT{c} PRIMARY KEY, tenant TEXT{c}, count {number} NOT NULL, hash TEXT NOT NULL, seal TEXT,
        status TEXT, snapshot {bytes}, started_at TEXT{c} NOT NULL, updated_at TEXT{c} NOT NULL,
        lease_worker TEXT, lease_token {number} NOT NULL DEFAULT 0, lease_expires TEXT{c}
    ){keyed}""",
    "calls": """CREATE TABLE calls (
        run_id TEXT{c} NOT NULL, seq {number} NOT NULL, kind TEXT NOT NULL, key TEXT{c} NOT NULL, name TEXT{c} NOT NULL,
        tenant TEXT{c} NOT NULL, timestamp TEXT{c} NOT NULL, input_hash TEXT NOT NULL, semantic_key TEXT{c},
        outcome TEXT NOT NULL, done_seq {number}, drift TEXT NOT NULL, held {number} NOT NULL,
        PRIMARY KEY (run_id, seq)
    ){keyed}""",
}

_INDEXES: Final = (
    "CREATE INDEX events_by_summary ON events (run_id, summary_type, seq) WHERE summary_type IS NOT NULL",
    # None by the time of the last event: every append would have to change it, and there are few runs to an event.
    "CREATE INDEX runs_by_tenant ON runs (tenant, started_at)",
    "CREATE INDEX calls_by_key ON calls (run_id, key, seq)",
    "CREATE INDEX calls_by_name ON calls (tenant, name, timestamp) WHERE kind = 'tool'",
    "CREATE INDEX calls_by_semantic ON calls (tenant, name, semantic_key) WHERE semantic_key IS NOT NULL",
    # Two calls that mean the same are never both under way or done.
    "CREATE UNIQUE INDEX calls_held ON calls (tenant, name, semantic_key) WHERE held = 1",
)


def table(name: str, backend: Backend) -> str:
    """The statement that makes a table."""
    return _TABLES[name].format(c=_COLLATION[backend], keyed=_KEYED[backend], **_TYPES[backend])


def schema(backend: Backend) -> tuple[str, ...]:
    """The statements that make an empty ledger."""
    return (*(table(name, backend) for name in _TABLES), *_INDEXES)


def indexes() -> tuple[str, ...]:
    """The statements that make the indexes of version 3."""
    return _INDEXES


_PLACE: Final = re.compile(r"\$(\d+)(?:::\w+(?:\[\])?)?")


def for_sqlite(statement: str) -> str:
    """The same statement for SQLite, without the types Postgres wants to know."""
    return _PLACE.sub(r"?\1", statement)


HEAD_COLUMNS: Final = "run_id, tenant, count, hash, snapshot, started_at, updated_at, seal"
CALL_COLUMNS: Final = (
    "run_id, seq, kind, key, name, tenant, timestamp, input_hash, semantic_key, outcome, done_seq, drift"
)

HEAD: Final = f"SELECT {HEAD_COLUMNS} FROM runs WHERE run_id = $1 AND count > 0"
LINES: Final = "SELECT line FROM events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"
# In two steps: asked at once, SQLite may go through every call of the run in order.
CALLS: Final = (
    f"SELECT {CALL_COLUMNS} FROM calls WHERE run_id = $1 AND seq IN"
    " (SELECT seq FROM calls WHERE run_id = $1 AND key = $2 ORDER BY seq DESC LIMIT $3) ORDER BY seq DESC"
)
LAST_CALL: Final = "SELECT coalesce(max(seq), 0) FROM calls WHERE run_id = $1 AND key = $2"
OPEN_CALLS: Final = f"SELECT {CALL_COLUMNS} FROM calls WHERE run_id = $1 AND outcome = 'open' ORDER BY seq LIMIT $2"
_MEANS_THE_SAME: Final = f"SELECT {CALL_COLUMNS} FROM calls WHERE tenant = $1 AND name = $2 AND semantic_key = $3"
# What `HOLDING` says, without the kernel behind it: runbook runs are kept by these tables, too.
HOLDING: Final = "('open', 'success', 'unknown_outcome')"
HOLDERS: Final = f"{_MEANS_THE_SAME} AND outcome IN {HOLDING} ORDER BY held DESC, timestamp, seq"
HOLDER: Final = (
    f"{_MEANS_THE_SAME} ORDER BY CASE WHEN outcome IN {HOLDING} THEN 1 ELSE 0 END DESC, held DESC,"
    " timestamp DESC, seq DESC LIMIT 1"
)
COUNT_IN_RUN: Final = "SELECT count(*) FROM calls WHERE run_id = $1 AND name = $2 AND kind = 'tool' AND timestamp >= $3"
COUNT_OF_TENANT: Final = (
    "SELECT count(*) FROM calls WHERE tenant = $1 AND name = $2 AND kind = 'tool' AND timestamp >= $3"
)
SUMMARY: Final = (
    "SELECT line FROM events WHERE run_id = $1 AND summary_type = $2 AND summary_type IS NOT NULL"
    " ORDER BY seq DESC LIMIT $3"
)
SUMMARIES: Final = "SELECT line FROM events WHERE run_id = $1 AND summary_type IS NOT NULL ORDER BY seq DESC LIMIT $2"
# From each type straight to the next one: a run may have thousands of summaries of a few types.
LATEST_SUMMARIES: Final = """
WITH RECURSIVE kind(t) AS (
    SELECT min(summary_type) FROM events WHERE run_id = $1 AND summary_type >= $2 AND summary_type IS NOT NULL
    UNION ALL
    SELECT (SELECT min(summary_type) FROM events WHERE run_id = $1 AND summary_type > t AND summary_type IS NOT NULL)
    FROM kind WHERE t IS NOT NULL AND substr(t, 1, length($2)) = $2
)
SELECT (SELECT line FROM events WHERE run_id = $1 AND summary_type = t AND summary_type IS NOT NULL
        ORDER BY seq DESC LIMIT 1)
FROM kind WHERE t IS NOT NULL AND substr(t, 1, length($2)) = $2 ORDER BY t
"""
