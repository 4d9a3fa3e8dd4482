"""What a store returns about runs, leases, tool calls and itself."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from gert.kernel.ledger.agent_fold import LifecycleStatus

RunStateLifecycleStatus: TypeAlias = LifecycleStatus
StoreBackend: TypeAlias = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class StoreSchemaInfo:
    """The backend of a store, and the version of its tables."""

    backend: StoreBackend
    schema_version: str


@dataclass(frozen=True, slots=True)
class RunLeaseRecord:
    """The worker that holds the lease of a run, and when it expires."""

    run_id: str
    worker_id: str
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True)
class RunStateSnapshotRecord:
    """The state of a run, folded with each append.

    explain_status: `failed` if the run or its last harness failed
    """

    run_id: str
    tenant_id: str
    last_event_seq: int
    last_event_type: str
    updated_at: datetime
    status: RunStateLifecycleStatus
    blocked_on: str | None
    failure_reason: str | None
    last_step_key: str | None
    drift_count: int
    last_stage: str | None
    last_tool: str | None
    model_cost_total: float
    open_pause_count: int
    explain_status: Literal["completed", "failed"] = "completed"
    explain_failure_reason: str | None = None
    explain_failure_step: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSemanticOutcomeRecord:
    """The outcome of the newest call with a semantic key."""

    run_id: str
    request_id: str
    outcome: str
    request_step_key: str | None
    request_arguments_json: str
