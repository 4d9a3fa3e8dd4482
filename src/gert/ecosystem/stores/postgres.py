"""A ledger on Postgres: durable, for many processes on many machines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.names import check_expects, check_name, check_tool
from gert.ecosystem.stores.naming import new_id, utc_now
from gert.ecosystem.stores.postgres_append import Appends
from gert.ecosystem.stores.postgres_careful import Making, Wanted
from gert.ecosystem.stores.postgres_leases import Change, Leases
from gert.ecosystem.stores.postgres_server import Server
from gert.ecosystem.stores.postgres_statements import EVENTS_PAGE, LEASE, LINES_AT
from gert.ecosystem.stores.postgres_wake import Listening, Telling
from gert.ecosystem.stores.rows import call_of, head_of
from gert.ecosystem.stores.settling import acquired, check_run_id, holds, released, renewed
from gert.ecosystem.stores.waiting import Waiting
from gert.errors import TraceError, UsageError
from gert.kernel.agent.ledger import Call, Expect, Head, Held, Lease, Overtaken, SchemaInfo, Write, Written
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.names import is_run_id
from gert.kernel.foundation.signature import Key

POLL_INTERVAL: Final = 2.0
"""How often, in seconds, those who wait look for themselves: notifications may be lost."""

_PAGE: Final = 500
_PAGE_BYTES: Final = 1 << 20
_FOR_EVER: Final = 365 * 86_400.0
_LAST_WORDS: Final = 1.0
_MOST: Final = (1 << 63) - 1

_COUNT: Final = "SELECT count FROM runs WHERE run_id = $1"
_COUNTS: Final = "SELECT run_id, count FROM runs WHERE run_id = ANY($1::text[]) ORDER BY run_id"


class PostgresLedger:
    """Runs in one schema of a database; its tables are made if they are not there, unless it is only to be read.

    It belongs to the event loop that uses it first, and connects when it is first used.

    dsn: where the database is, as `postgresql://user@host/database`
    schema: where in the database the ledger is
    command_timeout_seconds: how long to wait for an answer, and for a connection when all are in use
    max_retry_attempts: how often something is tried when connections break
    retry_backoff_seconds: how long to rest after the first of these; twice as long after each further one
    key: seals the end of a run on every append
    clock: stamps events; a clock of your own also decides about leases, which otherwise go by that of the server
    poll_interval: how often those who wait look for themselves, in seconds
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "gert",
        min_pool_size: int = 1,
        max_pool_size: int = 10,
        command_timeout_seconds: float = 30.0,
        max_retry_attempts: int = 5,
        retry_backoff_seconds: float = 0.02,
        read_only: bool = False,
        key: Key | None = None,
        clock: Callable[[], datetime] | None = None,
        ids: Callable[[], str] | None = None,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        if not 0 <= min_pool_size <= max_pool_size or max_pool_size < 1:
            raise UsageError(f"expected a pool of 1 or more connections, found {min_pool_size} to {max_pool_size}")
        stamp = clock if clock is not None else utc_now
        attempts = max(1, max_retry_attempts)
        self._clock = stamp
        self._ids = ids if ids is not None else lambda: new_id(stamp())
        self._read_only = read_only
        self._least = min_pool_size
        self._server = Server(
            dsn,
            schema=schema,
            most=max_pool_size,
            timeout=command_timeout_seconds,
            attempts=attempts,
            backoff=retry_backoff_seconds,
            read_only=read_only,
        )
        pool = self._server.pool
        making = Making(stamp, key, own_time=clock is not None)
        self._appends = Appends(pool, making, self._wrote, attempts=attempts, backoff=retry_backoff_seconds)
        self._leases = Leases(pool, clock, attempts=attempts, backoff=retry_backoff_seconds)
        channel = self._server.channel
        self._waiting = Waiting(poll_interval)
        self._telling = Telling(self._server.connect, channel)
        self._listening = Listening(
            self._server.connect, channel, self._waiting, lambda pid: pid == self._telling.pid
        )  # fmt: skip
        self._closing: asyncio.Task[None] | None = None

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power, as far as the server says."""
        return self._server.is_durable

    def now(self) -> datetime:
        """The time as events are stamped."""
        return self._clock()

    def new_id(self) -> str:
        """An id nobody else has."""
        return self._ids()

    # --- changes

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), fence: int | None = None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run."""
        check_run_id(run_id)
        if expects:
            check_expects(expects)
        self._check_writable()
        self._server.begin()
        try:
            return await self._appends.append(Wanted(run_id, write, expects, fence))
        finally:
            self._server.end()

    async def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Take the lease of a run, or renew it."""
        return await self._change_lease(
            run_id, lambda lease, moment: acquired(lease, run_id, worker_id, ttl_seconds, moment)
        )

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Prolong a lease that is still held."""
        return await self._change_lease(run_id, lambda lease, moment: renewed(lease, worker_id, ttl_seconds, moment))

    async def release(self, run_id: str, worker_id: str) -> bool:
        """Give a lease back."""
        changed = await self._change_lease(run_id, lambda lease, moment: released(lease, worker_id, moment))
        return changed is not None

    # --- one run

    async def head(self, run_id: str) -> Head | None:
        """The end of a run."""
        row = await self._server.row(sql.HEAD, run_id) if is_run_id(run_id) else None
        return head_of(row) if row is not None else None

    async def lines(self, run_id: str, since: int = 0, limit: int = 1000) -> list[bytes]:
        """The lines of a run after a number."""
        return await self._lines(run_id, sql.LINES, since, limit)

    async def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """The lines of these numbers."""
        found = await self._server.rows(LINES_AT, run_id, list(seqs)) if is_run_id(run_id) else []
        return dict(map(tuple, found))

    async def calls(self, run_id: str, key: str, limit: int = 100) -> list[Call]:
        """The requests under a key, the newest first."""
        check_name("step key", key)
        return await self._calls(run_id, sql.CALLS, key, limit)

    async def open_calls(self, run_id: str, limit: int = 1000) -> list[Call]:
        """The requests without an end, the oldest first."""
        return await self._calls(run_id, sql.OPEN_CALLS, limit)

    async def summary(self, run_id: str, summary_type: str) -> bytes | None:
        """The line of the newest summary of a type."""
        return next(iter(await self.summaries(run_id, summary_type, 1)), None)

    async def summaries(self, run_id: str, summary_type: str | None = None, limit: int = 20) -> list[bytes]:
        """The lines of the newest summaries, the newest first."""
        check_name("summary type", summary_type)
        if summary_type is None:
            return await self._lines(run_id, sql.SUMMARIES, limit)
        return await self._lines(run_id, sql.SUMMARY, summary_type, limit)

    async def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The line of the newest summary of each type that begins with a prefix, by type."""
        check_name("summary type", prefix)
        return await self._lines(run_id, sql.LATEST_SUMMARIES, prefix)

    async def lease(self, run_id: str) -> Lease | None:
        """Who holds a run now."""
        if not is_run_id(run_id):
            return None
        seen = self._leases.seen(run_id, await self._server.row(LEASE, run_id))
        return holds(seen.lease, seen.moment)

    # --- many runs

    async def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The call that holds a semantic key, or else the newest that had it."""
        check_tool(tenant, name, semantic_key)
        row = await self._server.row(sql.HOLDER, tenant, name, semantic_key)
        return call_of(row) if row is not None else None

    async def count_calls(
        self, name: str, *, run_id: str | None = None, tenant: str | None = None, since: datetime | None = None
    ) -> int:
        """How often a tool was requested."""
        check_tool(tenant, name, None)
        chosen, values = _chosen(
            {"name": name, "run_id": run_id, "tenant": tenant},
            {"timestamp": format_timestamp(since) if since is not None else None},
        )
        row = await self._server.row(f"SELECT count(*) FROM calls WHERE kind = 'tool' AND {chosen}", *values)  # noqa: S608
        return int(row[0])

    async def runs(
        self,
        *,
        tenant: str | None = None,
        since: datetime | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        """The runs, the last written first."""
        check_name("tenant", tenant)
        check_name("status", status)
        chosen, values = _chosen(
            {"tenant": tenant, "status": status},
            {"updated_at": format_timestamp(since) if since is not None else None},
        )
        query = (
            f"SELECT {sql.HEAD_COLUMNS} FROM runs WHERE count > 0 AND {chosen}"  # noqa: S608 - constants
            f" ORDER BY updated_at DESC, run_id DESC LIMIT ${len(values) + 1}"
        )
        return [head_of(row) for row in await self._server.rows(query, *values, limit)]

    async def schema_info(self) -> SchemaInfo:
        """What the database says of itself."""
        row = await self._server.row("SELECT value FROM meta WHERE key = 'schema_version'")
        return SchemaInfo("postgres", row[0] if row is not None else "")

    # --- what is to come

    async def wait(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has more than `after` events."""
        self._server.check_usable()
        if not is_run_id(run_id):
            return False
        self._listening.start()
        if await self._has_more(run_id, after):
            return True
        return await self._waiting.until(run_id, partial(self._has_more_by_now, run_id, after), self._look, timeout)

    async def stream(
        self, run_id: str, since: int = 0, *, follow: bool = False, idle_timeout: float | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a run, and with `follow` those to come."""
        patience = _FOR_EVER if idle_timeout is None else idle_timeout
        announced = False
        while is_run_id(run_id):
            page = await self._server.rows(EVENTS_PAGE, run_id, since, _PAGE, _PAGE_BYTES)
            for _, line in page:
                yield line
            if page:
                since, announced = page[-1][0], False
                continue
            if announced:
                raise TraceError(f"run `{run_id}` has no lines after event {since}, and says it has")
            if not follow or not await self.wait(run_id, since, patience):
                return
            announced = True

    # --- its life

    async def close(self) -> None:
        """Finish what was begun, and disconnect."""
        if self._closing is None:
            if self._server.is_used:
                self._server.check_usable()
            self._waiting.close()
            self._closing = asyncio.get_running_loop().create_task(self._server.close(self._last_words))
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        with self._server.working():
            await self._server.fill(self._least)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _last_words(self) -> None:
        await self._appends.drain()
        await self._listening.close()
        await self._telling.close(_LAST_WORDS)

    def _check_writable(self) -> None:
        if self._read_only:
            raise TraceError("the ledger is open only for reading")

    def _wrote(self, written: Written) -> None:
        self._waiting.done(written)
        self._telling.wrote(written.batch.head.run_id)

    async def _change_lease(self, run_id: str, change: Change) -> Lease | None:
        check_run_id(run_id)
        self._check_writable()
        with self._server.working():
            return await self._leases.change(run_id, change)

    async def _lines(self, run_id: str, query: str, *values: Any) -> list[bytes]:
        return [line for (line,) in await self._server.rows(query, run_id, *values)] if is_run_id(run_id) else []

    async def _calls(self, run_id: str, query: str, *values: Any) -> list[Call]:
        return [call_of(row) for row in await self._server.rows(query, run_id, *values)] if is_run_id(run_id) else []

    async def _has_more(self, run_id: str, after: int) -> bool:
        if self._appends.count_of(run_id) > after:
            return True
        row = await self._server.row(_COUNT, run_id)
        return row is not None and row[0] > after

    async def _has_more_by_now(self, run_id: str, after: int) -> bool:
        try:
            return await self._has_more(run_id, after)
        except TraceError:
            # The server is away. Whoever listens is back when it is, and then everybody looks again.
            return False

    async def _look(self, run_ids: Sequence[str]) -> Hashable:
        return tuple(map(tuple, await self._server.rows(_COUNTS, list(run_ids))))


def _chosen(equal: dict[str, str | None], least: dict[str, str | None]) -> tuple[str, list[str]]:
    """The conditions on those columns that were given a value, and the values."""
    given = [(f"{column} =", value) for column, value in equal.items() if value is not None]
    given += [(f"{column} >=", value) for column, value in least.items() if value is not None]
    conditions = [f"{condition} ${place}" for place, (condition, _) in enumerate(given, start=1)]
    return " AND ".join(conditions) or "true", [value for _, value in given]
