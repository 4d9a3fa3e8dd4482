"""Run a block of steps several times, or until a condition holds."""

from gert.kernel.engine.asks import Steps
from gert.kernel.engine.frame import Frame, RunBlock
from gert.kernel.engine.results import DONE, Result, block_result
from gert.kernel.engine.state import REPEAT
from gert.kernel.engine.unknown import reads_unknown
from gert.kernel.events.runbook import RepeatIteration, RepeatStart
from gert.kernel.runbook.documents.steps import RepeatStep
from gert.kernel.template import condition


def run_repeat(step: RepeatStep, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Each iteration is an overlay, archived under `.scope.repeat.<id>.<n>`; only exports survive it."""
    until = step.repeat.until
    times = frame.count(step.repeat.max)
    # Nobody knows how often: one iteration shows what can happen.
    most = 1 if times is None else times
    yield frame.say(RepeatStart(step_id=frame.step_id, max=most, until=until.source if until is not None else None))
    frame.state.drop_scope((REPEAT, step.id))
    for index in range(most):
        state = frame.state.fork()
        state.root[REPEAT] = {"index": index, "round": index}
        result = yield from run_block(step.body, frame.inside(index, state))
        met: bool | None = None
        unknown = False
        if not result.stops and until is not None:
            unknown = frame.run.assumption is not None and reads_unknown(until, state.root)
            met = None if unknown else condition(until, state.root)
        yield frame.say(RepeatIteration(step_id=frame.step_id, index=index, until_result=met))
        assert state.changes is not None  # noqa: S101 - a fork always notes its changes
        frame.state.keep(state.changes)
        frame.state.set_scoped((REPEAT, step.id, str(index)), state.changes.archive())
        if result.stops:
            return block_result(result)
        if met or unknown:
            break
    return DONE
