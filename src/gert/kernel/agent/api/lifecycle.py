"""The lifecycle of a run: start, end, pause, resume, block, unblock and lease."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from pydantic import BaseModel

from gert.errors import ApprovalRequiredError, InputError, LeaseLost, RunBlocked, RunError
from gert.kernel.agent.api.notes import as_json
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.steps.error_text import error_text
from gert.kernel.agent.types.api import PauseTicket, RunLease, RunRef, TenantContext
from gert.kernel.events.agent import PauseRequested, ResumeRequested, RunEnded, RunSummary
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.ledger.agent_fold import UNBLOCKED, Pause
from gert.kernel.ledger.build_batch import Entry, require_agent_run
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Head, Lease

LONGEST_MESSAGE = 500
LONGEST_KEY = 1900
"""Bytes of an unblock key: prefixed with `run_unblocked::` it is the type of a summary, which ledgers index."""


class Lifecycle:
    """Starts, ends, pauses and leases runs."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._inside: Counter[str] = Counter()

    async def start(self, tenant: TenantContext, run_id: str | None, tools: Sequence[ToolSignature]) -> RunRef:
        """Start a run; RunExists if it has started."""
        name = run_id if run_id is not None else self._log.ledger.new_id()
        await self._log.start(name, tenant.tenant_id, self._log.run_started(tools))
        return RunRef(name, tenant.tenant_id)

    async def begin(self, tenant: TenantContext, run_id: str | None, tools: Sequence[ToolSignature]) -> RunRef:
        """Start a run, or open it if it has started."""
        if run_id is None:
            return await self.start(tenant, None, tools)
        if await self._log.ledger.head(run_id) is None:
            await self._log.ensure_started(run_id, tenant.tenant_id, self._log.run_started(tools))
        require_agent_run(await self._log.head(run_id), tenant.tenant_id)
        return RunRef(run_id, tenant.tenant_id)

    async def load(self, run_id: str, tenant: TenantContext | None = None) -> RunRef:
        """Return a run that has started."""
        head = await self._log.head(run_id, tenant)
        require_agent_run(head)
        return RunRef(run_id, head.tenant or "")

    @asynccontextmanager
    async def entered(self, run_id: str, tenant: TenantContext) -> AsyncIterator[None]:
        """Work on a run; the run ends when the last block in this process that entered it is left.

        It is completed, or failed if an exception leaves the block; a later step reopens it. It does not end if it is
        paused or blocked or waits for an approval, if another worker holds its lease, or if the work was interrupted by
        a cancellation, Ctrl-C or the end of the process: then it can be resumed.
        """
        self._inside[run_id] += 1
        try:
            yield
        except (RunBlocked, LeaseLost, ApprovalRequiredError):
            raise
        except Exception as error:
            message = error_text(error, LONGEST_MESSAGE)
            ended = RunEnded(status="failed", error_type=type(error).__name__, message=message)
            try:
                await self._end(run_id, tenant, ended)
            except Exception as unwritten:
                # The caller needs the original error; that it was not recorded is added as a note.
                error.add_note(f"the failure of the run could not be recorded: {unwritten}")
            raise
        else:
            if self._inside[run_id] == 1:
                await self._end(run_id, tenant, RunEnded(status="completed"))
        finally:
            self._inside[run_id] -= 1
            if not self._inside[run_id]:
                del self._inside[run_id]

    async def _end(self, run_id: str, tenant: TenantContext, ended: RunEnded) -> None:
        moment = format_timestamp(self._log.ledger.now())

        def is_due(head: Head) -> bool:
            if head.agent is not None and head.agent.is_waiting(moment):
                return False
            # A replay that fails leaves an ended run unchanged; one that succeeds completes a failed run.
            before = head.agent.asleep if head.agent is not None else None
            return before is None or (before == "failed" and ended.status == "completed")

        try:
            await self._log.end_run(run_id, tenant.tenant_id, ended, is_due)
        except LeaseLost:
            # The worker that holds the lease decides when the run ends.
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
        payload = PauseRequested(reason=reason, context_json=context_json, step_key=step_key)
        return await self._paused(run_id, tenant, payload, parent_step_key)

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
        """Block a run until it is unblocked by the key."""
        if unblock_key is not None:
            _check_unblock_key(unblock_key)
        context_json = None if metadata is None else canonical_json_dumps(dict(metadata))
        payload = PauseRequested(
            reason=reason, context_json=context_json, step_key=step_key, blocked=True, unblock_key=unblock_key
        )
        return await self._paused(run_id, tenant, payload, parent_step_key)

    async def resume(
        self, run_id: str, tenant: TenantContext, human_input: BaseModel | None, parent_step_key: str | None
    ) -> RunRef:
        """Resume a run: its pauses end; its blocks stay."""
        given = None if human_input is None else as_json(human_input)

        def entries(head: Head) -> Sequence[Entry]:
            paused = [pause.seq for pause in _pauses(head) if not pause.blocked]
            if not paused and not _asleep(head):
                raise _not_paused(head)
            return (Entry(ResumeRequested(human_input_json=given, pause_seqs=tuple(paused)), parent_step_key),)

        await self._log.append(run_id, tenant.tenant_id, entries)
        return RunRef(run_id, tenant.tenant_id)

    async def unblock(
        self,
        run_id: str,
        tenant: TenantContext,
        unblock_key: str | None,
        metadata: Mapping[str, object] | None,
        parent_step_key: str | None,
    ) -> RunRef:
        """End every block with this key, or every block without a key."""
        kind = UNBLOCKED if unblock_key is None else f"{UNBLOCKED}::{unblock_key}"
        payload = RunSummary(summary_type=kind, summary_json=canonical_json_dumps(dict(metadata or {})))

        def guard(head: Head) -> None:
            keys = [pause.unblock_key for pause in _pauses(head) if pause.blocked]
            if unblock_key not in keys:
                raise _not_blocked(head, unblock_key, keys)

        await self._log.append(run_id, tenant.tenant_id, (Entry(payload, parent_step_key),), guard=guard)
        return RunRef(run_id, tenant.tenant_id)

    async def acquire(
        self, run_id: str, worker_id: str, ttl_seconds: float, tenant: TenantContext | None = None
    ) -> bool:
        """Acquire the lease of a run; from now on this process appends under it."""
        await self._check_tenant(run_id, tenant)
        held = await self._log.ledger.acquire(run_id, worker_id, ttl_seconds)
        if held is None:
            return False
        # Another worker may have appended meanwhile.
        self._log.cache.forget(run_id)
        return True

    async def renew(self, run_id: str, worker_id: str, ttl_seconds: float, tenant: TenantContext | None = None) -> bool:
        """Renew the lease of a run."""
        await self._check_tenant(run_id, tenant)
        return await self._log.ledger.renew(run_id, worker_id, ttl_seconds) is not None

    async def release(self, run_id: str, worker_id: str, tenant: TenantContext | None = None) -> bool:
        """Release the lease of a run."""
        await self._check_tenant(run_id, tenant)
        return await self._log.ledger.release(run_id, worker_id)

    async def lease(self, run_id: str, tenant: TenantContext | None = None) -> RunLease | None:
        """Return the current lease of a run."""
        await self._check_tenant(run_id, tenant)
        held = await self._log.ledger.lease(run_id)
        return None if held is None else as_run_lease(held)

    async def _check_tenant(self, run_id: str, tenant: TenantContext | None) -> None:
        """Refuse the run of another tenant; a run may be leased before it starts."""
        head = None if tenant is None else await self._log.ledger.head(run_id)
        if head is not None and tenant is not None:
            require_agent_run(head, tenant.tenant_id)

    async def _paused(
        self, run_id: str, tenant: TenantContext, payload: PauseRequested, parent_step_key: str | None
    ) -> PauseTicket:
        written = await self._log.append(run_id, tenant.tenant_id, (Entry(payload, parent_step_key),))
        return PauseTicket(run_id, event_id(run_id, written.last), written.last, payload.reason)


def as_run_lease(held: Lease) -> RunLease | None:
    """Convert a lease to its documented form; None if no worker holds it."""
    return None if held.worker_id is None else RunLease(held.run_id, held.worker_id, held.expires_at)


def _check_unblock_key(key: str) -> None:
    """Refuse a key that could not unblock the run: InputError."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InputError("the unblock key contains a lone surrogate, which cannot be recorded") from None
    if "\0" in key:
        raise InputError("the unblock key contains a NUL character, which cannot be recorded")
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
