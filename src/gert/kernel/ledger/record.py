"""The data of a ledger: the head of a run, its events, answers, calls, tickets, messages and lease."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from gert.kernel.events.chain import GENESIS
from gert.kernel.events.vocabulary import RunKind
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.ledger.agent_fold import AgentSnapshot
from gert.kernel.ledger.runbook_fold import RunbookSnapshot
from gert.kernel.ledger.runner_fold import RunnerSnapshot
from gert.kernel.ledger.spending import Spend, SpendKind

CallKind = Literal["model", "tool", "workflow", "read", "pause", "manual"]
CallOutcome = Literal[
    "open", "success", "transient_error", "permanent_error", "unknown_outcome", "failed", "timeout", "cancelled",
    "abandoned",
]  # fmt: skip
HOLDING: Final = frozenset({"open", "success", "unknown_outcome"})
"""Outcomes of a call that may have happened: they hold its semantic key."""

TicketStatus = Literal["pending", "approved", "rejected", "expired", "abandoned"]
MessageKind = Literal["approval", "cancel", "advance", "evidence", "note"]
MAX_MESSAGE: Final = 64 * 1024
"""Bytes that a message to a run may have."""

MAX_OUTPUT: Final = 256 * 1024
"""Characters that are kept of the output of a running step."""

LIMIT_WINDOW: Final = timedelta(hours=1)
"""How far back `max_per_hour` counts."""

NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a run: how many events and answers it has, the hashes over them, and what they fold to.

    answers_hash: a rolling hash over the stored answers, in order
    seal: a signature over `sealed_bytes`, where the ledger is written with a key
    """

    run_id: str
    kind: RunKind = "agent"
    tenant: str | None = None
    count: int = 0
    hash: str = GENESIS
    answers: int = 0
    answers_hash: str = GENESIS
    snapshot: AgentSnapshot | RunbookSnapshot | RunnerSnapshot | None = None
    started_at: str = ""
    updated_at: str = ""
    seal: str | None = None

    @property
    def agent(self) -> AgentSnapshot | None:
        """The snapshot of an agent run."""
        return self.snapshot if isinstance(self.snapshot, AgentSnapshot) else None

    @property
    def runbook(self) -> RunbookSnapshot | None:
        """The snapshot of a runbook run."""
        return self.snapshot if isinstance(self.snapshot, RunbookSnapshot) else None

    @property
    def runner(self) -> RunnerSnapshot | None:
        """The snapshot of a runner execution."""
        return self.snapshot if isinstance(self.snapshot, RunnerSnapshot) else None

    @property
    def status(self) -> str:
        """What listings show and filter by."""
        return self.snapshot.status if self.snapshot is not None else ""


def hash_answer(previous: str, line: bytes) -> str:
    """The rolling hash after one more answer."""
    return sha256_hex(f"{previous}{sha256_hex(line)}".encode())


class Event(NamedTuple):
    """One event as a ledger keeps it: its line, and the columns it is found by."""

    seq: int
    type: str
    timestamp: str
    summary_type: str | None
    line: bytes


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request and how it ended.

    seq: the number of the event that made the request
    key: `kind:step_key`, or `kind#input_hash` where the step has no key
    name: the model, the tool, the step of a workflow, the source that was read, or the reason of a pause
    input_hash: the hash of what replay compares
    done_seq: the number of the event that ended it
    drift: the hash of the changed question its answer was last taken for
    last_seq: the number of the last event about it
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
    last_seq: int = 0

    @property
    def held(self) -> bool:
        """Whether the call keeps others with the same semantic key from being made."""
        return self.semantic_key is not None and self.outcome in HOLDING


class CallEnd(NamedTuple):
    """What the event `event_seq` says about the request `seq`: its outcome, or the changed question it was used for."""

    seq: int
    event_seq: int
    outcome: CallOutcome | None = None
    drift: str | None = None


def ended(call: Call, end: CallEnd) -> Call:
    """A call after one more event about it."""
    return msgspec.structs.replace(
        call,
        outcome=call.outcome if end.outcome is None else end.outcome,
        done_seq=call.done_seq if end.outcome is None else end.event_seq,
        drift=call.drift if end.drift is None else end.drift,
        last_seq=end.event_seq,
    )


MOST_CALLS: Final = 100
"""How many requests under one key are looked at: the newest."""


def last_seq_of(calls: Sequence[Call]) -> int:
    """The number of the last event about the requests under a key, which are given the newest first."""
    return max((call.last_seq for call in calls[:MOST_CALLS]), default=0)


class TicketRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """An approval request of a run, projected from its events.

    seq: the number of its `approval_submitted`
    done_seq: the number of the event that closed it
    request: the whole request, as JSON
    responses: what the run has recorded of the responses it took, a line of JSON for each
    """

    ticket_id: str
    run_id: str
    seq: int
    step_id: str
    created_at: str
    expires_at: str | None = None
    status: TicketStatus = "pending"
    done_seq: int | None = None
    request: str = ""
    responses: str = ""


