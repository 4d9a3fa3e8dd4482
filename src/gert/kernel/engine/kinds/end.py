"""End the run with an outcome."""

from gert.kernel.engine.approval_flow import approve
from gert.kernel.engine.frame import Frame, RunBlock, questions
from gert.kernel.engine.plan import Terms
from gert.kernel.engine.policy_gate import broken_glass, decision_of, denial
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import Result
from gert.kernel.events.runbook import Outcome, OutcomeResolved
from gert.kernel.runbook.documents.steps import EndStep


def run_end(step: EndStep, frame: Frame, _: RunBlock) -> Steps[Result]:
    """Record the outcome if the rules on its category allow it; nothing after it runs."""
    block = step.outcome
    outcome = Outcome(block.category, frame.render_text(block.code), frame.render(block.meta))  # type: ignore[arg-type]
    terms = frame.run.ending(step)
    refusal = None if terms is None else (yield from _judge(step, frame, terms, outcome))
    if refusal is not None:
        return refusal
    notify = () if terms is None else tuple(sorted(terms.decision.notify))
    yield frame.say(OutcomeResolved(step_id=frame.step_id, structured_outcome=outcome, notify=notify))
    return Result(outcome=outcome, ended=True)


def _judge(step: EndStep, frame: Frame, terms: Terms, outcome: Outcome) -> Steps[Result | None]:
    """Apply governance to an outcome before it is recorded (DECISIONS 79); a Result is a refusal."""
    yield frame.say(decision_of(frame, terms))
    refusal = denial(step, terms)
    glass = broken_glass(frame, terms, refusal)
    if glass is not None:
        yield frame.say(glass, frame.run.actor)
        return None
    if refusal is not None:
        return refusal
    shown = {"category": outcome.category, "code": outcome.code, "meta": outcome.meta}
    approval = yield from approve(step, frame, terms, shown, questions(frame))
    # A dry run asks no approver, and the outcome can be reached.
    return approval if isinstance(approval, Result) and not approval.assumed else None
