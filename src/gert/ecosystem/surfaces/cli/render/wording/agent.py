"""The words of events of an agent run."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.surfaces.cli.render import text as say
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import Subject, Wording, Words, clip, columns
from gert.kernel.events import agent as says
from gert.kernel.events.payload import Payload

OUTCOMES: Final[Mapping[str, tuple[str, str]]] = {
    "success": (say.DONE, say.GOOD),
    "transient_error": (say.FAILED, say.BAD),
    "permanent_error": (say.FAILED, say.BAD),
    "unknown_outcome": (say.WARNING, say.DOUBTFUL),
}


def _run_started(run: says.RunStarted, about: Subject) -> Words:
    forked = f"forked from {clip(run.forked_from, say.LONGEST_NAME)}" if run.forked_from else ""
    tools = plural(len(run.tool_signatures), "tool") if run.tool_signatures else ""
    return Words(say.BEGUN, columns(f"agent run {about.name}", tools, forked), say.LIVELY)


def _run_ended(run: says.RunEnded, about: Subject) -> Words:
    if run.status == "completed":
        return Words(say.DONE, f"agent run {about.name} completed", say.GOOD)
    why = " ".join(part for part in (run.error_type, run.message) if part)
    return Words(say.FAILED, f"agent run {about.name} failed", say.BAD, (clip(why),) if why else ())


def _run_reopened(_: says.RunReopened, about: Subject) -> Words:
    return Words(say.AGAIN, f"agent run {about.name} reopened by a new step", say.LIVELY)


def _model_requested(step: says.ModelRequested, _: Subject) -> Words:
    offered = f"offered {say.listed(tuple(step.allowed_tools))}" if step.allowed_tools else ""
    return Words(say.ASKED, columns(_named(step.step_key, step.model), offered), say.LIVELY)


def _model_completed(step: says.ModelCompleted, _: Subject) -> Words:
    tokens = f"{step.prompt_tokens}+{step.completion_tokens} tokens"
    cost = f"{step.cost_usd:.6f} USD" if step.cost_usd else ""
    calls = f"asks for {say.listed(tuple(call.tool_name for call in step.tool_calls))}" if step.tool_calls else ""
    text = columns(clip(step.model, say.LONGEST_NAME), tokens, cost, calls, f"answers event {step.request_seq}")
    return Words(say.DONE, text, say.GOOD, (say.value_text(step.output_json),))


def _model_failed(step: says.ModelFailed, _: Subject) -> Words:
    text = f"{clip(step.model, say.LONGEST_NAME)} {step.reason}, asked in event {step.request_seq}"
    why = " ".join(part for part in (step.error_type, step.message) if part)
    return Words(say.FAILED, text, say.BAD, (clip(why),) if why else ())


def _replayed_with_drift(step: says.ReplayedWithDrift, _: Subject) -> Words:
    where = f", asked in {clip(step.fork_run_id, say.LONGEST_NAME)}" if step.fork_run_id else ""
    text = f"{_named(step.step_key, step.model)}: changed {say.listed(tuple(step.drift_fields))}{where}"
    return Words(say.AGAIN, text, say.DOUBTFUL)


def _tool_requested(step: says.ToolRequested, _: Subject) -> Words:
    text = columns(_named(step.step_key, step.tool_name), say.value_text(step.arguments_json))
    return Words(say.BEGUN, text, say.LIVELY)


def _tool_completed(step: says.ToolCompleted, _: Subject) -> Words:
    icon, colour = OUTCOMES[step.outcome]
    by = f"settled by {clip(step.reconciled_by, say.LONGEST_NAME)}" if step.reconciled_by else ""
    outcome = "" if step.outcome == "success" else step.outcome
    text = columns(clip(step.tool_name, say.LONGEST_NAME), outcome, by, f"answers event {step.request_seq}")
    note = step.error_message or (step.result_json if step.outcome == "success" else "")
    return Words(icon, text, colour, (say.value_text(note),) if note else ())


def _workflow_step_requested(step: says.WorkflowStepRequested, _: Subject) -> Words:
    return Words(say.BEGUN, f"step {step.step_index}: {clip(step.step_name, say.LONGEST_NAME)}", say.LIVELY)


def _workflow_step_completed(step: says.WorkflowStepCompleted, _: Subject) -> Words:
    text = f"step {step.step_index}: {clip(step.step_name, say.LONGEST_NAME)}"
    return Words(say.DONE, text, say.GOOD, (say.value_text(step.result_json),))


def _workflow_step_failed(step: says.WorkflowStepFailed, _: Subject) -> Words:
    text = f"step {step.step_index}: {clip(step.step_name, say.LONGEST_NAME)} {step.reason}"
    why = " ".join(part for part in (step.error_type, step.message) if part)
    return Words(say.FAILED, text, say.BAD, (clip(why),) if why else ())


def _pause_requested(pause: says.PauseRequested, _: Subject) -> Words:
    what = "blocked" if pause.blocked else "paused"
    key = f"until {clip(pause.unblock_key, say.LONGEST_NAME)}" if pause.unblock_key else ""
    return Words(say.ASKED, columns(f"{what}: {clip(pause.reason)}", key), say.DOUBTFUL)


def _resume_requested(said: says.ResumeRequested, _: Subject) -> Words:
    given = (say.value_text(said.human_input_json),) if said.human_input_json else ()
    return Words(say.AGAIN, "resumed", say.LIVELY, given)


def _run_summary(noted: says.RunSummary, _: Subject) -> Words:
    text = columns(clip(noted.summary_type, say.LONGEST_NAME), say.value_text(noted.summary_json))
    return Words(say.NOTED, text, say.QUIET)


def _context_read(read: says.ContextRead, _: Subject) -> Words:
    return Words(
        say.NOTED, columns(f"read {clip(read.source, say.LONGEST_NAME)}", say.value_text(read.content)), say.QUIET
    )


def _harness_initialized(harness: says.HarnessInitialized, _: Subject) -> Words:
    return Words(say.BEGUN, columns("harness", _clipped(harness.harness_name), _clipped(harness.model)), say.LIVELY)


def _harness_wake(harness: says.HarnessWake, _: Subject) -> Words:
    return Words(say.AGAIN, columns("harness woke", _clipped(harness.reason)), say.LIVELY)


def _harness_sleep(harness: says.HarnessSleep, _: Subject) -> Words:
    icon, colour = (say.DONE, say.GOOD) if harness.status == "completed" else (say.FAILED, say.BAD)
    why = harness.execution_error_type or harness.sleep_error_type
    return Words(icon, columns(f"harness {harness.status}", _clipped(why)), colour)


def _harness_failed(harness: says.HarnessFailed, _: Subject) -> Words:
    at = f"at {_clipped(harness.last_step_key)}" if harness.last_step_key else ""
    text = columns(f"harness failed: {_clipped(harness.error_type)}", at)
    return Words(say.FAILED, text, say.BAD, say.lines_of(harness.message))


def _harness_stage(harness: says.HarnessStage, _: Subject) -> Words:
    round_ = f"round {harness.round}" if harness.round is not None else ""
    return Words(say.WENT, columns(f"stage {_clipped(harness.stage)}", round_), say.LIVELY)


def _named(step_key: str | None, what: str) -> str:
    name = clip(what, say.LONGEST_NAME)
    return columns(_clipped(step_key), name)


def _clipped(text: str | None) -> str:
    return clip(text, say.LONGEST_NAME) if text else ""


AGENT: Final[Wording] = {
    says.RunStarted: _run_started,
    says.RunEnded: _run_ended,
    says.RunReopened: _run_reopened,
    says.ModelRequested: _model_requested,
    says.ModelCompleted: _model_completed,
    says.ModelFailed: _model_failed,
    says.ReplayedWithDrift: _replayed_with_drift,
    says.ToolRequested: _tool_requested,
    says.ToolCompleted: _tool_completed,
    says.WorkflowStepRequested: _workflow_step_requested,
    says.WorkflowStepCompleted: _workflow_step_completed,
    says.WorkflowStepFailed: _workflow_step_failed,
    says.PauseRequested: _pause_requested,
    says.ResumeRequested: _resume_requested,
    says.RunSummary: _run_summary,
    says.ContextRead: _context_read,
    says.HarnessInitialized: _harness_initialized,
    says.HarnessWake: _harness_wake,
    says.HarnessSleep: _harness_sleep,
    says.HarnessFailed: _harness_failed,
    says.HarnessStage: _harness_stage,
}


def is_agent(payload: Payload) -> bool:
    """Whether an event is one of an agent run."""
    return type(payload) in AGENT
