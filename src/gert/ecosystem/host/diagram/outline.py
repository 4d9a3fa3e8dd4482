"""The outline of a runbook that every picture is drawn from: blocks within blocks, with risk, verdict and result."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from gert.ecosystem.host.diagram.way import Visits, Way
from gert.ecosystem.host.policy.explain_runbook import ExplainedStep
from gert.kernel.events.path import child
from gert.kernel.foundation.text import one_line
from gert.kernel.runbook.documents.steps import BranchStep, EndStep, GroupStep, ParallelStep, RepeatStep, Step, ToolStep
from gert.kernel.runbook.program import Program
from gert.kernel.template.placeholders import with_placeholders
from gert.kernel.template.template import Template

LONGEST: Final = 48
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
    count: of several visits by a run, how many did not go well
    is_reached: whether the run came here; `is_left`, whether it went on from here
    jumps_to: the step that it may jump to; `has_jumped`, whether the run did
    falls_through: whether the step after it may follow it
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
    has_jumped: bool = False
    falls_through: bool = True
    result: str | None = None
    count: str = ""
    is_reached: bool = True
    is_left: bool = True
    is_manual: bool = False

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve it."""
        return self.verdict == "require-approval"

    @property
    def is_box(self) -> bool:
        """Whether it is drawn around the blocks inside it: a loop, a group, lanes."""
        return self.kind in ("loop", "parallel") and any(arm.blocks for arm in self.arms)


class Outline(msgspec.Struct, frozen=True):
    """A runbook as a picture shows it."""

    name: str
    blocks: tuple[Block, ...]
    finally_: tuple[Block, ...] = ()
    of_run: str | None = None


def outline_of(program: Program, explained: Iterable[ExplainedStep], way: Way | None = None) -> Outline:
    """The outline of a runbook; with the way of a run, that of the run."""
    builder = _Builder({id(each.step): each for each in explained}, way)
    runbook = program.runbook
    return Outline(
        runbook.meta.name,
        builder.blocks(runbook.steps, ""),
        builder.blocks(runbook.finally_ or (), "finally"),
    )


class _Builder:
    def __init__(self, explained: Mapping[int, ExplainedStep], way: Way | None) -> None:
        self._explained = explained
        self._way = way
        self._count = 0

    def blocks(self, steps: tuple[Step, ...], path: str) -> tuple[Block, ...]:
        named = [(step, step.id or f"{step.type}#{at}") for at, step in enumerate(steps, 1)]
        return tuple(self._block(step, child(path or None, name)) for step, name in named)

    def _block(self, step: Step, path: str) -> Block:
        number = self._number()
        # The arms of a looped branch are inside the loop.
        inner = self._number() if step.for_each is not None and isinstance(step, BranchStep | ParallelStep) else None
        block = self._step(step, path, inner or number)
        if inner is None:
            return block
        looped = msgspec.structs.replace(block, name="", jumps_to=None)
        return msgspec.structs.replace(
            block, id=number, kind="loop", title=_loop_text(step), detail="", count="", arms=(Arm("", (looped,)),)
        )

    def _step(self, step: Step, path: str, number: str) -> Block:
        explained = self._explained.get(id(step))
        verdict = explained.explanation.decision.verdict.word if explained is not None else ""
        visits = self._way.visits.get(path) if self._way is not None else None
        is_reached = self._way is None or visits is not None
        # A step that waits for approval has not started.
        result = None if visits is None else visits.result or "running"
        visits = visits or Visits()
        return Block(
            id=number,
            name=step.id or "",
            kind=_kind(step),
            title=one_line(visits.title or _title(step), LONGEST),
            detail=one_line(_detail(step), LONGEST),
            risk=explained.explanation.risk.word if explained is not None else "",
            verdict=visits.verdict or verdict,
            arms=self._arms(step, path),
            jumps_to=step.next.step if step.next is not None else None,
            # A bounded jump is over at some time, and a step that is left out does not jump.
            falls_through=step.next is None or step.next.max is not None or step.when is not None,
            has_jumped=self._way is not None and path in self._way.jumps,
            result=result,
            count=visits.count_text,
            is_reached=is_reached,
            is_left=self._way is None or visits.is_left,
            is_manual=step.type == "manual",
        )

    def _number(self) -> str:
        self._count += 1
        return f"s{self._count}"

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
            Arm(
                one_line(name, LONGEST),
                self.blocks(steps, child(path, name)),
                self._way is None or child(path, name) in self._way.arms,
            )
            for name, steps in pairs
        )


def _title(step: Step) -> str:
    return with_placeholders(step.title) if step.title is not None else step.id or step.type


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
    elif isinstance(step, ParallelStep):
        words.append("in parallel")
    if step.for_each is not None and not isinstance(step, BranchStep | ParallelStep):
        words.append(_loop_text(step))
    if isinstance(step, RepeatStep):
        words.append(f"repeat, at most {_text(step.repeat.max)} times")
    elif isinstance(step, GroupStep) and step.for_each is None:
        words.append("group")
    return ", ".join(words)


def _loop_text(step: Step) -> str:
    return "for each item" + (", in parallel" if step.for_each is not None and step.for_each.parallel else "")


def _text(value: object) -> str:
    return with_placeholders(value) if isinstance(value, Template) else str(value)
