"""The record of agent runs as steps use it: look up what was asked before, write what happens now.

Everything here awaits the ledger and nothing else. What may be written is decided where it is written: by functions
the ledger calls while nobody else can append to the run.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from gert.errors import InputError, RunBlocked, RunError, TraceError
from gert.kernel.agent.compose import Entry, compose, key_of
from gert.kernel.agent.ledger import (
    Batch,
    Call,
    CallKind,
    Expect,
    Head,
    Held,
    Ledger,
    Overtaken,
    Write,
    Written,
    may_append,
)
from gert.kernel.agent.memory import RunMemory
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload

MOST_RUNS = 256
"""Runs a process remembers."""

PRELOADED = 4000
"""A run of no more events is read at once when a process first looks something up in it."""

PAGE = 1000

LOADS = 3
"""How often a run is read that grows while it is read."""

PayloadT = TypeVar("PayloadT", bound=Payload)
Entries = Sequence[Entry] | Callable[[Head], Sequence[Entry]]


class Book:
    """The runs a kernel works on."""

    def __init__(self, ledger: Ledger, leased: Mapping[str, int] | None = None) -> None:
        """leased: the tokens of leases that were taken through the store"""
        self.ledger = ledger
        self._leased: Mapping[str, int] = {} if leased is None else leased
        self._memories: OrderedDict[str, RunMemory] = OrderedDict()
        self._fences: dict[str, int] = {}
        self._asking: Counter[tuple[str, str]] = Counter()
        self._loading: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()

    async def start(self, run_id: str, tenant: str, entry: Entry) -> Written:
        """Begin a run; RunError where it has begun."""

        def write(head: Head, moment: str) -> Batch:
            if head.count:
                raise RunError(f"run `{run_id}` is there already", hint="load it, or choose another id")
            return compose(head, moment, tenant, (entry,))

        written = _done(await self.ledger.append(run_id, write, fence=self.token(run_id)))
        if run_id not in self._memories:
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

    async def note_at(self, run_id: str, tenant: str, entries: Entries, count: int) -> bool:
        """Append to a run that has not grown beyond `count`; False where it has."""
        try:
            await self.note(run_id, tenant, entries, guard=lambda head: _refuse_if_moved(head, count))
        except _Moved:
            return False
        return True

    async def ask(
        self, run_id: str, tenant: str, entries: Entries, *, expect: Expect | None, count: int | None = None
    ) -> Written | Overtaken | Held:
        """Append requests to a run that takes steps now.

        expect: what was known of the key when it was decided to ask
        count: how long the run was when its record was looked at; one that is longer now is looked at again
        """

        def guard(head: Head) -> None:
            refuse_if_blocked(head)
            if count is not None:
                _refuse_if_moved(head, count)

        write = _writing(run_id, tenant, entries, guard)
        try:
            answer = await self._append(run_id, write, () if expect is None else (expect,))
        except _Moved:
            return Overtaken(expect.key if expect is not None else "")
        if isinstance(answer, Overtaken):
            self.forget(run_id)
        return answer

    async def _append(self, run_id: str, write: Write, expects: Sequence[Expect]) -> Written | Overtaken | Held:
        try:
            answer = await self.ledger.append(run_id, write, expects=expects, fence=self.token(run_id))
        except BaseException:
            # It may have been written all the same, and nobody was told what.
            self.forget(run_id)
            raise
        if isinstance(answer, Written):
            memory = self._memories.get(run_id)
            if memory is not None:
                memory.take(answer.batch)
            elif run_id in self._loading:
                self._missed[run_id] += 1
        return answer

    async def calls(
        self, run_id: str, tenant: str, kind: CallKind, step_key: str | None, input_hash: str, *, fresh: bool = False
    ) -> list[Call]:
        """What was asked before under a step key, or in these very words, the newest first.

        fresh: ask the ledger, whatever is remembered
        """
        key = key_of(kind, step_key, input_hash)
        _check_key(key)
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

    async def check_step(self, run_id: str) -> None:
        """Refuse a step of a run that is paused or blocked, or that another worker has."""
        refuse_if_blocked(await self.head(run_id))
        may_append(await self.ledger.lease(run_id), self.token(run_id), None)

    def token(self, run_id: str) -> int | None:
        """The token of the lease a run is written under."""
        return self._fences.get(run_id, self._leased.get(run_id))

    def fence(self, run_id: str, token: int | None) -> None:
        """Write a run under the lease of this token from now on, or under none."""
        if token is None:
            self._fences.pop(run_id, None)
        else:
            self._fences[run_id] = token

    def forget(self, run_id: str) -> None:
        """Look everything up again."""
        self._memories.pop(run_id, None)

    def is_asking(self, run_id: str, key: str) -> bool:
        """Whether this process is about to ask under a key, or waits for the answer."""
        return (run_id, key) in self._asking

    @contextmanager
    def asking(self, run_id: str, key: str) -> Iterator[None]:
        """Ask under a key and wait for the answer; nobody else takes the request for abandoned meanwhile.

        It is said before the request is written: others may read it before whoever wrote it hears of that.
        """
        self._asking[run_id, key] += 1
        try:
            yield
        finally:
            self._asking[run_id, key] -= 1
            if not self._asking[run_id, key]:
                del self._asking[run_id, key]

    async def _memory(self, run_id: str) -> RunMemory:
        if run_id not in self._memories:
            loaded = await self._loaded(run_id)
            # Somebody else may have been faster, and knows more.
            self._memories.setdefault(run_id, loaded)
            self._forget_oldest()
        self._memories.move_to_end(run_id)
        return self._memories[run_id]

    async def _loaded(self, run_id: str) -> RunMemory:
        """What is known of a run; where it grew meanwhile, that is not all of it."""
        self._loading[run_id] += 1
        try:
            for _ in range(LOADS):
                missed = self._missed[run_id]
                memory = await self._preloaded(run_id)
                if missed == self._missed[run_id]:
                    return memory
            memory.complete = False
            return memory
        finally:
            self._loading[run_id] -= 1
            if not self._loading[run_id]:
                del self._loading[run_id], self._missed[run_id]

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


class _Moved(Exception):
    """The run is longer than it was when it was looked at."""


def _refuse_if_moved(head: Head, count: int) -> None:
    if head.count != count:
        raise _Moved


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


def _check_key(key: str) -> None:
    if key.isascii():
        return
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InputError("the step key holds half a character, which cannot be written down") from None


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
