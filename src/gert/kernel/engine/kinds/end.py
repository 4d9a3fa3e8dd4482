"""End the run with an outcome."""

from gert.kernel.engine.approval_flow import approve
from gert.kernel.engine.frame import Frame, RunBlock, request_keys
from gert.kernel.engine.plan import StepSettings
from gert.kernel.engine.policy_gate import break_glass_override, decision_of, denial
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import Result
from gert.kernel.events.runbook import Outcome, OutcomeResolved
from gert.kernel.runbook.documents.steps import EndStep


def run_end(step: EndStep, frame: Frame, _: RunBlock) -> Steps[Result]:
    """Record the outcome if the rules on its category allow it; nothing after it runs."""
    block = step.outcome
    outcome = Outcome(block.category, frame.render_text(block.code), frame.render(block.meta))  # type: ignore[arg-type]
    settings = frame.run.end_settings(step)
    refusal = None if settings is None else (yield from _apply_governance(step, frame, settings, outcome))
    if refusal is not None:
        return refusal
    notify = () if settings is None else tuple(sorted(settings.decision.notify))
    yield frame.emit(OutcomeResolved(step_id=frame.step_id, structured_outcome=outcome, notify=notify))
    return Result(outcome=outcome, ended=True)


def _apply_governance(step: EndStep, frame: Frame, settings: StepSettings, outcome: Outcome) -> Steps[Result | None]:
    """Apply governance to an outcome before it is recorded (DECISIONS 79); a Result is a refusal."""
    yield frame.emit(decision_of(frame, settings))
    refusal = denial(step, settings)
    override = break_glass_override(frame, settings, refusal)
    if override is not None:
        yield frame.emit(override, frame.run.actor)
        return None
    if refusal is not None:
        return refusal
    shown = {"category": outcome.category, "code": outcome.code, "meta": outcome.meta}
    approval = yield from approve(step, frame, settings, shown, request_keys(frame))
    # A dry run asks no approver, and the outcome can be reached.
    return approval if isinstance(approval, Result) and not approval.assumed else None
