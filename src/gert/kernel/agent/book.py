"""The record of agent runs as steps use it: look up what was asked before, write what happens now.

Everything here awaits the ledger and nothing else. What may be written is decided where it is written: by functions
the ledger calls while nobody else can append to the run.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from gert.errors import RunBlocked, RunError, TraceError
from gert.kernel.agent.compose import Entry, compose, key_of
from gert.kernel.agent.ledger import Batch, Call, CallKind, Expect, Head, Held, Ledger, Overtaken, Write, Written
from gert.kernel.agent.memory import RunMemory
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload

MOST_RUNS = 256
"""Runs a process remembers."""

PRELOADED = 4000
"""A run of no more events is read at once when a process first looks something up in it."""

PAGE = 1000

LOOK_AGAIN = 5.0
"""Seconds until a step that waits for its twin looks again, whatever happened."""

PayloadT = TypeVar("PayloadT", bound=Payload)
Entries = Sequence[Entry] | Callable[[Head], Sequence[Entry]]


class Book:
    """The runs a kernel works on."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._memories: OrderedDict[str, RunMemory] = OrderedDict()
        self._fences: dict[str, int] = {}
        self._in_flight: dict[str, set[int]] = {}

    async def start(self, run_id: str, tenant: str, entry: Entry) -> Written:
        """Begin a run; RunError where it has begun."""

        def write(head: Head, moment: str) -> Batch:
            if head.count:
                raise RunError(f"run `{run_id}` is there already", hint="load it, or choose another id")
            return compose(head, moment, tenant, (entry,))

        written = _done(await self.ledger.append(run_id, write, fence=self._fences.get(run_id)))
        self._memories[run_id] = memory = RunMemory()
        self._forget_oldest()
        memory.take(written.batch)
        return written

    async def begin(self, run_id: str, tenant: str, entry: Entry) -> None:
        """Begin a run unless it has begun."""
        try:
            await self.start(run_id, tenant, entry)
        except RunError:
            if await self.ledger.head(run_id) is None:
                raise

    async def note(
        self, run_id: str, tenant: str, entries: Entries, *, guard: Callable[[Head], None] | None = None
    ) -> Written:
        """Append to a run that has begun; what `guard` raises refuses it."""
        return _done(await self._append(run_id, _writing(run_id, tenant, entries, guard), ()))

    async def ask(
        self, run_id: str, tenant: str, entries: Entries, *, expect: Expect | None
    ) -> Written | Overtaken | Held:
        """Append requests to a run that takes steps now.

        expect: what was known of the key when it was decided to ask
        """
        write = _writing(run_id, tenant, entries, refuse_if_blocked)
        answer = await self._append(run_id, write, () if expect is None else (expect,))
        if isinstance(answer, Overtaken):
            self.forget(run_id)
        return answer

    async def _append(self, run_id: str, write: Write, expects: Sequence[Expect]) -> Written | Overtaken | Held:
        answer = await self.ledger.append(run_id, write, expects=expects, fence=self._fences.get(run_id))
        if isinstance(answer, Written) and (memory := self._memories.get(run_id)) is not None:
            memory.take(answer.batch)
        return answer

    async def calls(
        self, run_id: str, tenant: str, kind: CallKind, step_key: str | None, input_hash: str, *, fresh: bool = False
    ) -> list[Call]:
        """What was asked before under a step key, or in these very words, the newest first.

        fresh: ask the ledger, whatever is remembered
        """
        key = key_of(kind, step_key, input_hash)
        memory = await self._memory(run_id)
        remembered = memory.complete and not fresh
        found = memory.calls(key) if remembered else await self.ledger.calls(run_id, key)
        if found and found[0].tenant != tenant:
            raise RunError(f"run `{run_id}` belongs to another tenant")
        return found

    async def said(self, run_id: str, seq: int | None, kind: type[PayloadT]) -> PayloadT:
        """What the event of a number says; TraceError where it is not there or of another type."""
        event = await self.event(run_id, seq)
        payload = event.payload
        if not isinstance(payload, kind):
            raise TraceError(f"expected `{kind.type}` as event {seq} of run `{run_id}`, found `{event.type}`")
        return payload

    async def event(self, run_id: str, seq: int | None) -> Envelope:
        """The event of a number."""
        memory = self._memories.get(run_id)
        line = memory.lines.get(seq or 0) if memory is not None else None
        if line is None and seq is not None:
            line = (await self.ledger.lines_at(run_id, (seq,))).get(seq)
        if line is None:
            raise TraceError(f"event {seq} of run `{run_id}` is not in the ledger")
        return decode(line)

    async def head(self, run_id: str) -> Head:
        """The end of a run; RunError where there is no such run."""
        head = await self.ledger.head(run_id)
        if head is None:
            raise no_run(run_id)
        return head

    def fence(self, run_id: str, token: int | None) -> None:
        """Write a run under the lease of this token from now on, or under none."""
        if token is None:
            self._fences.pop(run_id, None)
        else:
            self._fences[run_id] = token

    def forget(self, run_id: str) -> None:
        """Look everything up again."""
        self._memories.pop(run_id, None)

    def in_flight(self, run_id: str) -> frozenset[int]:
        """The requests of a run that this process waits for."""
        return frozenset(self._in_flight.get(run_id, ()))

    @contextmanager
    def flying(self, run_id: str, seq: int) -> Iterator[None]:
        """Wait for the answer to a request; nobody else takes it for abandoned meanwhile."""
        flights = self._in_flight.setdefault(run_id, set())
        flights.add(seq)
        try:
            yield
        finally:
            flights.discard(seq)
            if not flights:
                self._in_flight.pop(run_id, None)

    async def _memory(self, run_id: str) -> RunMemory:
        memory = self._memories.get(run_id)
        if memory is None:
            memory = await self._preloaded(run_id)
            self._memories[run_id] = memory
            self._forget_oldest()
        self._memories.move_to_end(run_id)
        return memory

    async def _preloaded(self, run_id: str) -> RunMemory:
        """A run that is short is read whole; a long one is looked up step by step."""
        memory = RunMemory()
        head = await self.ledger.head(run_id)
        if head is not None and head.count > PRELOADED:
            memory.complete = False
            return memory
        while head is not None and memory.count < head.count:
            lines = await self.ledger.lines(run_id, memory.count, PAGE)
            if not lines:
                raise TraceError(f"run `{run_id}` has lost events: expected {head.count}, found {memory.count}")
            memory.read(memory.count + 1, lines)
        return memory

    def _forget_oldest(self) -> None:
        while len(self._memories) > MOST_RUNS:
            self._memories.popitem(last=False)


