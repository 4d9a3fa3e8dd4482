"""The events about a whole agent run: its start, its pauses, its summaries, and the harness around it."""

from typing import ClassVar, Literal

from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.events.payload import Payload


class RunStarted(Payload, frozen=True, kw_only=True):
    """An agent run began.

    tool_signatures: the tools registered at the start; a run can be pinned to them
    forked_from: the run this one was forked from
    parent_run_id: the run whose step or tool started the agent
    root_run_id: the first of the runs that started each other; None if no run started the agent
    """

    type: ClassVar[str] = "run_started"
    tool_signatures: tuple[ToolSignature, ...] = ()
    forked_from: str | None = None
    parent_run_id: str | None = None
    root_run_id: str | None = None


class RunEnded(Payload, frozen=True, kw_only=True):
    """An agent run completed or failed.

    error_type: the exception that ended it
    message: its message
    """

    type: ClassVar[str] = "run_ended"
    status: Literal["completed", "failed"]
    error_type: str | None = None
    message: str | None = None


class RunReopened(Payload, frozen=True, kw_only=True):
    """A run that had ended runs a new step."""

    type: ClassVar[str] = "run_reopened"


class PauseRequested(Payload, frozen=True, kw_only=True):
    """A run was paused or blocked; it runs no steps until it is resumed or unblocked.

    context_json: information for the person who resumes it
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
    """A paused run was resumed.

    human_input_json: input from the person who resumed it
    pause_seqs: the numbers of the pauses that end with it
    """

    type: ClassVar[str] = "resume_requested"
    human_input_json: str | None = None
    pause_seqs: tuple[int, ...] = ()


class RunSummary(Payload, frozen=True, kw_only=True):
    """A summary was recorded: a decision, a checkpoint, an artifact, the state of tasks.

    summary_type: its type, such as `checkpoint::deployed`
    summary_json: its content
    """

    type: ClassVar[str] = "run_summary"
    summary_type: str
    summary_json: str
    step_key: str | None = None


class ContextRead(Payload, frozen=True, kw_only=True):
    """An agent read data from outside its run; a replay reads the recorded data.

    source: what was read, such as `memory` or the name of a file
    content: the data
    """

    type: ClassVar[str] = "context_read"
    source: str
    step_key: str
    content: str


class HarnessInitialized(Payload, frozen=True, kw_only=True):
    """A harness started to drive a run."""

    type: ClassVar[str] = "harness_initialized"
    harness_name: str | None = None
    model: str | None = None


class HarnessWake(Payload, frozen=True, kw_only=True):
    """A harness resumed a run.

    run_created: the harness created the run
    """

    type: ClassVar[str] = "harness_wake"
    run_created: bool
    reason: str | None = None


class HarnessSleep(Payload, frozen=True, kw_only=True):
    """A harness stopped driving a run.

    execution_error_type: what ended its work
    sleep_error_type: the error while stopping
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
