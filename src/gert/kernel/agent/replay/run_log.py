"""The record of agent runs as steps use it: look up earlier requests and append events.

Everything here awaits only the ledger. Guards run inside the append, while no other process can append to the run.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from gert.errors import InputError, RunBlocked, RunError, RunExists, RunNotFound, TraceError
from gert.kernel.agent.middleware.conditions import Refusal
from gert.kernel.agent.replay.call_cache import CallCache
from gert.kernel.agent.replay.in_flight import InFlight
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.agent import RunEnded, RunReopened, RunStarted
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload
from gert.kernel.events.started_by import NO_RUN, StartedBy
from gert.kernel.ledger.build_batch import Entry, build_batch, require_agent_run
from gert.kernel.ledger.limits import check_name
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import key_of
from gert.kernel.ledger.record import Appended, Batch, Call, CallKind, Expect, Head, Limit, Overtaken, Write, Written

Entries = Sequence[Entry] | Callable[[Head], Sequence[Entry]]
Guard = Callable[[Head], None]
PayloadT = TypeVar("PayloadT", bound=Payload)


class InPlace(tuple[Entry, ...]):
    """Entries that are recorded in place of a step that was refused: they begin nothing."""


class _NotDue(Exception):
    """Cancels an append."""


class RunLog:
    """Reads and appends the runs of a kernel.

    started_by: the run that started this process, which the first event of a run names
    in_flight: the steps that this process is running now
    """

    def __init__(self, ledger: Ledger, started_by: StartedBy = NO_RUN) -> None:
        self.ledger = ledger
        self.started_by = started_by
        self.in_flight = InFlight()
        self.cache = CallCache(ledger)

    # --- appending

    def run_started(self, tools: Iterable[ToolSignature], forked_from: str | None = None) -> Entry:
        """Return the first entry of a run."""
        return Entry(RunStarted(tool_signatures=tuple(tools), forked_from=forked_from, **self.started_by._asdict()))

    async def start(self, run_id: str, tenant: str, entry: Entry) -> Written:
        """Start a run; RunExists if it has started."""

        def write(head: Head, moment: str) -> Batch:
            if head.count:
                raise RunExists(f"run `{run_id}` already exists", hint="load it, or choose another id")
            return build_batch(head, moment, tenant, (entry,))

        written = _expect_written(await self.ledger.append(run_id, write))
        self.cache.add_run(written.batch)
        return written

    async def ensure_started(self, run_id: str, tenant: str, entry: Entry) -> None:
        """Start a run unless it has started."""
        try:
            await self.start(run_id, tenant, entry)
        except RunExists:
            return

    async def append(
        self, run_id: str, tenant: str, entries: Entries, *, guard: Guard | None = None, taken: Sequence[int] = ()
    ) -> Written:
        """Append to a run that has started; `guard` refuses the append by raising.

        taken: ids of the messages that the entries answer
        """
        write = _writer(run_id, tenant, entries, guard)
        if taken:
            made = write
            write = lambda head, moment: made(head, moment)._replace(taken=taken)  # noqa: E731
        return _expect_written(await self._append(run_id, write))

    async def write(
        self,
        run_id: str,
        tenant: str,
        entries: Entries,
        *,
        expect: Expect,
        step: bool = False,
        tried: list[Batch] | None = None,
        limits: Sequence[Limit] = (),
    ) -> Appended:
        """Append if no event was added under a key since it was looked up.

        step: the entries begin a step: refuse them if the run is paused or blocked, and reopen a run that has ended
        tried: receives the batches that may have been committed, even if this raises
        limits: what a batch with a request must not exceed
        """
        made, guard = (reopening(entries), refuse_if_blocked) if step else (entries, None)
        answer = await self._append(run_id, _writer(run_id, tenant, made, guard, tried, limits), (expect,))
        if isinstance(answer, Overtaken):
            self.cache.invalidate(run_id, answer.key)
        return answer

    async def end_run(self, run_id: str, tenant: str, ended: RunEnded, is_due: Callable[[Head], bool]) -> None:
        """End a run if `is_due` still holds inside the append."""

        def guard(head: Head) -> None:
            if not is_due(head):
                raise _NotDue

        if not is_due(await self.head(run_id)):
            return
        try:
            await self.append(run_id, tenant, (Entry(ended),), guard=guard)
        except _NotDue:
            return

    async def record_refusal(self, run_id: str, tenant: str, refused: Refusal) -> Exception:
        """Record a refusal and return its error, which is raised even if the record fails."""
        try:
            if refused.entries:
                await self.append(run_id, tenant, refused.entries)
        except Exception as unwritten:
            refused.error.add_note(f"the refusal could not be recorded: {unwritten}")
        return refused.error

    async def check_step(self, run_id: str) -> None:
        """Refuse a step of a run that is paused or blocked, or whose lease another worker holds."""
        head = await self.ledger.check(run_id)
        if head is None:
            raise no_run(run_id)
        refuse_if_blocked(head)

    async def wait_for_appends(self, run_id: str) -> None:
        """Wait until every append that this process began is committed or has failed."""

        def write(head: Head, moment: str) -> Batch:
            raise _NotDue

        try:
            await self.ledger.append(run_id, write)
        except _NotDue:
            return

    async def _append(self, run_id: str, write: Write, expects: Sequence[Expect] = ()) -> Appended:
        try:
            answer = await self.ledger.append(run_id, write, expects=expects)
        except (RunError, RunBlocked, InputError, _NotDue):
            raise
        except BaseException:
            # It may have been committed; or another worker holds the lease and appends to the run.
            self.cache.forget(run_id)
            raise
        if isinstance(answer, Written):
            self.cache.add(answer.batch)
        return answer

    # --- looking up

    async def calls(
        self, run_id: str, tenant: str, kind: CallKind, step_key: str | None, input_hash: str, *, fresh: bool = False
    ) -> list[Call]:
        """Return earlier requests under a step key, or of the same input without one, newest first.

        fresh: read the ledger instead of the cache
        """
        key = key_of(kind, step_key, input_hash)
        check_name("step key", key)
        found = await self.cache.calls(run_id, key, fresh=fresh)
        if found and found[0].tenant != tenant:
            raise RunError(f"run `{run_id}` belongs to another tenant")
        return found

    async def payload(self, run_id: str, seq: int | None, kind: type[PayloadT]) -> PayloadT:
        """Return the payload of an event; TraceError if it is missing or of another type."""
        event = await self.event(run_id, seq)
        payload = event.payload
        if not isinstance(payload, kind):
            raise TraceError(f"expected `{kind.type}` as event {seq} of run `{run_id}`, found `{event.type}`")
        return payload

    async def event(self, run_id: str, seq: int | None) -> Envelope:
        """Return an event by its number; TraceError if it is missing."""
        line = None if seq is None else (await self.ledger.lines_at(run_id, (seq,))).get(seq)
        if line is None:
            raise TraceError(f"event {seq} of run `{run_id}` is not in the ledger")
        return decode(line)

    async def head(self, run_id: str, tenant: TenantContext | None = None) -> Head:
        """Return the head of a run; RunError if it does not exist or belongs to another tenant."""
        head = await self.ledger.head(run_id)
        if head is None:
            raise no_run(run_id)
        if tenant is not None:
            require_agent_run(head, tenant.tenant_id)
        return head


def _writer(
    run_id: str,
    tenant: str,
    entries: Entries,
    guard: Guard | None,
    tried: list[Batch] | None = None,
    limits: Sequence[Limit] = (),
) -> Write:
    """Return a write that appends entries to a run that has started, unless `guard` raises."""

    def write(head: Head, moment: str) -> Batch:
        if not head.count:
            raise no_run(run_id)
        if guard is not None:
            guard(head)
        batch = build_batch(head, moment, tenant, entries(head) if callable(entries) else entries)
        if limits and batch.calls:
            batch = batch._replace(limits=limits)
        if tried is not None:
            tried.append(batch)
        return batch

    return write


def reopening(entries: Entries) -> Entries:
    """Return the entries of a new step, preceded by `run_reopened` if the run has ended."""

    def after(head: Head) -> Sequence[Entry]:
        has_ended = head.agent is not None and head.agent.asleep is not None
        if not has_ended:
            return entries(head) if callable(entries) else entries
        # Entries that contain their own number are numbered after it.
        made = entries(msgspec.structs.replace(head, count=head.count + 1)) if callable(entries) else entries
        return made if isinstance(made, InPlace) else (Entry(RunReopened()), *made)

    return after


def refuse_if_blocked(head: Head) -> None:
    """Refuse steps of a run that is paused or blocked: RunBlocked."""
    snapshot = head.agent
    if snapshot is None or not snapshot.pauses:
        return
    pause = snapshot.pauses[-1]
    word, way = ("blocked", "unblock_run") if pause.blocked else ("paused", "resume")
    raise RunBlocked(
        f"run `{head.run_id}` is {word}: {pause.reason}", blocked_on=snapshot.blocked_on, hint=f"call `{way}` first"
    )


def no_run(run_id: str) -> RunNotFound:
    """The run does not exist."""
    return RunNotFound(f"there is no run `{run_id}`", hint="start it first")


def _expect_written(answer: Appended) -> Written:
    """Return the result of an append without expectations, which is always written."""
    if not isinstance(answer, Written):
        raise TraceError("the ledger refused an append that expects nothing")
    return answer
