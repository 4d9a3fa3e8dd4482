"""The record of agent runs as steps use it: look up what was requested before, append what happens now.

Everything here awaits the ledger and nothing else. What may be written is decided where it is written: by functions
that the ledger calls while no other process can append to the run.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from gert.errors import InputError, RunBlocked, RunError, RunExists, RunNotFound, TraceError
from gert.kernel.agent.replay.call_cache import CallCache
from gert.kernel.agent.replay.in_flight import InFlight
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.agent import RunEnded, RunReopened
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload
from gert.kernel.ledger.compose import Entry, compose, require_agent_run
from gert.kernel.ledger.limits import check_name
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import key_of
from gert.kernel.ledger.record import Batch, Call, CallKind, Expect, Head, Held, Overtaken, Write, Written

Entries = Sequence[Entry] | Callable[[Head], Sequence[Entry]]
Guard = Callable[[Head], None]
PayloadT = TypeVar("PayloadT", bound=Payload)


class _NotDue(Exception):
    """Nothing is to be appended after all."""


class RunLog:
    """The runs a kernel works on.

    in_flight: the steps that this process is taking now
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.in_flight = InFlight()
        self.cache = CallCache(ledger)

    # --- appending

    async def start(self, run_id: str, tenant: str, entry: Entry) -> Written:
        """Begin a run; RunExists where it has begun."""

        def write(head: Head, moment: str) -> Batch:
            if head.count:
                raise RunExists(f"run `{run_id}` is there already", hint="load it, or choose another id")
            return compose(head, moment, tenant, (entry,))

        written = _written(await self.ledger.append(run_id, write))
        self.cache.begin(written.batch)
        return written

    async def begin(self, run_id: str, tenant: str, entry: Entry) -> None:
        """Begin a run unless it has begun."""
        try:
            await self.start(run_id, tenant, entry)
        except RunExists:
            return

    async def note(self, run_id: str, tenant: str, entries: Entries, *, guard: Guard | None = None) -> Written:
        """Append to a run that has begun; what `guard` raises refuses it."""
        return _written(await self._append(run_id, _writer(run_id, tenant, entries, guard)))

    async def write(
        self,
        run_id: str,
        tenant: str,
        entries: Entries,
        *,
        expect: Expect,
        step: bool = False,
        tried: list[Batch] | None = None,
    ) -> Written | Overtaken | Held:
        """Append if nothing has happened under a key since it was looked up.

        step: the entries begin a step: refuse them where the run takes none, and reopen a run that has ended
        tried: is given what may have been written, also when this does not return
        """
        made, guard = (reopening(entries), refuse_if_blocked) if step else (entries, None)
        answer = await self._append(run_id, _writer(run_id, tenant, made, guard, tried), (expect,))
        if isinstance(answer, Overtaken):
            self.cache.doubt(run_id, answer.key)
        return answer

    async def end_run(self, run_id: str, tenant: str, ended: RunEnded, is_due: Callable[[Head], bool]) -> None:
        """End a run, if that is still due when it is written."""

        def guard(head: Head) -> None:
            if not is_due(head):
                raise _NotDue

        if not is_due(await self.head(run_id)):
            return
        try:
            await self.note(run_id, tenant, (Entry(ended),), guard=guard)
        except _NotDue:
            return

    async def check_step(self, run_id: str) -> None:
        """Refuse a step of a run that is paused or blocked, or that another worker holds."""
        await self._append_nothing(run_id, refuse_if_blocked)

    async def settle_appends(self, run_id: str) -> None:
        """Wait until everything this process began to append to a run is written or never will be."""
        await self._append_nothing(run_id, lambda _: None)

    async def _append_nothing(self, run_id: str, guard: Guard) -> None:
        def write(head: Head, moment: str) -> Batch:
            if not head.count:
                raise no_run(run_id)
            guard(head)
            raise _NotDue

        try:
            await self.ledger.append(run_id, write)
        except _NotDue:
            return

    async def _append(self, run_id: str, write: Write, expects: Sequence[Expect] = ()) -> Written | Overtaken | Held:
        try:
            answer = await self.ledger.append(run_id, write, expects=expects)
        except (RunError, RunBlocked, InputError, _NotDue):
            raise
        except BaseException:
            # It may have been written all the same; or another worker has the run, and writes to it.
            self.cache.forget(run_id)
            raise
        if isinstance(answer, Written):
            self.cache.take(answer.batch)
        return answer

    # --- looking up

    async def calls(
        self, run_id: str, tenant: str, kind: CallKind, step_key: str | None, input_hash: str, *, fresh: bool = False
    ) -> list[Call]:
        """What was requested before under a step key, or in the same words, the newest first.

        fresh: read the ledger, whatever the cache has
        """
        key = key_of(kind, step_key, input_hash)
        check_name("step key", key)
        found = await self.cache.calls(run_id, key, fresh=fresh)
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
        line = None if seq is None else (await self.ledger.lines_at(run_id, (seq,))).get(seq)
        if line is None:
            raise TraceError(f"event {seq} of run `{run_id}` is not in the ledger")
        return decode(line)

    async def head(self, run_id: str, tenant: TenantContext | None = None) -> Head:
        """The head of a run; RunError where there is no such run, or it is of another tenant than the one given."""
        head = await self.ledger.head(run_id)
        if head is None:
            raise no_run(run_id)
        if tenant is not None:
            require_agent_run(head, tenant.tenant_id)
        return head


def _writer(run_id: str, tenant: str, entries: Entries, guard: Guard | None, tried: list[Batch] | None = None) -> Write:
    """Writes entries at the end of a run that has begun, unless `guard` raises."""

    def write(head: Head, moment: str) -> Batch:
        if not head.count:
            raise no_run(run_id)
        if guard is not None:
            guard(head)
        batch = compose(head, moment, tenant, entries(head) if callable(entries) else entries)
        if tried is not None:
            tried.append(batch)
        return batch

    return write


def reopening(entries: Entries) -> Entries:
    """The entries of a new step: where the run has ended, the event that reopens it comes first."""

    def after(head: Head) -> Sequence[Entry]:
        has_ended = head.agent is not None and head.agent.asleep is not None
        before = (Entry(RunReopened()),) if has_ended else ()
        # Entries that are made from their numbers are numbered after it.
        head = msgspec.structs.replace(head, count=head.count + len(before))
        return (*before, *(entries(head) if callable(entries) else entries))

    return after


def refuse_if_blocked(head: Head) -> None:
    """A run that is paused or blocked takes no steps."""
    snapshot = head.agent
    if snapshot is None or not snapshot.pauses:
        return
    pause = snapshot.pauses[-1]
    word, way = ("blocked", "unblock_run") if pause.blocked else ("paused", "resume")
    raise RunBlocked(
        f"run `{head.run_id}` is {word}: {pause.reason}", blocked_on=snapshot.blocked_on, hint=f"call `{way}` first"
    )


def no_run(run_id: str) -> RunNotFound:
    """There is no run of this id."""
    return RunNotFound(f"there is no run `{run_id}`", hint="start it first")


def _written(answer: Written | Overtaken | Held) -> Written:
    """An append that expects nothing and holds nothing is written, or raises."""
    if not isinstance(answer, Written):
        raise TraceError("the ledger refused what it had nothing to refuse by")
    return answer
