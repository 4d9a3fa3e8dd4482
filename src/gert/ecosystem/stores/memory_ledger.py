"""A ledger in memory, for tests and for runs that nobody will ask about."""

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime

from gert.ecosystem.stores.async_ledger import AsyncLedger
from gert.ecosystem.stores.core import Page
from gert.ecosystem.stores.index import Index, Settled
from gert.ecosystem.stores.naming import utc_now
from gert.ecosystem.stores.settling import acquired, released, renewed
from gert.ecosystem.stores.sql import SCHEMA_VERSION
from gert.ecosystem.stores.threads import Inline, Task
from gert.kernel.agent.ledger import Call, Expect, Head, Held, Lease, Overtaken, SchemaInfo, Write, Written
from gert.kernel.foundation.signature import Key


class MemoryLedger(AsyncLedger):
    """Keeps runs as long as the process lives."""

    def __init__(
        self,
        *,
        key: Key | None = None,
        clock: Callable[[], datetime] = utc_now,
        ids: Callable[[], str] | None = None,
    ) -> None:
        core = _Memory(key, clock)
        super().__init__(
            core,
            core,
            hands=lambda waiting: Inline(waiting.done),
            durable=False,
            shared=False,
            clock=clock,
            ids=ids,
        )


class _Memory:
    """Writes and reads; nothing here ever waits."""

    def __init__(self, key: Key | None, clock: Callable[[], datetime]) -> None:
        self._index = Index()
        self._lines: dict[str, list[bytes]] = {}
        self._key = key
        self._clock = clock

    def do_all(self, tasks: Sequence[Task]) -> None:
        """Do tasks one after the other."""
        for task in tasks:
            task.run()

    def append(
        self, run_id: str, write: Write, expects: Sequence[Expect], fence: int | None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run."""
        said = self._index.settle(run_id, write, expects, fence, self._clock(), self._key)
        if not isinstance(said, Settled):
            return said
        self._lines.setdefault(run_id, []).extend(row.line for row in said.batch.rows)
        self._index.take(said)
        return Written(said.batch)

    def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Take or prolong a lease."""
        return self._keep(acquired(self.lease(run_id), run_id, worker_id, ttl_seconds, self._clock()))

    def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Prolong a lease."""
        return self._keep(renewed(self.lease(run_id), worker_id, ttl_seconds, self._clock()))

    def release(self, run_id: str, worker_id: str) -> bool:
        """Give a lease back."""
        return self._keep(released(self.lease(run_id), worker_id, self._clock())) is not None

    def _keep(self, lease: Lease | None) -> Lease | None:
        if lease is not None:
            self._index.put_lease(lease)
        return lease

    def head(self, run_id: str) -> Head | None:
        """The end of a run."""
        head = self._index.run(run_id).head
        return head if head.count else None

    def page(self, run_id: str, since: int, limit: int, most_bytes: int | None) -> Page:
        """Lines after a number; those in memory need no room."""
        lines = self._lines.get(run_id, [])[max(since, 0) :][: max(limit, 0)]
        return Page(max(since, 0) + len(lines), lines)

    def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Lines by their numbers."""
        lines = self._lines.get(run_id, [])
        return {seq: lines[seq - 1] for seq in seqs if 1 <= seq <= len(lines)}

    def calls(self, run_id: str, key: str, limit: int) -> list[Call]:
        """The requests under a key, the newest first."""
        return self._index.calls(run_id, key, limit)

    def open_calls(self, run_id: str, limit: int) -> list[Call]:
        """The requests without an end, the oldest first."""
        return self._index.open_calls(run_id, limit)

    def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The call that holds a semantic key, or else the newest that had it."""
        return self._index.holder(tenant, name, semantic_key)

    def count_calls(self, name: str, run_id: str | None, tenant: str | None, since: str) -> int:
        """How often a tool was requested."""
        return self._index.count_calls(name, run_id, tenant, since)

    def summaries(self, run_id: str, summary_type: str | None, limit: int) -> list[bytes]:
        """The newest summaries, the newest first."""
        return list(self.lines_at(run_id, self._index.summaries(run_id, summary_type, limit)).values())

    def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The newest summary of each type that begins with a prefix, by type."""
        return list(self.lines_at(run_id, self._index.latest_summaries(run_id, prefix)).values())

    def runs(self, tenant: str | None, since: str | None, status: str | None, limit: int | None) -> list[Head]:
        """Runs, the last written first."""
        return self._index.runs(tenant, since, status, limit)

    def lease(self, run_id: str) -> Lease | None:
        """The lease of a run as it was last given."""
        return self._index.run(run_id).lease

    def count(self, run_id: str) -> int:
        """How many events a run has."""
        return self._index.run(run_id).head.count

    def look(self, run_ids: Sequence[str]) -> Hashable:
        """Nobody else writes here."""
        return None

    def schema_info(self) -> SchemaInfo:
        """What it says of itself."""
        return SchemaInfo("memory", str(SCHEMA_VERSION))

    def close(self) -> None:
        """There is nothing to let go of."""
