"""Descriptions of the events of an agent run."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import Describers, Description, Subject, clip, columns
from gert.kernel.events import agent as says
from gert.kernel.events.payload import Payload

OUTCOMES: Final[Mapping[str, tuple[str, str]]] = {
    "success": (style.DONE, style.GOOD),
    "transient_error": (style.FAILED, style.BAD),
    "permanent_error": (style.FAILED, style.BAD),
    "unknown_outcome": (style.WARNING, style.DOUBTFUL),
}


def _run_started(run: says.RunStarted, about: Subject) -> Description:
    forked = f"forked from {clip(run.forked_from, style.LONGEST_NAME)}" if run.forked_from else ""
    tools = plural(len(run.tool_signatures), "tool") if run.tool_signatures else ""
    return Description(style.BEGUN, columns(f"agent run {about.name}", tools, forked), style.LIVELY)


def _run_ended(run: says.RunEnded, about: Subject) -> Description:
    if run.status == "completed":
        return Description(style.DONE, f"agent run {about.name} completed", style.GOOD)
    why = " ".join(part for part in (run.error_type, run.message) if part)
    return Description(style.FAILED, f"agent run {about.name} failed", style.BAD, (clip(why),) if why else ())


def _run_reopened(_: says.RunReopened, about: Subject) -> Description:
    return Description(style.AGAIN, f"agent run {about.name} reopened by a new step", style.LIVELY)


def _model_requested(step: says.ModelRequested, _: Subject) -> Description:
    offered = f"offered {style.listed(tuple(step.allowed_tools))}" if step.allowed_tools else ""
    return Description(style.ASKED, columns(_named(step.step_key, step.model), offered), style.LIVELY)


def _model_completed(step: says.ModelCompleted, _: Subject) -> Description:
    tokens = f"{step.prompt_tokens}+{step.completion_tokens} tokens"
    cost = f"{step.cost_usd:.6f} USD" if step.cost_usd else ""
    calls = f"asks for {style.listed(tuple(call.tool_name for call in step.tool_calls))}" if step.tool_calls else ""
    text = columns(clip(step.model, style.LONGEST_NAME), tokens, cost, calls, f"answers event {step.request_seq}")
    return Description(style.DONE, text, style.GOOD, (style.value_text(step.output_json),))


def _model_failed(step: says.ModelFailed, _: Subject) -> Description:
    text = f"{clip(step.model, style.LONGEST_NAME)} {step.reason}, asked in event {step.request_seq}"
    why = " ".join(part for part in (step.error_type, step.message) if part)
    return Description(style.FAILED, text, style.BAD, (clip(why),) if why else ())


def _replayed_with_drift(step: says.ReplayedWithDrift, _: Subject) -> Description:
    where = f", asked in {clip(step.fork_run_id, style.LONGEST_NAME)}" if step.fork_run_id else ""
    text = f"{_named(step.step_key, step.model)}: changed {style.listed(tuple(step.drift_fields))}{where}"
    return Description(style.AGAIN, text, style.DOUBTFUL)


def _tool_requested(step: says.ToolRequested, _: Subject) -> Description:
    text = columns(_named(step.step_key, step.tool_name), style.value_text(step.arguments_json))
    return Description(style.BEGUN, text, style.LIVELY)


def _tool_completed(step: says.ToolCompleted, _: Subject) -> Description:
    icon, colour = OUTCOMES[step.outcome]
    by = f"reconciled by {clip(step.reconciled_by, style.LONGEST_NAME)}" if step.reconciled_by else ""
    outcome = "" if step.outcome == "success" else step.outcome
    text = columns(clip(step.tool_name, style.LONGEST_NAME), outcome, by, f"answers event {step.request_seq}")
    note = step.error_message or (step.result_json if step.outcome == "success" else "")
    return Description(icon, text, colour, (style.value_text(note),) if note else ())


def _workflow_step_requested(step: says.WorkflowStepRequested, _: Subject) -> Description:
    return Description(style.BEGUN, f"step {step.step_index}: {clip(step.step_name, style.LONGEST_NAME)}", style.LIVELY)


def _workflow_step_completed(step: says.WorkflowStepCompleted, _: Subject) -> Description:
    text = f"step {step.step_index}: {clip(step.step_name, style.LONGEST_NAME)}"
    return Description(style.DONE, text, style.GOOD, (style.value_text(step.result_json),))


def _workflow_step_failed(step: says.WorkflowStepFailed, _: Subject) -> Description:
    text = f"step {step.step_index}: {clip(step.step_name, style.LONGEST_NAME)} {step.reason}"
    why = " ".join(part for part in (step.error_type, step.message) if part)
    return Description(style.FAILED, text, style.BAD, (clip(why),) if why else ())


def _pause_requested(pause: says.PauseRequested, _: Subject) -> Description:
    what = "blocked" if pause.blocked else "paused"
    key = f"until {clip(pause.unblock_key, style.LONGEST_NAME)}" if pause.unblock_key else ""
    return Description(style.ASKED, columns(f"{what}: {clip(pause.reason)}", key), style.DOUBTFUL)


def _resume_requested(said: says.ResumeRequested, _: Subject) -> Description:
    given = (style.value_text(said.human_input_json),) if said.human_input_json else ()
    return Description(style.AGAIN, "resumed", style.LIVELY, given)


def _run_summary(noted: says.RunSummary, _: Subject) -> Description:
    text = columns(clip(noted.summary_type, style.LONGEST_NAME), style.value_text(noted.summary_json))
    return Description(style.NOTED, text, style.QUIET)


def _context_read(read: says.ContextRead, _: Subject) -> Description:
    return Description(
        style.NOTED,
        columns(f"read {clip(read.source, style.LONGEST_NAME)}", style.value_text(read.content)),
        style.QUIET,
    )


def _harness_initialized(harness: says.HarnessInitialized, _: Subject) -> Description:
    return Description(
        style.BEGUN, columns("harness", _clipped(harness.harness_name), _clipped(harness.model)), style.LIVELY
    )


def _harness_wake(harness: says.HarnessWake, _: Subject) -> Description:
    return Description(style.AGAIN, columns("harness woke", _clipped(harness.reason)), style.LIVELY)


def _harness_sleep(harness: says.HarnessSleep, _: Subject) -> Description:
    icon, colour = (style.DONE, style.GOOD) if harness.status == "completed" else (style.FAILED, style.BAD)
    why = harness.execution_error_type or harness.sleep_error_type
    return Description(icon, columns(f"harness {harness.status}", _clipped(why)), colour)


def _harness_failed(harness: says.HarnessFailed, _: Subject) -> Description:
    at = f"at {_clipped(harness.last_step_key)}" if harness.last_step_key else ""
    text = columns(f"harness failed: {_clipped(harness.error_type)}", at)
    return Description(style.FAILED, text, style.BAD, style.lines_of(harness.message))


def _harness_stage(harness: says.HarnessStage, _: Subject) -> Description:
    round_ = f"round {harness.round}" if harness.round is not None else ""
    return Description(style.WENT, columns(f"stage {_clipped(harness.stage)}", round_), style.LIVELY)


def _named(step_key: str | None, what: str) -> str:
    name = clip(what, style.LONGEST_NAME)
    return columns(_clipped(step_key), name)


def _clipped(text: str | None) -> str:
    return clip(text, style.LONGEST_NAME) if text else ""


AGENT: Final[Describers] = {
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
