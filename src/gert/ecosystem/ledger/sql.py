"""The tables of a ledger and every statement on them, written once for SQLite and Postgres.

Placeholders are numbered as Postgres numbers them; `for_sqlite` gives the same statement to SQLite. Times are text,
in UTC with microseconds, so that they sort alike everywhere; text columns sort by bytes.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

from gert.kernel.events.chain import GENESIS
from gert.kernel.ledger.record import MAX_MESSAGE, MOST_CALLS

Backend = Literal["sqlite", "postgres"]

SCHEMA_VERSION: Final = 6

_TYPES: Final[Mapping[Backend, Mapping[str, str]]] = {
    "sqlite": {"bytes": "BLOB", "number": "INTEGER", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "real": "REAL"},
    "postgres": {
        "bytes": "BYTEA",
        "number": "BIGINT",
        "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "real": "DOUBLE PRECISION",
    },
}

POSTGRES_NOW: Final = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
# An approver's role may insert a message, and the time is not among what it says.
_CLOCK: Final[Mapping[Backend, str]] = {"sqlite": "", "postgres": f" DEFAULT {POSTGRES_NOW}"}
# Stored in the order of their keys, where that spares a second tree; lines are long and stay out of it.
_KEYED: Final[Mapping[Backend, str]] = {"sqlite": " WITHOUT ROWID", "postgres": ""}
# Of two indexes that promise the same while a table is small, Postgres takes the later one: the key has to be it, as
# `calls_by_key` would lead through every call of a run.
_CALLS_KEY: Final[Mapping[Backend, str]] = {"sqlite": ", PRIMARY KEY (run_id, seq)", "postgres": ""}
_LAST: Final[Mapping[Backend, tuple[str, ...]]] = {
    "sqlite": (),
    "postgres": ("ALTER TABLE calls ADD PRIMARY KEY (run_id, seq)",),
}
_COLLATION: Final[Mapping[Backend, str]] = {"sqlite": "", "postgres": ' COLLATE "C"'}

_TABLES: Final = {
    "meta": "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL){keyed}",
    # One row for each run: its head, its snapshot, and who drives it. An append and a change of the lease change the
    # same row, so one of them is first.
    "runs": """CREATE TABLE runs (
        run_id TEXT{c} PRIMARY KEY, kind TEXT NOT NULL, tenant TEXT{c}, count {number} NOT NULL, hash TEXT NOT NULL,
        answers {number} NOT NULL, answers_hash TEXT NOT NULL, snapshot {bytes}, started_at TEXT{c} NOT NULL,
        updated_at TEXT{c} NOT NULL, seal TEXT, status TEXT, private {bytes},
        lease_worker TEXT, lease_token {number} NOT NULL DEFAULT 0, lease_expires TEXT{c},
        lease_seconds {real} NOT NULL DEFAULT 0, lease_holder {bytes}
    ){keyed}""",
    "events": """CREATE TABLE events (
        run_id TEXT{c} NOT NULL, seq {number} NOT NULL, type TEXT NOT NULL, timestamp TEXT{c} NOT NULL,
        summary_type TEXT{c}, line {bytes} NOT NULL,
        PRIMARY KEY (run_id, seq)
    )""",
    "answers": """CREATE TABLE answers (
        run_id TEXT{c} NOT NULL, n {number} NOT NULL, line {bytes} NOT NULL,
        PRIMARY KEY (run_id, n)
    )""",
    "calls": """CREATE TABLE calls (
        run_id TEXT{c} NOT NULL, seq {number} NOT NULL, kind TEXT NOT NULL, key TEXT{c} NOT NULL, name TEXT{c} NOT NULL,
        tenant TEXT{c} NOT NULL, timestamp TEXT{c} NOT NULL, input_hash TEXT NOT NULL, semantic_key TEXT{c},
        outcome TEXT NOT NULL, done_seq {number}, drift TEXT NOT NULL, last_seq {number} NOT NULL{calls_key}
    ){keyed}""",
    # A rerun takes over the answered tickets of the run it is a rerun of.
    "tickets": """CREATE TABLE tickets (
        ticket_id TEXT{c} NOT NULL, run_id TEXT{c} NOT NULL, seq {number} NOT NULL, step_id TEXT NOT NULL,
        created_at TEXT{c} NOT NULL, expires_at TEXT{c}, status TEXT NOT NULL, done_seq {number},
        request TEXT NOT NULL, responses TEXT NOT NULL,
        PRIMARY KEY (ticket_id, run_id)
    ){keyed}""",
    "inbox": """CREATE TABLE inbox (
        id {serial}, run_id TEXT{c} NOT NULL, kind TEXT NOT NULL, received_at TEXT{c} NOT NULL{clock},
        body {bytes} NOT NULL, ticket_id TEXT{c}, taken {number}
    )""",
    "documents": "CREATE TABLE documents (digest TEXT{c} PRIMARY KEY, body {bytes} NOT NULL)",
    "output": """CREATE TABLE output (
        id {serial}, run_id TEXT{c} NOT NULL, key TEXT{c} NOT NULL, stream TEXT NOT NULL, text TEXT NOT NULL
    )""",
    # What limits count. A request is found by its digest: its key may be too long for an index.
    "claims": """CREATE TABLE claims (
        run_id TEXT{c} NOT NULL, request TEXT{c} NOT NULL, key TEXT{c} NOT NULL, at TEXT{c} NOT NULL,
        PRIMARY KEY (run_id, request)
    ){keyed}""",
    # What model calls cost, reserved or paid: one row for a tree of runs, one for each minute of a tenant.
    "counters": """CREATE TABLE counters (
        kind TEXT NOT NULL, tenant TEXT{c} NOT NULL, name TEXT{c} NOT NULL, bucket TEXT{c} NOT NULL,
        amount {number} NOT NULL,
        PRIMARY KEY (kind, tenant, name, bucket)
    ){keyed}""",
}

_INDEXES: Final = (
    "CREATE INDEX events_by_summary ON events (run_id, summary_type, seq) WHERE summary_type IS NOT NULL",
    # None by the time of the last event: every append would have to change it, and there are few runs to an event.
    "CREATE INDEX runs_by_tenant ON runs (tenant, started_at)",
    "CREATE INDEX calls_by_key ON calls (run_id, key, seq)",
    "CREATE INDEX calls_by_name ON calls (tenant, name, timestamp) WHERE kind = 'tool'",
    "CREATE INDEX calls_by_semantic ON calls (tenant, name, semantic_key) WHERE semantic_key IS NOT NULL",
    "CREATE INDEX tickets_by_run ON tickets (run_id, status)",
    "CREATE INDEX tickets_by_status ON tickets (status, created_at)",
    "CREATE INDEX inbox_by_run ON inbox (run_id, id)",
    "CREATE INDEX output_by_run ON output (run_id, id)",
    "CREATE INDEX claims_by_key ON claims (key, at)",
)


def schema(backend: Backend) -> tuple[str, ...]:
    """The statements that make an empty ledger."""
    kinds = {"c": _COLLATION[backend], "keyed": _KEYED[backend], "clock": _CLOCK[backend], **_TYPES[backend]}
    tables = (text.format(**kinds, calls_key=_CALLS_KEY[backend]) for text in _TABLES.values())
    return (*tables, *_INDEXES, *_LAST[backend])


def tables() -> frozenset[str]:
    """The names of all tables."""
    return frozenset(_TABLES)


_PLACE: Final = re.compile(r"\$(\d+)(?:::\w+(?:\[\])?)?")


@cache
def for_sqlite(statement: str) -> str:
    """The same statement for SQLite, without the types that Postgres wants to know."""
    return _PLACE.sub(r"?\1", statement)


# --- the head of a run and its lease

HEAD_COLUMNS: Final = "run_id, kind, tenant, count, hash, answers, answers_hash, snapshot, started_at, updated_at, seal"
LEASE_COLUMNS: Final = "lease_worker, lease_token, lease_expires, lease_seconds, lease_holder"

HEAD: Final = f"SELECT {HEAD_COLUMNS} FROM runs WHERE run_id = $1 AND count > 0"
STATUS: Final = "SELECT status FROM runs WHERE run_id = $1"
SNAPSHOT: Final = "SELECT snapshot FROM runs WHERE run_id = $1"
PRIVATE: Final = "SELECT private FROM runs WHERE run_id = $1"
COUNT: Final = "SELECT count FROM runs WHERE run_id = $1"
LOCK: Final = f"SELECT {HEAD_COLUMNS}, {LEASE_COLUMNS} FROM runs WHERE run_id = $1"
"""On Postgres `FOR UPDATE` is added; on SQLite the transaction holds the database already."""
UNCHANGED: Final = (
    f"({HEAD_COLUMNS}) IS NOT DISTINCT FROM ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
    f" AND CASE WHEN lease_worker IS NOT NULL AND lease_expires > coalesce($13::text, {POSTGRES_NOW})"
    " THEN lease_token ELSE 0 END = $12"
)
"""Whether the head is $1 to $11, and $12 the token of the lease that is held, or 0; $13 is the time, if it is given."""

# Only on Postgres: SQLite runs one transaction at a time.
SERIALIZE: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))"
LOCK_AND_SERIALIZE: Final = (
    "WITH run AS MATERIALIZED (SELECT FROM runs WHERE run_id = $1 FOR UPDATE)"
    " SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM run, unnest($2::text[]) AS name"
)
"""The row of the run first, and then the names in order, as a transaction of an append locks them."""

LAST_LINE: Final = "SELECT line FROM events WHERE run_id = $1 AND seq = $2"
LAST_SEQ: Final = "SELECT coalesce(max(seq), 0) FROM events WHERE run_id = $1"
# A run has a row before it has events where its lease was taken first.
TOUCH: Final = (
    "INSERT INTO runs (run_id, kind, count, hash, answers, answers_hash, started_at, updated_at)"
    f" VALUES ($1, 'agent', 0, '{GENESIS}', 0, '{GENESIS}', '', '') ON CONFLICT (run_id) DO NOTHING"
)
SET_HEAD: Final = (
    "UPDATE runs SET kind = $2, tenant = $3, count = $4, hash = $5, answers = $6, answers_hash = $7, snapshot = $8,"
    " started_at = $9, updated_at = $10, seal = $11, status = $12, private = $13 WHERE run_id = $1"
)
# Columns of an index are left alone: SQLite would write the index again, whether it changed or not.
MOVE_HEAD: Final = (
    "UPDATE runs SET count = $2, hash = $3, answers = $4, answers_hash = $5, snapshot = $6, updated_at = $7,"
    " seal = $8, status = $9 WHERE run_id = $1"
)
SET_LEASE: Final = (
    "UPDATE runs SET lease_worker = $2, lease_token = $3, lease_expires = $4, lease_seconds = $5, lease_holder = $6"
    " WHERE run_id = $1"
)

# --- what an append writes

ADD_EVENT: Final = (
    "INSERT INTO events (run_id, seq, type, timestamp, summary_type, line)"
    " VALUES ($1, $2::bigint, $3, $4, $5, $6::bytea)"
)
ADD_ANSWER: Final = "INSERT INTO answers (run_id, n, line) VALUES ($1, $2::bigint, $3::bytea)"
CALL_COLUMNS: Final = (
    "run_id, seq, kind, key, name, tenant, timestamp, input_hash, semantic_key, outcome, done_seq, drift, last_seq"
)
ADD_CALL: Final = (
    f"INSERT INTO calls ({CALL_COLUMNS})"
    " VALUES ($1, $2::bigint, $3, $4, $5, $6, $7, $8, $9, $10, $11::bigint, $12, $13::bigint)"
)
END_CALL: Final = """
UPDATE calls SET last_seq = $3, outcome = coalesce($4::text, outcome), drift = coalesce($5::text, drift),
    done_seq = CASE WHEN $4::text IS NULL THEN done_seq ELSE $3 END
