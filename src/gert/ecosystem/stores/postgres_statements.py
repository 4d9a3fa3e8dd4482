"""An append as one statement, which is one round trip and one commit.

It changes the row of the run first, where that still ends as it did for the writer and the lease allows it; all else
follows from that row and does not happen without it. What there is one of goes in as plain values, more as arrays:
arrays cost more than the insert they save.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.rows import encode
from gert.ecosystem.stores.settling import settled
from gert.kernel.agent.ledger import Batch, Call, Expect
from gert.kernel.events.chain import GENESIS

SERVER_TIME: Final = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
"""The time of the server, as times are written in a ledger."""


NOTHING_DONE: Final = "INSERT 0 0"
"""What Postgres says of an append that found the run otherwise than its writer did."""


class Shape(NamedTuple):
    """What there is of each in an append: 0 none, 1 one, 2 more."""

    first: bool
    fenced: bool
    rows: int
    calls: int
    ends: int
    expects: int
    holds: bool
    """One of the calls holds a semantic key."""
    own_time: bool
    """Leases go by the time of the event, and not by that of the server."""


def statement(batch: Batch, expects: Sequence[Expect], fence: int | None, *, own_time: bool) -> tuple[str, list[Any]]:
    """The statement that appends a batch, and its values."""
    head, rows = batch.head, batch.rows
    calls, ends = _settled(batch) if batch.ends else (batch.calls, ())
    one = len(rows) == 1 and rows[0].timestamp == head.updated_at
    first = head.count == len(rows)
    status, data = (None, None) if head.snapshot is None else (head.snapshot.status, encode(head.snapshot))
    values: list[Any] = [head.run_id, head.count, head.hash, head.seal, status, data, head.updated_at, head.tenant]
    if first:
        values.append(head.started_at)
    if fence is not None:
        values.append(fence)
    if one:
        row = rows[0]
        values += (row.type, row.line, row.summary_type)
    else:
        if not first:
            values.append(len(rows))
        values += map(list, zip(*rows, strict=True))
    if expects:
        values += _values([tuple(expect) for expect in expects])
    if ends:
        values += _values(ends)
    if calls:
        values += _values([_call_values(call) for call in calls])
    shape = (first, fence is not None, 1 if one else 2, len(calls), len(ends), len(expects), holds(batch), own_time)
    return _known(shape), values


def holds(batch: Batch) -> bool:
    """Whether a batch makes a call that nobody else may make, by its semantic key."""
    return any(call.semantic_key is not None for call in batch.calls)


@lru_cache(1024)
def _known(shape: tuple[bool, bool, int, int, int, int, bool, bool]) -> str:
    first, fenced, rows, calls, ends, expects, holding, own_time = shape
    return text(Shape(first, fenced, rows, min(calls, 2), min(ends, 2), min(expects, 2), holding, own_time))


@cache
def text(shape: Shape) -> str:
    """The words of an append of this shape."""
    places = _Places(9)
    started = places.next("text") if shape.first else ""
    fence = places.next("bigint") if shape.fenced else ""
    rows = _rows(places, shape)
    conditions = [
        f"runs.count = $2::bigint - {rows.size}",
        _lease(fence, "$7::text" if shape.own_time else SERVER_TIME),
    ]
    expected = _expects(places, shape.expects) if shape.expects else "true"
    ends = places.source(shape.ends, ("bigint", "text", "bigint", "text"), "e") if shape.ends else ""
    calls = places.source(shape.calls, _CALL_KINDS, "n") if shape.calls else ""
    if shape.holds:
        expected = f"{expected} AND {_free(calls, ends)}"
    parts = [
        _first(conditions, expected, started, fenced=shape.fenced) if shape.first else _further([*conditions, expected])
    ]
    if ends:
        parts.append(_ends(ends))
    if calls:
        parts.append(_calls(calls, after_ends=bool(ends)))
    return f"WITH {', '.join(parts)} {rows.insert}"


class _Rows(NamedTuple):
    insert: str
    size: str


class _Places:
    """Gives out the numbers of values."""

    def __init__(self, first: int) -> None:
        self._number = first

    def next(self, kind: str) -> str:
        place = f"${self._number}::{kind}"
        self._number += 1
        return place

    def source(self, many: int, kinds: Sequence[str], alias: str) -> str:
        """A table of values, with columns c1, c2, …"""
        names = ", ".join(f"c{number}" for number in range(1, len(kinds) + 1))
        if many == 1:
            return f"(SELECT {', '.join(map(self.next, kinds))}) AS {alias} ({names})"
        return f"unnest({', '.join(self.next(kind + '[]') for kind in kinds)}) AS {alias} ({names})"


_SET: Final = "count = $2, hash = $3, seal = $4, status = $5, snapshot = $6, updated_at = $7, tenant = $8"
_EVENT: Final = "INSERT INTO events (run_id, seq, type, timestamp, summary_type, line) SELECT $1::text, "
_CALL_KINDS: Final = ("bigint", *["text"] * 8, "bigint", "text", "bigint")
_HOLDS: Final = f"e.c2 IN {sql.HOLDING}"


def _first(conditions: Sequence[str], expected: str, started: str, *, fenced: bool) -> str:
    # A run may have a row before it has events: somebody took its lease.
    allowed = "EXISTS (SELECT 1 FROM runs WHERE run_id = $1)" if fenced else "true"
    return (
        "head AS (INSERT INTO runs (run_id, count, hash, seal, status, snapshot, updated_at, tenant, started_at)"
        f" SELECT $1::text, $2::bigint, $3::text, $4::text, $5::text, $6::bytea, $7::text, $8::text, {started}"
        f" WHERE {allowed} AND {expected}"
        f" ON CONFLICT (run_id) DO UPDATE SET {_SET}, started_at = {started} WHERE {' AND '.join(conditions)}"
        " RETURNING 1)"
    )


def _further(conditions: Sequence[str]) -> str:
    return f"head AS (UPDATE runs SET {_SET} WHERE run_id = $1 AND {' AND '.join(conditions)} RETURNING 1)"


def _lease(fence: str, now: str) -> str:
    # The same as `may_append`, in the same row that is changed.
    if fence:
        return f"(runs.lease_token = {fence} AND runs.lease_worker IS NOT NULL AND runs.lease_expires > {now})"
    return f"(runs.lease_worker IS NULL OR runs.lease_expires <= {now})"


def _rows(places: _Places, shape: Shape) -> _Rows:
    if shape.rows == 1:
        kind, line, summary = places.next("text"), places.next("bytea"), places.next("text")
        return _Rows(f"{_EVENT}$2::bigint, {kind}, $7::text, {summary}, {line} FROM head", "1")
    size = "$2::bigint" if shape.first else places.next("bigint")
    source = places.source(2, ("bigint", "text", "text", "text", "bytea"), "r")
    return _Rows(f"{_EVENT}r.c1, r.c2, r.c3, r.c4, r.c5 FROM head, {source}", size)


def _expects(places: _Places, many: int) -> str:
    last = "(SELECT coalesce(max(seq), 0) FROM calls WHERE run_id = $1 AND key = {})"
    if many == 1:
        key, seq = places.next("text"), places.next("bigint")
        return f"{last.format(key)} = {seq}"
    source = places.source(2, ("text", "bigint"), "x")
    return f"NOT EXISTS (SELECT 1 FROM {source} WHERE {last.format('x.c1')} <> x.c2)"


def _free(calls: str, ends: str) -> str:
    # Whoever makes the same call at this very moment is kept from it by the index.
    let_go = f"SELECT 1 FROM {ends} WHERE e.c1 = o.seq AND e.c2 IS NOT NULL AND NOT {_HOLDS}"
    freed = f"EXISTS ({let_go})" if ends else "false"
    return f"""NOT EXISTS (SELECT 1 FROM {calls} JOIN calls AS o
        ON o.tenant = n.c5 AND o.name = n.c4 AND o.semantic_key = n.c8
        WHERE n.c12 = 1 AND o.outcome IN {sql.HOLDING} AND NOT (o.run_id = $1 AND {freed}))"""


def _ends(source: str) -> str:
    # A call that turns out to have happened after all holds its key again, unless another has it by now.
    return f"""ended AS (UPDATE calls SET outcome = coalesce(e.c2, outcome), done_seq = coalesce(e.c3, done_seq),
        drift = coalesce(e.c4, drift), held = CASE WHEN e.c2 IS NULL THEN held
            WHEN semantic_key IS NULL OR NOT {_HOLDS} THEN 0 WHEN held = 1 THEN 1
            WHEN EXISTS (SELECT 1 FROM calls AS o WHERE o.tenant = calls.tenant AND o.name = calls.name
                AND o.semantic_key = calls.semantic_key AND o.held = 1) THEN 0 ELSE 1 END
        FROM head, {source} WHERE run_id = $1 AND seq = e.c1 RETURNING 1)"""


def _calls(source: str, *, after_ends: bool) -> str:
    columns = ", ".join(f"n.c{number}" for number in range(1, len(_CALL_KINDS) + 1))
    # A key that ends here is free for the call that begins here.
    order = " WHERE (SELECT count(*) FROM ended) >= 0" if after_ends else ""
    values = f"SELECT $1::text, {columns} FROM head, {source}{order}"
    return f"opened AS (INSERT INTO calls ({sql.CALL_COLUMNS}, held) {values})"


_CALL_FIELDS: Final = attrgetter(
    "seq", "kind", "key", "name", "tenant", "timestamp", "input_hash", "semantic_key", "outcome", "done_seq", "drift"
)


def _call_values(call: Call) -> tuple[Any, ...]:
    return (*_CALL_FIELDS(call), int(call.held))


def _values(items: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
    """One item as it is, more of them column by column."""
    return items[0] if len(items) == 1 else [list(column) for column in zip(*items, strict=True)]


def _settled(batch: Batch) -> tuple[Sequence[Call], Sequence[tuple[Any, ...]]]:
    """The new calls, and what is said about each of the others in the end: a statement changes a row once."""
    calls, ends = settled(batch)
    merged: dict[int, tuple[Any, ...]] = {}
    for end in ends:
        before = merged.get(end.seq, end)
        merged[end.seq] = tuple(new if new is not None else old for new, old in zip(end, before, strict=True))
    return calls, list(merged.values())


TOUCH: Final = f"""
INSERT INTO runs (run_id, count, hash, started_at, updated_at) VALUES ($1, 0, '{GENESIS}', '', '')
ON CONFLICT (run_id) DO NOTHING
"""
LOCK: Final = "SELECT 1 FROM runs WHERE run_id = $1 FOR UPDATE"
STANDING: Final = f"""
SELECT {sql.HEAD_COLUMNS}, lease_worker, lease_token, lease_expires, {SERVER_TIME},
    (SELECT coalesce(max(seq), 0) FROM events WHERE run_id = $1)
