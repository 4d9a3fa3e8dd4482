"""A ledger over a store of the caller's own, which has only the documented methods.

The store keeps the events; what a kernel looks up is rebuilt from them in memory, run by run. That is enough for one
process: the store cannot keep others from appending in between. What needs more than the documented methods is refused
by name.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from gert.ecosystem.host.agent.stores import with_request_seq
from gert.ecosystem.host.config.keys.trace_keys import signing_key
from gert.ecosystem.ledger.ids import utc_now
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.errors import TraceError, UsageError
from gert.kernel.agent.ports.store import EventStore, SupportsRunIndexing, SupportsRunLeasing
from gert.kernel.agent.types.payload_models import EventType
from gert.kernel.agent.types.payloads import KernelEvent, event_from_line, to_entry_payload
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import (
    ANY_RUN,
    Appended,
    Batch,
    Expect,
    Head,
    Lease,
    RunFilter,
    SpendLimit,
    Write,
    Written,
)
from gert.kernel.ledger.spending import root_of

OF_ONE_RUN: Final = frozenset({
    "head", "status", "snapshot", "lines", "last_lines", "lines_at", "events", "answers", "private", "calls",
    "open_calls", "all_calls", "summary", "summaries", "latest_summaries", "messages", "output", "wait",
    "wait_for_message", "post", "write_output", "confirm", "check",
})  # fmt: skip
"""Methods of a ledger about one run, which is read from the store first."""


class CustomStore:
    """A store of the caller's own with a ledger, as a kernel needs it."""

    def __init__(self, store: EventStore) -> None:
        if signing_key(os.environ) is not None:
            raise UsageError(
                f"a signing key is configured, and `{type(store).__name__}` cannot seal runs",
                hint="use SQLiteStore or PostgresStore, or unset GERT_TRACE_SIGNING_KEY",
            )
        self.store = store
        self.ledger: Any = StoreLedger(store, utc_now)

    async def close(self) -> None:
        """Close the store."""
        await self.ledger.close()
        await self.store.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def with_ledger(store: EventStore) -> Any:
    """Return a store with a ledger: itself, or one of the caller's own with a ledger beside it."""
    return store if hasattr(store, "ledger") else CustomStore(store)