WHERE run_id = $1 AND seq = $2
"""
TICKET_COLUMNS: Final = "ticket_id, run_id, seq, step_id, created_at, expires_at, status, done_seq, request, responses"
ADD_TICKET: Final = f"INSERT INTO tickets ({TICKET_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
ADD_RESPONSE: Final = "UPDATE tickets SET responses = responses || $3 WHERE run_id = $1 AND ticket_id = $2"
END_TICKET: Final = (
    "UPDATE tickets SET status = $3, done_seq = $4"
    " WHERE run_id = $1 AND status = 'pending' AND ($2::text IS NULL OR ticket_id = $2)"
)
TAKE: Final = "UPDATE inbox SET taken = $3 WHERE run_id = $1 AND id = $2 AND taken IS NULL"
ADD_DOCUMENT: Final = "INSERT INTO documents (digest, body) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING"
DROP_OUTPUT: Final = "DELETE FROM output WHERE run_id = $1 AND key = $2"

# --- what others write

# A message that is too long is not read whole to find that out.
MESSAGE_COLUMNS: Final = (
    f"id, run_id, kind, received_at, coalesce(substr(body, 1, {MAX_MESSAGE + 1}), body), ticket_id, taken"
)
POST: Final = "INSERT INTO inbox (run_id, kind, body, ticket_id) VALUES ($1, $2, $3, $4)"
POST_AT: Final = "INSERT INTO inbox (run_id, kind, body, ticket_id, received_at) VALUES ($1, $2, $3, $4, $5)"
TICKET_OF: Final = "SELECT status FROM tickets WHERE run_id = $1 AND ticket_id = $2"
ADD_OUTPUT: Final = "INSERT INTO output (run_id, key, stream, text) VALUES ($1, $2, $3, $4)"
# The pieces before the last ones that are as long as the limit.
TRIM_OUTPUT: Final = (
    "DELETE FROM output WHERE run_id = $1 AND key = $2 AND id IN (SELECT id FROM (SELECT id,"
    " sum(length(text)) OVER (ORDER BY id DESC) - length(text) AS later FROM output WHERE run_id = $1 AND key = $2)"
    " AS sizes WHERE later >= $3)"
)
COUNT_CLAIMS: Final = "SELECT count(*) FROM claims WHERE key = $1 AND at >= $2"
# No more is counted than decides: a tenant may have made any number of requests.
COUNT_CALLS: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM calls WHERE tenant = $1 AND name = $2 AND timestamp >= $3 AND kind = 'tool'"
    " LIMIT $4) AS counted"
)
IS_COUNT_WITHIN: Final = f"({COUNT_CALLS}) <= $5::bigint"
SPENT: Final = (
    "SELECT CAST(coalesce(sum(amount), 0) AS BIGINT) FROM counters"
    " WHERE kind = $1 AND tenant = $2 AND name = $3 AND bucket >= $4"
)
IS_SPENT_WITHIN: Final = f"({SPENT}) <= $5::bigint"
ADD_SPEND: Final = (
    "INSERT INTO counters (kind, tenant, name, bucket, amount) VALUES ($1, $2, $3, $4, $5::bigint)"
    " ON CONFLICT (kind, tenant, name, bucket) DO UPDATE SET amount = counters.amount + excluded.amount"
)
CLAIM_OF: Final = "SELECT 1 FROM claims WHERE run_id = $1 AND request = $2 AND at >= $3"
CLAIMED: Final = "SELECT key, count(*) FROM claims WHERE at >= $1 GROUP BY key"
ADD_CLAIM: Final = (
    "INSERT INTO claims (run_id, request, key, at) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (run_id, request) DO UPDATE SET at = excluded.at"
)

# --- reading

LINES: Final = "SELECT line FROM events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"
LAST_LINES: Final = "SELECT line FROM events WHERE run_id = $1 ORDER BY seq DESC LIMIT $2"
EVENTS: Final = (
    "SELECT seq, type, timestamp, summary_type, line FROM events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"
)
ANSWERS: Final = "SELECT n, line FROM answers WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3"
DOCUMENT: Final = "SELECT body FROM documents WHERE digest = $1"
# A range of one key, and in its order: by an equal key and the order of `seq` alone, either database may go through
# every call of the run.
_NEWEST: Final = "FROM calls WHERE run_id = $1 AND key BETWEEN $2 AND $2 ORDER BY key DESC, seq DESC LIMIT"
CALLS: Final = f"SELECT {CALL_COLUMNS} {_NEWEST} $3"
ALL_CALLS: Final = f"SELECT {CALL_COLUMNS} FROM calls WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"
LAST_CALL: Final = f"SELECT coalesce(max(last_seq), 0) FROM (SELECT last_seq {_NEWEST} {MOST_CALLS}) AS newest"
IS_LAST_CALL: Final = f"({LAST_CALL}) = $3::bigint"
OPEN_CALLS: Final = f"SELECT {CALL_COLUMNS} FROM calls WHERE run_id = $1 AND outcome = 'open' ORDER BY seq LIMIT $2"
# Those that may have happened hold the key and come first.
HOLDERS: Final = (
    f"SELECT {CALL_COLUMNS} FROM calls WHERE tenant = $1 AND name = $2 AND semantic_key = $3"
    " ORDER BY CASE WHEN outcome IN ('open', 'success', 'unknown_outcome') THEN 0 ELSE 1 END,"
    f" timestamp DESC, run_id DESC, seq DESC LIMIT {MOST_CALLS}"
)
IS_NOT_HELD: Final = (
    "NOT EXISTS (SELECT FROM calls WHERE tenant = $1 AND name = $2 AND semantic_key = $3"
    " AND outcome IN ('open', 'success', 'unknown_outcome'))"
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
MESSAGES: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM inbox WHERE run_id = $1 AND id > $2 AND ($3::text IS NULL OR ticket_id = $3)"
    " ORDER BY id LIMIT 10000"
)
LAST_MESSAGE: Final = "SELECT coalesce(max(id), 0) FROM inbox WHERE run_id = $1"
OUTPUT: Final = (
    "SELECT id, key, stream, text FROM output WHERE run_id = $1 AND id > $2 AND ($3::text IS NULL OR key = $3)"
    " ORDER BY id LIMIT 1000"
)
RUN_OF: Final = "SELECT kind, status FROM runs WHERE run_id = $1 AND count > 0"
ORPHANS: Final = " UNION ALL ".join(
    f"SELECT DISTINCT run_id, '{table}' AS of_table FROM {table}"
    " WHERE run_id NOT IN (SELECT run_id FROM runs WHERE count > 0)"
    for table in ("answers", "calls", "events", "inbox", "tickets")
)
SCHEMA: Final = "SELECT value FROM meta WHERE key = 'schema_version'"
PAGE_SIZES: Final = "SELECT length(line) FROM events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"
