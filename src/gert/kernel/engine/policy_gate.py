"""Governance in the run: the decision about a step, its limits, and the emergency override (kernel-v0 §9)."""

import msgspec

from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import Terms
from gert.kernel.engine.requests import Execution, Said
from gert.kernel.engine.results import Result, failed
from gert.kernel.events.runbook import BreakGlass, Failure, GovernanceDecision, Recent
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import Step


def permit(step: Step, frame: Frame, terms: Terms) -> tuple[Said, Result | None]:
    """What governance decides, to be said; a result is a refusal."""
    # Counted also where no limit is watched: another step may run the same target under one.
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
    """The refusal of what a rule denies."""
    return _denied(f"{step.label} is denied by {terms.rule}") if terms.decision.verdict is Verdict.DENY else None


def permit_again(step: Step, frame: Frame, terms: Terms) -> tuple[Said | None, Result | None]:
    """Count one more attempt of a step; where a limit is reached, what is said about it and the refusal."""
    frame.strand.run.count(step, terms.target, frame.state)
    breach = None if terms.is_free else _breach(terms, step, frame)
    if breach is None:
        return None, None
    denied = msgspec.structs.replace(decision_of(frame, terms), decision="deny", reasons=(breach,))
    return frame.say(denied), _denied(breach)


def execution_of(frame: Frame, terms: Terms) -> Execution:
    """What a call counts as; a limit that an emergency override lifts does not apply."""
    is_lifted = frame.run.setup.break_glass is not None and terms.decision.break_glass
    return Execution(terms.target, None if is_lifted else terms.decision.limits.max_per_hour)


def broken_glass(frame: Frame, terms: Terms, refusal: Result | None) -> BreakGlass | None:
    """The emergency override of a denial or an approval, to be said; none where nobody asks for it or rules bar it."""
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
    """The decision, as it is said."""
    return GovernanceDecision(
        step_id=frame.step_id,
        risk_level=terms.risk,  # type: ignore[arg-type]
        decision=terms.verdict,  # type: ignore[arg-type]
        rule=terms.rule,
        min_approvers=terms.min_approvers,
    )


def _breach(terms: Terms, step: Step, frame: Frame) -> str | None:
    """Why a circuit breaker is open."""
    limits = terms.decision.limits
    if limits.max_targets is not None:
        # Items of loops are known beforehand; what `repeat` and `next` add shows as it comes.
        targets = max(frame.strand.targets, frame.state.executions[id(step)])
        if targets > limits.max_targets:
            return f"expected at most {limits.max_targets} targets, found {targets}"
    if limits.max_per_hour is not None:
        executed = frame.run.executed(terms.target, frame.state)
        return _too_often(limits.max_per_hour, terms.target, frame.run.setup.recent, executed)
    return None


def _too_often(most: int, target: str, recent: Recent | None, executed: int) -> str | None:
    """Why a target must not be executed once more; a limit nobody can check is not a limit that holds."""
    if recent is None or recent.flaw is not None:
        why = recent.flaw if recent is not None else "nobody counted earlier runs"
        return f"`max_per_hour` cannot be checked: {why}"
    count = recent.executed.get(target, 0) + executed
    return None if count <= most else _found(Execution(target, most), count)


def exceeded(execution: Execution, counted: int) -> Failure:
    """Why a call is not made: runs that began meanwhile have used up its limit."""
    return Failure("denied", _found(execution, counted + 1))


def _found(execution: Execution, count: int) -> str:
    limit, target = execution.max_per_hour, execution.target
    return f"expected at most {limit} executions of `{target}` in an hour, found {count} with this one"


def _denied(message: str) -> Result:
    return failed("denied", message, reason="governance_denied")