FROM runs WHERE run_id = $1
"""
LAST_CALLS: Final = """
SELECT k, (SELECT coalesce(max(seq), 0) FROM calls WHERE run_id = $1 AND key = k) FROM unnest($2::text[]) AS k
"""
LINES_AT: Final = "SELECT seq, line FROM events WHERE run_id = $1 AND seq = ANY($2::bigint[])"
LEASE: Final = f"""
SELECT {SERVER_TIME}, lease_worker, lease_token, lease_expires FROM (SELECT 1) AS one LEFT JOIN runs ON run_id = $1
"""
# Only where it is still as we saw it: who takes a lease and who appends change the same row, one after the other.
SET_LEASE: Final = f"""
INSERT INTO runs (run_id, count, hash, started_at, updated_at, lease_worker, lease_token, lease_expires)
SELECT $1::text, 0, '{GENESIS}', '', '', $2::text, $3::bigint, $4::text
ON CONFLICT (run_id) DO UPDATE SET lease_worker = $2, lease_token = $3, lease_expires = $4
WHERE runs.lease_token = $5::bigint AND runs.lease_worker IS NOT DISTINCT FROM $6::text
    AND runs.lease_expires IS NOT DISTINCT FROM $7::text
RETURNING 1
"""
# A batch of a runbook run: where it follows, its answers first. A head that was sealed is not sealed any more.
ADD_LINES: Final = """
WITH head AS (
    INSERT INTO runs (run_id, count, hash, started_at, updated_at)
    SELECT $1::text, $3::bigint, $4::text, $5::text, $6::text
    WHERE (SELECT coalesce(max(seq), 0) FROM events WHERE run_id = $1) = $2::bigint
        AND ($2 = 0 OR EXISTS (SELECT 1 FROM runs WHERE run_id = $1))
    ON CONFLICT (run_id) DO UPDATE SET
        count = $3, hash = CASE WHEN $3 > $2 THEN $4 ELSE runs.hash END,
        seal = CASE WHEN $3 > $2 THEN NULL ELSE runs.seal END,
        started_at = CASE WHEN $2 = 0 THEN $5 ELSE runs.started_at END,
        updated_at = CASE WHEN $3 > $2 THEN $6 ELSE runs.updated_at END
    WHERE runs.count = $2
    RETURNING 1
), answered AS (
    INSERT INTO answers (run_id, n, line)
    SELECT $1, (SELECT coalesce(max(n), 0) FROM answers WHERE run_id = $1) + a.n, a.line
    FROM head, unnest($10::bytea[]) WITH ORDINALITY AS a (line, n)
), added AS (
    INSERT INTO events (run_id, seq, type, timestamp, line)
    SELECT $1, $2 + e.n, e.type, e.time, e.line
    FROM head, unnest($7::text[], $8::text[], $9::bytea[]) WITH ORDINALITY AS e (type, time, line, n)
)
SELECT 1 FROM head
"""


def _page(table: str, number: str) -> str:
    """So many lines after a number, and no more than fit into so many bytes unless it is only one."""
    return f"""
    SELECT {number}, line FROM (
        SELECT {number}, line, sum(octet_length(line)) OVER (ORDER BY {number}) - octet_length(line) AS before
        FROM (SELECT {number}, line FROM {table} WHERE run_id = $1 AND {number} > $2 ORDER BY {number} LIMIT $3) AS next
    ) AS page WHERE before < $4 ORDER BY {number}
    """


EVENTS_PAGE: Final = _page("events", "seq")
ANSWERS_PAGE: Final = _page("answers", "n")
