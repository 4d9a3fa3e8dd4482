"""Flow: every path ends, jumps have a target and a bound, arms and lanes are complete."""

from collections.abc import Iterator
from typing import Final

from gert.errors import GertError
from gert.kernel.foundation.names import misspelling, suggestion
from gert.kernel.foundation.values import coerce
from gert.kernel.runbook.documents.modifiers import NextBlock
from gert.kernel.runbook.documents.steps import (
    VALIDATION_BUDGET,
    Arm,
    BranchStep,
    EndStep,
    GroupStep,
    Lane,
    ParallelStep,
    RepeatStep,
    Step,
)
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.program import Program, StepList, inner_lists, walk
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.guards import constant_guard
from gert.kernel.runbook.validate.domain.reach import Flow, is_guarded
from gert.kernel.template import Template, templates_in
from gert.kernel.template.budget import Meter
from gert.kernel.template.evaluator import evaluated

MAX_JUMPS: Final = 10_000
_ALMOST_DEFAULT: Final = frozenset({"default", "else", "otherwise"})


def every_path_ends(case: Case) -> Iterator[Finding]:
    """D05: every path leads to an `end`; an `end` with a `when` does not count."""
    program = case.program
    flow = case.flow
    yield from _loose_ends(flow, StepList("steps", program.runbook.steps, ("steps",)))
    yield from _unreachable(flow, program)


def _loose_ends(flow: Flow, block: StepList) -> Iterator[Finding]:
    for index in flow.exits(block.steps):
        step = block.steps[index]
        inner = [lst for lst in inner_lists(step) if lst.role == "arm" and flow.falls_through(lst.steps)]
        if isinstance(step, BranchStep) and not is_guarded(step) and inner:
            for arm in inner:
                if arm.steps:
                    yield from _loose_ends(flow, arm)
                else:
                    message = "this arm has no steps, and no `end` follows the branch"
                    yield error("D05", arm.path, message, "add an `end` to the arm or after the branch")
        elif isinstance(step, GroupStep) and not is_guarded(step):
            yield from _loose_ends(flow, next(inner_lists(step)))
        elif isinstance(step, EndStep):
            message = "this `end` runs only if its `when` holds, and no other `end` follows"
            yield error("D05", step.path, message, "add an `end` without `when` after it")
        else:
            yield error("D05", step.path, f"no `end` follows {step.label}", "every path must reach an `end` step")


def _unreachable(flow: Flow, program: Program) -> Iterator[Finding]:
    """D06: report a step that no path leads to."""
    for block in program.lists:
        if block.owner is not None and id(block.owner) not in flow.reached:
            continue
        before = True
        for step in block.steps:
            here = id(step) in flow.reached
            if before and not here:
                yield warning(
                    "D06", step.path, f"{step.label} can never be reached", "remove it, or jump to it with `next`"
                )
            before = here


def jump_targets(case: Case) -> Iterator[Finding]:
    """D07: a jump stays in its list. D08: a jump backwards is bounded."""
    program = case.program
    for block in program.lists:
        index_of = {step.id: index for index, step in enumerate(block.steps) if step.id is not None}
        for index, step in enumerate(block.steps):
            jump = step.next
            if jump is None:
                continue
            path = jump.at("step")
            target = index_of.get(jump.step)
            if target is None:
                yield _missing_target(program, jump, index_of)
            elif target <= index and jump.max is None:
                what = "to itself" if target == index else f"back to `{jump.step}`"
                hint = f"use `next: {{step: {jump.step}, max: 3}}`"
                yield error("D08", path, f"a jump {what} needs a `max`", hint)
            if isinstance(jump.max, Template):
                yield from _constant_bound(program, jump.max, jump.at("max"), 0, "D08")


def _missing_target(program: Program, jump: NextBlock, known: dict[str, int]) -> Finding:
    if jump.step in program.by_id:
        message = f"`next` cannot leave its list of steps: `{jump.step}` is in another one"
        return error("D07", jump.at("step"), message, "move the shared steps after the block, and jump there")
    hint = suggestion(jump.step, known)
    return error("D07", jump.at("step"), f"there is no step `{jump.step}` to jump to", hint)


def _constant_bound(program: Program, bound: Template, path: Path, least: int, rule: str) -> Iterator[Finding]:
    """Check a bound that depends on constants only."""
    constants = program.runbook.meta.constants
    names = {reference.path[0] if reference.path else None for reference in bound.references}
    if not names <= constants.keys() or any(True for name in names for _ in templates_in(constants[str(name)])):
        return
    meter = Meter(VALIDATION_BUDGET)
    try:
        value = coerce(evaluated(bound, constants, meter), "int")
    except GertError as problem:
        if not meter.is_spent:  # too expensive to evaluate here: left to the run
            yield error(rule, path, f"`max` must be a whole number: {problem.message}")
        return
    if not least <= value <= MAX_JUMPS:
        yield error(rule, path, f"`max` must be from {least} to {MAX_JUMPS}; `{bound.source}` is {value}")


