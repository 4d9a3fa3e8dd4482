"""Applies governance to a step: the decision, its limits, and the emergency override (kernel-v0 §9)."""

import msgspec

from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import StepSettings
from gert.kernel.engine.requests import Emit, Execution
from gert.kernel.engine.results import Result, failed
from gert.kernel.events.runbook import BreakGlass, Failure, GovernanceDecision, Recent
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import Step


def permit(step: Step, frame: Frame, settings: StepSettings) -> tuple[Emit, Result | None]:
    """Return the event of the governance decision, and the refusal if there is one."""
    # Counted even without a limit: another step may run the same target under one.
    frame.lane.run.count_execution(step, settings.target, frame.state)
    if settings.is_free:
        return frame.emit(decision_of(frame, settings)), None
    breach = _exceeded_limit(settings, step, frame)
    if breach is not None:
        denied = msgspec.structs.replace(decision_of(frame, settings), decision="deny", reasons=(breach,))
        return frame.emit(denied), _denied_result(breach)
    event = frame.emit(decision_of(frame, settings))
    return event, denial(step, settings)


def denial(step: Step, settings: StepSettings) -> Result | None:
    """Return the refusal if a rule denies the step."""
    return (
        _denied_result(f"{step.label} is denied by {settings.rule}")
        if settings.decision.verdict is Verdict.DENY
        else None
    )


def permit_retry(step: Step, frame: Frame, settings: StepSettings) -> tuple[Emit | None, Result | None]:
    """Count one more attempt; if a limit is reached, return its event and the refusal."""
    frame.lane.run.count_execution(step, settings.target, frame.state)
    breach = None if settings.is_free else _exceeded_limit(settings, step, frame)
    if breach is None:
        return None, None
    denied = msgspec.structs.replace(decision_of(frame, settings), decision="deny", reasons=(breach,))
    return frame.emit(denied), _denied_result(breach)


def execution_of(frame: Frame, settings: StepSettings) -> Execution:
    """Return what a call counts as; a limit that an emergency override lifts does not apply."""
    is_lifted = frame.run.setup.break_glass is not None and settings.decision.break_glass
    return Execution(settings.target, None if is_lifted else settings.decision.limits.max_per_hour)


def break_glass_override(frame: Frame, settings: StepSettings, refusal: Result | None) -> BreakGlass | None:
    """Return the emergency override of a denial or an approval; None if none was requested or the rules forbid it."""
    run, decision = frame.run, settings.decision
    is_free = refusal is None and decision.verdict is not Verdict.REQUIRE_APPROVAL
    if run.setup.break_glass is None or is_free or not decision.break_glass:
        return None
    run.break_glass_count += 1
    return BreakGlass(
        step_id=frame.step_id,
        actor=run.setup.actor,
        reason=run.setup.break_glass,
        overridden="deny" if refusal is not None else "require-approval",
        risk_level=settings.risk,  # type: ignore[arg-type]
        rule=settings.rule,
    )


def decision_of(frame: Frame, settings: StepSettings) -> GovernanceDecision:
    """Return the decision as an event."""
    return GovernanceDecision(
        step_id=frame.step_id,
        risk_level=settings.risk,  # type: ignore[arg-type]
        decision=settings.verdict,  # type: ignore[arg-type]
        rule=settings.rule,
        min_approvers=settings.min_approvers,
    )


def _exceeded_limit(settings: StepSettings, step: Step, frame: Frame) -> str | None:
    """Return which limit is exceeded, or None."""
    limits = settings.decision.limits
    # The items of loops are known beforehand; `repeat` and `next` add executions as they run.
    if breach := limits.too_many_targets(frame.lane.targets, frame.state.executions[id(step)]):
        return breach
    if limits.max_per_hour is not None:
        executed = frame.run.executions_of(settings.target, frame.state)
        return _hourly_excess(limits.max_per_hour, settings.target, frame.run.setup.recent, executed)
    return None


def _hourly_excess(most: int, target: str, recent: Recent | None, executed: int) -> str | None:
    """Return why a target must not execute again; a limit that cannot be checked counts as exceeded."""
    if recent is None or recent.flaw is not None:
        why = recent.flaw if recent is not None else "earlier runs were not counted"
        return f"`max_per_hour` cannot be checked: {why}"
    count = recent.executed.get(target, 0) + executed
    return None if count <= most else _count_text(Execution(target, most), count)


def exceeded(execution: Execution, counted: int) -> Failure:
    """Why a call is not made: runs that began meanwhile have used up its limit."""
    return Failure("denied", _count_text(execution, counted + 1))


def _count_text(execution: Execution, count: int) -> str:
    limit, target = execution.max_per_hour, execution.target
    return f"expected at most {limit} executions of `{target}` in an hour, found {count} with this one"


def _denied_result(message: str) -> Result:
    return failed("denied", message, reason="governance_denied")
