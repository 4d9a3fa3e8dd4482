"""The payloads of agent events as callers read and write them.

Generated from `gert.kernel.events.agent` by `make docs`: change the events, not this file. `docs/events.md` explains
the fields.
"""

from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from gert.kernel.agent.ports.model import ReasoningEffort, VerbosityLevel
from gert.kernel.agent.steps.messages import ChatMessage


class PayloadModel(BaseModel):
    """The data of one event: frozen, and without fields it does not declare."""

    # Built when first used: every program imports all of them, and most programs use few.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class ToolSignatureRecord(PayloadModel):
    """Identifies a tool offered to a model."""

    name: str
    tool_version: str
    schema_version: str
    schema_hash: str


class ContextVersionRecord(PayloadModel):
    """The builder of the context of a model step."""

    system_prompt_hash: str | None = None
    context_builder_version: str | None = None
    compaction_version: str | None = None


class ToolCallRecord(PayloadModel):
    """One tool call requested by a model; its arguments are canonical JSON."""

    tool_name: str
    arguments_json: str
    tool_call_id: str | None = None


class RunStartedPayload(PayloadModel):
    """An agent run began."""

    kind: Literal["run_started"] = "run_started"
    tool_signatures: list[ToolSignatureRecord] = Field(default_factory=list)
    forked_from: str | None = None
    parent_run_id: str | None = None
    root_run_id: str | None = None


class RunEndedPayload(PayloadModel):
    """An agent run completed or failed."""

    kind: Literal["run_ended"] = "run_ended"
    status: Literal["completed", "failed"]
    error_type: str | None = None
    message: str | None = None


class RunReopenedPayload(PayloadModel):
    """A run that had ended runs a new step."""

    kind: Literal["run_reopened"] = "run_reopened"


class PauseRequestedPayload(PayloadModel):
    """A run was paused or blocked; it runs no steps until it is resumed or unblocked."""

    kind: Literal["pause_requested"] = "pause_requested"
    reason: str
    context_json: str | None = None
    step_key: str | None = None
    blocked: bool = False
    unblock_key: str | None = None


class ResumeRequestedPayload(PayloadModel):
    """A paused run was resumed."""

    kind: Literal["resume_requested"] = "resume_requested"
    human_input_json: str | None = None
    pause_seqs: list[int] = Field(default_factory=list)


class RunSummaryPayload(PayloadModel):
    """A summary was recorded: a decision, a checkpoint, an artifact, the state of tasks."""

    kind: Literal["run_summary"] = "run_summary"
    summary_type: str
    summary_json: str
    step_key: str | None = None


class ContextReadPayload(PayloadModel):
    """An agent read data from outside its run; a replay reads the recorded data."""

    kind: Literal["context_read"] = "context_read"
    source: str
    step_key: str
    content: str


class HarnessInitializedPayload(PayloadModel):
    """A harness started to drive a run."""

    kind: Literal["harness_initialized"] = "harness_initialized"
    harness_name: str | None = None
    model: str | None = None


class HarnessWakePayload(PayloadModel):
    """A harness resumed a run."""

    kind: Literal["harness_wake"] = "harness_wake"
    run_created: bool
    reason: str | None = None


class HarnessSleepPayload(PayloadModel):
    """A harness stopped driving a run."""

    kind: Literal["harness_sleep"] = "harness_sleep"
    status: Literal["completed", "failed"] = "completed"
    execution_error_type: str | None = None
    sleep_error_type: str | None = None


class HarnessFailedPayload(PayloadModel):
    """The work of a harness failed."""

    kind: Literal["harness_failed"] = "harness_failed"
    error_type: str
    message: str
    last_step_key: str | None = None


class HarnessStagePayload(PayloadModel):
    """A harness entered a stage of its work."""

    kind: Literal["harness_stage"] = "harness_stage"
    stage: str
    round: int | None = None
    claims_count: int | None = None


