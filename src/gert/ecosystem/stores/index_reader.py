"""Reads what an index knows; where the lines are, and whether the index is up to date, is for others to say."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import RLock

from gert.ecosystem.stores.index import Index
from gert.kernel.agent.ledger import Call, Head, Lease


class IndexReader(ABC):
    """What every ledger without a database answers the same way.

    lock: held while the index is asked; others may be changing it
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.lock = RLock()

    @abstractmethod
    def refresh(self, run_id: str | None) -> None:
        """Bring the index up to date, for one run or for all."""

    def look_around(self) -> None:
        """Bring the index up to date, and make sure that it holds every call there is."""
        self.refresh(None)

    @abstractmethod
    def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Lines by their numbers."""

    def head(self, run_id: str) -> Head | None:
        """The end of a run."""
        with self.lock:
            self.refresh(run_id)
            head = self.index.run(run_id).head
        return head if head.count else None

    def lease(self, run_id: str) -> Lease | None:
        """The lease of a run as it was last given."""
        with self.lock:
            self.refresh(run_id)
            return self.index.run(run_id).lease

    def count(self, run_id: str) -> int:
        """How many events a run has."""
        with self.lock:
            self.refresh(run_id)
            return self.index.run(run_id).head.count

    def calls(self, run_id: str, key: str, limit: int) -> list[Call]:
        """The requests under a key, the newest first."""
        with self.lock:
            self.refresh(run_id)
            return self.index.calls(run_id, key, limit)

    def open_calls(self, run_id: str, limit: int) -> list[Call]:
        """The requests without an end, the oldest first."""
        with self.lock:
            self.refresh(run_id)
            return self.index.open_calls(run_id, limit)

    def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The call that holds a semantic key, or else the newest that had it."""
        with self.lock:
            self.look_around()
            return self.index.holder(tenant, name, semantic_key)

    def count_calls(self, name: str, run_id: str | None, tenant: str | None, since: str) -> int:
        """How often a tool was requested."""
        with self.lock:
            self.refresh(run_id)
            return self.index.count_calls(name, run_id, tenant, since)

    def summaries(self, run_id: str, summary_type: str | None, limit: int) -> list[bytes]:
        """The newest summaries, the newest first."""
        with self.lock:
            self.refresh(run_id)
            seqs = self.index.summaries(run_id, summary_type, limit)
        return list(self.lines_at(run_id, seqs).values())

    def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The newest summary of each type that begins with a prefix, by type."""
        with self.lock:
            self.refresh(run_id)
            seqs = self.index.latest_summaries(run_id, prefix)
        return list(self.lines_at(run_id, seqs).values())

    def runs(self, tenant: str | None, since: str | None, status: str | None, limit: int | None) -> list[Head]:
        """Runs, the last written first."""
        with self.lock:
            self.refresh(None)
            return self.index.runs(tenant, since, status, limit)