class TicketResponse(NamedTuple):
    """A response to a ticket that the run took: the data of its event, as a line of JSON."""

    ticket_id: str
    line: str


class TicketEnd(NamedTuple):
    """What an event says about open tickets: `ticket_id`, or all of the run where it names none."""

    ticket_id: str | None
    status: TicketStatus
    done_seq: int


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to a run from outside; its driver takes it into the chain.

    received_at: the ledger's clock when the message arrived; it decides about timeouts
    taken: the number of the event that took it
    """

    id: int
    run_id: str
    kind: MessageKind
    received_at: str
    body: bytes
    ticket_id: str | None = None
    taken: int | None = None


class Output(NamedTuple):
    """A piece of what a running step prints; kept until its answer is committed."""

    key: str
    stream: str
    text: str


class Claim(NamedTuple):
    """One execution that limits count: what is executed, by which request, and how often it may be in an hour.

    A request that is made again after an interruption is counted once.
    """

    key: str
    request: str
    limit: int | None = None


class CallLimit(NamedTuple):
    """How often a tool may be requested, the requests of the append included: by a tenant in the last `seconds`, or,
    without them, in the run.
    """

    tenant: str
    name: str
    most: int
    seconds: float | None = None

    @property
    def scope(self) -> tuple[str, ...]:
        """What appends wait for each other over."""
        return ("call", self.tenant, self.name)


class SpendLimit(NamedTuple):
    """How much may be spent under a counter in the last `seconds`, or ever; what the append adds is included."""

    kind: SpendKind
    tenant: str
    name: str
    most: int
    seconds: float | None = None

    @property
    def scope(self) -> tuple[str, ...]:
        """What appends wait for each other over."""
        return self[:3]


Limit = CallLimit | SpendLimit


class Batch(NamedTuple):
    """What an append writes, whole or not at all.

    taken: ids of the messages this append takes
    documents: stored bytes by digest
    finished: keys of the requests whose live output can go, since their answers are in this batch
    private: with the first append, what is kept beside the run and never exported
    claims: executions that are counted; one that exceeds its limit is refused, and the rest is written
    responses: what is added to tickets
    limits: what must not be exceeded with this append; otherwise nothing of it is written
    spends: what is added to counters
    """

    head: Head
    events: Sequence[Event]
    calls: Sequence[Call] = ()
    ends: Sequence[CallEnd] = ()
    answers: Sequence[bytes] = ()
    tickets: Sequence[TicketRow] = ()
    ticket_ends: Sequence[TicketEnd] = ()
    taken: Sequence[int] = ()
    documents: Sequence[tuple[str, bytes]] = ()
    finished: Sequence[str] = ()
    private: bytes | None = None
    claims: Sequence[Claim] = ()
    responses: Sequence[TicketResponse] = ()
    limits: Sequence[Limit] = ()
    spends: Sequence[Spend] = ()


class Expect(NamedTuple):
    """What the writer believes: the number of the last event about the requests under a key; 0 where there is none."""

    key: str
    last_seq: int


class Written(NamedTuple):
    """An append that happened.

    refused: by request, the claims that exceed their limit, and how many were counted before them
    """

    batch: Batch
    refused: Mapping[str, int] = MappingProxyType({})

    @property
    def last(self) -> int:
        """The number of its last event."""
        return self.batch.head.count

    @property
    def first(self) -> int:
        """The number of its first event."""
        return self.batch.head.count - len(self.batch.events) + 1


class Overtaken(NamedTuple):
    """Nothing was written: another request was made or ended under an expected key."""

    key: str


class Held(NamedTuple):
    """Nothing was written: another call holds the semantic key."""

    call: Call


class Exceeded(NamedTuple):
    """Nothing was written: the append exceeds a limit; `counted` is what counted before it."""

    limit: Limit
    counted: int


Appended = Written | Overtaken | Held | Exceeded
"""The result of an append."""

Write = Callable[[Head, str], Batch]
"""Makes a batch from the head of a run and the time.

It may be called more than once and on any thread, and only its last result is kept: it must be pure. What it
raises reaches the caller of `append`, and nothing is written.
"""


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that holds a lease, so that another process of the same host can check whether it has ended.

    boot, namespace, started: distinguish a process from a later one with the same id
    file: the file of the ledger, if it is one; it distinguishes a copy from the original
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    file: str = ""


class Lease(msgspec.Struct, frozen=True):
    """The right to drive a run; each new holder has a greater token."""

    run_id: str
    worker_id: str | None
    token: int
    expires_at: datetime
    seconds: float = 0.0
    holder: Holder | None = None


class SchemaInfo(NamedTuple):
    """What a ledger says of itself."""

    backend: str
    schema_version: str


class RunFilter(NamedTuple):
    """Which runs a listing shows, the last written first.

    prefix: what their ids begin with
    """

    tenant: str | None = None
    kind: RunKind | None = None
    status: str | None = None
    since: datetime | None = None
    prefix: str | None = None
    limit: int | None = None


ANY_RUN: Final = RunFilter()
