"""Governance in the run: the decision about a step, its limits, and the emergency override (kernel-v0 §9)."""

import msgspec

from gert.kernel.engine.asks import Said
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import Terms
from gert.kernel.engine.results import Result, failed
from gert.kernel.events.runbook import BreakGlass, GovernanceDecision
from gert.kernel.governance.rules import Limits
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import Step


def permit(step: Step, frame: Frame, terms: Terms) -> tuple[Said, Result | None]:
    """What governance decides, to be said; a result is a refusal."""
    if terms.is_free:
        return frame.say(decision_of(frame, terms)), None
    breach = _breach(terms.decision.limits, step, frame)
    if breach is not None:
        denied = msgspec.structs.replace(decision_of(frame, terms), decision="deny", reasons=(breach,))
        return frame.say(denied), _denied(breach)
    said = frame.say(decision_of(frame, terms))
    if terms.decision.verdict is Verdict.DENY:
        return said, _denied(f"{step.label} is denied by {terms.rule}")
    return said, None


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


def _breach(limits: Limits, step: Step, frame: Frame) -> str | None:
    """Why a circuit breaker is open."""
    if limits.max_targets is not None:
        # Items of loops are known beforehand; what `repeat` and `next` add shows as it comes.
        targets = max(frame.strand.targets, frame.run.executions(step))
        if targets > limits.max_targets:
            return f"expected at most {limits.max_targets} targets, found {targets}"
    if limits.max_per_hour is not None:
        # Only a ledger of earlier runs could tell; a limit nobody can check is not a limit that holds.
        return "`max_per_hour` cannot be checked without a ledger of earlier runs"
    return None


def _denied(message: str) -> Result:
    return failed("denied", message, reason="governance_denied")
