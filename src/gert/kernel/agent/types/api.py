"""Arguments and results of the agent kernel, under their documented names."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gert.errors import InputError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelUsage, OutputT, ToolCall
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.serde import StepSerde, StepT, WorkflowModelT, json_step_serde, pydantic_step_serde
from gert.kernel.agent.types.store import (
    RunLeaseRecord,
    RunStateLifecycleStatus,
    RunStateSnapshotRecord,
    StoreSchemaInfo,
    ToolSemanticOutcomeRecord,
)
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.ledger.agent_fold import LifecycleStatus

__all__ = [
    "ContextVersion",
    "JsonValue",
    "KernelPolicy",
    "ModelClientCapabilities",
    "ModelInput",
    "PauseTicket",
    "ReplayPolicy",
    "ResumePoint",
    "RunHandle",
    "RunLease",
    "RunLeaseRecord",
    "RunLifecycleStatus",
    "RunProgress",
    "RunProgressStatus",
    "RunRef",
    "RunStateLifecycleStatus",
    "RunStateSnapshotRecord",
    "RunStatus",
    "StepModelResult",
    "StepSerde",
    "StepT",
    "StepToolResult",
    "StoreSchemaInfo",
    "TenantContext",
    "ToolDrift",
    "ToolFingerprint",
    "ToolSemanticOutcomeRecord",
    "WorkflowModelT",
    "WorkflowOutputT",
    "WorkflowRunResult",
    "json_step_serde",
    "pydantic_step_serde",
]

ReplayPolicy: TypeAlias = Literal["strict", "allow_prompt_drift", "fork_on_drift"]
"""What happens if a step differs from its recorded question."""

ToolDrift: TypeAlias = Literal["refuse", "pin"]
"""What happens if other tools are registered than were recorded: refuse, or offer those the run started with."""

RunLifecycleStatus: TypeAlias = LifecycleStatus
RunProgressStatus: TypeAlias = Literal["queued", "running", "completed", "failed", "cancelled"]
PolicyMode: TypeAlias = Literal["permissive", "enforced", "enforced_v2"]

WorkflowOutputT = TypeVar("WorkflowOutputT")


class TenantContext(BaseModel):
    """The tenant of a run: its capabilities and its budget.

    budget_usd_limit: what a run may spend on models, with its sub-agents and forks
    tenant_budget_usd_limit: what all runs of the tenant may spend together in `tenant_budget_window_seconds`
    allow_unknown_cost: models without a known price may be called
    """

    model_config = ConfigDict(frozen=True)

    tenant_id: Annotated[str, Field(min_length=1)]
    capabilities: frozenset[str] = frozenset()
    budget_usd_limit: Annotated[float, Field(ge=0)]
    tenant_budget_usd_limit: Annotated[float, Field(ge=0)] | None = None
    tenant_budget_window_seconds: Annotated[int, Field(ge=60)] = 86_400
    allow_unknown_cost: bool = False


@dataclass(frozen=True, slots=True)
class RunHandle:
    """The id of a run and of its tenant."""

    run_id: str
    tenant_id: str


RunRef: TypeAlias = RunHandle


@dataclass(frozen=True, slots=True)
class PauseTicket:
    """A pause of a run, and the event that recorded it."""

    run_id: str
    ticket_id: str
    seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a run resumes."""

    run_id: str
    last_event_seq: int
    last_step_key: str | None
    blocked_on: str | None


@dataclass(frozen=True, slots=True)
class RunLease:
    """The right to drive a run, until it expires."""

    run_id: str
    worker_id: str
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run."""

    run_id: str
    tenant_id: str
    status: RunLifecycleStatus
    last_event_seq: int
    last_event_type: str
    updated_at: datetime
    blocked_on: str | None = None
    failure_reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run."""

    run_id: str
    status: RunProgressStatus
    percent: int
    current_stage: str | None
    completed_stages: tuple[str, ...]
    started_at: datetime
    updated_at: datetime
    eta_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ContextVersion:
    """The version of the builder that made the context of a model step."""

    system_prompt_hash: str | None = None
    context_builder_version: str | None = None
    compaction_version: str | None = None


@checks_arguments
@dataclass(frozen=True, slots=True)
class ModelInput:
    """The input of a model: a prompt, or a conversation."""

    kind: Literal["prompt", "messages"]
    prompt: str | None = None
    messages: tuple[ChatMessage, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("prompt", "messages"):
            raise InputError(f"expected the kind of a model's input to be prompt | messages, found `{self.kind}`")
        if self.kind == "prompt" and self.prompt is None:
            raise InputError("a model's input of kind `prompt` needs a prompt")
        if self.kind == "messages" and not self.messages:
            raise InputError("a model's input of kind `messages` needs at least one message")

    @classmethod
    def from_prompt(cls, prompt: str) -> "ModelInput":
        """Make an input from a prompt."""
        return cls("prompt", prompt)

    @classmethod
    def from_messages(cls, messages: Sequence[ChatMessage], *, prompt: str | None = None) -> "ModelInput":
        """Make an input from messages; the model does not see the prompt, which names the step in the record.

        prompt: by default the last message of the user
        """
        given = tuple(messages)
        if prompt is None:
            prompt = next((message.content for message in reversed(given) if message.role == "user"), None)
        return cls("messages", prompt, given)


# The results below have no slots: a generic, frozen dataclass with slots cannot be created as `StepModelResult[X](…)`.
@dataclass(frozen=True)
class StepModelResult(Generic[OutputT]):
    """The result of a model step, live or replayed.

    seq: the number of the `model_completed` event
    drift_fields: the fields that differ from the recorded question
    """

    run_id: str
    seq: int
    output: OutputT
    usage: ModelUsage
    tool_calls: tuple[ToolCall, ...]
    replayed: bool
    api_mode_used: ModelAPIModeUsed = "chat"
    response_id: str | None = None
    response_output_items: tuple[dict[str, object], ...] = ()
    replayed_with_drift: bool = False
    forked_from_run_id: str | None = None
    drift_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkflowRunResult(Generic[WorkflowOutputT]):
    """The result of a workflow: an output, or the pause that it waits at."""

    run_id: str
    status: Literal["complete", "paused"]
    output: WorkflowOutputT | None
    pause_ticket: PauseTicket | None


@dataclass(frozen=True, slots=True)
class StepToolResult:
    """The result of a tool step, live or replayed."""

    run_id: str
    seq: int
    tool_name: str
    result_json: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class ToolFingerprint:
    """The identity, risk level and sandbox profile of a tool."""

    tool_name: str
    tool_version: str
    schema_version: str
    schema_hash: str
    risk_level: Literal["low", "medium", "high", "critical"]
    sandbox_profile: str | None


@dataclass(frozen=True, slots=True)
class ModelClientCapabilities:
    """Which arguments the kernel behind a model client accepts."""

    supports_replay_policy: bool
    supports_context_version: bool


@dataclass(frozen=True, slots=True)
class KernelPolicy:
    """The middleware a kernel must have."""

    mode: PolicyMode = "permissive"

    def __post_init__(self) -> None:
        # A misspelled mode must not read as permissive.
        if self.mode not in get_args(PolicyMode):
            raise InputError(f"expected a policy mode {' | '.join(get_args(PolicyMode))}, found `{self.mode}`")

    @classmethod
    def enforced(cls) -> "KernelPolicy":
        """Require the guards for personal data, quota and capabilities."""
        return cls("enforced")

    @classmethod
    def enforced_v2(cls) -> "KernelPolicy":
        """Require the guards of `enforced` and a safety policy for tools."""
        return cls("enforced_v2")
