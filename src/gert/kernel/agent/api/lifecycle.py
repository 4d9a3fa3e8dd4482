"""The life of a run: begun and ended, paused and resumed, blocked and unblocked, driven by one worker at a time."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from pydantic import BaseModel

from gert.errors import InputError, LeaseLost, RunBlocked, RunError
from gert.kernel.agent.api.notes import as_json
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.steps.error_text import words_of
from gert.kernel.agent.types.api import PauseTicket, RunLease, RunRef, TenantContext
from gert.kernel.events.agent import PauseRequested, ResumeRequested, RunEnded, RunStarted, RunSummary
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.ledger.agent_fold import UNBLOCKED, Pause
from gert.kernel.ledger.compose import Entry, require_agent_run
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Head, Lease

LONGEST_MESSAGE = 500
LONGEST_KEY = 1900
"""Bytes of an unblock key: with `run_unblocked::` before it, it is the type of a summary, which ledgers index."""


class Lifecycle:
    """Begins, pauses and leases runs."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._inside: Counter[str] = Counter()

    async def start(self, tenant: TenantContext, run_id: str | None, tools: Sequence[ToolSignature]) -> RunRef:
        """Begin a run; RunExists where it has begun."""
        name = run_id if run_id is not None else self._log.ledger.new_id()
        await self._log.start(name, tenant.tenant_id, Entry(RunStarted(tool_signatures=tuple(tools))))
        return RunRef(name, tenant.tenant_id)

    async def begin(self, tenant: TenantContext, run_id: str | None, tools: Sequence[ToolSignature]) -> RunRef:
        """Begin a run, or go on with it."""
        if run_id is None:
            return await self.start(tenant, None, tools)
        if await self._log.ledger.head(run_id) is None:
            await self._log.begin(run_id, tenant.tenant_id, Entry(RunStarted(tool_signatures=tuple(tools))))
        require_agent_run(await self._log.head(run_id), tenant.tenant_id)
        return RunRef(run_id, tenant.tenant_id)

    async def load(self, run_id: str, tenant: TenantContext | None = None) -> RunRef:
        """A run that has begun."""
        head = await self._log.head(run_id, tenant)
        require_agent_run(head)
        return RunRef(run_id, head.tenant or "")

    @asynccontextmanager
    async def entered(self, run_id: str, tenant: TenantContext) -> AsyncIterator[None]:
        """Work on a run; when the last of those who entered it here leaves, the run ends.

        It is completed, or failed where an exception leaves it; a later step reopens it. It goes on where it is paused
        or blocked, where another worker holds it, and where the work was interrupted: by a cancellation, Ctrl-C or
        the end of the process, after which it can be resumed.
        """
        self._inside[run_id] += 1
        try:
            yield
        except (RunBlocked, LeaseLost):
            raise
        except Exception as error:
            message = words_of(error, LONGEST_MESSAGE)
            ended = RunEnded(status="failed", error_type=type(error).__name__, message=message)
            try:
                await self._end(run_id, tenant, ended)
            except Exception as unwritten:
                # The failure itself is the news.
                error.add_note(f"that the run failed could not be recorded: {unwritten}")
            raise
        else:
            if self._inside[run_id] == 1:
                await self._end(run_id, tenant, RunEnded(status="completed"))
        finally:
            self._inside[run_id] -= 1
            if not self._inside[run_id]:
                del self._inside[run_id]

    async def _end(self, run_id: str, tenant: TenantContext, ended: RunEnded) -> None:
        def is_due(head: Head) -> bool:
            if _pauses(head):
                return False
            # A replay that fails leaves a run as it ended; one that comes through completes a run that had failed.
            before = head.agent.asleep if head.agent is not None else None
            return before is None or (before == "failed" and ended.status == "completed")

        try:
            await self._log.end_run(run_id, tenant.tenant_id, ended, is_due)
        except LeaseLost:
            # Whether it has ended is for the worker to say that holds it.
            return

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

        await self._log.note(run_id, tenant.tenant_id, entries)
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

        await self._log.note(run_id, tenant.tenant_id, (Entry(said, parent_step_key),), guard=guard)
        return RunRef(run_id, tenant.tenant_id)

    async def acquire(
        self, run_id: str, worker_id: str, ttl_seconds: float, tenant: TenantContext | None = None
    ) -> bool:
        """Take a run; from now on this process writes it under the lease."""
        await self._check_tenant(run_id, tenant)
        held = await self._log.ledger.acquire(run_id, worker_id, ttl_seconds)
        if held is None:
            return False
        # Another worker may have written meanwhile.
        self._log.cache.forget(run_id)
        return True

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float, tenant: TenantContext | None = None) -> bool:
        """Keep a run."""
        await self._check_tenant(run_id, tenant)
        return await self._log.ledger.renew(run_id, worker_id, ttl_seconds) is not None

    async def release(self, run_id: str, worker_id: str, tenant: TenantContext | None = None) -> bool:
        """Give a run back."""
        await self._check_tenant(run_id, tenant)
        return await self._log.ledger.release(run_id, worker_id)

    async def lease(self, run_id: str, tenant: TenantContext | None = None) -> RunLease | None:
        """Who holds a run now."""
        await self._check_tenant(run_id, tenant)
        held = await self._log.ledger.lease(run_id)
        return None if held is None else as_run_lease(held)

    async def _check_tenant(self, run_id: str, tenant: TenantContext | None) -> None:
        """Refuse the run of another tenant; a run that has not begun may be leased first."""
        head = None if tenant is None else await self._log.ledger.head(run_id)
        if head is not None and tenant is not None:
            require_agent_run(head, tenant.tenant_id)

    async def _paused(
        self, run_id: str, tenant: TenantContext, said: PauseRequested, parent_step_key: str | None
    ) -> PauseTicket:
        written = await self._log.note(run_id, tenant.tenant_id, (Entry(said, parent_step_key),))
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
    return head.agent.pauses if head.agent is not None else ()


def _asleep(head: Head) -> bool:
    return head.agent is not None and head.agent.asleep is not None


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
