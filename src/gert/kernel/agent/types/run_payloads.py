"""What events about a whole agent run say, as people read and write them: its start, pauses, summaries and harness.

Each class has the fields of its namesake in `gert.kernel.events.agent.run`; a test holds the two together.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class PayloadModel(BaseModel):
    """What an event says; it is a fact, so it does not change, and it has no fields it does not declare."""

    # Built when first used: few programs meet all of them, and every program imports them.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class ToolSignatureRecord(PayloadModel):
    """What identifies a tool a model was offered."""

    name: str
    tool_version: str
    schema_version: str
    schema_hash: str


class RunStartedPayload(PayloadModel):
    """An agent run began.

    tool_signatures: the tools that were registered then; a run can be pinned to them
    forked_from: the run this one was forked from
    """

    kind: Literal["run_started"] = "run_started"
    tool_signatures: list[ToolSignatureRecord] = Field(default_factory=list)
    forked_from: str | None = None


class RunEndedPayload(PayloadModel):
    """The work of an agent run is done, or it failed."""

    kind: Literal["run_ended"] = "run_ended"
    status: Literal["completed", "failed"]
    error_type: str | None = None
    message: str | None = None


class RunReopenedPayload(PayloadModel):
    """A run that had ended takes a new step."""

    kind: Literal["run_reopened"] = "run_reopened"


class PauseRequestedPayload(PayloadModel):
    """A run was paused or blocked; until it is resumed or unblocked it takes no steps."""

    kind: Literal["pause_requested"] = "pause_requested"
    reason: str
    context_json: str | None = None
    step_key: str | None = None
    blocked: bool = False
    unblock_key: str | None = None


class ResumeRequestedPayload(PayloadModel):
    """A paused run goes on."""

    kind: Literal["resume_requested"] = "resume_requested"
    human_input_json: str | None = None
    pause_seqs: list[int] = Field(default_factory=list)


class RunSummaryPayload(PayloadModel):
    """Something worth finding again was noted."""

    kind: Literal["run_summary"] = "run_summary"
    summary_type: str
    summary_json: str
    step_key: str | None = None


class ContextReadPayload(PayloadModel):
    """An agent read something from outside its run; when the run is replayed it reads this again."""

    kind: Literal["context_read"] = "context_read"
    source: str
    step_key: str
    content: str


class HarnessInitializedPayload(PayloadModel):
    """A harness took a run for the first time."""

    kind: Literal["harness_initialized"] = "harness_initialized"
    harness_name: str | None = None
    model: str | None = None


class HarnessWakePayload(PayloadModel):
    """A harness went on with a run."""

    kind: Literal["harness_wake"] = "harness_wake"
    run_created: bool
    reason: str | None = None


class HarnessSleepPayload(PayloadModel):
    """A harness put a run down."""

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
