"""The ledger as the agent kernel sees it: what a run's record looks like, and what every ledger promises.

A ledger is dumb. It keeps lines beside the few columns they are looked up by, and it hands the end of a run to
whoever appends: number, previous hash and everything derived from them are taken while nobody else can append.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, NamedTuple, Protocol, Self

import msgspec

from gert.errors import LeaseLost
from gert.kernel.agent.snapshot import Snapshot
from gert.kernel.events.chain import GENESIS

CallKind = Literal["model", "tool", "workflow", "read", "pause"]
CallOutcome = Literal[
    "open", "success", "transient_error", "permanent_error", "unknown_outcome", "failed", "timeout", "cancelled",
    "abandoned",
]  # fmt: skip
HOLDING: Final = frozenset({"open", "success", "unknown_outcome"})
"""Outcomes of a call that may have happened: they hold its semantic key."""


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a run: how many events it has, the hash of the last, and what they come to so far."""

    run_id: str
    tenant: str | None = None
    count: int = 0
    hash: str = GENESIS
    snapshot: Snapshot | None = None
    started_at: str = ""
    updated_at: str = ""
    seal: str | None = None
    """A signature over `sealed_bytes`, where the ledger was written with a key."""


class Row(NamedTuple):
    """One event as a ledger keeps it: its line, and the columns it is found by."""

    seq: int
    type: str
    timestamp: str
    summary_type: str | None
    line: bytes


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request and how it ended.

    seq: the number of the request
    key: `kind:step_key`, or `kind#input_hash` where the step has no key
    name: the model, the tool, the step of a workflow, the source that was read, or the reason of a pause
    input_hash: the hash of what replay compares
    done_seq: the number of the event that ended it
    drift: the hash of the changed question its answer was last taken for
    """

    run_id: str
    seq: int
    kind: CallKind
    key: str
    name: str
    tenant: str
    timestamp: str
    input_hash: str = ""
    semantic_key: str | None = None
    outcome: CallOutcome = "open"
    done_seq: int | None = None
    drift: str = ""

    @property
    def held(self) -> bool:
        """Whether nobody else may make the same call, by its semantic key."""
        return self.semantic_key is not None and self.outcome in HOLDING


class End(NamedTuple):
    """What an event says about the request `seq`: how it ended, or for which changed question it was used."""

    seq: int
    outcome: CallOutcome | None
    done_seq: int | None
    drift: str | None


class Batch(NamedTuple):
    """What an append writes, whole or not at all."""

    head: Head
    rows: Sequence[Row]
    calls: Sequence[Call] = ()
    ends: Sequence[End] = ()


class Expect(NamedTuple):
    """What the writer believes: the last request under a key has this number; 0 where there is none."""

    key: str
    last_seq: int


class Written(NamedTuple):
    """An append that happened."""

    batch: Batch

    @property
    def last(self) -> int:
        """The number of its last event."""
        return self.batch.head.count

    @property
    def first(self) -> int:
        """The number of its first event."""
        return self.batch.head.count - len(self.batch.rows) + 1


class Overtaken(NamedTuple):
    """Nothing was written: somebody else has made a request under an expected key."""

    key: str


class Held(NamedTuple):
    """Nothing was written: another call holds the semantic key."""

    call: Call


Write = Callable[[Head, str], Batch]
"""Makes a batch from the end of a run and the time.

