"""Applies governance to a step: the decision, its limits, and the emergency override (kernel-v0 §9)."""

import msgspec

from gert.kernel.engine.frame import Frame, Recent
from gert.kernel.engine.plan import Terms
from gert.kernel.engine.requests import Said
from gert.kernel.engine.results import Result, failed
from gert.kernel.events.runbook import BreakGlass, GovernanceDecision
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import Step


def permit(step: Step, frame: Frame, terms: Terms) -> tuple[Said, Result | None]:
    """Return the event of the governance decision, and the refusal if there is one."""
    # Counted even without a limit: another step may run the same target under one.
    frame.strand.run.count(step, terms.target, frame.state)
    if terms.is_free:
        return frame.say(decision_of(frame, terms)), None
    breach = _breach(terms, step, frame)
    if breach is not None:
        denied = msgspec.structs.replace(decision_of(frame, terms), decision="deny", reasons=(breach,))
        return frame.say(denied), _denied(breach)
    said = frame.say(decision_of(frame, terms))
    return said, denial(step, terms)


def denial(step: Step, terms: Terms) -> Result | None:
    """Return the refusal if a rule denies the step."""
    return _denied(f"{step.label} is denied by {terms.rule}") if terms.decision.verdict is Verdict.DENY else None


def permit_again(step: Step, frame: Frame, terms: Terms) -> tuple[Said | None, Result | None]:
    """Count one more attempt; if a limit is reached, return its event and the refusal."""
    frame.strand.run.count(step, terms.target, frame.state)
    breach = None if terms.is_free else _breach(terms, step, frame)
    if breach is None:
        return None, None
    denied = msgspec.structs.replace(decision_of(frame, terms), decision="deny", reasons=(breach,))
    return frame.say(denied), _denied(breach)


def broken_glass(frame: Frame, terms: Terms, refusal: Result | None) -> BreakGlass | None:
    """Return the emergency override of a denial or an approval; None if none was requested or the rules forbid it."""
    run, decision = frame.run, terms.decision
    is_free = refusal is None and decision.verdict is not Verdict.REQUIRE_APPROVAL
    if run.setup.break_glass is None or is_free or not decision.break_glass:
        return None
    run.glass_broken += 1
    return BreakGlass(
        step_id=frame.step_id,
        actor=run.setup.actor,
        reason=run.setup.break_glass,
        overridden="deny" if refusal is not None else "require-approval",
        risk_level=terms.risk,  # type: ignore[arg-type]
        rule=terms.rule,
    )


def decision_of(frame: Frame, terms: Terms) -> GovernanceDecision:
    """Return the decision as an event."""
    return GovernanceDecision(
        step_id=frame.step_id,
        risk_level=terms.risk,  # type: ignore[arg-type]
        decision=terms.verdict,  # type: ignore[arg-type]
        rule=terms.rule,
        min_approvers=terms.min_approvers,
    )


def _breach(terms: Terms, step: Step, frame: Frame) -> str | None:
    """Return which limit is exceeded, or None."""
    limits = terms.decision.limits
    if limits.max_targets is not None:
        # The items of loops are known beforehand; `repeat` and `next` add executions as they run.
        targets = max(frame.strand.targets, frame.state.executions[id(step)])
        if targets > limits.max_targets:
            return f"expected at most {limits.max_targets} targets, found {targets}"
    if limits.max_per_hour is not None:
        executed = frame.run.executed(terms.target, frame.state)
        return _too_often(limits.max_per_hour, terms.target, frame.run.setup.recent, executed)
    return None


def _too_often(most: int, target: str, recent: Recent | None, executed: int) -> str | None:
    """Return why a target must not execute again; a limit that cannot be checked counts as exceeded."""
    if recent is None or recent.flaw is not None:
        why = recent.flaw if recent is not None else "earlier runs were not counted"
        return f"`max_per_hour` cannot be checked: {why}"
    count = recent.executed.get(target, 0) + executed
    if count <= most:
        return None
    return f"expected at most {most} executions of `{target}` in an hour, found {count} with this one"


def _denied(message: str) -> Result:
    return failed("denied", message, reason="governance_denied")
