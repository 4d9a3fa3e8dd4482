"""The steps that run now, as a tree, with the lanes and arms around them and their output."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from gert.ecosystem.surfaces.cli.live.output_lines import Tail
from gert.ecosystem.surfaces.cli.render.events.steps import does_text
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import LONGEST_NAME, clip
from gert.ecosystem.surfaces.cli.render.views.event_position import DEEPEST, last_segment, shown
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import ancestors
from gert.kernel.events.payload import Payload

TAIL: Final = 5


class Node:
    """A running step; a node without a start time is only a lane or an arm around steps."""

    def __init__(self, path: str, parent: "Node | None") -> None:
        self.path = path
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[str, Node] = {}
        self.name = shown(last_segment(path))
        self.does = ""
        self.note = ""
        self.began: float | None = None
        self.waits = False
        self.done = 0
        self.total: int | None = None
        self.tail: Tail | None = None

    @property
    def progress(self) -> str:
        """The progress: the item of a loop, otherwise the note."""
        return self.note if self.total is None else f"{self.done:,} of {self.total:,}"


class RunningSteps:
    """Follows the events; keeps only steps that run, and counts the others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._root = Node("", None)
        self._root.depth = -1
        self._nodes: dict[str, Node] = {}
        self.runbook = ""
        self.began: float | None = None
        self.ended = 0
        self.failed = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def said(self, event: Envelope, payload: Payload) -> None:
        """Follow an event; the cost does not depend on how many came before."""
        if event.path is not None:
            follow = _FOLLOW.get(type(payload))
            if follow is not None:
                follow(self, event.path, payload)
        elif isinstance(payload, says.RunStart):
            self.runbook, self.began = clip(payload.runbook, LONGEST_NAME), self._clock()
        elif isinstance(payload, says.RunResumed):
            # Another process emitted `run_start`.
            self.runbook, self.began = self.runbook or clip(event.run_id, LONGEST_NAME), self._clock()

    def printed(self, path: str, stream: str, text: str) -> None:
        """Keep the last lines of a running step."""
        node = self._nodes.get(path)
        if node is not None:
            node.tail = node.tail or Tail(TAIL)
            node.tail.feed(stream, text)

    def walk(self) -> Iterator[Node]:
        """Iterate over running steps, outer before inner, in the order they started."""
        waiting = [iter(self._root.children.values())]
        while waiting:
            node = next(waiting[-1], None)
            if node is None:
                waiting.pop()
            else:
                yield node
                waiting.append(iter(node.children.values()))

    # --- events

    def _step_start(self, path: str, step: says.StepStart) -> None:
        self._begin(path).does = does_text(step)

    def _step_complete(self, path: str, step: says.StepComplete) -> None:
        self.ended += 1
        self.failed += step.status in ("failed", "error")
        node = self._nodes.get(path)
        if node is not None:
            self._remove(node)
        loop = self._nodes.get(path[: path.rfind("[")]) if path.endswith("]") else None
        if loop is not None:
            loop.done += 1

    def _approval_submitted(self, path: str, ticket: says.ApprovalSubmitted) -> None:
        node = self._begin(path)
        node.waits = True
        node.note = (
            f"waiting for {'approval' if ticket.min_approvers < 2 else plural(ticket.min_approvers, 'approval')}"
        )

    def _approval_closed(self, path: str, ticket: says.ApprovalResolved | says.ApprovalOutdated) -> None:
        node = self._nodes.get(path)
        if node is not None and node.waits:
            self._remove(node)

    def _step_retry(self, path: str, step: says.StepRetry) -> None:
        self._note(path, f"attempt {step.attempt} of {step.max}")

    def _parallel_fork(self, path: str, fork: says.ParallelFork) -> None:
        self._note(path, plural(fork.branch_count, "lane"))

    def _for_each_start(self, path: str, loop: says.ForEachStart) -> None:
        node = self._nodes.get(path)
        if node is not None:
            node.total = None if loop.explored else loop.item_count

    def _repeat_start(self, path: str, loop: says.RepeatStart) -> None:
        node = self._nodes.get(path)
        if node is not None:
            node.total = None if loop.explored else loop.max

    def _repeat_iteration(self, path: str, loop: says.RepeatIteration) -> None:
        node = self._nodes.get(path) or next(filter(None, map(self._nodes.get, ancestors(path))), None)
        if node is not None and node.total is not None:
            node.done += 1

    # --- the tree

    def _begin(self, path: str) -> Node:
        node = self._nodes.get(path) or self._add(path)
        node.began, node.waits, node.note = self._clock(), False, ""
        return node

    def _add(self, path: str) -> Node:
        around = self._root
        for outer in reversed(list(ancestors(path))):
            found = self._nodes.get(outer)
            around = self._attach(outer, around) if found is None else found
        return self._attach(path, around)

    def _attach(self, path: str, parent: Node) -> Node:
        node = self._nodes[path] = parent.children[path] = Node(path, parent)
        node.depth = min(node.depth, DEEPEST)
        return node

    def _remove(self, node: Node) -> None:
        for below in list(_below(node)):
            self._nodes.pop(below.path, None)
        while node.parent is not None:
            self._nodes.pop(node.path, None)
            node.parent.children.pop(node.path, None)
            node = node.parent
            if node.began is not None or node.children:
                return

    def _note(self, path: str, note: str) -> None:
        node = self._nodes.get(path)
        if node is not None:
            node.note = note


def _below(node: Node) -> Iterator[Node]:
    """The nodes below a step that ended: a cancelled lane emits no further events."""
    waiting = list(node.children.values())
    while waiting:
        each = waiting.pop()
        yield each
        waiting += each.children.values()


_FOLLOW: Final[dict[type[Payload], Callable[[RunningSteps, str, Any], None]]] = {
    says.StepStart: RunningSteps._step_start,
    says.StepComplete: RunningSteps._step_complete,
    says.StepRetry: RunningSteps._step_retry,
    says.ApprovalSubmitted: RunningSteps._approval_submitted,
    says.ApprovalResolved: RunningSteps._approval_closed,
    says.ApprovalOutdated: RunningSteps._approval_closed,
    says.ParallelFork: RunningSteps._parallel_fork,
    says.ForEachStart: RunningSteps._for_each_start,
    says.RepeatStart: RunningSteps._repeat_start,
    says.RepeatIteration: RunningSteps._repeat_iteration,
}
