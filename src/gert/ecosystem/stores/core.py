"""A ledger without its event loop: blocking methods, one object that writes and one that reads."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from gert.ecosystem.stores.tasks import Task
from gert.kernel.agent.ledger import (
    Call,
    Expect,
    Head,
    Held,
    Lease,
    Overtaken,
    SchemaInfo,
    Write,
    Written,
)

T = TypeVar("T")


class Page(NamedTuple):
    """Some lines of a run in order, and the number of the last of them."""

    last: int
    lines: list[bytes]


class Writer(Protocol):
    """Changes the record; used by one thread at a time."""

    def do_alone(self, call: Callable[[Any], T]) -> T:
        """Call one of the methods below; Busy, and nothing is done, where that would mean to wait for somebody else."""
        ...

    def append(
        self, run_id: str, write: Write, expects: Sequence[Expect], fence: int | None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run."""
        ...

    def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Take or prolong a lease."""
        ...

    def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Prolong a lease."""
        ...

    def release(self, run_id: str, worker_id: str) -> bool:
        """Give a lease back."""
        ...

    def close(self) -> None:
        """Let go of what writes."""
        ...


class ManyWriter(Writer, Protocol):
    """Changes the record for many at once."""

    def do_all(self, tasks: Sequence[Task], *, patiently: bool = True) -> bool:
        """Do tasks that call the methods of a writer: together if that is faster, each on its own account.

        Whether they were done. Without patience nothing is done where that would mean to wait for somebody else.
        """
        ...


class Reader(Protocol):
    """Looks at the record; used by one thread at a time."""

    def head(self, run_id: str) -> Head | None:
        """The end of a run."""
        ...

    def page(self, run_id: str, since: int, limit: int, most_bytes: int | None) -> Page:
        """Lines after a number: `limit` at most, and no more than fit into `most_bytes` unless it is only one."""
        ...

    def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """Lines by their numbers."""
        ...

    def calls(self, run_id: str, key: str, limit: int) -> list[Call]:
        """The requests under a key, the newest first."""
        ...

    def open_calls(self, run_id: str, limit: int) -> list[Call]:
        """The requests without an end, the oldest first."""
        ...

    def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The call that holds a semantic key, or else the newest that had it."""
        ...

    def count_calls(self, name: str, run_id: str | None, tenant: str | None, since: str) -> int:
        """How often a tool was requested."""
        ...

    def summaries(self, run_id: str, summary_type: str | None, limit: int) -> list[bytes]:
        """The newest summaries, the newest first."""
        ...

    def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The newest summary of each type that begins with a prefix, by type."""
        ...

    def runs(self, tenant: str | None, since: str | None, status: str | None, limit: int | None) -> list[Head]:
        """Runs, the last written first."""
        ...

    def lease(self, run_id: str) -> Lease | None:
        """The lease of a run as it was last written, held or not."""
        ...

    def count(self, run_id: str) -> int:
        """How many events a run has."""
        ...

    def look(self, run_ids: Sequence[str]) -> Hashable:
        """Something that is another thing once anybody has written to one of these runs; cheap to get."""
        ...

    def schema_info(self) -> SchemaInfo:
        """What the record says of itself."""
        ...

    def close(self) -> None:
        """Let go of what reads."""
        ...
