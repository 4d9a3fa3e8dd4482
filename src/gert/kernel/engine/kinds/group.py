"""Run the steps of a group in order."""

from gert.kernel.engine.frame import Frame, RunBlock
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import Result, block_result
from gert.kernel.events.runbook import GroupComplete, GroupStart
from gert.kernel.runbook.documents.steps import GroupStep


def run_group(step: GroupStep, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Run the steps on the enclosing state, which in a loop is the item's own."""
    yield frame.emit(GroupStart(step_id=frame.step_id, step_count=len(step.steps)))
    result = block_result((yield from run_block(step.steps, Frame(frame.lane, frame.path, frame.key))))
    yield frame.emit(GroupComplete(step_id=frame.step_id, status=result.status))
    return result
