"""A ledger in memory, for tests and for runs that nobody will ask about."""

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import TypeVar

from gert.ecosystem.stores.async_ledger import AsyncLedger
from gert.ecosystem.stores.core import Page
from gert.ecosystem.stores.index import Index, Settled
from gert.ecosystem.stores.index_reader import IndexReader
from gert.ecosystem.stores.naming import utc_now
from gert.ecosystem.stores.settling import acquired, released, renewed
from gert.ecosystem.stores.sql import SCHEMA_VERSION
from gert.ecosystem.stores.threads import Inline
from gert.kernel.agent.ledger import Expect, Held, Lease, Overtaken, SchemaInfo, Write, Written
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
        super().__init__(lambda on_done: Inline(core, core, on_done), durable=False, shared=False, clock=clock, ids=ids)


T = TypeVar("T")


class _Memory(IndexReader):
    """Writes and reads; nothing here ever waits."""

    def __init__(self, key: Key | None, clock: Callable[[], datetime]) -> None:
        super().__init__(Index())
        self._lines: dict[str, list[bytes]] = {}
        self._key = key
        self._clock = clock

    def refresh(self, run_id: str | None) -> None:
        """Nobody else writes here."""

    def do_alone(self, call: Callable[["_Memory"], T]) -> T:
        """Do one thing."""
        return call(self)

    def append(
        self, run_id: str, write: Write, expects: Sequence[Expect], fence: int | None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run."""
        said = self.index.settle(run_id, write, expects, fence, self._clock(), self._key)
        if not isinstance(said, Settled):
            return said
        self._lines.setdefault(run_id, []).extend(row.line for row in said.batch.rows)
        self.index.take(said)
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
            self.index.put_lease(lease.run_id, lease)
        return lease

    def page(self, run_id: str, since: int, limit: int, most_bytes: int | None) -> Page:
        """Lines after a number; those in memory need no room."""
        since = max(since, 0)
        lines = self._lines.get(run_id, [])[since : since + max(limit, 0)]
        return Page(since + len(lines), lines)

    def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Lines by their numbers."""
        lines = self._lines.get(run_id, [])
        return {seq: lines[seq - 1] for seq in seqs if 1 <= seq <= len(lines)}

    def look(self, run_ids: Sequence[str]) -> Hashable:
        """Nobody else writes here."""
        return None

    def close(self) -> None:
        """There is nothing to let go of."""

    def schema_info(self) -> SchemaInfo:
        """What it says of itself."""
        return SchemaInfo("memory", str(SCHEMA_VERSION))