It may be called more than once and on any thread, and only its last result is kept: it must be pure. What it
raises reaches whoever appends, and nothing is written.
"""


class Lease(msgspec.Struct, frozen=True):
    """The right to drive a run; each new holder has a greater token."""

    run_id: str
    worker_id: str | None
    token: int
    expires_at: datetime


class SchemaInfo(NamedTuple):
    """What a ledger says of itself."""

    backend: str
    schema_version: str


def may_append(lease: Lease | None, fence: int | None, moment: datetime | None) -> None:
    """Refuse whoever lacks the lease, or lost it: LeaseLost.

    A worker that held a lease is refused as soon as its time is over, and for ever once another has held it since:
    others may have written meanwhile, with a lease or without, and what it knows of the run may be old.

    moment: the time; None for a lease of which the ledger says that it is held now
    """
    is_held = lease is not None and lease.worker_id is not None and (moment is None or lease.expires_at > moment)
    if fence is not None:
        if lease is not None and fence != lease.token:
            raise LeaseLost("another worker has taken over the run", hint="load the run again under a new lease")
        if not is_held:
            raise LeaseLost("the lease has run out", hint="acquire it again, and renew it while the run is driven")
    elif lease is not None and is_held:
        raise LeaseLost(
            f"worker `{lease.worker_id}` holds the run until {lease.expires_at.isoformat()}",
            hint="acquire the lease first",
        )


def sealed_bytes(head: Head) -> bytes:
    """What is signed for a run that goes on: which run, how many events, and the last hash."""
    return f"gert-ledger-head-v1\n{head.run_id}\n{head.count}\n{head.hash}".encode()


class Ledger(Protocol):
    """Keeps runs of every kind."""

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power."""
        ...

    def now(self) -> datetime:
        """The time as this ledger stamps events."""
        ...

    def new_id(self) -> str:
        """An id nobody else has; ids sort by time."""
        ...

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), fence: int | None = None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run; durable when this returns.

        A run that is not there has a head of count 0. Cancelling does not undo an append that was asked for: it goes
        on, and whoever closes the ledger waits for it. Names that cannot be kept are refused: InputError.
        """
        ...

    async def head(self, run_id: str) -> Head | None:
        """The end of a run, or None where it has no events."""
        ...

    async def lines(self, run_id: str, since: int = 0, limit: int = 1000) -> list[bytes]:
        """The lines of a run after the number `since`, `limit` at most."""
        ...

    async def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """The lines of these numbers; those that are not there are left out."""
        ...

    async def calls(self, run_id: str, key: str, limit: int = 100) -> list[Call]:
        """The requests under a key, the newest first."""
        ...

    async def open_calls(self, run_id: str, limit: int = 1000) -> list[Call]:
        """The requests without an end, the oldest first."""
        ...

    async def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The newest call of this tool by its semantic key, whatever came of it."""
        ...

    async def count_calls(
        self, name: str, *, run_id: str | None = None, tenant: str | None = None, since: datetime | None = None
    ) -> int:
        """How often a tool was requested, in a run or by a tenant."""
        ...

    async def summary(self, run_id: str, summary_type: str) -> bytes | None:
        """The line of the newest summary of a type."""
        ...

    async def summaries(self, run_id: str, summary_type: str | None = None, limit: int = 20) -> list[bytes]:
        """The lines of the newest summaries, the newest first."""
        ...

    async def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The line of the newest summary of each type that begins with `prefix`, by type."""
        ...

    async def runs(
        self,
        *,
        tenant: str | None = None,
        since: datetime | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        """The runs that were last written at `since` or later, the newest first."""
        ...

    async def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Take the lease of a run, or renew it; None where somebody else has it."""
        ...

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Prolong a lease that is still held; None where it is not."""
        ...

    async def release(self, run_id: str, worker_id: str) -> bool:
        """Give a lease back; False where it was not held."""
        ...

    async def lease(self, run_id: str) -> Lease | None:
        """Who holds a run now."""
        ...

    async def wait(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has more than `after` events, at most `timeout` seconds; whether it has."""
        ...

    def stream(
        self, run_id: str, since: int = 0, *, follow: bool = False, idle_timeout: float | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a run after `since`; with `follow` also those to come, until none came for `idle_timeout`."""
        ...

    async def schema_info(self) -> SchemaInfo:
        """What the database says of itself."""
        ...

    async def close(self) -> None:
        """Let go of files, threads and connections, after what was begun; closing twice is closing once."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
