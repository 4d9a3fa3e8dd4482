"""What the record of a run says, and notes that are added to it."""

from collections.abc import AsyncIterator
from datetime import datetime

from gert.errors import InputError
from gert.kernel.agent.api.notes import ARTIFACT, CHECKPOINT, Notes, artifact_json, as_json
from gert.kernel.agent.api.policy import refuse_reserved
from gert.kernel.agent.api.queries import RunQueries
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.types.api import (
    ResumePoint,
    RunLifecycleStatus,
    RunProgress,
    RunStatus,
    TenantContext,
)
from gert.kernel.agent.types.payload_models import EventPayload, EventType, RunSummaryPayload
from gert.kernel.agent.types.payloads import KernelEvent, event_from_line, to_entry_payload
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.ledger.build_batch import Entry


@checks_arguments
class RunRecords:
    """The syscalls of the kernel that read the record of a run, or add notes to it."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._notes = Notes(log)
        self._queries = RunQueries(log)

    # Queries

    async def get_run_status(self, *, run_id: str, tenant: TenantContext | None = None) -> RunStatus:
        """Return the status of a run."""
        return await self._queries.status(run_id, tenant)

    async def get_run_progress(self, *, run_id: str, tenant: TenantContext | None = None) -> RunProgress:
        """Return the progress of a run."""
        return await self._queries.progress(run_id, tenant)

    async def list_active_runs(
        self, *, tenant_id: str, status: RunLifecycleStatus | None = None, since: datetime | None = None
    ) -> tuple[RunStatus, ...]:
        """Return the runs of a tenant that have not ended, or those with a status, newest first."""
        return await self._queries.runs(tenant_id, status, since)

    async def resume_point(self, *, run_id: str, tenant: TenantContext | None = None) -> ResumePoint:
        """Return where a run resumes."""
        return await self._queries.resume_point(run_id, tenant)

    async def explain_run(self, run_id: str, *, tenant: TenantContext | None = None) -> dict[str, object]:
        """Return the state of a run and its reasons, with its open calls."""
        return await self._queries.explanation(run_id, tenant)

    def stream_events(
        self,
        *,
        run_id: str,
        since_seq: int = 0,
        follow: bool = False,
        poll_interval_seconds: float = 0.5,
        idle_timeout_seconds: float | None = None,
        tenant: TenantContext | None = None,
    ) -> AsyncIterator[KernelEvent]:
        """Yield the events of a run; with `follow` also new ones, until none arrived for `idle_timeout_seconds`."""
        return self._queries.stream(run_id, since_seq, tenant, follow=follow, idle_timeout=idle_timeout_seconds)

    def stream_run_progress(
        self,
        *,
        run_id: str,
        since_seq: int = 0,
        follow: bool = False,
        poll_interval_seconds: float = 0.5,
        idle_timeout_seconds: float | None = None,
        tenant: TenantContext | None = None,
    ) -> AsyncIterator[RunProgress]:
        """Yield the progress of a run now and whenever it changes, until the run has ended."""
        return self._queries.stream_progress(
            run_id, since_seq, tenant, follow=follow, idle_timeout=idle_timeout_seconds
        )

    async def get_events(self, *, run_id: str, tenant: TenantContext | None = None) -> tuple[KernelEvent, ...]:
        """Return every event of a run whose type this version knows."""
        return await self._queries.events(run_id, tenant)

    # Notes

    async def append_run_summary(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        summary_type: str,
        summary_json: str,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> int:
        """Record a summary and return the number of its event; types that decide about calls are refused."""
        refuse_reserved(summary_type)
        return await self._notes.summarize(run_id, tenant, summary_type, summary_json, step_key, parent_step_key)

    async def get_latest_run_summary(
        self, *, run_id: str, summary_type: str, tenant: TenantContext | None = None
    ) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""
        return await self._notes.latest(run_id, summary_type, tenant)

    async def get_latest_summary(
        self, *, run_id: str, summary_type: str, tenant: TenantContext | None = None
    ) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""
        return await self._notes.latest(run_id, summary_type, tenant)

    async def checkpoint(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        name: str,
        payload: object,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> int:
        """Record a checkpoint and return the number of its event."""
        return await self._notes.summarize(
            run_id, tenant, CHECKPOINT + _require_name("checkpoint", name), as_json(payload), step_key, parent_step_key
        )

    async def set_artifact(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        key: str,
        value: object,
        schema_version: str | None = None,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> int:
        """Record a value under a key and return the number of its event."""
        held = artifact_json(value, schema_version)
        return await self._notes.summarize(
            run_id, tenant, ARTIFACT + _require_name("artifact", key), held, step_key, parent_step_key
        )

    async def get_artifact(self, *, run_id: str, key: str, tenant: TenantContext | None = None) -> object | None:
        """Return the newest value under a key."""
        return await self._notes.artifact(run_id, key, tenant)

    async def list_artifacts(self, *, run_id: str, tenant: TenantContext | None = None) -> dict[str, object]:
        """Return the newest value under every key."""
        return await self._notes.artifacts(run_id, tenant)

    async def append_harness_event(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        event_type: EventType,
        payload: EventPayload,
        parent_step_key: str | None = None,
    ) -> KernelEvent:
        """Append a harness event."""
        if not str(event_type.value).startswith("harness_") or payload.kind != event_type.value:
            raise InputError(f"expected a harness event, found `{event_type.value}` with `{payload.kind}`")
        entry = Entry(to_entry_payload(payload), parent_step_key)
        written = await self._log.append(run_id, tenant.tenant_id, (entry,))
        return event_from_line(written.batch.events[-1].line)


def _require_name(what: str, name: str) -> str:
    if not name.strip():
        raise InputError(f"{what} needs a name")
    return name
