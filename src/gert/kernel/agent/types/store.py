"""What a store says about runs: their state, leases and tool calls, and about itself."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from gert.kernel.ledger.agent_fold import LifecycleStatus

RunStateLifecycleStatus: TypeAlias = LifecycleStatus
StoreBackend: TypeAlias = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class StoreSchemaInfo:
    """Which store it is, and in which version its tables are."""

    backend: StoreBackend
    schema_version: str


@dataclass(frozen=True, slots=True)
class RunLeaseRecord:
    """Who holds a run, and until when."""

    run_id: str
    worker_id: str
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True)
class RunStateSnapshotRecord:
    """How a run stands, as it is folded with each append.

    explain_status: `failed` where the run ended in a failure, or its last harness did
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
    """What came of the newest call that is the same call, by its semantic key."""

    run_id: str
    request_id: str
    outcome: str
    request_step_key: str | None
    request_arguments_json: str
