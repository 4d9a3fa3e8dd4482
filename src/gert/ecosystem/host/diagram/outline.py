"""The outline of a runbook that every picture is drawn from: blocks within blocks, with risk, verdict and result."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from gert.ecosystem.host.policy.explain_runbook import ExplainedStep
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import child, split
from gert.kernel.foundation.text import one_line
from gert.kernel.runbook.documents.steps import BranchStep, EndStep, GroupStep, ParallelStep, RepeatStep, Step, ToolStep
from gert.kernel.runbook.program import Program
from gert.kernel.template.placeholders import with_placeholders
from gert.kernel.template.template import Template

LONGEST: Final = 48
_SEVERAL: Final = 2
Kind = Literal["step", "branch", "parallel", "loop", "end"]
MARKS: Final = {"success": "✓", "failed": "✗", "error": "✗", "skipped": "-", "running": "→"}


class Arm(msgspec.Struct, frozen=True):
    """One arm of a branch or lane of a parallel block."""

    label: str
    blocks: tuple["Block", ...]
    was_taken: bool = True


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A step, and what is inside it.

    id: unique in the picture
    name: how jumps name it
    verdict: what the policies decide; `result` is what a run made of it
    jumps_to: the step that it may jump back to
    """

    id: str
    name: str
    kind: Kind
    title: str
    detail: str = ""
    risk: str = ""
    verdict: str = ""
    arms: tuple[Arm, ...] = ()
    jumps_to: str | None = None
    result: str | None = None
    is_manual: bool = False

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve it."""
        return self.verdict == "require-approval"


class Outline(msgspec.Struct, frozen=True):
    """A runbook as a picture shows it."""

    name: str
    blocks: tuple[Block, ...]
    finally_: tuple[Block, ...] = ()
    of_run: str | None = None


def outline_of(program: Program, explained: Iterable[ExplainedStep], way: "Way | None" = None) -> Outline:
    """The outline of a runbook; with the way of a run, that of the run."""
    builder = _Builder({id(each.step): each for each in explained}, way)
    runbook = program.runbook
    return Outline(
        runbook.meta.name,
        builder.blocks(runbook.steps, ""),
        builder.blocks(runbook.finally_ or (), "finally"),
    )


class Way(msgspec.Struct, frozen=True):
    """The way of a run: by path, the result of each step, what the policies decided, and titles; loops are one block.

    titles: as the run showed them; several of one block are those of its items
    """

    results: dict[str, str] = msgspec.field(default_factory=dict)
    verdicts: dict[str, str] = msgspec.field(default_factory=dict)
    titles: dict[str, set[str]] = msgspec.field(default_factory=dict)


class _Builder:
    def __init__(self, explained: Mapping[int, ExplainedStep], way: Way | None) -> None:
        self._explained = explained
        self._results = None if way is None else way.results
        self._verdicts = {} if way is None else way.verdicts
        self._titles = {} if way is None else way.titles
        self._count = 0

    def blocks(self, steps: tuple[Step, ...], path: str) -> tuple[Block, ...]:
        named = [(step, step.id or f"{step.type}#{at}") for at, step in enumerate(steps, 1)]
        return tuple(self._block(step, child(path or None, name)) for step, name in named)

    def _block(self, step: Step, path: str) -> Block:
        self._count += 1
        number = f"s{self._count}"
        explained = self._explained.get(id(step))
        verdict = explained.explanation.decision.verdict.word if explained is not None else ""
        return Block(
            id=number,
            name=step.id or "",
            kind=_kind(step),
            title=one_line(self._title(step, path), LONGEST),
            detail=one_line(_detail(step), LONGEST),
            risk=explained.explanation.risk.word if explained is not None else "",
            verdict=self._verdicts.get(path, verdict),
            arms=self._arms(step, path),
            jumps_to=step.next.step if step.next is not None else None,
            result=self._results.get(path) if self._results is not None else None,
            is_manual=step.type == "manual",
        )

    def _title(self, step: Step, path: str) -> str:
        """The title that the run showed, where it showed one; otherwise that of the runbook."""
        if len(shown := self._titles.get(path, set())) == 1:
            return next(iter(shown))
        return with_placeholders(step.title) if step.title is not None else step.id or step.type

    def _arms(self, step: Step, path: str) -> tuple[Arm, ...]:
        if isinstance(step, BranchStep):
            pairs = [(name, arm.steps) for name, arm in zip(step.names, step.branches, strict=True)]
        elif isinstance(step, ParallelStep):
            pairs = [(name, lane.steps) for name, lane in zip(step.names, step.branches, strict=True)]
        elif isinstance(step, RepeatStep):
            return (Arm("", self.blocks(step.body, child(path, 0))),)
        elif isinstance(step, GroupStep):
            return (Arm("", self.blocks(step.steps, path)),)
        else:
            return ()
        return tuple(
            Arm(one_line(name, LONGEST), self.blocks(steps, child(path, name)), self._was_taken(child(path, name)))
            for name, steps in pairs
        )

    def _was_taken(self, path: str) -> bool:
        return self._results is None or any(each.startswith(f"{path}/") for each in self._results)


def _kind(step: Step) -> Kind:
    if isinstance(step, BranchStep):
        return "branch"
    if isinstance(step, ParallelStep):
        return "parallel"
    if isinstance(step, EndStep):
        return "end"
    return "loop" if isinstance(step, RepeatStep | GroupStep) else "step"


def _detail(step: Step) -> str:
    """What a step does, in a few words."""
    if isinstance(step, EndStep):
        return f"{step.outcome.category}: {_text(step.outcome.code)}"
    words = []
    if isinstance(step, ToolStep):
        words.append(f"{step.tool}:{step.action}" if step.action else step.tool)
    elif step.type in ("manual", "assert", "extension"):
        words.append(step.type)
    if step.for_each is not None:
        words.append("for each item" + (", in parallel" if step.for_each.parallel else ""))
    if isinstance(step, RepeatStep):
        words.append(f"repeat, at most {_text(step.repeat.max)} times")
    elif isinstance(step, GroupStep) and step.for_each is None:
        words.append("group")
    return ", ".join(words)


def _text(value: object) -> str:
    return with_placeholders(value) if isinstance(value, Template) else str(value)


def way_of(events: Iterable[Envelope], program: Program) -> Way:
    """The way of a run; of several visits, items or iterations of a step, the worst result counts."""
    repeats = frozenset(step.id for step in program.steps if isinstance(step, RepeatStep))
    way = Way()
    for event in events:
        said = event.payload
        if event.path is None:
            continue
        path = _static(event.path, repeats)
        if isinstance(said, says.StepStart):
            way.results.setdefault(path, "running")
            if said.title and len(titles := way.titles.setdefault(path, set())) < _SEVERAL:
                titles.add(said.title)
        elif isinstance(said, says.StepComplete):
            before = way.results.get(path)
            worse = before in ("failed", "error") and said.status == "success"
            way.results[path] = before if worse and before is not None else said.status
        elif isinstance(said, says.GovernanceDecision):
            way.verdicts[path] = said.decision
    return way


def _static(path: str, repeats: frozenset[str]) -> str:
    """A path without the items of loops and the numbers of iterations: all of them are one block in the picture."""
    inside: str | None = None
    before = ""
    for segment in split(path):
        name = "0" if before in repeats and segment.name.isdecimal() else segment.name
        inside, before = child(inside, name), segment.name
    return inside or ""
