"""The events about a whole agent run: its start, its pauses, its summaries, and the harness around it."""

from typing import ClassVar, Literal

from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.events.payload import Payload


class RunStarted(Payload, frozen=True, kw_only=True):
    """An agent run began.

    tool_signatures: the tools that were registered then; a run can be pinned to them
    forked_from: the run this one was forked from
    """

    type: ClassVar[str] = "run_started"
    tool_signatures: tuple[ToolSignature, ...] = ()
    forked_from: str | None = None


class RunEnded(Payload, frozen=True, kw_only=True):
    """The work of an agent run is done, or it failed.

    error_type: the exception that ended it
    message: what that says
    """

    type: ClassVar[str] = "run_ended"
    status: Literal["completed", "failed"]
    error_type: str | None = None
    message: str | None = None


class RunReopened(Payload, frozen=True, kw_only=True):
    """A run that had ended takes a new step."""

    type: ClassVar[str] = "run_reopened"


class PauseRequested(Payload, frozen=True, kw_only=True):
    """A run was paused or blocked; until it is resumed or unblocked it takes no steps.

    context_json: what whoever resumes should know
    blocked: it was blocked, and only `run_unblocked` clears it
    unblock_key: which `run_unblocked` clears it
    """

    type: ClassVar[str] = "pause_requested"
    reason: str
    context_json: str | None = None
    step_key: str | None = None
    blocked: bool = False
    unblock_key: str | None = None


class ResumeRequested(Payload, frozen=True, kw_only=True):
    """A paused run goes on.

    human_input_json: what whoever resumed it had to say
    pause_seqs: the numbers of the pauses that end with it
    """

    type: ClassVar[str] = "resume_requested"
    human_input_json: str | None = None
    pause_seqs: tuple[int, ...] = ()


class RunSummary(Payload, frozen=True, kw_only=True):
    """Something worth finding again was noted: a decision, a checkpoint, an artifact, the state of tasks.

    summary_type: what it is, such as `checkpoint::deployed`
    summary_json: what it says
    """

    type: ClassVar[str] = "run_summary"
    summary_type: str
    summary_json: str
    step_key: str | None = None


class ContextRead(Payload, frozen=True, kw_only=True):
    """An agent read something from outside its run; when the run is replayed it reads this again.

    source: what was read, such as `memory` or the name of a file
    content: what it said
    """

    type: ClassVar[str] = "context_read"
    source: str
    step_key: str
    content: str


class HarnessInitialized(Payload, frozen=True, kw_only=True):
    """A harness took a run for the first time."""

    type: ClassVar[str] = "harness_initialized"
    harness_name: str | None = None
    model: str | None = None


class HarnessWake(Payload, frozen=True, kw_only=True):
    """A harness went on with a run.

    run_created: the run began with it
    """

    type: ClassVar[str] = "harness_wake"
    run_created: bool
    reason: str | None = None


class HarnessSleep(Payload, frozen=True, kw_only=True):
    """A harness put a run down.

    execution_error_type: what ended its work
    sleep_error_type: what went wrong while it was put down
    """

    type: ClassVar[str] = "harness_sleep"
    status: Literal["completed", "failed"] = "completed"
    execution_error_type: str | None = None
    sleep_error_type: str | None = None


class HarnessFailed(Payload, frozen=True, kw_only=True):
    """The work of a harness failed."""

    type: ClassVar[str] = "harness_failed"
    error_type: str
    message: str
    last_step_key: str | None = None


class HarnessStage(Payload, frozen=True, kw_only=True):
    """A harness entered a stage of its work."""

    type: ClassVar[str] = "harness_stage"
    stage: str
    round: int | None = None
    claims_count: int | None = None