def branch_arms(case: Case) -> Iterator[Finding]:
    """D09: every branch has a `default` arm, which is the last one."""
    program = case.program
    for step in program.steps:
        if not isinstance(step, BranchStep):
            continue
        defaults = [index for index, arm in enumerate(step.branches) if arm.is_default]
        if not any(arm.is_always_taken for arm in step.branches):
            hint = "add an arm with `condition: default`"
            yield error("D09", step.at("branches"), f"{step.label} has no `default` arm", hint)
        elif defaults and defaults[0] != len(step.branches) - 1:
            path = step.at("branches", defaults[0] + 1)
            yield error("D09", path, "an arm after the `default` arm is never taken", "put `default` last")
        yield from duplicate_labels("D09", step, "arm")
        for index, arm in enumerate(step.branches):
            path = step.at("branches", index, "condition")
            said = arm.condition.source.strip().lower()
            if (said in _ALMOST_DEFAULT or misspelling(said, ["default"])) and not arm.is_default:
                message = f"the condition `{arm.condition.source.strip()}` is text without a template"
                yield error("D09", path, message, "did you mean `default`?")
            elif not arm.is_default and (fixed := constant_guard("D09", path, "the condition", arm.condition)):
                yield fixed


def duplicate_labels(rule: str, step: BranchStep | ParallelStep, called: str) -> Iterator[Finding]:
    """Report arms or lanes with the same name in a trace."""
    branches: tuple[Arm | Lane, ...] = step.branches
    places = {name for name, each in zip(step.names, branches, strict=True) if each.label is None}
    labels: set[str] = set()
    for each in branches:
        if each.label in labels:
            yield error(rule, each.at("label"), f"two {called}s are labelled `{each.label}`")
        elif each.label in places:
            message = f"the {called} without a label at position {each.label} is also named `{each.label}`"
            yield error(
                rule, each.at("label"), message, f"{called}s without a label are named by their position, from 0"
            )
        if each.label is not None:
            labels.add(each.label)


def constant_guards(case: Case) -> Iterator[Finding]:
    """D44: a `when` is a template; plain text is always true, even `no`."""
    for step in case.program.steps:
        if step.when is not None and (fixed := constant_guard("D44", step.at("when"), "`when`", step.when)):
            yield fixed


def misplaced_ends(case: Case) -> Iterator[Finding]:
    """D10: an `end` in a lane ends the run only after the other lanes; `finally` takes no `end`."""
    program = case.program
    for step in _ends_in_lanes(program.runbook.steps, in_lane=False):
        message = "an `end` in a lane waits for the other lanes, and a failure in one of them overrides it"
        yield warning("D10", step.path, message, "put the `end` after the parallel block")
    for step in walk(program.runbook.finally_):
        if isinstance(step, EndStep):
            yield error("D10", step.path, "`finally` cannot change the outcome, so it takes no `end`")


def _ends_in_lanes(steps: tuple[Step, ...], *, in_lane: bool) -> Iterator[Step]:
    """Yield every `end` in a lane; the iterations of a parallel loop are also lanes."""
    for step in steps:
        if isinstance(step, EndStep) and in_lane:
            yield step
        inside = in_lane or (step.for_each is not None and step.for_each.parallel)
        for inner in inner_lists(step):
            yield from _ends_in_lanes(inner.steps, in_lane=inside or inner.role == "lane")


def repeated_blocks(case: Case) -> Iterator[Finding]:
    """D14: a repeated block has steps, in one place, and a `max` that is a number."""
    program = case.program
    for step in program.steps:
        if not isinstance(step, RepeatStep):
            continue
        if step.steps is not None and step.repeat.steps is not None:
            yield error(
                "D14",
                step.repeat.at("steps"),
                "the steps to repeat are given twice",
                "keep those next to `repeat`",
            )
        elif not step.body:
            yield error("D14", step.path, f"{step.label} has no steps to repeat", "add `steps:` next to `repeat`")
        if isinstance(step.repeat.max, Template):
            yield from _constant_bound(program, step.repeat.max, step.repeat.at("max"), 1, "D14")
        until, path = step.repeat.until, step.repeat.at("until")
        if until is not None and (fixed := constant_guard("D14", path, "`until`", until)):
            yield fixed
