"""Reach: which steps of a runbook can be reached, and where control can run off the end of a list."""

from gert.kernel.runbook.documents.steps import BranchStep, EndStep, GroupStep, ParallelStep, RepeatStep, Step
from gert.kernel.runbook.program import Program


class Flow:
    """Which steps of a runbook can be reached, and which of its lists control can run off the end of."""

    def __init__(self, program: Program) -> None:
        self.reached: set[int] = set()
        self._exits: dict[int, list[int]] = {}
        # Innermost lists first: whether a branch lets control through depends on its arms.
        for block in reversed(program.lists):
            self._exits[id(block.steps)] = self._trace(block.steps)

    def exits(self, steps: tuple[Step, ...]) -> list[int]:
        """The indices of the steps after which control runs off the end of a list."""
        return self._exits[id(steps)]

    def falls_through(self, steps: tuple[Step, ...]) -> bool:
        """Whether control can run off the end of a list."""
        return not steps or bool(self._exits[id(steps)])

    def lets_through(self, step: Step) -> bool:
        """Whether control can go on after a step."""
        if is_guarded(step):
            return True
        if isinstance(step, EndStep):
            return False
        if isinstance(step, BranchStep):
            covered = any(arm.is_always_taken for arm in step.branches)
            return not covered or any(self.falls_through(arm.steps) for arm in step.branches)
        if isinstance(step, ParallelStep):
            return all(self.falls_through(lane.steps) for lane in step.branches)
        if isinstance(step, RepeatStep):
            return self.falls_through(step.body)
        if isinstance(step, GroupStep):
            return self.falls_through(step.steps)
        return True

    def _trace(self, steps: tuple[Step, ...]) -> list[int]:
        index_of = {step.id: index for index, step in reversed(list(enumerate(steps))) if step.id is not None}
        exits = []
        pending, seen = [0] if steps else [], {0}
        while pending:
            index = pending.pop()
            step = steps[index]
            self.reached.add(id(step))
            if not self.lets_through(step):
                continue
            following = [index + 1]
            target = index_of.get(step.next.step) if step.next is not None else None
            if target is not None:
                following = [target] if jumps_always(step, index, target) else [target, index + 1]
            for after in following:
                if after >= len(steps):
                    exits.append(index)
                elif after not in seen:
                    seen.add(after)
                    pending.append(after)
        return sorted(exits)


def is_guarded(step: Step) -> bool:
    """Whether a step may turn out not to run: its `when` may be false, or its list of items empty."""
    return step.when is not None or step.for_each is not None


def jumps_always(step: Step, index: int, target: int) -> bool:
    """Whether a step's `next` is taken every time: forwards, unguarded and without a bound."""
    return target > index and not is_guarded(step) and (step.next is None or step.next.max is None)
