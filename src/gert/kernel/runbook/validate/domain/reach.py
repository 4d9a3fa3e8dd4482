"""Which steps of a runbook can be reached, and which lists control can leave at their end."""

from gert.kernel.runbook.documents.steps import BranchStep, EndStep, GroupStep, ParallelStep, RepeatStep, Step
from gert.kernel.runbook.program import Program


class Flow:
    """The reachable steps of a runbook, and the lists that control can leave at their end."""

    def __init__(self, program: Program) -> None:
        self.reached: set[int] = set()
        self._exits: dict[int, list[int]] = {}
        # Innermost lists first: whether control continues after a branch depends on its arms.
        for block in reversed(program.lists):
            self._exits[id(block.steps)] = self._trace(block.steps)

    def exits(self, steps: tuple[Step, ...]) -> list[int]:
        """Return the indices of the steps after which control leaves a list at its end."""
        return self._exits[id(steps)]

    def falls_through(self, steps: tuple[Step, ...]) -> bool:
        """Return whether control can leave a list at its end."""
        return not steps or bool(self._exits[id(steps)])

    def lets_through(self, step: Step) -> bool:
        """Return whether control can continue after a step."""
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
                following = [target] if always_jumps(step, index, target) else [target, index + 1]
            for after in following:
                if after >= len(steps):
                    exits.append(index)
                elif after not in seen:
                    seen.add(after)
                    pending.append(after)
        return sorted(exits)


def is_guarded(step: Step) -> bool:
    """Return whether a step may be skipped: its `when` may be false, or its list of items empty."""
    return step.when is not None or step.for_each is not None


def always_jumps(step: Step, index: int, target: int) -> bool:
    """Return whether a step's `next` is always taken: forward, without a guard and without `max`."""
    return target > index and not is_guarded(step) and (step.next is None or step.next.max is None)
