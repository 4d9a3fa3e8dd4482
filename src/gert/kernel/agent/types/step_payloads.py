"""What events about one step of an agent run say, as people read and write them: a model, a tool, a workflow.

Each class has the fields of its namesake in `gert.kernel.events.agent.steps`; a test holds the two together.
"""

from typing import Literal

from pydantic import Field

from gert.kernel.agent.ports.model import ModelAPIMode, ModelAPIModeUsed, ReasoningEffort, VerbosityLevel
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.run_payloads import PayloadModel, ToolSignatureRecord
from gert.kernel.events.agent.parts import ModelFailure, ToolOutcome, WorkflowStepFailure


class ContextVersionRecord(PayloadModel):
    """With which builder the context of a model step was made."""

    system_prompt_hash: str | None = None
    context_builder_version: str | None = None
    compaction_version: str | None = None


class ToolCallRecord(PayloadModel):
    """One call a model asked for; its arguments are canonical JSON."""

    tool_name: str
    arguments_json: str
    tool_call_id: str | None = None


class ModelRequestedPayload(PayloadModel):
    """A model is about to be asked.

    allowed_tools: the names of the tools it is offered, sorted
    allowed_tools_hash: the hash of their signatures
    input_hash: the hash of everything replay compares
    """

    kind: Literal["model_requested"] = "model_requested"
    model: str
    prompt: str
    messages: list[ChatMessage]
    api_mode: ModelAPIMode = "auto"
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


class ModelCompletedPayload(PayloadModel):
    """A model answered.

    request_seq: the number of the request it answers; an event of the ledger always has one
    """

    kind: Literal["model_completed"] = "model_completed"
    model: str
    output_json: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    tool_calls: list[ToolCallRecord] = Field(default_factory=list)
    api_mode_used: ModelAPIModeUsed = "chat"
    response_id: str | None = None
    responses_output_items: list[dict[str, object]] = Field(default_factory=list)
    request_seq: int | None = None


class ModelFailedPayload(PayloadModel):
    """A model did not answer; the step may be tried again."""

    kind: Literal["model_failed"] = "model_failed"
    model: str
    reason: ModelFailure
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
    """A recorded answer was taken for a question that has changed, or the changed question was asked in a fork."""

    kind: Literal["replayed_with_drift"] = "replayed_with_drift"
    step_key: str | None = None
    model: str
    drift_fields: list[str] = Field(default_factory=list)
    source_model_requested_event_id: str
    source_model_completed_seq: int | None = None
    replay_policy: Literal["allow_prompt_drift", "fork_on_drift"]
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


class ToolCompletedPayload(PayloadModel):
    """A tool call ended, or somebody said how it had ended."""

    kind: Literal["tool_completed"] = "tool_completed"
    tool_name: str
    result_json: str
    outcome: ToolOutcome = "success"
    received_idempotency_key: str | None = None
    effect_id: str | None = None
    request_id: str | None = None
    error_message: str | None = None
    request_seq: int | None = None
    reconciled_by: str | None = None
    reason: str | None = None
    withheld: bool = False


class WorkflowStepRequestedPayload(PayloadModel):
    """A step of a workflow is about to be taken."""

    kind: Literal["workflow_step_requested"] = "workflow_step_requested"
    step_index: int
    step_name: str
    step_key: str | None = None


class WorkflowStepCompletedPayload(PayloadModel):
    """A step of a workflow was taken."""

    kind: Literal["workflow_step_completed"] = "workflow_step_completed"
    step_index: int
    step_name: str
    result_json: str
    request_seq: int | None = None


class WorkflowStepFailedPayload(PayloadModel):
    """A step of a workflow was not taken to its end; it is taken again when the workflow is."""

    kind: Literal["workflow_step_failed"] = "workflow_step_failed"
    step_index: int
    step_name: str
    reason: WorkflowStepFailure
    error_type: str = ""
    message: str = ""
    request_seq: int | None = None
