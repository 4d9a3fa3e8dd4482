"""Status, progress and explanation of a run, all derived from one snapshot so that they agree."""

from datetime import datetime

from gert.kernel.agent.types.api import ResumePoint, RunProgress, RunProgressStatus, RunStatus
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.ledger.agent_fold import AgentSnapshot, Unit
from gert.kernel.ledger.build_batch import require_agent_run
from gert.kernel.ledger.record import Head

ALL = 100


def status_of(head: Head) -> RunStatus:
    """Return the status of a run."""
    snapshot = _snapshot(head)
    return RunStatus(
        run_id=head.run_id,
        tenant_id=head.tenant or "",
        status=snapshot.status,
        last_event_seq=head.count,
        last_event_type=snapshot.last_type,
        updated_at=parse_timestamp(head.updated_at),
        blocked_on=snapshot.blocked_on,
        failure_reason=snapshot.failure_reason if snapshot.status == "failed" else None,
    )


def progress_of(head: Head, units: tuple[Unit, ...]) -> RunProgress:
    """Return the progress of a run; `units` are those of its newest `task_progress`."""
    snapshot = _snapshot(head)
    status = _progress_status(snapshot)
    started, updated = parse_timestamp(head.started_at), parse_timestamp(head.updated_at)
    return RunProgress(
        run_id=head.run_id,
        status=status,
        percent=percent_of(snapshot),
        current_stage=snapshot.task_stage or snapshot.last_stage,
        completed_stages=tuple(unit.id for unit in units if unit.state == "done"),
        started_at=started,
        updated_at=updated,
        eta_seconds=_eta(snapshot, started, updated) if status == "running" else 0 if status == "completed" else None,
    )


def percent_of(snapshot: AgentSnapshot) -> int:
    """Return the percentage of tasks that are done; without tasks, 0 or 100."""
    if snapshot.tasks_total:
        return ALL * snapshot.tasks_done // snapshot.tasks_total
    return ALL if snapshot.status == "completed" else 0


def resume_point_of(head: Head) -> ResumePoint:
    """Return where a run resumes."""
    snapshot = _snapshot(head)
    return ResumePoint(head.run_id, head.count, snapshot.last_step_key, snapshot.blocked_on)


def explanation_of(head: Head) -> dict[str, object]:
    """Return the whole snapshot as plain data."""
    snapshot = _snapshot(head)
    failed = snapshot.status == "failed"
    return {
        "run_id": head.run_id,
        "tenant_id": head.tenant,
        "status": snapshot.status,
        "blocked_on": snapshot.blocked_on,
        "pauses": [pause.reason for pause in snapshot.pauses],
        "failure_reason": snapshot.failure_reason if failed else None,
        "failure_step": snapshot.failure_step if failed else None,
        "last_event_seq": head.count,
        "last_event_type": snapshot.last_type,
        "last_step_key": snapshot.last_step_key,
        "last_stage": snapshot.last_stage,
        "last_tool": snapshot.last_tool,
        "current_stage": snapshot.task_stage or snapshot.last_stage,
        "percent": percent_of(snapshot),
        "drift_count": snapshot.drift_count,
        "model_calls": snapshot.model_calls,
        "tool_calls": snapshot.tool_calls,
        "model_cost_total": snapshot.model_cost,
        "started_at": head.started_at,
        "updated_at": head.updated_at,
    }


def _snapshot(head: Head) -> AgentSnapshot:
    require_agent_run(head)
    return head.agent or AgentSnapshot()


def _progress_status(snapshot: AgentSnapshot) -> RunProgressStatus:
    status = snapshot.status
    return status if status in ("completed", "failed") else "running"


def _eta(snapshot: AgentSnapshot, started: datetime, updated: datetime) -> int | None:
    """Estimate from the tasks done so far; None before the first is done, or if the clock was set back."""
    if not snapshot.tasks_done or not snapshot.tasks_left:
        return None
    elapsed = (updated - started).total_seconds()
    if elapsed < 0:
        return None
    return round(elapsed / snapshot.tasks_done * (snapshot.tasks_total - snapshot.tasks_done))
