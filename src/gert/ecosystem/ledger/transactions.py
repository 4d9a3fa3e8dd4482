"""Every change to a ledger, as a transaction that yields its statements and executes none of them.

A transaction is a generator: it yields statements and is sent their rows. SQLite runs it on a thread, Postgres on an
event loop, each inside one database transaction; so an append is written once for both. Everything that may refuse
is decided before the first `Change`.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.rows import HEAD_WIDTH, head_of, head_values, lease_of, lease_values
from gert.errors import InputError, RunError, TraceError
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.values import MAX_INTEGER
from gert.kernel.ledger.append_rules import check_follows, final_calls, rival
from gert.kernel.ledger.head_seal import Sealer, encode_snapshot
from gert.kernel.ledger.leases import IsRunning, acquired, check_fence, released, renewed
from gert.kernel.ledger.record import (
    LIMIT_WINDOW,
    MAX_MESSAGE,
    MAX_OUTPUT,
    Appended,
    Batch,
    Call,
    CallEnd,
    CallLimit,
    Claim,
    Exceeded,
    Expect,
    Head,
    Held,
    Lease,
    MessageKind,
    Output,
    Overtaken,
    SpendLimit,
    Write,
    Written,
)
from gert.kernel.ledger.spending import Spend

T = TypeVar("T")

BUCKET = len("2030-01-01T00:00")
"""Spending of a tenant is counted by the minute."""

_NEVER_EXPIRES = "9999-12-31T00:00:00.000000Z"
_NONE_COUNTED = ((0,),)


class Belief(NamedTuple):
    """The rows that a statement will most likely read, and a condition under which the append does the same with those
    that it reads.

    values: of the placeholders in the condition
    """

    rows: Sequence[Sequence[Any]]
    condition: str
    values: Sequence[Any]


class Read(NamedTuple):
    """A statement that reads."""

    sql: str
    values: Sequence[Any]
    belief: Belief | None = None


class Change(NamedTuple):
    """A statement that writes, once for each row of values; a single row may return rows."""

    sql: str
    rows: Sequence[Sequence[Any]]


Transaction: TypeAlias = Generator[Read | Change, Sequence[Sequence[Any]], T]


class Dialect(NamedTuple):
    """Where the backends differ.

    lock: reads the head and the lease of a run and keeps others from changing them; the last column is the time by
        the server's clock, or NULL where the caller's clock decides
    now: reads the server's clock, where there is one
    serializes: whether transactions have to wait for each other over a name, since the database does not make them
    unchanged: the condition under which the row of a run is as this process left it, with the lease that it holds
    """

    lock: str
    now: str | None = None
    serializes: bool = False
    unchanged: str | None = None


class AppendContext(NamedTuple):
    """What every transaction of one ledger needs.

    stamp: the time as events carry it
    """

    dialect: Dialect
    sealer: Sealer
    clock: Callable[[], datetime]
    stamp: Callable[[], str]


class Driven(NamedTuple):
    """The head of a run, its lease, and the time that decides about it."""

    head: Head
    lease: Lease | None
    now: datetime


def _lock(run_id: str, context: AppendContext, belief: Belief | None = None) -> Transaction[Driven]:
    rows = yield Read(context.dialect.lock, (run_id,), belief)
    if not rows:
        yield Change(sql.TOUCH, ((run_id,),))
        rows = yield Read(context.dialect.lock, (run_id,))
    return read_driven(run_id, rows[0], context.clock, context.sealer.left(run_id))


def _belief(context: AppendContext, run_id: str, fence: int | None) -> Belief | None:
    """The row of a run as this process left it, under a lease that did not expire."""
    head, condition = context.sealer.left(run_id), context.dialect.unchanged
    if head is None or condition is None:
        return None
    row = head_values(head)
    lease = (None, 0, None, 0.0, None) if fence is None else ("", fence, _NEVER_EXPIRES, 0.0, None)
    now = format_timestamp(context.clock()) if context.dialect.now is None else None
    return Belief(((*row, *lease, None),), condition, (*row, fence or 0, now))


def read_driven(run_id: str, row: Sequence[Any], clock: Callable[[], datetime], left: Head | None = None) -> Driven:
    """Convert a row of `Dialect.lock`; `left` is the head as this process left it, which it most likely still is."""
    columns, server_time = tuple(row[:HEAD_WIDTH]), row[-1]
    now = clock() if server_time is None else parse_timestamp(server_time)
    head = left if left is not None and head_values(left) == columns else head_of(columns)
    return Driven(head, lease_of(run_id, row[HEAD_WIDTH:-1]), now)


def append(
    context: AppendContext,
    run_id: str,
    write: Write,
    expects: Sequence[Expect],
    fence: int | None,
    *,
    adopt: bool = False,
    attempted: Sequence[Batch] = (),
) -> Transaction[Appended]:
    """Append what `write` makes of the head of the run.

    attempted: batches of which it is not known whether one was committed: a lost statement may arrive late
    """
    belief = _belief(context, run_id, fence) if not attempted else None
    head, lease, now = yield from _lock(run_id, context, belief)
    for batch in attempted:
        if (yield from _is_there(head, batch)):
            return Written(batch)
    if not context.sealer.knows(head):
        yield from _check_head(head, context.sealer, adopt=adopt)
    extended = check_fence(head, lease, fence, now)
    for key, last_seq in expects:
        belief = Belief(((last_seq,),), sql.IS_LAST_CALL, (run_id, key, last_seq))
        [(found,)] = yield Read(sql.LAST_CALL, (run_id, key), belief)
        if found != last_seq:
            return Overtaken(key)
    batch = write(head, context.stamp())
    check_follows(head, batch)
    calls, ends = final_calls(batch)
    other = (yield from _rival(context.dialect, run_id, calls, ends)) if calls else None
    if other is not None:
        return Held(other)
    exceeded = (yield from _exceeded(context, head, batch)) if batch.limits else None
    if exceeded is not None:
        return exceeded
    fitting, refused = (yield from _claims(context, run_id, batch.claims, now)) if batch.claims else ([], {})
    if not (batch.events or batch.answers or batch.documents or fitting):
        return Written(batch, refused)
    sealed = context.sealer.seal(batch.head)
    if sealed is not batch.head:
        batch = batch._replace(head=sealed)
    if extended is not None:
        yield Change(sql.SET_LEASE, (lease_values(extended),))
    yield from _put(head, batch, calls, ends)
    if fitting:
        yield Change(sql.ADD_CLAIM, fitting)
    return Written(batch, refused)


def _exceeded(context: AppendContext, head: Head, batch: Batch) -> Transaction[Exceeded | None]:
    """The first limit that a batch exceeds."""
    shared = (limit for limit in batch.limits if isinstance(limit, SpendLimit) or limit.seconds is not None)
    yield from _wait_for(context.dialect, (msgspec.json.encode(limit.scope).decode() for limit in shared))
    for limit in batch.limits:
        # Requests and spending carry the time that stamps events, not that of the server.
        begin = "" if limit.seconds is None else format_timestamp(context.clock() - timedelta(seconds=limit.seconds))
        if isinstance(limit, SpendLimit):
            own = sum(spend.amount for spend in batch.spends if spend[:3] == limit.scope)
            spent = (*limit.scope, begin[:BUCKET])
            most = min(limit.most - max(own, 1), MAX_INTEGER)
            [(counted,)] = yield Read(sql.SPENT, spent, Belief(_NONE_COUNTED, sql.IS_SPENT_WITHIN, (*spent, most)))
        elif limit.seconds is None:
            counted = head.agent.calls_by_tool.get(limit.name, 0) if head.agent is not None else 0
            own = _requests(batch, limit)
        else:
            own = _requests(batch, limit)
            called = (limit.tenant, limit.name, begin, limit.most)
            belief = Belief(_NONE_COUNTED, sql.IS_COUNT_WITHIN, (*called, limit.most - own))
            [(counted,)] = yield Read(sql.COUNT_CALLS, called, belief)
        if counted + own > limit.most or (isinstance(limit, SpendLimit) and counted >= limit.most):
            return Exceeded(limit, counted)
    return None


def _wait_for(dialect: Dialect, names: Iterable[str]) -> Transaction[None]:
    """Wait for other appends over names, always in the same order, so that two never wait for each other."""
    if dialect.serializes:
        for name in sorted(set(names)):
            yield Read(sql.SERIALIZE, (name,))


def _requests(batch: Batch, limit: CallLimit) -> int:
    return sum(call.kind == "tool" and call.name == limit.name for call in batch.calls)


def _claims(
    context: AppendContext, run_id: str, claims: Sequence[Claim], now: datetime
) -> Transaction[tuple[list[tuple[str, ...]], dict[str, int]]]:
    """The rows of the claims that fit their limits, and the requests of those that do not, with what was counted."""
    yield from _wait_for(context.dialect, (claim.key for claim in claims if claim.limit is not None))
    at, begin = format_timestamp(now), format_timestamp(now - LIMIT_WINDOW)
    fitting: list[tuple[str, ...]] = []
    refused: dict[str, int] = {}
    for key, request, limit in claims:
        digest = sha256_hex(request.encode("utf-8", "surrogatepass"))
        if limit is not None:
            if (yield Read(sql.CLAIM_OF, (run_id, digest, begin))):
                continue
            [(counted,)] = yield Read(sql.COUNT_CLAIMS, (key, begin))
            counted += sum(each[2] == key for each in fitting)
            if counted >= limit:
                refused[request] = counted
                continue
        fitting.append((run_id, digest, key, at))
    return fitting, refused


def _is_there(head: Head, attempted: Batch) -> Transaction[bool]:
    """Whether a batch was committed although its connection broke: the chain then goes through its head."""
    wanted = attempted.head
    if head.count < wanted.count or head.answers < wanted.answers:
        return False
    if head.answers == wanted.answers and head.answers_hash != wanted.answers_hash:
        return False
    rows = yield Read(sql.LAST_LINE, (head.run_id, wanted.count))
    return bool(rows) and sha256_hex(bytes(rows[0][0])) == wanted.hash


def _check_head(head: Head, sealer: Sealer, *, adopt: bool) -> Transaction[None]:
    """Refuse to append after a head that is not the end of its events, or that was not sealed by our key."""
    [(last,)] = yield Read(sql.LAST_SEQ, (head.run_id,))
    if last != head.count:
        raise TraceError(
            f"run `{head.run_id}` does not end where it should: expected {head.count} events, found {last}",
            hint="nothing is added to it; `gert run verify-ledger` says more",
        )
    rows = (yield Read(sql.LAST_LINE, (head.run_id, head.count))) if head.count else ()
    sealer.check(head, bytes(rows[0][0]) if rows else None, adopt=adopt)


def _rival(dialect: Dialect, run_id: str, calls: Sequence[Call], ends: Sequence[CallEnd]) -> Transaction[Call | None]:
    holders: dict[int, list[Call]] = {}
    holding = {call.seq: (call.tenant, call.name, call.semantic_key) for call in calls if call.held}
    yield from _wait_for(dialect, (msgspec.json.encode(key).decode() for key in holding.values()))
    for seq, key in holding.items():
        rows = yield Read(sql.HOLDERS, key, Belief((), sql.IS_NOT_HELD, key))
        holders[seq] = [call for row in rows if (call := Call(*row)).held]
    return rival(run_id, calls, ends, lambda call: holders[call.seq]) if holders else None


def _put(before: Head, batch: Batch, calls: Sequence[Call], ends: Sequence[CallEnd]) -> Transaction[None]:
    head, run_id = batch.head, batch.head.run_id
    if batch.documents:
        yield Change(sql.ADD_DOCUMENT, batch.documents)
    if batch.answers:
        yield Change(sql.ADD_ANSWER, [(run_id, n, line) for n, line in enumerate(batch.answers, before.answers + 1)])
    if batch.events:
        yield Change(sql.ADD_EVENT, [(run_id, *event) for event in batch.events])
    status = head.snapshot.status if head.snapshot is not None else None
    moved = (head.count, head.hash, head.answers, head.answers_hash, encode_snapshot(head), head.updated_at, head.seal)
    if before.count:
        yield Change(sql.MOVE_HEAD, ((run_id, *moved, status),))
    else:
        *first, updated_at, seal = moved
        row = (run_id, head.kind, head.tenant, *first, head.started_at, updated_at, seal, status, batch.private)
        yield Change(sql.SET_HEAD, (row,))
    if ends:
        # One change a call: a later event about it supplements the earlier one.
        yield Change(sql.END_CALL, [(run_id, *end) for end in ends])
    if calls:
        yield Change(sql.ADD_CALL, [msgspec.structs.astuple(call) for call in calls])
    if batch.tickets:
        yield Change(sql.ADD_TICKET, [msgspec.structs.astuple(ticket) for ticket in batch.tickets])
    if batch.responses:
        yield Change(sql.ADD_RESPONSE, [(run_id, *response) for response in batch.responses])
    if batch.ticket_ends:
        yield Change(sql.END_TICKET, [(run_id, *end) for end in batch.ticket_ends])
    if batch.taken:
        yield Change(sql.TAKE, [(run_id, message, head.count) for message in batch.taken])
    if batch.spends:
        yield Change(sql.ADD_SPEND, _counted(batch.spends, head.updated_at[:BUCKET]))
    if batch.finished:
        yield Change(sql.DROP_OUTPUT, [(run_id, key) for key in batch.finished])


def _counted(spends: Sequence[Spend], minute: str) -> list[tuple[Any, ...]]:
    """One row for each counter, always in the same order, so that two appends never wait for each other."""
    sums: dict[tuple[str, ...], int] = {}
    for kind, tenant, name, amount in spends:
        key = (kind, tenant, name, minute if kind == "tenant" else "")
        sums[key] = sums.get(key, 0) + amount
    return [(*key, amount) for key, amount in sorted(sums.items())]


# --- leases


def acquire(context: AppendContext, wanted: Lease, is_running: IsRunning) -> Transaction[Lease | None]:
    """Acquire or renew a lease."""
    _, lease, now = yield from _lock(wanted.run_id, context)
    return (yield from _set(acquired(lease, wanted, now, is_running)))


def renew(
    context: AppendContext, run_id: str, worker_id: str, seconds: float, fence: int | None
) -> Transaction[Lease | None]:
    """Renew a lease; an expired one only with its token `fence`."""
    _, lease, now = yield from _lock(run_id, context)
    return (yield from _set(renewed(lease, worker_id, seconds, now, fence)))


def release(context: AppendContext, run_id: str, worker_id: str, fence: int | None) -> Transaction[bool]:
    """Release a lease; `fence` is the token it was held under."""
    _, lease, now = yield from _lock(run_id, context)
    # An earlier attempt may have been committed although its connection broke.
    is_done = lease is not None and lease.worker_id is None and lease.token == fence
    return (yield from _set(released(lease, worker_id, now))) is not None or is_done


def _set(lease: Lease | None) -> Transaction[Lease | None]:
    if lease is not None:
        yield Change(sql.SET_LEASE, (lease_values(lease),))
    return lease


# --- messages and output


def post(
    context: AppendContext, run_id: str, kind: MessageKind, body: bytes, ticket_id: str | None
) -> Transaction[None]:
    """Post a message to a run; for one about a ticket, the right to read tickets is enough."""
    if len(body) > MAX_MESSAGE:
        raise InputError(f"the message is too long: expected at most {MAX_MESSAGE} bytes, found {len(body)}")
    rows = yield Read(sql.RUN_OF, (run_id,)) if ticket_id is None else Read(sql.TICKET_OF, (run_id, ticket_id))
    if not rows:
        what = f"run `{run_id}`" if ticket_id is None else f"ticket `{ticket_id}` of run `{run_id}`"
        raise RunError(f"there is no {what}", hint="`gert run list` shows the runs of this ledger")
    values = (run_id, kind, body, ticket_id)
    if context.dialect.now is None:
        yield Change(sql.POST_AT, ((*values, format_timestamp(context.clock())),))
    else:
        yield Change(sql.POST, (values,))


def write_output(run_id: str, pieces: Sequence[Output]) -> Transaction[None]:
    """Store the output of running steps, of each the last part."""
    yield Change(sql.ADD_OUTPUT, [(run_id, *piece) for piece in pieces])
    yield Change(sql.TRIM_OUTPUT, [(run_id, key, MAX_OUTPUT) for key in dict.fromkeys(piece.key for piece in pieces)])
