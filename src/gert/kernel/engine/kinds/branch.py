"""Take the first arm whose condition holds."""

from gert.kernel.engine.frame import Frame, RunBlock
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import DONE, Result, block_result
from gert.kernel.engine.state import State
from gert.kernel.events.runbook import BranchEnter, BranchExit
from gert.kernel.runbook.documents.steps import Arm, BranchStep


def run_branch(step: BranchStep, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Run one arm; if its condition is unknown, explore every arm that may be taken."""
    for index, arm in enumerate(step.branches):
        holds = True if arm.is_default else frame.holds(arm.condition)
        if holds is None:
            return (yield from _explore(step, frame, index, run_block))
        if holds:
            name = step.names[index]
            return block_result((yield from _run_arm(arm, name, frame, frame.inside(name), run_block)))
    return DONE


def _run_arm(
    arm: Arm, label: str, frame: Frame, inside: Frame, run_block: RunBlock, *, explored: bool = False
) -> Steps[Result]:
    yield frame.emit(
        BranchEnter(
            step_id=frame.step_id,
            branch_label=label,
            condition=arm.condition.source,
            explored=explored,
        )
    )
    result = yield from run_block(arm.steps, inside)
    yield frame.emit(BranchExit(step_id=frame.step_id, branch_label=label, status=block_result(result).status))
    return result


def _explore(step: BranchStep, frame: Frame, first: int, run_block: RunBlock) -> Steps[Result]:
    """Run every arm from the first unknown one, up to one that is certain if no earlier arm is taken."""
    ways: list[State | None] = []
    ended = False
    result = DONE
    for index in range(first, len(step.branches)):
        arm = step.branches[index]
        holds = True if arm.is_default else frame.holds(arm.condition)
        if holds is False:
            continue
        state = frame.state.fork(uncertain=True)
        name = step.names[index]
        result = yield from _run_arm(arm, name, frame, frame.inside(name, state), run_block, explored=True)
        if result.is_cancelled:
            return block_result(result)
        ended = ended or result.ended
        frame.run.add_uncertain_end(result)
        if not result.stops:
            ways.append(state)
        if holds:
            break
    else:
        ways.append(None)
    if not ways:
        return Result(ended=True) if ended else block_result(result)
    frame.state.merge_uncertain(ways)
    return DONE