class ModelRequestedPayload(PayloadModel):
    """A model is about to be called."""

    kind: Literal["model_requested"] = "model_requested"
    model: str
    prompt: str
    messages: list[ChatMessage]
    api_mode: Literal["auto", "responses", "chat"] = "auto"
    reasoning_effort: ReasoningEffort | None = None
    verbosity: VerbosityLevel | None = None
    previous_response_id: str | None = None
    responses_input_items: list[dict[str, object]] | None = None
    allowed_tools: list[str] = Field(default_factory=list)
    allowed_tool_signatures: list[ToolSignatureRecord] = Field(default_factory=list)
    allowed_tools_hash: str | None = None
    step_key: str | None = None
    context_version: ContextVersionRecord | None = None
    input_hash: str = ""
    reserved_usd: float = 0.0


class ModelCompletedPayload(PayloadModel):
    """A model answered."""

    kind: Literal["model_completed"] = "model_completed"
    model: str
    output_json: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    tool_calls: list[ToolCallRecord] = Field(default_factory=list)
    api_mode_used: Literal["responses", "chat"] = "chat"
    response_id: str | None = None
    responses_output_items: list[dict[str, object]] = Field(default_factory=list)
    request_seq: int | None = None


class ModelFailedPayload(PayloadModel):
    """A model call failed; the step may be retried."""

    kind: Literal["model_failed"] = "model_failed"
    model: str
    reason: Literal["failed", "timeout", "cancelled", "abandoned"]
    category: str = ""
    error_type: str = ""
    message: str = ""
    status: int | None = None
    elapsed_seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    request_seq: int | None = None


class ReplayedWithDriftPayload(PayloadModel):
    """A recorded answer was used for a changed request, or the changed request was made in a fork."""

    kind: Literal["replayed_with_drift"] = "replayed_with_drift"
    model: str
    source_model_requested_event_id: str
    replay_policy: Literal["allow_prompt_drift", "fork_on_drift"]
    drift_fields: list[str] = Field(default_factory=list)
    source_model_completed_seq: int | None = None
    step_key: str | None = None
    fork_run_id: str | None = None
    input_hash: str = ""


class ToolRequestedPayload(PayloadModel):
    """A tool is about to be called."""

    kind: Literal["tool_requested"] = "tool_requested"
    tool_name: str
    arguments_json: str
    idempotency_key: str
    tool_version: str = "1.0.0"
    schema_version: str = "1"
    step_key: str | None = None
    semantic_idempotency_key: str | None = None
    intent_id: str | None = None
    amount_usd: float | None = None
    side_effect: bool = False
    input_hash: str = ""
    approval_key: str | None = None


class ToolCompletedPayload(PayloadModel):
    """A tool call ended, or was reconciled."""

    kind: Literal["tool_completed"] = "tool_completed"
    tool_name: str
    result_json: str
    outcome: Literal["success", "transient_error", "permanent_error", "unknown_outcome"] = "success"
    received_idempotency_key: str | None = None
    effect_id: str | None = None
    request_id: str | None = None
    error_message: str | None = None
    reconciled_by: str | None = None
    reason: str | None = None
    withheld: bool = False
    request_seq: int | None = None


class WorkflowStepRequestedPayload(PayloadModel):
    """A step of a workflow is about to run."""

    kind: Literal["workflow_step_requested"] = "workflow_step_requested"
    step_index: int
    step_name: str
    step_key: str | None = None


class WorkflowStepCompletedPayload(PayloadModel):
    """A step of a workflow completed."""

    kind: Literal["workflow_step_completed"] = "workflow_step_completed"
    step_index: int
    step_name: str
    result_json: str
    request_seq: int | None = None


class WorkflowStepFailedPayload(PayloadModel):
    """A step of a workflow did not complete; it runs again with the workflow."""

    kind: Literal["workflow_step_failed"] = "workflow_step_failed"
    step_index: int
    step_name: str
    reason: Literal["failed", "cancelled", "abandoned"]
    error_type: str = ""
    message: str = ""
    request_seq: int | None = None


class ApprovalSubmittedPayload(PayloadModel):
    """Approval was requested."""

    kind: Literal["approval_submitted"] = "approval_submitted"
    ticket_id: str
    step_id: str
    risk_level: Literal["low", "medium", "high", "critical"]
    request_hash: str
    min_approvers: int
    method: str
    expires_at: str | None = None
    approvers: list[str] = Field(default_factory=list)
    requested_by: str | None = None
    preview_digest: str | None = None
    program: str | None = None
    created_at: str | None = None
    request: dict[str, object] | None = None


