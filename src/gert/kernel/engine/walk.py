"""Runs a list of steps in order, and follows their jumps (kernel-v0 §6.3)."""

from gert.errors import GertError
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import DONE, Result, failed
from gert.kernel.engine.step import run_step
from gert.kernel.engine.step_inputs import error_line
from gert.kernel.events.runbook import Failure, NextTaken
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.program import walk
from gert.kernel.template.unknown import UNKNOWN


def run_list(steps: tuple[Step, ...], frame: Frame, *, to_the_end: bool = False) -> Steps[Result]:
    """Run steps in order, and follow jumps; `to_the_end` also runs the rest after a failure."""
    jumps = _Jumps(steps, frame)
    first: Result | None = None
    at = 0
    while at < len(steps):
        step = steps[at]
        inside = frame.at_step(step.id or f"{step.type}#{at + 1}", jumps.visit(at) if jumps.index else 1)
        result = yield from run_step(step, inside, run_list)
        if step.next is not None and not result.stops and result.reason != "when_false":
            to: int | None = None
            try:
                if result.uncertain or jumps.has_unknown_bound(at, inside):
                    to = jumps.take_uncertain(at)
                else:
                    jump = jumps.take(at, inside)
                    stop: Failure | None = (yield inside.emit(jump)) if jump is not None else None
                    if stop is not None:
                        result = failed(stop.kind, stop.message, failed_step=inside.path)
                    elif jump is not None:
                        to = jumps.index[jump.target]
            except GertError as error:
                result = failed("evaluation", f"`next` of {step.label}: {error_line(error)}", failed_step=inside.path)
            if to is not None:
                at = to
                continue
        if result.stops and to_the_end and not result.ended and not result.is_cancelled:
            first = first or result
        elif result.stops:
            later = jumps.uncertain_target(at) if not result.is_cancelled else None
            if later is None:
                return result
            # A jump that may have been taken skips the step that ends here.
            frame.run.add_uncertain_end(result)
            at = later
            continue
        at += 1
    jumps.arrive(at)
    return first or DONE


class _Jumps:
    """The jumps of one list: how often each was taken, and how often each step was visited."""

    __slots__ = ("_again", "_program", "_reached", "_state", "_steps", "_taken", "_uncertain", "_visits", "index")

    def __init__(self, steps: tuple[Step, ...], frame: Frame) -> None:
        self._steps = steps
        self._taken: dict[int, int] = {}
        self._visits: dict[int, int] = {}
        self._reached: dict[str, int] = {}
        # Source, target, and the execution counts before the jump.
        self._uncertain: list[tuple[int, int, dict[int, int]]] = []
        self._again: set[int] = set()
        self._program = frame.run.program
        self._state = frame.state
        self.index: dict[str, int] = {}
        if any(step.next is not None for step in steps):
            self.index = {step.id: index for index, step in enumerate(steps) if step.id is not None}
            for step in steps:
                for name in (step.id, step.next.step) if step.next is not None else ():
                    if name is not None:
                        frame.state.set_jump_count(name, 0)

    def visit(self, at: int) -> int:
        """Count a visit of a step, and return the count."""
        self.arrive(at)
        self._visits[at] = self._visits.get(at, 0) + 1
        return self._visits[at]

    def has_unknown_bound(self, at: int, frame: Frame) -> bool:
        """Whether the `max` of a jump is unknown, and so whether it is taken now."""
        block = self._steps[at].next
        return block is not None and block.max is not None and frame.evaluate_count(block.max) is None

    def take_uncertain(self, at: int) -> int | None:
        """Explore a jump that may or may not be taken.

        Forward, the skipped steps are explored first. Backward, the last outputs of the steps between are unknown;
        with those unknown, the steps run once more, which shows everything that further repetitions could.
        """
        block = self._steps[at].next
        assert block is not None  # noqa: S101 - only called for steps with `next`
        target = self.index[block.step]
        for name in (self._steps[at].id, block.step):
            if name is not None:
                self._state.set_jump_count(name, UNKNOWN)
        if target > at:
            self._uncertain.append((at, target, dict(self._state.executions)))
            return None
        self._invalidate(target, at + 1)
        if at in self._again:
            return None
        self._again.add(at)
        # The second pass may not happen at all.
        self._uncertain.append((target - 1, at + 1, dict(self._state.executions)))
        return target

    def uncertain_target(self, at: int) -> int | None:
        """Return the next target of an uncertain jump over this position."""
        return min((target for _, target, _ in self._uncertain if target > at), default=None)

    def arrive(self, at: int) -> None:
        """Mark the steps that an uncertain jump to this position skips as unknown."""
        for source, target, executions in self._uncertain:
            if target == at:
                self._invalidate(source + 1, target)
                self._uncount(source + 1, target, executions)

    def _uncount(self, first: int, last: int, executions: dict[int, int]) -> None:
        for step in map(id, walk(self._steps[first:last])):
            if step in self._state.executions:
                self._state.executions[step] = executions.get(step, 0)

    def _invalidate(self, first: int, last: int) -> None:
        for step in walk(self._steps[first:last]):
            self._state.invalidate(step.id, self._program.outputs_of(step))

    def take(self, at: int, frame: Frame) -> NextTaken | None:
        """Take the jump of a step, unless its `max` is reached."""
        step = self._steps[at]
        block = step.next
        assert block is not None  # noqa: S101 - only called for steps with `next`
        most = frame.evaluate_count(block.max) if block.max is not None else None
        count = self._taken.get(at, 0) + 1
        backward = self.index[block.step] <= at
        if most is not None and count > most:
            return None
        # Validation requires `max`; without it the run might never end.
        if backward and most is None:
            return None
        self._taken[at] = count
        if step.id is not None:
            frame.state.set_jump_count(step.id, count)
        # A target counts every jump to it, from any step.
        self._reached[block.step] = self._reached.get(block.step, 0) + 1
        for name in self._reached.keys() & {step.id, block.step}:
            frame.state.set_jump_count(name, self._reached[name])
        return NextTaken(step_id=frame.step_id, target=block.step, count=count, backward=backward, max=most)
