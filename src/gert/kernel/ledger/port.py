"""The port of the ledger: everything that records or reads a run uses it.

A ledger stores lines beside the few columns they are looked up by. It passes the head of a run to the function that
appends: number, previous hash and everything derived from them are computed while no other process can append.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from gert.errors import GertError
from gert.kernel.ledger.export import RunExport
from gert.kernel.ledger.record import (
    ANY_RUN,
    MOST_CALLS,
    Appended,
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
)
from gert.kernel.ledger.spending import SpendKind
from gert.kernel.ledger.witness import Witness

OnUnreadable = Callable[[str, GertError], object]
"""Called with the id of a run that cannot be read, and why."""


class Ledger(Protocol):
    """Records runs of every kind. It belongs to the event loop that uses it first.

    A lease that is acquired here is remembered here: whatever appends through this object appends under it.

    witness: has every head that is sealed here, outside the ledger; set before the first append
    export: gets everything that is appended here, once it is durable; set before the first append
    """

    witness: Witness | None
    export: RunExport | None

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power."""

    def now(self) -> datetime:
        """The time as this ledger stamps events."""

    async def time(self) -> datetime:
        """The time by the clock that stamps messages: that of the server, where there is one."""

    def new_id(self) -> str:
        """A new unique id; ids sort by time."""

    # --- changes

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), adopt: bool = False
    ) -> Appended:
        """Append what `write` makes of the head of the run; durable when this returns.

        A run that is not there has a head of count 0. Cancelling does not undo an append that was asked for: it is
        finished, and `close` waits for it. Names that cannot be stored are refused: InputError. A lease that another
        process has taken: LeaseLost. A head whose seal does not hold: IntegrityError.

        adopt: continue a run that is not sealed although this ledger is written with a key
        """

    async def post(self, run_id: str, kind: MessageKind, body: bytes, ticket_id: str | None = None) -> None:
        """Post a message to a run; needs no lease. Refused where there is no such run, or no such ticket of it."""

    async def write_output(self, run_id: str, pieces: Sequence[Output]) -> None:
        """Store the output of running steps for `gert logs`: of each the last `MAX_OUTPUT` characters or more."""

    # --- leases

    async def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Acquire the lease of a run, or renew it; None where another worker holds it."""

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float, *, late: bool = False) -> Lease | None:
        """Renew a lease that is still held; None where it is not.

        late: also renew an expired one that was acquired here, where no other worker has acquired it since
        """

    async def release(self, run_id: str, worker_id: str) -> bool:
        """Release a lease; False where it was not held."""

    async def lease(self, run_id: str) -> Lease | None:
        """The lease of a run, if a worker holds it now."""

    async def confirm(self, run_id: str) -> None:
        """Refuse where another worker has taken the run since this process acquired it: LeaseLost."""

    async def check(self, run_id: str) -> Head | None:
        """The head of a run, unless an append would be refused now: LeaseLost where another worker drives it."""

    # --- one run

    async def head(self, run_id: str) -> Head | None:
        """The head of a run, or None where it has no events."""

    async def status(self, run_id: str) -> str | None:
        """The stored status of a run, for verification."""

    async def snapshot(self, run_id: str) -> bytes | None:
        """The stored snapshot of a run as it is stored, for verification."""

    async def lines(self, run_id: str, since: int = 0, limit: int = 1000) -> list[bytes]:
        """The lines of a run after the number `since`, `limit` at most."""

    async def last_lines(self, run_id: str, limit: int) -> list[bytes]:
        """The last lines of a run, the very last first."""

    async def lines_at(self, run_id: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """The lines of these numbers; those that are not there are left out."""

    async def events(self, run_id: str, since: int = 0, limit: int = 1000) -> list[Event]:
        """Whole rows of events after the number `since`, for verification."""

    async def answers(self, run_id: str, since: int = 0, limit: int = 1000) -> list[bytes]:
        """The answers of a run after the number `since`, in order."""

    async def documents(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Stored documents by digest; those that are not there are left out."""

    async def private(self, run_id: str) -> bytes | None:
        """The private bytes stored with the first append; they are in no event and no export."""

    async def calls(self, run_id: str, key: str, limit: int = MOST_CALLS) -> list[Call]:
        """The requests under a key, the newest first."""

    async def open_calls(self, run_id: str, limit: int = 1000) -> list[Call]:
        """The requests without an end, the oldest first."""

    async def all_calls(self, run_id: str, since: int = 0, limit: int = 1000) -> list[Call]:
        """All requests of a run after the number `since`, for verification."""

    async def summary(self, run_id: str, summary_type: str) -> bytes | None:
        """The line of the newest summary of a type."""

    async def summaries(self, run_id: str, summary_type: str | None = None, limit: int = 20) -> list[bytes]:
        """The lines of the newest summaries, the newest first."""

    async def latest_summaries(self, run_id: str, prefix: str) -> list[bytes]:
        """The line of the newest summary of each type that begins with `prefix`, by type."""

    async def messages(self, run_id: str, *, ticket_id: str | None = None, since: int = 0) -> list[Message]:
        """The messages to a run after the id `since`, in the order they were received.

        Of a body that is longer than `MAX_MESSAGE`, so much is read that it is known to be too long.
        """

    async def output(self, run_id: str, key: str | None = None, since: int = 0) -> tuple[int, list[Output]]:
        """The output of running steps after the number `since`, and the number to continue from."""

    # --- many runs

    async def runs(self, chosen: RunFilter = ANY_RUN, on_unreadable: OnUnreadable | None = None) -> list[Head]:
        """Runs by filter, the last written first.

        on_unreadable: called for each run whose head cannot be read; without it, one such run is a TraceError
        """

    async def tickets(
        self, *statuses: TicketStatus, run_id: str | None = None, prefix: str | None = None, limit: int = 1000
    ) -> list[TicketRow]:
        """Tickets by status, run or beginning of their id, the oldest first."""

    async def claimed(self, since: datetime) -> dict[str, int]:
        """How many executions were counted since a time, by key."""

    async def holders(self, tenant: str, name: str, semantic_key: str) -> list[Call]:
        """The calls with a semantic key: first those that hold it, then those that had it, each the newest first."""

    async def count_calls(
        self, name: str, *, run_id: str | None = None, tenant: str | None = None, since: datetime | None = None
    ) -> int:
        """How often a tool was requested, in a run or by a tenant."""

    async def spent(self, kind: SpendKind, tenant: str, name: str = "", since: datetime | None = None) -> int:
        """How much was spent or reserved under a counter, in billionths of a US dollar: ever, or since a time."""

    async def orphans(self) -> dict[str, list[str]]:
        """The tables that have rows of a run which is not there, by run: its row was removed, and they were not."""

    async def schema_info(self) -> SchemaInfo:
        """The backend and schema version of the database."""

    # --- following

    async def wait(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has more than `after` events, at most `timeout` seconds; whether it has."""

    async def wait_for_message(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has a message with an id above `after`, at most `timeout` seconds; whether it has."""

    def stream(
        self, run_id: str, since: int = 0, *, follow: bool = False, idle_timeout: float | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a run after `since`; with `follow` also those to come, until none came for `idle_timeout`."""

    # --- closing

    async def close(self) -> None:
        """Finish pending appends, then close files, threads and connections; may be called twice."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
