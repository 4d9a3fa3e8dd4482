"""The ledger over SQL: every read and write of the port, implemented once for both databases.

A backend adds how statements are run (`_rows`), how a transaction is run (`_transact`), and how it learns that
another process has written.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from gert.ecosystem.ledger import sql, transactions
from gert.ecosystem.ledger.holder import is_running, this_process
from gert.ecosystem.ledger.ids import new_id, stamps_of, utc_now
from gert.ecosystem.ledger.rows import head_of, message_of, ticket_of
from gert.ecosystem.ledger.transactions import AppendContext, Dialect, Transaction
from gert.ecosystem.ledger.waiters import Waiters, is_closed
from gert.errors import Forbidden, TraceError, Unavailable
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.export import RunExport
from gert.kernel.ledger.head_seal import Sealer
from gert.kernel.ledger.leases import check_fence, holds, taken_over
from gert.kernel.ledger.limits import check_expects, check_name, check_run_id, check_tool
from gert.kernel.ledger.port import OnUnreadable
from gert.kernel.ledger.record import (
    ANY_RUN,
    MOST_CALLS,
    NEVER,
    Appended,
    Batch,
    Call,
    Event,
    Expect,
    Head,
    Lease,
    Message,
    MessageKind,
    Output,
    RunFilter,
    SchemaInfo,
    TicketRow,
    TicketStatus,
    Write,
    Written,
)
from gert.kernel.ledger.spending import SpendKind
from gert.kernel.ledger.witness import Witness

T = TypeVar("T")

RESTART_SECONDS: Final = 30.0
"""Seconds a server may be unreachable before waiting callers get the error."""

_PAGE: Final = 500
_PAGE_BYTES: Final = 8 << 20
_FEW: Final = 16
_FOR_EVER: Final = 365 * 86_400.0


class SqlLedger(ABC):
    """A ledger in a database. It belongs to the event loop that uses it first.

    clock: stamps events; a clock of the caller's own also decides about leases
    poll_interval: seconds between polls for what other processes wrote
    """

    backend: sql.Backend

    def __init__(
        self,
        dialect: Dialect,
        sealer: Sealer,
        *,
        read_only: bool,
        clock: Callable[[], datetime] | None,
        ids: Callable[[], str] | None,
        poll_interval: float,
    ) -> None:
        self._clock = clock if clock is not None else utc_now
        self._ids = ids if ids is not None else lambda: new_id(self._clock())
        self._context = AppendContext(dialect, sealer, self._clock, stamps_of(self._clock))
        self._read_only = read_only
        self._waiting = Waiters(poll_interval)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None
        self._fences: dict[str, int] = {}
        self.witness: Witness | None = None
        self.export: RunExport | None = None

    # --- implemented by a backend

    @property
    @abstractmethod
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power."""

    @abstractmethod
    async def _rows(self, statement: str, *values: Any, heavy: bool = False) -> Sequence[Sequence[Any]]:
        """The rows of a statement that reads; `heavy` where there may be many."""

    @abstractmethod
    async def _transact(
        self, begin: Callable[[Sequence[Batch]], Transaction[T]], run_id: str, on_done: Callable[[T], object]
    ) -> T:
        """Run a transaction, again where it was undone; it is finished even if the caller is cancelled.

        Those of one run are run in the order in which they were begun here.

        begin: makes the transaction, given the batch of an earlier attempt that may have been committed
        on_done: called with the result once it is committed, also if the caller was cancelled meanwhile
        """

    @abstractmethod
    async def _look(self, run_ids: Sequence[str]) -> Hashable:
        """A value that changes once another process has written to one of these runs."""

    @abstractmethod
    async def _close(self) -> None:
        """Finish pending work, then close."""

    def _file_id(self) -> str:
        """Distinguishes the file of this ledger from a copy; empty where it is not a file."""
        return ""

    def _listen(self) -> None:  # noqa: B027 - a backend that only polls need not listen
        """Subscribe to the writes of other processes."""

    def _wrote(self, run_id: str) -> None:
        """Wake the callers that wait for a run."""
        self._waiting.wake(run_id)

    # --- changes

    def now(self) -> datetime:
        """The time as events are stamped."""
        return self._clock()

    async def time(self) -> datetime:
        """The time by the clock that stamps messages."""
        query = self._context.dialect.now
        if query is None:
            return self._clock()
        [(now,)] = await self._read(query)
        return parse_timestamp(now)

    def new_id(self) -> str:
        """A new unique id; ids sort by time."""
        return self._ids()

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), adopt: bool = False
    ) -> Appended:
        """Append what `write` makes of the head of the run; durable when this returns."""
        check_run_id(run_id)
        check_expects(expects)
        fence, context = self._fences.get(run_id), self._context

        def done(result: Appended) -> None:
            if isinstance(result, Written):
                context.sealer.wrote(result.batch.head)
                self._wrote(run_id)
                if self.export is not None:
                    self.export.wrote(self, result.batch)

        result = await self._change(
            run_id,
            lambda attempted: transactions.append(
                context, run_id, write, expects, fence, adopt=adopt, attempted=attempted
            ),
            done,
        )
        if self.witness is not None and isinstance(result, Written):
            await self.witness.add(result.batch.head)
        return result

    async def post(self, run_id: str, kind: MessageKind, body: bytes, ticket_id: str | None = None) -> None:
        """Post a message to a run."""
        check_run_id(run_id)
        check_name("ticket id", ticket_id)
        await self._change(
            run_id,
            lambda _: transactions.post(self._context, run_id, kind, body, ticket_id),
            lambda _: self._wrote(run_id),
        )

    async def write_output(self, run_id: str, pieces: Sequence[Output]) -> None:
        """Store the output of running steps."""
        if pieces:
            await self._change(run_id, lambda _: transactions.write_output(run_id, pieces))

    # --- leases

    async def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Acquire the lease of a run, or renew it; None where another worker holds it."""
        check_run_id(run_id)
        process = this_process()
        holder = None if process is None else msgspec.structs.replace(process, file=self._file_id())
        wanted = Lease(run_id, worker_id, 0, NEVER, ttl_seconds, holder)
        lease = await self._change(run_id, lambda _: transactions.acquire(self._context, wanted, is_running))
        if lease is not None:
            self._fences[run_id] = lease.token
        return lease

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float, *, late: bool = False) -> Lease | None:
        """Renew a lease that is still held; None where it is not."""
        check_run_id(run_id)
        fence = self._fences.get(run_id) if late else None
        return await self._change(
            run_id, lambda _: transactions.renew(self._context, run_id, worker_id, ttl_seconds, fence)
        )

    async def release(self, run_id: str, worker_id: str) -> bool:
        """Release a lease; False where it was not held."""
        check_run_id(run_id)
        fence = self._fences.get(run_id)
        released = await self._change(run_id, lambda _: transactions.release(self._context, run_id, worker_id, fence))
        held = None if released else await self.lease(run_id)
        # A lease that was lost is not claimed any more; that of another worker in this process stays.
        if held is None or held.token != self._fences.get(run_id):
            self._fences.pop(run_id, None)
        return released

    async def lease(self, run_id: str) -> Lease | None:
        """The lease of a run, if a worker holds it now."""
        found = await self._driven(run_id)
        return None if found is None else holds(found.lease, found.now)

    async def confirm(self, run_id: str) -> None:
        """Refuse where another worker has taken the run since this process acquired it: LeaseLost."""
        found = await self._driven(run_id)
        if found is None or found.lease is None or found.lease.token != self._fences.get(run_id):
            raise taken_over(run_id)

    async def check(self, run_id: str) -> Head | None:
        """The head of a run, unless an append would be refused now."""
        found = await self._driven(run_id)
        if found is None:
            return None
        check_fence(found.head, found.lease, self._fences.get(run_id), found.now)
        return found.head if found.head.count else None

    async def _driven(self, run_id: str) -> transactions.Driven | None:
        """The head and the lease of a run, without locking them."""
        rows = await self._of_run(self._context.dialect.lock.removesuffix(" FOR UPDATE OF runs"), run_id)
        return transactions.read_driven(run_id, rows[0], self._clock) if rows else None

    # --- one run

    async def head(self, run_id: str) -> Head | None:
        """The head of a run."""
        rows = await self._of_run(sql.HEAD, run_id)
        return head_of(rows[0]) if rows else None

    async def status(self, run_id: str) -> str | None:
        """The status column of a run, for verification."""
        rows = await self._of_run(sql.STATUS, run_id)
        return rows[0][0] if rows else None

    async def snapshot(self, run_id: str) -> bytes | None:
        """The snapshot column of a run, for verification."""
        rows = await self._of_run(sql.SNAPSHOT, run_id)
        return rows[0][0] if rows else None

    async def lines(self, run_id: str, since: int = 0, limit: int = 1000) -> list[bytes]:
        """The lines of a run after a number."""
        return self._bytes(run_id, await self._of_run(sql.LINES, run_id, since, limit, heavy=limit > _FEW))

    async def last_lines(self, run_id: str, limit: int) -> list[bytes]:
        """The last lines of a run, the very last first."""
        return self._bytes(run_id, await self._of_run(sql.LAST_LINES, run_id, limit, heavy=limit > _FEW))

    async def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """The lines of these numbers."""
        found = {seq: self._bytes(run_id, await self._of_run(sql.LAST_LINE, run_id, seq)) for seq in seqs}
        return {seq: lines[0] for seq, lines in found.items() if lines}

    async def events(self, run_id: str, since: int = 0, limit: int = 1000) -> list[Event]:
        """Whole rows of events after a number."""
        rows = await self._of_run(sql.EVENTS, run_id, since, limit, heavy=True)
        events = [*map(Event._make, rows)]
        self._check_bytes(run_id, [event.line for event in events])
        return events

    async def answers(self, run_id: str, since: int = 0, limit: int = 1000) -> list[bytes]:
        """The answers of a run after a number, in order; TraceError where one is missing."""
        rows = await self._of_run(sql.ANSWERS, run_id, since, limit, heavy=True)
        for number, row in enumerate(rows, since + 1):
            if row[0] != number:
                raise TraceError(f"answer {number} of run `{run_id}` is missing")
        return self._bytes(run_id, [row[1:] for row in rows])

    async def documents(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Stored documents by digest."""
        found = {digest: await self._read(sql.DOCUMENT, digest) for digest in digests}
        return {digest: bytes(rows[0][0]) for digest, rows in found.items() if rows}

    async def private(self, run_id: str) -> bytes | None:
        """The private bytes of a run."""
        rows = await self._of_run(sql.PRIVATE, run_id)
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None

    async def calls(self, run_id: str, key: str, limit: int = MOST_CALLS) -> list[Call]:
        """The requests under a key, the newest first."""
        check_name("step key", key)
        return [Call(*row) for row in await self._of_run(sql.CALLS, run_id, key, limit)]

    async def open_calls(self, run_id: str, limit: int = 1000) -> list[Call]:
        """The requests without an end, the oldest first."""
        return [Call(*row) for row in await self._of_run(sql.OPEN_CALLS, run_id, limit)]

    async def all_calls(self, run_id: str, since: int = 0, limit: int = 1000) -> list[Call]:
        """All requests of a run after a number."""
        return [Call(*row) for row in await self._of_run(sql.ALL_CALLS, run_id, since, limit, heavy=True)]

    async def summary(self, run_id: str, summary_type: str) -> bytes | None:
        """The line of the newest summary of a type."""
        return next(iter(await self.summaries(run_id, summary_type, 1)), None)

    async def summaries(self, run_id: str, summary_type: str | None = None, limit: int = 20) -> list[bytes]:
        """The lines of the newest summaries, the newest first."""
        check_name("summary type", summary_type)
        heavy = summary_type is None or limit > _FEW
        if summary_type is None:
            return self._bytes(run_id, await self._of_run(sql.SUMMARIES, run_id, limit, heavy=heavy))
        return self._bytes(run_id, await self._of_run(sql.SUMMARY, run_id, summary_type, limit, heavy=heavy))

    async def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The line of the newest summary of each type that begins with a prefix, by type."""
        check_name("summary type", prefix)
        return self._bytes(run_id, await self._of_run(sql.LATEST_SUMMARIES, run_id, prefix, heavy=True))

    async def messages(self, run_id: str, *, ticket_id: str | None = None, since: int = 0) -> list[Message]:
        """The messages to a run after an id, in the order they were received."""
        return [message_of(row) for row in await self._of_run(sql.MESSAGES, run_id, since, ticket_id)]

    async def output(self, run_id: str, key: str | None = None, since: int = 0) -> tuple[int, list[Output]]:
        """The output of running steps after a number, and the number to continue from."""
        rows = await self._of_run(sql.OUTPUT, run_id, since, key, heavy=True)
        return (rows[-1][0] if rows else since), [Output(*row[1:]) for row in rows]

    # --- many runs

    async def runs(self, chosen: RunFilter = ANY_RUN, on_unreadable: OnUnreadable | None = None) -> list[Head]:
        """Runs by filter, the last written first."""
        for what in ("tenant", "status"):
            check_name(what, getattr(chosen, what))
        where, values = _where(
            {
                "tenant =": chosen.tenant,
                "kind =": chosen.kind,
                "status =": chosen.status,
                "updated_at >=": None if chosen.since is None else format_timestamp(chosen.since),
                "substr(run_id, 1, length($#)) =": chosen.prefix,
            }
        )
        limit = "" if chosen.limit is None else f" LIMIT {int(chosen.limit)}"
        query = f"SELECT {sql.HEAD_COLUMNS} FROM runs WHERE {where} ORDER BY updated_at DESC, run_id DESC{limit}"  # noqa: S608
        heads: list[Head] = []
        for row in await self._read(query, *values, heavy=True):
            try:
                heads.append(head_of(row))
            except TraceError as problem:
                if on_unreadable is None:
                    raise
                on_unreadable(str(row[0]), problem)
        return heads

    async def tickets(
        self, *statuses: TicketStatus, run_id: str | None = None, prefix: str | None = None, limit: int = 1000
    ) -> list[TicketRow]:
        """Tickets by status, run or beginning of their id, the oldest first."""
        where, values = _where({"run_id =": run_id, "substr(ticket_id, 1, length($#)) =": prefix}, first="true")
        if statuses:
            where += f" AND status IN ({', '.join(repr(str(status)) for status in statuses)})"
        query = (
            f"SELECT {sql.TICKET_COLUMNS} FROM tickets WHERE {where}"  # noqa: S608 - constants
            f" ORDER BY created_at, ticket_id LIMIT {int(limit)}"
        )
        return [ticket_of(row) for row in await self._read(query, *values, heavy=True)]

    async def claimed(self, since: datetime) -> dict[str, int]:
        """How many executions were counted since a time, by key."""
        rows = await self._read(sql.CLAIMED, format_timestamp(since), heavy=True)
        return {row[0]: int(row[1]) for row in rows}

    async def holders(self, tenant: str, name: str, semantic_key: str) -> list[Call]:
        """The calls with a semantic key: first those that hold it, then those that had it, each the newest first."""
        check_tool(tenant, name, semantic_key)
        return [Call(*row) for row in await self._read(sql.HOLDERS, tenant, name, semantic_key)]

    async def count_calls(
        self, name: str, *, run_id: str | None = None, tenant: str | None = None, since: datetime | None = None
    ) -> int:
        """How often a tool was requested."""
        check_tool(tenant, name, None)
        begin = None if since is None else format_timestamp(since)
        where, values = _where(
            {"name =": name, "run_id =": run_id, "tenant =": tenant, "timestamp >=": begin}, first="kind = 'tool'"
        )
        rows = await self._read(f"SELECT count(*) FROM calls WHERE {where}", *values, heavy=True)  # noqa: S608
        return int(rows[0][0])

    async def spent(self, kind: SpendKind, tenant: str, name: str = "", since: datetime | None = None) -> int:
        """How much was spent or reserved under a counter."""
        check_name("tenant", tenant)
        begin = "" if since is None else format_timestamp(since)[: transactions.BUCKET]
        [(amount,)] = await self._read(sql.SPENT, kind, tenant, name, begin)
        return int(amount)

    async def orphans(self) -> dict[str, list[str]]:
        """The tables that have rows of a run which is not there, by run."""
        found: dict[str, list[str]] = {}
        for run_id, table in await self._read(sql.ORPHANS, heavy=True):
            found.setdefault(str(run_id), []).append(table)
        return found

    async def schema_info(self) -> SchemaInfo:
        """The backend and schema version."""
        rows = await self._read(sql.SCHEMA)
        return SchemaInfo(self.backend, rows[0][0] if rows else "")

    # --- following

    async def wait(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has more than `after` events."""
        return await self._wait_for(run_id, sql.COUNT, after, timeout)

    async def wait_for_message(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has a message with an id above `after`."""
        return await self._wait_for(run_id, sql.LAST_MESSAGE, after, timeout)

    async def _wait_for(self, run_id: str, query: str, after: int, timeout: float) -> bool:
        self._check_usable()
        self._listen()
        clock = asyncio.get_running_loop().time
        seen: float | None = None

        async def has_more() -> bool:
            nonlocal seen
            try:
                rows = await self._of_run(query, run_id)
            except Unavailable as problem:
                # A server that restarts does not end a wait; one that was never there does.
                if seen is None or clock() - seen > RESTART_SECONDS or isinstance(problem, Forbidden):
                    raise
                return False
            seen = clock()
            return bool(rows) and rows[0][0] > after

        return await self._waiting.until(run_id, has_more, self._look, timeout)

    async def stream(
        self, run_id: str, since: int = 0, *, follow: bool = False, idle_timeout: float | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a run, and with `follow` those to come."""
        patience = _FOR_EVER if idle_timeout is None else idle_timeout
        is_announced = False
        while True:
            lines = await self._page(run_id, since)
            for line in lines:
                yield line
            if lines:
                since, is_announced = since + len(lines), False
                continue
            if is_announced:
                raise TraceError(f"run `{run_id}` has no lines after event {since}, and its head says it has")
            if not follow or not await self.wait(run_id, since, patience):
                return
            is_announced = True

    async def _page(self, run_id: str, since: int) -> list[bytes]:
        """Some lines after a number; fewer where they are long."""
        limit = _PAGE
        while True:
            rows = await self._of_run(sql.PAGE_SIZES, run_id, since, limit, heavy=True)
            total = 0
            for number, (size,) in enumerate(rows, start=1):
                total += size
                if total > _PAGE_BYTES:
                    return await self.lines(run_id, since, max(1, number - 1))
            return await self.lines(run_id, since, len(rows)) if rows else []

    # --- closing

    async def close(self) -> None:
        """Finish pending work, and close."""
        if self._closing is None and self.export is not None:
            await self.export.flush()
        if self._closing is None:
            if self._loop is not None and not self._loop.is_closed():
                self._check_usable()
            self._waiting.close()
            self._closing = asyncio.get_running_loop().create_task(self._close_all())
        if self._closing.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        await self._close()
        if self.export is not None:
            await self.export.flush()
            self.export.close()
        if self.witness is not None:
            await self.witness.flush()

    async def __aenter__(self) -> Self:
        self._check_usable()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_usable(self) -> None:
        if self._closing is not None:
            raise is_closed()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise TraceError(
                "the ledger belongs to another event loop",
                hint="use it from the loop that used it first, or open one for each loop; "
                "call `asyncio.run` once, around everything",
            )

    def _change(
        self,
        run_id: str,
        begin: Callable[[Sequence[Batch]], Transaction[T]],
        on_done: Callable[[T], object] = lambda _: None,
    ) -> Awaitable[T]:
        self._check_usable()
        if self._read_only:
            raise TraceError("the ledger is open only for reading")
        return self._transact(begin, run_id, on_done)

    async def _of_run(self, statement: str, run_id: str, *values: Any, heavy: bool = False) -> Sequence[Sequence[Any]]:
        """Rows of one run; none for what cannot be the id of a run."""
        self._check_usable()
        return await self._rows(statement, run_id, *values, heavy=heavy) if is_run_id(run_id) else ()

    async def _read(self, statement: str, *values: Any, heavy: bool = False) -> Sequence[Sequence[Any]]:
        self._check_usable()
        return await self._rows(statement, *values, heavy=heavy)

    def _bytes(self, run_id: str, rows: Sequence[Sequence[Any]]) -> list[bytes]:
        found = [row[0] for row in rows]
        self._check_bytes(run_id, found)
        return found

    @staticmethod
    def _check_bytes(run_id: str, lines: Sequence[Any]) -> None:
        if not {*map(type, lines)} <= {bytes}:
            raise TraceError(f"the ledger holds something that is not a line in run `{run_id}`")


def _where(conditions: dict[str, Any], first: str = "count > 0") -> tuple[str, list[Any]]:
    """The conditions on those columns that were given a value, and the values."""
    given = [(condition, value) for condition, value in conditions.items() if value is not None]
    texts = [f"{condition.replace('$#', f'${n}')} ${n}" for n, (condition, _) in enumerate(given, start=1)]
    return " AND ".join((first, *texts)), [value for _, value in given]
