"""The events about one step of an agent run: a model, a tool, or a step of a workflow."""

from typing import ClassVar, Literal

from msgspec import field

from gert.kernel.events.agent.parts import (
    ApiMode,
    ApiModeUsed,
    ContextVersionOf,
    Items,
    Message,
    ModelFailure,
    ToolCallOf,
    ToolOutcome,
    ToolSignature,
    WorkflowStepFailure,
)
from gert.kernel.events.payload import Payload


class ModelRequested(Payload, frozen=True, kw_only=True):
    """A model is about to be called.

    allowed_tools: the names of the tools offered to it, sorted
    allowed_tools_hash: the hash of their signatures
    input_hash: the hash of everything that replay compares
    reserved_usd: what the call may cost, which counts against budgets until it ends
    """

    type: ClassVar[str] = "model_requested"
    model: str
    prompt: str
    messages: list[Message] = field(default_factory=list)
    api_mode: ApiMode = "auto"
    reasoning_effort: str | None = None
    verbosity: str | None = None
    previous_response_id: str | None = None
    responses_input_items: Items | None = None
    allowed_tools: list[str] = field(default_factory=list)
    allowed_tool_signatures: list[ToolSignature] = field(default_factory=list)
    allowed_tools_hash: str | None = None
    step_key: str | None = None
    context_version: ContextVersionOf | None = None
    input_hash: str = ""
    reserved_usd: float = 0.0


class ModelCompleted(Payload, frozen=True, kw_only=True):
    """A model answered.

    request_seq: the number of the request it answers
    """

    type: ClassVar[str] = "model_completed"
    request_seq: int
    model: str
    output_json: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    tool_calls: list[ToolCallOf] = field(default_factory=list)
    api_mode_used: ApiModeUsed = "chat"
    response_id: str | None = None
    responses_output_items: Items = field(default_factory=list)


class ModelFailed(Payload, frozen=True, kw_only=True):
    """A model call failed; the step may be retried.

    request_seq: the number of the request that failed
    category: the kind of error, as named by the adapter
    status: the HTTP status, where there was one
    elapsed_seconds: how long the call had taken
    cost_usd: the cost of an unusable answer
    """

    type: ClassVar[str] = "model_failed"
    request_seq: int
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


class ReplayedWithDrift(Payload, frozen=True, kw_only=True):
    """A recorded answer was used for a changed request, or the changed request was made in a fork.

    input_hash: the hash of the changed request
    """

    type: ClassVar[str] = "replayed_with_drift"
    model: str
    source_model_requested_event_id: str
    replay_policy: Literal["allow_prompt_drift", "fork_on_drift"]
    drift_fields: list[str] = field(default_factory=list)
    source_model_completed_seq: int | None = None
    step_key: str | None = None
    fork_run_id: str | None = None
    input_hash: str = ""


class ToolRequested(Payload, frozen=True, kw_only=True):
    """A tool is about to be called.

    idempotency_key: the SHA-256 of `run_id:tool_name:seq`, with the number of this event
    semantic_idempotency_key: equal for two calls that are the same; held until this call is known not to have happened
    side_effect: the tool declares side effects
    input_hash: the hash of the tool and of the arguments the caller gave, before any middleware
    approval_key: the approval that this call uses
    """

    type: ClassVar[str] = "tool_requested"
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


class ToolCompleted(Payload, frozen=True, kw_only=True):
    """A tool call ended, or was reconciled.

    A second event for the same request replaces the first: a hook returned another result, or an operator
    reconciled a call with an unknown outcome.

    request_seq: the number of the request it ends
    reconciled_by: who reconciled a call with an unknown outcome
    reason: their reason
    withheld: the hooks have not released the result yet; they run again when the call is repeated
    """

    type: ClassVar[str] = "tool_completed"
    request_seq: int
    tool_name: str
    result_json: str = ""
    outcome: ToolOutcome = "success"
    received_idempotency_key: str | None = None
    effect_id: str | None = None
    request_id: str | None = None
    error_message: str | None = None
    reconciled_by: str | None = None
    reason: str | None = None
    withheld: bool = False


class WorkflowStepRequested(Payload, frozen=True, kw_only=True):
    """A step of a workflow is about to run.

    step_index: how many steps had begun before it
    step_key: identifies the step when the workflow runs again
    """

    type: ClassVar[str] = "workflow_step_requested"
    step_index: int
    step_name: str
    step_key: str | None = None


class WorkflowStepCompleted(Payload, frozen=True, kw_only=True):
    """A step of a workflow completed.

    request_seq: the number of the request it ends
    """

    type: ClassVar[str] = "workflow_step_completed"
    request_seq: int
    step_index: int
    step_name: str
    result_json: str


class WorkflowStepFailed(Payload, frozen=True, kw_only=True):
    """A step of a workflow did not complete; it runs again with the workflow.

    request_seq: the number of the request it ends
    reason: `abandoned` if the worker of the step is gone
    """

    type: ClassVar[str] = "workflow_step_failed"
    request_seq: int
    step_index: int
    step_name: str
    reason: WorkflowStepFailure
    error_type: str = ""
    message: str = ""
