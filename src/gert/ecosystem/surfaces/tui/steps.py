"""The steps of a run as a tree: those the runbook has, and what the events say of each. Without a screen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope, parse_timestamp
from gert.kernel.events.path import ancestors, child, split
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.text import one_line, path_text
from gert.kernel.runbook.documents.steps import BranchStep, GroupStep, ParallelStep, RepeatStep, Step
from gert.kernel.runbook.program import Program
from gert.kernel.template.placeholders import with_placeholders

LONGEST: Final = 60
MARKS: Final = {
    "pending": "○",
    "running": "→",
    "waiting": "⚠",
    "success": "✓",
    "failed": "✗",
    "error": "✗",
    "skipped": "-",
    "part": " ",
}
WORDS: Final = {"part": "", "success": "done"}


@dataclass(slots=True, eq=False)
class Node:
    """A step, an arm, a lane or an iteration.

    status: `part` for arms and lanes, which have none of their own
    waits: what the step waits for, in words
    """

    path: str
    parent: "Node | None"
    status: str = "part"
    children: dict[str, "Node"] = field(default_factory=dict)
    name: str = ""
    kind: str = ""
    title: str = ""
    risk: str = ""
    duration: str = ""
    waits: str = ""
    total: int | None = None
    began: datetime | None = None
    start: says.StepStart | None = None
    complete: says.StepComplete | None = None
    decision: says.GovernanceDecision | None = None
    visibility: says.VisibilityApplied | None = None

    def __post_init__(self) -> None:
        self.name = _name(self.path)

    @property
    def mark(self) -> str:
        """The icon of its status."""
        return MARKS[self.status]

    @property
    def has_ended(self) -> bool:
        """Whether it has a result."""
        return self.status in ("success", "failed", "error", "skipped")

    @property
    def has_failed(self) -> bool:
        """Whether it has ended badly."""
        return self.status in ("failed", "error")


class StepTree:
    """Folds events into a tree; the cost of an event does not depend on how many came before.

    changed: the nodes whose label changed since they were last shown; `added` those that are new
    open: the steps that run or wait
    """

    def __init__(self, program: Program | None = None) -> None:
        self.root = Node("", None)
        self.nodes: dict[str, Node] = {}
        self.changed: set[str] = set()
        self.added: list[Node] = []
        self.open: dict[str, Node] = {}
        self.status = "starting"
        self.outcome = ""
        self.failure = ""
        self.mode = ""
        self.actor = ""
        self.began: datetime | None = None
        self.ended: datetime | None = None
        self.done = 0
        self.failed = 0
        self.current = ""
        self.inputs: list[tuple[str, Any, str]] = []
        """The inputs of the run: name, value and source."""
        if program is not None:
            self._plan(program.runbook.steps, "")
            self._plan(program.runbook.finally_ or (), "")

    # --- what the runbook has

    def _plan(self, steps: tuple[Step, ...], path: str) -> None:
        for index, step in enumerate(steps):
            at = child(path or None, step.id or f"{step.type}#{index + 1}")
            node = self._at(at)
            node.status, node.kind = "pending", step.type
            node.title = with_placeholders(step.title) if step.title is not None else ""
            if isinstance(step, BranchStep):
                for name, arm in zip(step.names, step.branches, strict=True):
                    self._plan(arm.steps, child(at, name))
            elif isinstance(step, ParallelStep):
                for name, lane in zip(step.names, step.branches, strict=True):
                    self._plan(lane.steps, child(at, name))
            elif isinstance(step, GroupStep) and step.for_each is None:
                self._plan(step.steps, at)
            elif isinstance(step, RepeatStep):
                node.kind = "repeat"

    # --- what happens

    def fold(self, event: Envelope, said: Payload) -> None:
        """Fold one event, which says this."""
        follow = _FOLLOW.get(type(said))
        if follow is not None:
            follow(self, event, said)

    def _run_start(self, event: Envelope, said: says.RunStart) -> None:
        self.status, self.mode, self.actor = "running", said.mode, said.actor
        self.began = parse_timestamp(event.timestamp)
        self.inputs = [(name, value, said.input_sources.get(name, "")) for name, value in said.inputs.items()]

    def _run_resumed(self, event: Envelope, said: says.RunResumed) -> None:
        self.status = "running"

    def _decision(self, event: Envelope, said: says.GovernanceDecision) -> None:
        node = self._touch(event.path)
        if node is not None:
            node.risk, node.decision = said.risk_level, said

    def _step_start(self, event: Envelope, said: says.StepStart) -> None:
        node = self._touch(event.path)
        if node is None:
            return
        node.status, node.kind, node.start = "running", said.step_type, said
        node.title = said.title or node.title
        node.began, node.duration, node.waits = parse_timestamp(event.timestamp), "", ""
        if said.step_type == "manual":
            node.status, node.waits = "waiting", "a person"
        self.open[node.path] = node
        self.current = node.path

    def _step_complete(self, event: Envelope, said: says.StepComplete) -> None:
        node = self._touch(event.path)
        if node is None:
            return
        node.status, node.duration, node.complete, node.waits = said.status, said.duration, said, ""
        self.open.pop(node.path, None)
        self.done += 1
        self.failed += said.status in ("failed", "error")

    def _submitted(self, event: Envelope, said: says.ApprovalSubmitted) -> None:
        node = self._touch(event.path)
        if node is not None:
            node.status, node.waits = "waiting", "approval"
            self.open[node.path] = node
            self.current = node.path

    def _resolved_approval(self, event: Envelope, said: says.ApprovalResolved) -> None:
        node = self._touch(event.path)
        if node is not None and node.status == "waiting":
            node.status, node.waits = "running", ""

    def _sees(self, event: Envelope, said: says.VisibilityApplied) -> None:
        node = self._touch(event.path)
        if node is not None:
            node.visibility = said

    def _loop(self, event: Envelope, said: says.ForEachStart) -> None:
        node = self._touch(event.path)
        if node is not None:
            node.total = None if said.explored else said.item_count

    def _retry(self, event: Envelope, said: says.StepRetry) -> None:
        node = self._touch(event.path)
        if node is not None:
            node.waits = f"attempt {said.attempt} of {said.max}"

    def _run_complete(self, event: Envelope, said: says.RunComplete) -> None:
        self.status, self.ended = said.status, parse_timestamp(event.timestamp)
        self.open.clear()
        if said.outcome is not None:
            self.outcome = f"{said.outcome.category}: {said.outcome.code}"
        if said.failure is not None:
            where = f"{path_text(said.failed_step)}: " if said.failed_step else ""
            self.failure = f"{where}{said.failure.message}"

    # --- the tree

    def _touch(self, path: str | None) -> Node | None:
        if path is None:
            return None
        node = self._at(path)
        self.changed.add(path)
        return node

    def _at(self, path: str) -> Node:
        found = self.nodes.get(path)
        if found is not None:
            return found
        parent = self.root
        for outer in reversed(list(ancestors(path))):
            parent = self.nodes.get(outer) or self._attach(outer, parent)
        return self._attach(path, parent)

    def _attach(self, path: str, parent: Node) -> Node:
        node = self.nodes[path] = parent.children[path] = Node(path, parent)
        self.added.append(node)
        return node

    def walk(self) -> Iterator[Node]:
        """Every node, outer before inner."""
        waiting = [iter(self.root.children.values())]
        while waiting:
            node = next(waiting[-1], None)
            if node is None:
                waiting.pop()
            else:
                yield node
                waiting.append(iter(node.children.values()))

    def first(self, *statuses: str) -> Node | None:
        """The first step with one of these statuses."""
        return next((node for node in self.walk() if node.status in statuses), None)

    @property
    def waiting(self) -> list[Node]:
        """The steps that wait for a person."""
        return [node for node in self.open.values() if node.status == "waiting"]


def _name(path: str) -> str:
    if not path:
        return ""
    last = split(path.rpartition("/")[2])[0]
    return one_line(last.name if last.item is None else f"[{last.item}]", LONGEST)


_FOLLOW: Final[dict[type[Any], Any]] = {
    says.RunStart: StepTree._run_start,
    says.RunResumed: StepTree._run_resumed,
    says.GovernanceDecision: StepTree._decision,
    says.StepStart: StepTree._step_start,
    says.StepComplete: StepTree._step_complete,
    says.ApprovalSubmitted: StepTree._submitted,
    says.ApprovalResolved: StepTree._resolved_approval,
    says.VisibilityApplied: StepTree._sees,
    says.ForEachStart: StepTree._loop,
    says.StepRetry: StepTree._retry,
    says.RunComplete: StepTree._run_complete,
}