class Waiting:
    """Waits for the end of a request this process has made elsewhere.

    The first turn looks how long the run is, so that the request is looked up once more after that: an end that came
    in between is not waited for.
    """

    def __init__(self, book: Book, run_id: str) -> None:
        self._book = book
        self._run_id = run_id
        self._count: int | None = None

    @property
    def looked(self) -> bool:
        """Whether what is looked up now must be as new as the count that was seen."""
        return self._count is not None

    async def turn(self) -> None:
        """Look, then wait until something happens in the run."""
        if self._count is None:
            self._count = (await self._book.head(self._run_id)).count
        else:
            await self._book.ledger.wait(self._run_id, self._count, LOOK_AGAIN)
            self._count = None


def refuse_if_blocked(head: Head) -> None:
    """A run that is paused or blocked takes no steps."""
    snapshot = head.snapshot
    if snapshot is None or not snapshot.pauses:
        return
    pause = snapshot.pauses[-1]
    word, way = ("blocked", "unblock_run") if pause.blocked else ("paused", "resume")
    raise RunBlocked(
        f"run `{head.run_id}` is {word}: {pause.reason}", blocked_on=snapshot.blocked_on, hint=f"call `{way}` first"
    )


def no_run(run_id: str) -> RunError:
    """There is no run of this id."""
    return RunError(f"there is no run `{run_id}`", hint="start it first")


def _writing(run_id: str, tenant: str, entries: Entries, guard: Callable[[Head], None] | None) -> Write:
    def write(head: Head, moment: str) -> Batch:
        if not head.count:
            raise no_run(run_id)
        if guard is not None:
            guard(head)
        return compose(head, moment, tenant, entries(head) if callable(entries) else entries)

    return write


def _done(answer: Any) -> Written:
    """An append that expects nothing and holds nothing is written, or raises."""
    if not isinstance(answer, Written):
        raise TraceError("the ledger refused what it had nothing to refuse by")
    return answer
