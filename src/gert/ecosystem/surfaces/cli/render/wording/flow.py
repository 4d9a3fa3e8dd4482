"""The words of events about which step comes next."""

from typing import Final

from gert.ecosystem.surfaces.cli.render import text as say
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import CATEGORY, STATUS, Subject, Wording, Words, clip, columns
from gert.kernel.events import runbook as says


def _branch_enter(arm: says.BranchEnter, about: Subject) -> Words:
    why = f" if {clip(arm.condition, say.LONGEST_VALUE)}" if arm.condition else ""
    unknown = ", explored: the condition is unknown" if arm.explored else ""
    return Words(say.WENT, f"{about.name}: {clip(arm.branch_label, say.LONGEST_NAME)}{why}{unknown}", say.LIVELY)


def _branch_exit(arm: says.BranchExit, about: Subject) -> Words:
    icon, colour = STATUS[arm.status]
    text = f"{about.name}: {clip(arm.branch_label, say.LONGEST_NAME)} {arm.status}"
    return Words(icon, text, colour, news=False)


def _parallel_fork(fork: says.ParallelFork, about: Subject) -> Words:
    lanes = f" ({say.listed(fork.branches)})" if fork.branches else ""
    notes = tuple(
        f"take turns, because they conflict: {_lanes(fork, group)}" for group in fork.serialized[: say.MOST_LINES]
    )
    return Words(say.WENT, f"{about.name}: {plural(fork.branch_count, 'lane')}{lanes}", say.LIVELY, notes)


def _lanes(fork: says.ParallelFork, group: tuple[int, ...]) -> str:
    known = range(len(fork.branches))
    return say.listed(tuple(fork.branches[index] if index in known else str(index) for index in group))


def _parallel_merge(merge: says.ParallelMerge, about: Subject) -> Words:
    ended = merge.branch_outcomes
    well = sum(each.status == "success" for each in ended)
    text = f"{about.name}: {plural(len(ended), 'lane')} done, {well} successful"
    notes = tuple(
        f"{clip(each.label or str(each.index), say.LONGEST_NAME)} {each.status}"
        for each in ended
        if each.status in ("failed", "error")
    )
    icon, colour = STATUS["failed" if notes else "success"]
    return Words(icon, text, colour, notes[: say.MOST_LINES], news=False)


def _for_each_start(loop: says.ForEachStart, about: Subject) -> Words:
    how = ", side by side" if loop.parallel else ""
    return Words(say.AGAIN, f"{about.name}: {plural(loop.item_count, 'item')}{how}", say.LIVELY)


def _for_each_item(item: says.ForEachItem, about: Subject) -> Words:
    key = clip(item.key, say.LONGEST_NAME) if item.key is not None else str(item.index)
    return Words(say.NOTED, f"{about.name}: item {key} = {say.value_text(item.value)}", say.QUIET, news=False)


def _repeat_start(loop: says.RepeatStart, about: Subject) -> Words:
    until = f" until {clip(loop.until, say.LONGEST_VALUE)}" if loop.until else ""
    return Words(say.AGAIN, f"{about.name}: at most {plural(loop.max, 'time')}{until}", say.LIVELY)


def _repeat_iteration(loop: says.RepeatIteration, about: Subject) -> Words:
    met = "" if loop.until_result is None else ", condition met" if loop.until_result else ", condition not met"
    return Words(say.AGAIN, f"{about.name}: iteration {loop.index} done{met}", say.LIVELY)


def _group_start(group: says.GroupStart, about: Subject) -> Words:
    return Words(say.WENT, f"{about.name}: {plural(group.step_count, 'step')}", say.LIVELY)


def _group_complete(group: says.GroupComplete, about: Subject) -> Words:
    icon, colour = STATUS[group.status]
    return Words(icon, f"{about.name}: group {group.status}", colour, news=False)


def _next_taken(jump: says.NextTaken, about: Subject) -> Words:
    times = f" (jump {jump.count} of {jump.max})" if jump.max is not None else ""
    back = "back to" if jump.backward else "on to"
    return Words(say.WENT, f"{about.name}: {back} {clip(jump.target, say.LONGEST_NAME)}{times}", say.LIVELY)


def _outcome_resolved(end: says.OutcomeResolved, about: Subject) -> Words:
    outcome = end.structured_outcome
    told = f", for {clip(', '.join(end.notify), say.LONGEST_VALUE)}" if end.notify else ""
    return Words(say.ENDED, columns(about.name, f"{say.outcome_text(outcome)}{told}"), CATEGORY[outcome.category])


FLOW: Final[Wording] = {
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
