"""Lanes and their turns: which may run, in what order, and never more than so many at once.

A lane that waits for lanes of its own holds no place, so blocks inside blocks cannot starve each other.
"""

from collections import deque
from typing import Any

from gert.kernel.engine.requests import RunLanes, Steps


class Lane:
    """One generator that advances by itself.

    has_passed: it has passed the step up to which recorded answers are given
    """

    __slots__ = ("block", "done", "has_passed", "index", "result", "steps")

    def __init__(self, steps: Steps[Any], block: "Block | None" = None, index: int = 0) -> None:
        self.steps = steps
        self.block = block
        self.index = index
        self.done = False
        self.result: Any = None
        self.has_passed = False

    @property
    def order(self) -> tuple[int, ...]:
        """Where it stands among all lanes, in the order they are written."""
        return (*self.block.parent.order, self.index) if self.block is not None else ()

    @property
    def is_past(self) -> bool:
        """Whether it, or a lane that it belongs to, has passed the step."""
        return self.has_passed or (self.block is not None and self.block.parent.is_past)


class Block:
    """Lanes that were forked together, and their results."""

    __slots__ = ("_waits_for", "followers", "left", "parent", "results", "startable", "steps")

    def __init__(self, parent: Lane, asked: RunLanes) -> None:
        self.parent = parent
        self.steps = asked.lanes
        self.results: list[Any] = [None] * len(asked.lanes)
        self.left = len(asked.lanes)
        self._waits_for = [set(each) for each in asked.after]
        self.followers: list[list[int]] = [[] for _ in asked.lanes]
        for index, earlier in enumerate(asked.after):
            for each in earlier:
                self.followers[each].append(index)
        self.startable = deque(index for index, earlier in enumerate(asked.after) if not earlier)

    def done(self, index: int) -> None:
        """A lane is done; those that waited for it alone may begin, in order."""
        self.left -= 1
        freed = []
        for follower in self.followers[index]:
            self._waits_for[follower].discard(index)
            if not self._waits_for[follower]:
                freed.append(follower)
        if freed:
            self.startable = deque(sorted([*self.startable, *freed]))

    def drop_waiting(self) -> int:
        """Forget the lanes that have not begun; says how many there were."""
        waiting = {index for index, earlier in enumerate(self._waits_for) if earlier} | set(self.startable)
        for index in waiting:
            self.steps[index].close()
            self._waits_for[index] = set()
        self.startable.clear()
        # A lane that ends now frees no other: those that waited are gone.
        self.followers = [[] for _ in self.steps]
        self.left -= len(waiting)
        return len(waiting)


class Lanes:
    """All lanes of a run; `ready` are those that can advance, each with the value that is sent to it."""

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._running = 0
        self._blocks: list[Block] = []
        self.ready: deque[tuple[Lane, Any]] = deque()

    def root(self, steps: Steps[Any]) -> Lane:
        """The lane everything begins with."""
        lane = Lane(steps)
        self._running += 1
        self.ready.append((lane, None))
        return lane

    def fork(self, parent: Lane, asked: RunLanes) -> None:
        """A lane waits for lanes of its own."""
        self._running -= 1
        block = Block(parent, asked)
        self._blocks.append(block)
        if not block.left:
            self._resume(block)
        else:
            # In front, so that where answers come at once everything happens in the order it is written.
            self.ready.extendleft(reversed(self._begin()))

    def finish(self, lane: Lane, result: Any) -> None:
        """A lane has ended; its place goes to the next."""
        lane.done, lane.result = True, result
        self._running -= 1
        block = lane.block
        if block is None:
            return
        block.results[lane.index] = result
        block.done(lane.index)
        if not block.left:
            self._resume(block)
        self.ready.extend(self._begin())

    def drop_waiting(self) -> None:
        """Let no lane begin any more."""
        for block in list(self._blocks):
            if block.drop_waiting() and not block.left:
                self._resume(block)

    def _resume(self, block: Block) -> None:
        self._blocks.remove(block)
        self._running += 1
        self.ready.appendleft((block.parent, tuple(block.results)))

    def _begin(self) -> list[tuple[Lane, Any]]:
        """Begin lanes while there are places, those of the innermost blocks first."""
        begun: list[tuple[Lane, Any]] = []
        for block in reversed(self._blocks):
            while block.startable and self._running < self._most:
                index = block.startable.popleft()
                self._running += 1
                begun.append((Lane(block.steps[index], block, index), None))
        return begun
