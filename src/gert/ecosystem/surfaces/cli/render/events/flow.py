"""Descriptions of events about branches, loops, lanes and jumps."""

from typing import Final

from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import CATEGORY, STATUS, Describers, Description, Subject, clip, columns
from gert.kernel.events import runbook as says


def _branch_enter(arm: says.BranchEnter, about: Subject) -> Description:
    why = f" if {clip(arm.condition, style.LONGEST_VALUE)}" if arm.condition else ""
    unknown = ", explored: the condition is unknown" if arm.explored else ""
    return Description(
        style.WENT, f"{about.name}: {clip(arm.branch_label, style.LONGEST_NAME)}{why}{unknown}", style.LIVELY
    )


def _branch_exit(arm: says.BranchExit, about: Subject) -> Description:
    icon, colour = STATUS[arm.status]
    text = f"{about.name}: {clip(arm.branch_label, style.LONGEST_NAME)} {arm.status}"
    return Description(icon, text, colour, news=False)


def _parallel_fork(fork: says.ParallelFork, about: Subject) -> Description:
    lanes = f" ({style.listed(fork.branches)})" if fork.branches else ""
    notes = tuple(
        f"run one at a time, because their contracts conflict: {_lanes(fork, group)}"
        for group in fork.serialized[: style.MOST_LINES]
    )
    return Description(style.WENT, f"{about.name}: {plural(fork.branch_count, 'lane')}{lanes}", style.LIVELY, notes)


def _lanes(fork: says.ParallelFork, group: tuple[int, ...]) -> str:
    known = range(len(fork.branches))
    return style.listed(tuple(fork.branches[index] if index in known else str(index) for index in group))


def _parallel_merge(merge: says.ParallelMerge, about: Subject) -> Description:
    ended = merge.branch_outcomes
    well = sum(each.status == "success" for each in ended)
    text = f"{about.name}: {plural(len(ended), 'lane')} done, {well} successful"
    notes = tuple(
        f"{clip(each.label or str(each.index), style.LONGEST_NAME)} {each.status}"
        for each in ended
        if each.status in ("failed", "error")
    )
    icon, colour = STATUS["failed" if notes else "success"]
    return Description(icon, text, colour, notes[: style.MOST_LINES], news=False)


def _for_each_start(loop: says.ForEachStart, about: Subject) -> Description:
    how = ", in parallel" if loop.parallel else ""
    items = "an unknown number of items, explored with one" if loop.explored else plural(loop.item_count, "item")
    return Description(style.AGAIN, f"{about.name}: {items}{how}", style.LIVELY)


def _for_each_item(item: says.ForEachItem, about: Subject) -> Description:
    key = clip(item.key, style.LONGEST_NAME) if item.key is not None else str(item.index)
    return Description(
        style.NOTED, f"{about.name}: item {key} = {style.value_text(item.value)}", style.QUIET, news=False
    )


def _repeat_start(loop: says.RepeatStart, about: Subject) -> Description:
    until = f" until {clip(loop.until, style.LONGEST_VALUE)}" if loop.until else ""
    most = "at most an unknown number of times" if loop.explored else f"at most {plural(loop.max, 'time')}"
    explored = ", explored with two" if loop.explored else ""
    return Description(style.AGAIN, f"{about.name}: {most}{until}{explored}", style.LIVELY)


def _repeat_iteration(loop: says.RepeatIteration, about: Subject) -> Description:
    met = "" if loop.until_result is None else ", condition met" if loop.until_result else ", condition not met"
    return Description(style.AGAIN, f"{about.name}: iteration {loop.index} done{met}", style.LIVELY)


def _group_start(group: says.GroupStart, about: Subject) -> Description:
    return Description(style.WENT, f"{about.name}: {plural(group.step_count, 'step')}", style.LIVELY)


def _group_complete(group: says.GroupComplete, about: Subject) -> Description:
    icon, colour = STATUS[group.status]
    return Description(icon, f"{about.name}: group {group.status}", colour, news=False)


def _next_taken(jump: says.NextTaken, about: Subject) -> Description:
    times = f" (jump {jump.count} of {jump.max})" if jump.max is not None else ""
    back = "back to" if jump.backward else "on to"
    return Description(style.WENT, f"{about.name}: {back} {clip(jump.target, style.LONGEST_NAME)}{times}", style.LIVELY)


def _outcome_resolved(end: says.OutcomeResolved, about: Subject) -> Description:
    outcome = end.structured_outcome
    told = f", for {clip(', '.join(end.notify), style.LONGEST_VALUE)}" if end.notify else ""
    return Description(
        style.ENDED, columns(about.name, f"{style.outcome_text(outcome)}{told}"), CATEGORY[outcome.category]
    )


FLOW: Final[Describers] = {
    says.BranchEnter: _branch_enter,
    says.BranchExit: _branch_exit,
    says.ParallelFork: _parallel_fork,
    says.ParallelMerge: _parallel_merge,
    says.ForEachStart: _for_each_start,
    says.ForEachItem: _for_each_item,
    says.RepeatStart: _repeat_start,
    says.RepeatIteration: _repeat_iteration,
    says.GroupStart: _group_start,
    says.GroupComplete: _group_complete,
    says.NextTaken: _next_taken,
    says.OutcomeResolved: _outcome_resolved,
}
