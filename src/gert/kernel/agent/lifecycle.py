"""The life of a run: begun, paused and resumed, blocked and unblocked, and driven by one worker at a time."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from gert.errors import InputError, RunBlocked, RunError
from gert.kernel.agent.book import Book
from gert.kernel.agent.compose import Entry, event_id, require_agent_run
from gert.kernel.agent.ledger import Head, Lease
from gert.kernel.agent.notes import as_json
from gert.kernel.agent.shapes import PauseTicket, RunLease, RunRef, TenantContext
from gert.kernel.agent.snapshot import UNBLOCKED, Pause
from gert.kernel.events.agent import PauseRequested, ResumeRequested, RunStarted, RunSummary
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

LONGEST_KEY = 1900
"""Bytes of an unblock key: with `run_unblocked::` before it, it is the type of a summary, which ledgers index."""


class Lifecycle:
    """Begins, pauses and leases runs."""

    def __init__(self, book: Book) -> None:
        self._book = book

    async def start(self, tenant: TenantContext, run_id: str | None, tools: Sequence[ToolSignature]) -> RunRef:
        """Begin a run; RunError where it has begun."""
        name = run_id if run_id is not None else self._book.ledger.new_id()
        await self._book.start(name, tenant.tenant_id, Entry(RunStarted(tool_signatures=tuple(tools))))
        return RunRef(name, tenant.tenant_id)

    async def begin(self, tenant: TenantContext, run_id: str | None, tools: Sequence[ToolSignature]) -> RunRef:
        """Begin a run, or go on with it."""
        if run_id is None:
            return await self.start(tenant, None, tools)
        if await self._book.ledger.head(run_id) is None:
            await self._book.begin(run_id, tenant.tenant_id, Entry(RunStarted(tool_signatures=tuple(tools))))
        require_agent_run(await self._book.head(run_id), tenant.tenant_id)
        return RunRef(run_id, tenant.tenant_id)

    async def load(self, run_id: str) -> RunRef:
        """A run that has begun."""
        head = await self._book.head(run_id)
        require_agent_run(head)
        return RunRef(run_id, head.tenant or "")

    async def pause(
        self,
        run_id: str,
        tenant: TenantContext,
        reason: str,
        context: BaseModel | None,
        step_key: str | None,
        parent_step_key: str | None,
    ) -> PauseTicket:
        """Pause a run until it is resumed."""
        context_json = None if context is None else as_json(context)
        said = PauseRequested(reason=reason, context_json=context_json, step_key=step_key)
        return await self._paused(run_id, tenant, said, parent_step_key)

    async def block(
        self,
        run_id: str,
        tenant: TenantContext,
        reason: str,
        unblock_key: str | None,
        metadata: Mapping[str, object] | None,
        step_key: str | None,
        parent_step_key: str | None,
    ) -> PauseTicket:
        """Block a run until somebody who knows the key unblocks it."""
        if unblock_key is not None:
            _check_unblock_key(unblock_key)
        context_json = None if metadata is None else canonical_json_dumps(dict(metadata))
        said = PauseRequested(
            reason=reason, context_json=context_json, step_key=step_key, blocked=True, unblock_key=unblock_key
        )
        return await self._paused(run_id, tenant, said, parent_step_key)

    async def resume(
        self, run_id: str, tenant: TenantContext, human_input: BaseModel | None, parent_step_key: str | None
    ) -> RunRef:
        """Let a run go on: its pauses end; its blocks stay."""
        given = None if human_input is None else as_json(human_input)

        def entries(head: Head) -> Sequence[Entry]:
            paused = [pause.seq for pause in _pauses(head) if not pause.blocked]
            if not paused and not _asleep(head):
                raise _not_paused(head)
            return (Entry(ResumeRequested(human_input_json=given, pause_seqs=tuple(paused)), parent_step_key),)

        await self._book.note(run_id, tenant.tenant_id, entries)
        return RunRef(run_id, tenant.tenant_id)

    async def unblock(
        self,
        run_id: str,
        tenant: TenantContext,
        unblock_key: str | None,
        metadata: Mapping[str, object] | None,
        parent_step_key: str | None,
    ) -> RunRef:
        """End every block of a key, or every block that has none."""
        kind = UNBLOCKED if unblock_key is None else f"{UNBLOCKED}::{unblock_key}"
        said = RunSummary(summary_type=kind, summary_json=canonical_json_dumps(dict(metadata or {})))

        def guard(head: Head) -> None:
            keys = [pause.unblock_key for pause in _pauses(head) if pause.blocked]
            if unblock_key not in keys:
                raise _not_blocked(head, unblock_key, keys)

        await self._book.note(run_id, tenant.tenant_id, (Entry(said, parent_step_key),), guard=guard)
        return RunRef(run_id, tenant.tenant_id)

    async def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> bool:
        """Take a run; from now on this process writes it under the lease."""
        held = await self._book.ledger.acquire(run_id, worker_id, ttl_seconds)
        if held is None:
            return False
        if self._book.token(run_id) != held.token:
            # Another worker may have written meanwhile.
            self._book.forget(run_id)
        self._book.fence(run_id, held.token)
        return True

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> bool:
        """Keep a run."""
        return await self._book.ledger.renew(run_id, worker_id, ttl_seconds) is not None

    async def release(self, run_id: str, worker_id: str) -> bool:
        """Give a run back."""
        released = await self._book.ledger.release(run_id, worker_id)
        held = None if released else await self._book.ledger.lease(run_id)
        # One that was lost is not claimed any more; that of another worker in this process stays.
        if held is None or held.token != self._book.token(run_id):
            self._book.fence(run_id, None)
            self._book.forget(run_id)
        return released

    async def lease(self, run_id: str) -> RunLease | None:
        """Who holds a run now."""
        held = await self._book.ledger.lease(run_id)
        return None if held is None else as_run_lease(held)

    async def _paused(
        self, run_id: str, tenant: TenantContext, said: PauseRequested, parent_step_key: str | None
    ) -> PauseTicket:
        written = await self._book.note(run_id, tenant.tenant_id, (Entry(said, parent_step_key),))
        return PauseTicket(run_id, event_id(run_id, written.last), written.last, said.reason)


def as_run_lease(held: Lease) -> RunLease | None:
    """A lease as callers know it; None where nobody holds it."""
    return None if held.worker_id is None else RunLease(held.run_id, held.worker_id, held.expires_at)


def _check_unblock_key(key: str) -> None:
    """Refuse a key nobody could unblock the run by: InputError."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InputError("the unblock key holds half a character, which cannot be written down") from None
    if "\0" in key:
        raise InputError("the unblock key holds a NUL character, which cannot be kept")
    if size > LONGEST_KEY:
        raise InputError(f"the unblock key is too long: expected at most {LONGEST_KEY} bytes, found {size}")


def _pauses(head: Head) -> tuple[Pause, ...]:
    return head.snapshot.pauses if head.snapshot is not None else ()


def _asleep(head: Head) -> bool:
    return head.snapshot is not None and head.snapshot.asleep is not None


def _not_paused(head: Head) -> RunError | RunBlocked:
    blocks = _pauses(head)
    if blocks:
        return RunBlocked(
            f"run `{head.run_id}` is blocked, not paused: {blocks[-1].reason}",
            blocked_on=blocks[-1].blocked_on,
            hint="call `unblock_run`",
        )
    return RunError(f"run `{head.run_id}` is not paused")


def _not_blocked(head: Head, key: str | None, keys: Sequence[str | None]) -> RunError:
    by = "without a key" if key is None else f"by `{key}`"
    known = ", ".join(f"`{name}`" if name is not None else "a block without a key" for name in keys)
    return RunError(f"run `{head.run_id}` is not blocked {by}", hint=f"blocked by: {known}" if known else None)