class StoreLedger:
    """The ledger of a custom store, for one process."""

    durable = False

    def __init__(self, store: EventStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._memory: Any = SqliteLedger(":memory:", clock=clock)
        self._loaded: set[str] = set()
        self._lock = asyncio.Lock()
        self._has_all = False

    def now(self) -> datetime:
        """Return the time as events are stamped."""
        return self._clock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._memory, name)
        if name not in OF_ONE_RUN:
            return method

        async def of_run(run_id: str, *args: Any, **more: Any) -> Any:
            await self._load(run_id)
            # The ledger in memory may have been replaced meanwhile.
            return await getattr(self._memory, name)(run_id, *args, **more)

        return of_run

    # --- appending

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), adopt: bool = False
    ) -> Appended:
        """Append to the store what `write` makes of the head; after a failure, everything is read from it again."""
        # A task: a cancelled caller does not undo an append that has begun.
        return await asyncio.shield(asyncio.ensure_future(self._append(run_id, write, expects)))

    async def _append(self, run_id: str, write: Write, expects: Sequence[Expect]) -> Appended:
        async with self._lock:
            await self._load_locked(run_id)
            await self._check_guards(run_id, write)
            answer: Appended = await self._memory.append(run_id, write, expects=expects)
            if isinstance(answer, Written):
                await self._keep(answer.batch)
            return answer

    async def _keep(self, batch: Batch) -> None:
        try:
            for row in batch.events:
                event = event_from_line(row.line)
                kept = await self._store.append_event(
                    run_id=event.run_id,
                    tenant_id=event.tenant_id,
                    event_type=event.event_type,
                    payload=event.payload,
                    parent_step_key=event.parent_step_key,
                )
                if kept.seq != row.seq:
                    raise TraceError(f"event {row.seq} became event {kept.seq}: does another process append?")
        except BaseException as error:
            self._forget()
            name = type(self._store).__name__
            raise TraceError(f"`{name}` failed to append to run `{batch.head.run_id}`: {error}") from error

    async def _check_guards(self, run_id: str, write: Write) -> None:
        """Refuse what the store cannot guard, before anything is written; read what a guard counts."""
        head = await self._memory.head(run_id)
        batch = write(head if head is not None else Head(run_id), format_timestamp(self._clock()))
        for call in batch.calls:
            if call.semantic_key is not None:
                await self._load_all("a semantic idempotency key")
        for limit in batch.limits:
            if not isinstance(limit, SpendLimit):
                if limit.seconds is not None:
                    await self._load_all("a rate limit of a tenant")
            elif limit.kind == "tenant":
                await self._load_all("a budget of a tenant")
            elif root_of(run_id) != run_id:
                await self._load_locked(root_of(run_id))

    # --- reading

    async def holders(self, tenant: str, name: str, semantic_key: str) -> Any:
        """Return the calls with a semantic key."""
        async with self._lock:
            await self._load_all("a semantic idempotency key")
        return await self._memory.holders(tenant, name, semantic_key)

    async def count_calls(self, name: str, *, run_id: str | None = None, **more: Any) -> int:
        """Return how often a tool was requested."""
        async with self._lock:
            await (self._load_all("a rate limit of a tenant") if run_id is None else self._load_locked(run_id))
        return int(await self._memory.count_calls(name, run_id=run_id, **more))

    async def spent(self, kind: Any, tenant: str, name: str = "", since: datetime | None = None) -> int:
        """Return how much was spent under a counter."""
        async with self._lock:
            await (self._load_all("a budget of a tenant") if kind == "tenant" else self._load_locked(name))
        return int(await self._memory.spent(kind, tenant, name, since))

    async def runs(self, chosen: RunFilter = ANY_RUN) -> Any:
        """Return runs by filter."""
        async with self._lock:
            await self._load_all("a list of runs")
        return await self._memory.runs(chosen)

    async def tickets(
        self, *statuses: Any, run_id: str | None = None, prefix: str | None = None, limit: int = 1000
    ) -> Any:
        """Return tickets by status, run or beginning of their id."""
        async with self._lock:
            if run_id is not None:
                await self._load_locked(run_id)
            elif prefix is None:
                await self._load_all("a list of tickets")
        return await self._memory.tickets(*statuses, run_id=run_id, prefix=prefix, limit=limit)

    async def stream(self, run_id: str, since: int = 0, **more: Any) -> Any:
        """Yield the lines of a run."""
        await self._load(run_id)
        async for line in self._memory.stream(run_id, since, **more):
            yield line

    async def _load(self, run_id: str) -> None:
        async with self._lock:
            await self._load_locked(run_id)

    async def _load_all(self, what: str) -> None:
        if self._has_all:
            return
        if not isinstance(self._store, SupportsRunIndexing):
            raise self._cannot(what, "list_run_ids")
        for run_id in await self._store.list_run_ids():
            await self._load_locked(run_id)
        self._has_all = True

    async def _load_locked(self, run_id: str) -> None:
        if run_id in self._loaded:
            return
        for event in await self._store.get_events_for_run(run_id):
            await self._import(run_id, event)
        self._loaded.add(run_id)

    async def _import(self, run_id: str, event: KernelEvent) -> None:
        name = type(self._store).__name__
        if event.run_id != run_id:
            raise TraceError(f"`{name}` returned an event of run `{event.run_id}` for run `{run_id}`")
        payload = to_entry_payload(await with_request_seq(self._memory, event.run_id, event.payload))
        moment = format_timestamp(event.timestamp)

        def write(head: Head, _: str) -> Batch:
            if bool(head.count) == (event.event_type is EventType.RUN_STARTED):
                raise TraceError(f"run `{event.run_id}` in `{name}` does not begin as a run does")
            if event.seq != head.count + 1:
                # A call that is not there would be made again.
                raise TraceError(f"`{name}` returned event {event.seq} of run `{run_id}` after event {head.count}")
            return build_batch(head, moment, event.tenant_id, (Entry(payload, event.parent_step_key),))

        if not isinstance(await self._memory.append(event.run_id, write), Written):
            raise TraceError(f"event {event.seq} of run `{event.run_id}` cannot follow those before it")

    def _forget(self) -> None:
        self._memory, self._loaded, self._has_all = SqliteLedger(":memory:", clock=self._clock), set(), False

    # --- leases

    async def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Acquire the lease of a run from the store."""
        store = self._leasing("acquire_run_lease")
        held = await store.acquire_run_lease(run_id=run_id, worker_id=worker_id, ttl_seconds=int(ttl_seconds))
        return await self.lease(run_id) if held else None

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float, *, late: bool = False) -> Lease | None:
        """Renew the lease of a run in the store."""
        store = self._leasing("renew_run_lease")
        held = await store.renew_run_lease(run_id=run_id, worker_id=worker_id, ttl_seconds=int(ttl_seconds))
        return await self.lease(run_id) if held else None

    async def release(self, run_id: str, worker_id: str) -> bool:
        """Release the lease of a run in the store."""
        return await self._leasing("release_run_lease").release_run_lease(run_id=run_id, worker_id=worker_id)

    async def lease(self, run_id: str) -> Lease | None:
        """Return the lease of a run in the store."""
        found = await self._leasing("get_run_lease").get_run_lease(run_id=run_id)
        return None if found is None else Lease(found.run_id, found.worker_id, 0, found.lease_expires_at)

    def _leasing(self, method: str) -> SupportsRunLeasing:
        if not isinstance(self._store, SupportsRunLeasing):
            raise self._cannot("a lease", method)
        return self._store

    def _cannot(self, what: str, method: str) -> UsageError:
        return UsageError(
            f"`{type(self._store).__name__}` has no `{method}`, which {what} needs",
            hint="implement it, or use SQLiteStore or PostgresStore",
        )

    async def close(self) -> None:
        """Close what is kept in memory."""
        await self._memory.close()
