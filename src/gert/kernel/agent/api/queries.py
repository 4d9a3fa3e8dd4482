"""Queries about runs: status, progress and events, once or as a stream."""

from collections.abc import AsyncIterator
from datetime import datetime

from gert.kernel.agent.api.status import explanation_of, progress_of, resume_point_of, status_of
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.types.api import ResumePoint, RunLifecycleStatus, RunProgress, RunStatus, TenantContext
from gert.kernel.agent.types.payloads import KernelEvent, known_events
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.agent_fold import TASK_PROGRESS, Unit, units_of
from gert.kernel.ledger.record import RunFilter

PAGE = 1000
PROGRESS_EVENTS = frozenset(
    {
        "harness_sleep",
        "harness_failed",
        "harness_wake",
        "harness_stage",
        "run_summary",
        "resume_requested",
        "run_ended",
        "run_reopened",
    }
)
"""Types of events that may change the progress of a run."""


class RunQueries:
    """Reads runs; it never appends."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    async def status(self, run_id: str, tenant: TenantContext | None = None) -> RunStatus:
        """Return the status of a run."""
        return status_of(await self._log.head(run_id, tenant))

    async def resume_point(self, run_id: str, tenant: TenantContext | None = None) -> ResumePoint:
        """Return where a run resumes."""
        return resume_point_of(await self._log.head(run_id, tenant))

    async def progress(self, run_id: str, tenant: TenantContext | None = None) -> RunProgress:
        """Return the progress of a run."""
        while True:
            head = await self._log.head(run_id, tenant)
            if head.agent is None or not head.agent.tasks_total:
                return progress_of(head, ())
            seq, units = await self._units(run_id)
            # Tasks recorded after the head was read belong to the next head.
            if seq <= head.count:
                return progress_of(head, units)

    async def runs(
        self, tenant_id: str, status: RunLifecycleStatus | None, since: datetime | None
    ) -> tuple[RunStatus, ...]:
        """Return the runs of a tenant that have not ended, or those with a status, newest first."""
        heads = await self._log.ledger.runs(RunFilter(tenant_id, "agent", status, since))
        found = map(status_of, heads)
        return tuple(each for each in found if status is not None or each.status in ("active", "paused"))

    async def explanation(self, run_id: str, tenant: TenantContext | None = None) -> dict[str, object]:
        """Return the state of a run and its reasons, with its open calls."""
        head = await self._log.head(run_id, tenant)
        unfinished = await self._log.ledger.open_calls(run_id)
        return explanation_of(head) | {
            "open_calls": [
                {"seq": call.seq, "kind": call.kind, "name": call.name} for call in unfinished if call.kind != "pause"
            ]
        }

    async def events(self, run_id: str, tenant: TenantContext | None = None) -> tuple[KernelEvent, ...]:
        """Return every event of a run whose type this version knows."""
        head, read = await self._log.head(run_id, tenant), 0
        events: list[KernelEvent] = []
        while read < head.count and (lines := await self._log.ledger.lines(run_id, read, PAGE)):
            events.extend(known_events(lines))
            read += len(lines)
        return tuple(events)

    async def stream(
        self, run_id: str, since: int, tenant: TenantContext | None = None, *, follow: bool, idle_timeout: float | None
    ) -> AsyncIterator[KernelEvent]:
        """Yield the events of a run; with `follow` also new ones, until none arrived for `idle_timeout` seconds."""
        await self._log.head(run_id, tenant)
        async for line in self._log.ledger.stream(run_id, since, follow=follow, idle_timeout=idle_timeout):
            for event in known_events((line,)):
                yield event

    async def stream_progress(
        self, run_id: str, since: int, tenant: TenantContext | None = None, *, follow: bool, idle_timeout: float | None
    ) -> AsyncIterator[RunProgress]:
        """Yield the progress of a run now and whenever it changes, until the run has ended."""
        # The first progress covers every event so far; only later events can change it.
        seen = max(since, (await self._log.head(run_id, tenant)).count)
        last = await self.progress(run_id)
        yield last
        if last.status != "running":
            return
        async for line in self._log.ledger.stream(run_id, seen, follow=follow, idle_timeout=idle_timeout):
            if decode(line).type not in PROGRESS_EVENTS:
                continue
            found = await self.progress(run_id)
            if found != last:
                last = found
                yield found
                if last.status != "running":
                    return

    async def _units(self, run_id: str) -> tuple[int, tuple[Unit, ...]]:
        """Return the number of the newest `task_progress`, and its tasks."""
        line = await self._log.ledger.summary(run_id, TASK_PROGRESS)
        if line is None:
            return 0, ()
        event = decode(line)
        payload = event.payload
        return event.seq, units_of(payload.summary_json) if isinstance(payload, RunSummary) else ()