class ApprovalResponsePayload(PayloadModel):
    """An approver responded to a request for approval, and the response counts."""

    kind: Literal["approval_response"] = "approval_response"
    ticket_id: str
    step_id: str
    approved: bool
    approver_id: str
    method: str
    timestamp: str
    verified: bool = False
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    reason: str | None = None
    objection: str | None = None
    received_at: str | None = None
    request_hash: str | None = None


class ApprovalRefusedPayload(PayloadModel):
    """A response to an approval request does not count; the run waits for another one."""

    kind: Literal["approval_refused"] = "approval_refused"
    ticket_id: str
    step_id: str
    approved: bool
    approver_id: str
    method: str
    timestamp: str
    objection: str
    verified: bool = False
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    reason: str | None = None
    received_at: str | None = None
    request_hash: str | None = None


class ApprovalResolvedPayload(PayloadModel):
    """A ticket was resolved, and cannot be used again."""

    kind: Literal["approval_resolved"] = "approval_resolved"
    ticket_id: str
    step_id: str
    approved: bool
    status: Literal["approved", "rejected", "expired"]
    method: str
    approver_id: str | None = None
    approvers: list[str] = Field(default_factory=list)
    verified: bool = False
    signature: str | None = None
    reason: str | None = None


class ApprovalOutdatedPayload(PayloadModel):
    """The call has changed since its ticket was submitted, or the run that waits for it was abandoned."""

    kind: Literal["approval_outdated"] = "approval_outdated"
    ticket_id: str
    step_id: str
    reason: str
    request_hash: str


class EventType(StrEnum):
    """The types of events of an agent run."""

    RUN_STARTED = "run_started"
    RUN_ENDED = "run_ended"
    RUN_REOPENED = "run_reopened"
    PAUSE_REQUESTED = "pause_requested"
    RESUME_REQUESTED = "resume_requested"
    RUN_SUMMARY = "run_summary"
    CONTEXT_READ = "context_read"
    HARNESS_INITIALIZED = "harness_initialized"
    HARNESS_WAKE = "harness_wake"
    HARNESS_SLEEP = "harness_sleep"
    HARNESS_FAILED = "harness_failed"
    HARNESS_STAGE = "harness_stage"
    MODEL_REQUESTED = "model_requested"
    MODEL_COMPLETED = "model_completed"
    MODEL_FAILED = "model_failed"
    REPLAYED_WITH_DRIFT = "replayed_with_drift"
    TOOL_REQUESTED = "tool_requested"
    TOOL_COMPLETED = "tool_completed"
    WORKFLOW_STEP_REQUESTED = "workflow_step_requested"
    WORKFLOW_STEP_COMPLETED = "workflow_step_completed"
    WORKFLOW_STEP_FAILED = "workflow_step_failed"
    APPROVAL_SUBMITTED = "approval_submitted"
    APPROVAL_RESPONSE = "approval_response"
    APPROVAL_REFUSED = "approval_refused"
    APPROVAL_RESOLVED = "approval_resolved"
    APPROVAL_OUTDATED = "approval_outdated"


EventPayload: TypeAlias = (
    RunStartedPayload
    | RunEndedPayload
    | RunReopenedPayload
    | PauseRequestedPayload
    | ResumeRequestedPayload
    | RunSummaryPayload
    | ContextReadPayload
    | HarnessInitializedPayload
    | HarnessWakePayload
    | HarnessSleepPayload
    | HarnessFailedPayload
    | HarnessStagePayload
    | ModelRequestedPayload
    | ModelCompletedPayload
    | ModelFailedPayload
    | ReplayedWithDriftPayload
    | ToolRequestedPayload
    | ToolCompletedPayload
    | WorkflowStepRequestedPayload
    | WorkflowStepCompletedPayload
    | WorkflowStepFailedPayload
    | ApprovalSubmittedPayload
    | ApprovalResponsePayload
    | ApprovalRefusedPayload
    | ApprovalResolvedPayload
    | ApprovalOutdatedPayload
)
