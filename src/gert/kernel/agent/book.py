"""The record of agent runs as steps use it: look up what was asked before, write what happens now.

Everything here awaits the ledger and nothing else. What may be written is decided where it is written: by functions
the ledger calls while nobody else can append to the run.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from gert.errors import RunError, RunExists, TraceError
from gert.kernel.agent.loading import preloaded
from gert.kernel.agent.memory import RunMemory
from gert.kernel.agent.shapes import TenantContext
from gert.kernel.agent.taking import Taking
from gert.kernel.agent.trail import Trail
from gert.kernel.agent.writing import (
    Entries,
    Moved,
    Standing,
    Writing,
    check_key,
    done,
    no_run,
    refuse_if_blocked,
    reopening,
)
from gert.kernel.events.agent import RunEnded
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload
from gert.kernel.ledger.compose import Entry, compose, require_agent_run
from gert.kernel.ledger.leases import check_fence
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import key_of
from gert.kernel.ledger.record import Batch, Call, CallKind, Expect, Head, Held, Overtaken, Written

__all__ = ["Book", "Standing"]

MOST_RUNS = 256
"""Runs a process remembers."""

MOST_SIZE = 64 * 1024 * 1024
"""Bytes, about, that it remembers of all of them."""

LOADS = 3
"""How often a run is read that grows while it is read."""

PayloadT = TypeVar("PayloadT", bound=Payload)


class Book:
    """The runs a kernel works on."""

    def __init__(self, ledger: Ledger, leased: Mapping[str, int] | None = None) -> None:
        """leased: the tokens of leases that were taken through the store"""
        self.ledger = ledger
        self._leased: Mapping[str, int] = {} if leased is None else leased
        self._memories: OrderedDict[str, RunMemory] = OrderedDict()
        self._fences: dict[str, int] = {}
        self._taking = Taking()
        self._trail = Trail()
        self._loading: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()

    async def start(self, run_id: str, tenant: str, entry: Entry) -> Written:
        """Begin a run; RunExists where it has begun."""

        def write(head: Head, moment: str) -> Batch:
            if head.count:
                raise RunExists(f"run `{run_id}` is there already", hint="load it, or choose another id")
            batch = compose(head, moment, tenant, (entry,))
            self._trail.made(head.hash, batch)
            return batch

        written = done(await self.ledger.append(run_id, write, fence=self.token(run_id)))
        if run_id not in self._memories:
            self._memories[run_id] = memory = RunMemory()
            self._forget_oldest()
            memory.take(written.batch)
        return written

    async def begin(self, run_id: str, tenant: str, entry: Entry) -> None:
        """Begin a run unless it has begun."""
        try:
            await self.start(run_id, tenant, entry)
        except RunExists:
            return

    async def note(
        self, run_id: str, tenant: str, entries: Entries, *, guard: Callable[[Head], None] | None = None
    ) -> Written:
        """Append to a run that has begun; what `guard` raises refuses it."""
        return done(await self._append(run_id, Writing(self._trail, run_id, tenant, entries, guard), ()))

    async def end(
        self, run_id: str, tenant: str, entries: Entries, standing: Standing, *, step: bool = False
    ) -> Written | None:
        """Append what is true as long as the calls under a key stand as they were found; None where they may not.

        step: it begins a step: refuse it also where the run takes none, and reopen a run that has ended
        """

        def guard(head: Head) -> None:
            if step:
                refuse_if_blocked(head)
            self._refuse_if_moved(head, standing)

        written = reopening(entries) if step else entries
        try:
            return done(await self._append(run_id, Writing(self._trail, run_id, tenant, written, guard), ()))
        except Moved:
            return None

    async def ask(
        self,
        run_id: str,
        tenant: str,
        entries: Entries,
        *,
        expect: Expect | None,
        standing: Standing | None = None,
        tried: list[Batch] | None = None,
    ) -> Written | Overtaken | Held:
        """Append requests to a run that takes steps now.

        expect: what was known of the key when it was decided to ask
        standing: what was found under it, where that decided it; where that may have changed it is looked at again
        tried: is given what may have been written, also when this does not return
        """

        def guard(head: Head) -> None:
            refuse_if_blocked(head)
            if standing is not None:
                self._refuse_if_moved(head, standing)

        write = Writing(self._trail, run_id, tenant, reopening(entries), guard, tried)
        try:
            answer = await self._append(run_id, write, () if expect is None else (expect,))
        except Moved:
            return Overtaken(expect.key if expect is not None else "")
        if isinstance(answer, Overtaken) and run_id in self._memories:
            self._memories[run_id].doubt(answer.key)
        return answer

    async def end_run(self, run_id: str, tenant: str, ended: RunEnded, is_due: Callable[[Head], bool]) -> None:
        """End a run, if that is still due when it is written."""

        def guard(head: Head) -> None:
            if not is_due(head):
                raise Moved

        if not is_due(await self.head(run_id)):
            return
        try:
            await self.note(run_id, tenant, (Entry(ended),), guard=guard)
        except Moved:
            return

    async def settle_appends(self, run_id: str) -> None:
        """Wait until whatever this process began to append to a run is written or never will be."""

        def write(head: Head, moment: str) -> Batch:
            raise Moved

        try:
            await self.ledger.append(run_id, write, fence=self.token(run_id))
        except Moved:
            return

    def _refuse_if_moved(self, head: Head, standing: Standing) -> None:
        if standing.hash == head.hash:
            return
        if not self._trail.unchanged(standing.hash, head.hash, (standing.key, *standing.seqs)):
            raise Moved

    async def _append(self, run_id: str, write: Writing, expects: Sequence[Expect]) -> Written | Overtaken | Held:
        try:
            answer = await self.ledger.append(run_id, write, expects=expects, fence=self.token(run_id))
        except BaseException as error:
            # It may have been written all the same, and nobody was told what; unless it was never to be written.
            if error is not write.refused:
                self.forget(run_id)
            raise
        if isinstance(answer, Written):
            memory = self._memories.get(run_id)
            if memory is not None:
                memory.take(answer.batch)
                if memory.count >> 10 != (memory.count - len(answer.batch.events)) >> 10:
                    self._forget_oldest()
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
        check_key(key)
        memory = self._memories.get(run_id)
        if memory is not None:
            self._memories.move_to_end(run_id)
        elif not fresh:
            memory = await self._remembered(run_id)
        if memory is not None and not fresh and memory.knows(key):
            found = memory.calls(key)
        else:
            found = await self.ledger.calls(run_id, key)
            if memory is not None:
                memory.learn(key, found)
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

    async def head(self, run_id: str, tenant: TenantContext | None = None) -> Head:
        """The end of a run; RunError where there is no such run, or it is of another tenant than the one given."""
        head = await self.ledger.head(run_id)
        if head is None:
            raise no_run(run_id)
        if tenant is not None:
            require_agent_run(head, tenant.tenant_id)
        return head

    async def check_step(self, run_id: str) -> None:
        """Refuse a step of a run that is paused or blocked, or that another worker has."""
        refuse_if_blocked(await self.head(run_id))
        check_fence(await self.ledger.lease(run_id), self.token(run_id), None)

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
        return self._taking.is_taken(run_id, key)

    def asking(self, run_id: str, key: str) -> AbstractContextManager[None]:
        """Ask under a key and wait for the answer."""
        return self._taking.take(run_id, key)

    def waiting(self, run_id: str, key: str) -> AbstractContextManager[None]:
        """Wait for a step of this process; who would wait for themselves is refused."""
        return self._taking.waiting(run_id, key)

    def noted_drift(self, run_id: str, seq: int, input_hash: str) -> bool | None:
        """Whether an answer is known to have been taken for a changed question; None where only the ledger knows."""
        memory = self._memories.get(run_id)
        if memory is None:
            return None
        return True if (seq, input_hash) in memory.drifts else (False if memory.complete else None)

    async def _remembered(self, run_id: str) -> RunMemory:
        loaded = await self._loaded(run_id)
        # Somebody else may have been faster, and knows more.
        memory = self._memories.setdefault(run_id, loaded)
        self._memories.move_to_end(run_id)
        self._forget_oldest()
        return memory

    async def _loaded(self, run_id: str) -> RunMemory:
        """What is known of a run; where it grew meanwhile, that is not all of it."""
        self._loading[run_id] += 1
        try:
            for _ in range(LOADS):
                missed = self._missed[run_id]
                memory = await preloaded(self.ledger, run_id)
                if missed == self._missed[run_id]:
                    return memory
            memory.complete = False
            return memory
        finally:
            self._loading[run_id] -= 1
            if not self._loading[run_id]:
                del self._loading[run_id], self._missed[run_id]

    def _forget_oldest(self) -> None:
        size = sum(memory.size for memory in self._memories.values())
        while len(self._memories) > 1 and (len(self._memories) > MOST_RUNS or size > MOST_SIZE):
            _, oldest = self._memories.popitem(last=False)
            size -= oldest.size
