"""Run a block of steps several times, or until a condition holds."""

from typing import Final

from gert.kernel.engine.frame import Frame, RunBlock
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import DONE, Result, block_result, failed
from gert.kernel.engine.state import REPEAT, State
from gert.kernel.events.runbook import Failure, RepeatIteration, RepeatStart
from gert.kernel.runbook.documents.steps import RepeatStep
from gert.kernel.template import Template
from gert.kernel.template.unknown import UNKNOWN

MAX_EXPLORED: Final = 100
"""The most iterations to explore while the condition to stop is unknown."""


def run_repeat(step: RepeatStep, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Run each iteration on an overlay that is archived under `.scope.repeat.<id>.<n>`; only exports survive it."""
    until = step.repeat.until
    times = frame.evaluate_count(step.repeat.max)
    # With an unknown count, the first iteration and one more show everything that can happen.
    most = 2 if times is None else times
    source = until.source if until is not None else None
    yield frame.emit(RepeatStart(step_id=frame.step_id, max=most, until=source, explored=times is None))
    frame.state.drop_scope((REPEAT, step.id))
    uncertain = times is None
    for index in range(most):
        # Once it is unknown whether the block continues, what it sets is uncertain.
        kept = frame.state.fork(uncertain=True) if uncertain else frame.state
        state = kept.fork()
        counter = index if times is not None or index == 0 else UNKNOWN
        state.root[REPEAT] = {"index": counter, "round": counter}
        result = yield from run_block(step.body, frame.inside(index, state))
        met = _is_met(until, frame, state) if not result.stops else None
        stop: Failure | None = yield frame.emit(RepeatIteration(step_id=frame.step_id, index=index, until_result=met))
        assert state.changes is not None  # noqa: S101 - a fork always notes its changes
        kept.merge_iteration(state.changes)
        kept.set_scoped((REPEAT, step.id, str(index)), state.changes.archive())
        if stop is not None and not result.stops:
            return failed(stop.kind, stop.message)
        if uncertain and not result.is_cancelled:
            frame.run.add_uncertain_end(result)
            frame.state.merge_uncertain([kept, None])
        elif result.stops:
            return block_result(result)
        if result.stops or met or (uncertain and index >= MAX_EXPLORED):
            break
        uncertain = uncertain or (met is None and until is not None)
    return DONE


def _is_met(until: Template | None, frame: Frame, state: State) -> bool | None:
    """Return whether the condition to stop is met; None if there is none or it is unknown."""
    return frame.with_state(state).holds(until) if until is not None else None
