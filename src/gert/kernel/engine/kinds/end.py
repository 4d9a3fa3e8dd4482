"""End the run with an outcome."""

from gert.kernel.engine.asks import Steps
from gert.kernel.engine.frame import Frame, RunBlock
from gert.kernel.engine.results import Result
from gert.kernel.events.runbook import Outcome, OutcomeResolved
from gert.kernel.runbook.documents.steps import EndStep


def run_end(step: EndStep, frame: Frame, _: RunBlock) -> Steps[Result]:
    """Resolve the outcome; nothing after it runs."""
    block = step.outcome
    outcome = Outcome(block.category, frame.render_text(block.code), frame.render(block.meta))  # type: ignore[arg-type]
    yield frame.say(OutcomeResolved(step_id=frame.step_id, structured_outcome=outcome))
    return Result(outcome=outcome, ended=True)
