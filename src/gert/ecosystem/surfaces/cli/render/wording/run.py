"""The words of events about a run as a whole."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.surfaces.cli.render import text as say
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import CATEGORY, STATUS, Subject, Wording, Words, clip, columns, took_text
from gert.kernel.events import runbook as says

RUN_STATUS: Final[Mapping[str, tuple[str, str]]] = {
    "completed": (say.DONE, say.GOOD),
    "failed": (say.FAILED, say.BAD),
    "error": (say.FAILED, say.BAD),
    "cancelled": (say.REFUSED, say.BAD),
}


def _run_start(run: says.RunStart, about: Subject) -> Words:
    scenario = f"scenario {clip(run.scenario, say.LONGEST_NAME)}" if run.scenario else ""
    parent = f"started by run {clip(run.parent_run_id, say.LONGEST_NAME)}" if run.parent_run_id else ""
    who = f"by {clip(run.actor, say.LONGEST_NAME)} on {clip(run.host, say.LONGEST_NAME)}"
    text = columns(clip(run.runbook, say.LONGEST_NAME), f"{run.mode} run {about.name}", who, scenario, parent)
    return Words(say.BEGUN, text, say.LIVELY)


def _input_resolved(given: says.InputResolved, _: Subject) -> Words:
    text = f"{clip(given.name, say.LONGEST_NAME)} = {say.value_text(given.value)}"
    return Words(say.NOTED, f"{text} ({clip(given.source, say.LONGEST_NAME)})", say.QUIET)


def _run_resumed(run: says.RunResumed, _: Subject) -> Words:
    notes = (f"accepted changes: {say.listed(run.accepted_changes)}",) if run.accepted_changes else ()
    text = f"resumed by {clip(run.actor, say.LONGEST_NAME)} on {clip(run.host, say.LONGEST_NAME)}"
    return Words(say.AGAIN, f"{text}, {plural(run.answered, 'recorded answer')} taken", say.LIVELY, notes)


def _run_adopted(run: says.RunAdopted, _: Subject) -> Words:
    source = f" of run {clip(run.source_run_id, say.LONGEST_NAME)}" if run.source_run_id else ""
    text = f"{plural(run.events, 'unsealed event')}{source} adopted by {clip(run.actor, say.LONGEST_NAME)}"
    return Words(say.WARNING, f"{text}: {clip(run.reason)}", say.DOUBTFUL)


def _run_forked(run: says.RunForked, _: Subject) -> Words:
    # Whoever sees steps go by that delete something must learn that they did not run again.
    step, source = clip(run.from_step, say.LONGEST_NAME), clip(run.source_run_id, say.LONGEST_NAME)
    text = f"live from {step} on; what stands above was recorded in run {source} and not done again"
    return Words(say.AGAIN, text, say.LIVELY, (f"{plural(run.answered, 'recorded answer')} taken",))


def _run_cancelled(run: says.RunCancelled, _: Subject) -> Words:
    return Words(say.REFUSED, f"run cancelled: {clip(run.reason)}", say.BAD)


def _finally_start(block: says.FinallyStart, _: Subject) -> Words:
    return Words(say.BEGUN, f"finally: {plural(block.step_count, 'step')}, after the run {block.status}", say.LIVELY)


def _finally_complete(block: says.FinallyComplete, _: Subject) -> Words:
    icon, colour = STATUS[block.status]
    return Words(icon, f"finally {block.status}", colour, say.failure_lines(block.failure))


def _run_complete(run: says.RunComplete, _: Subject) -> Words:
    icon, colour = RUN_STATUS[run.status]
    notes: list[str] = []
    came_to = ""
    if run.outcome is not None:
        came_to = say.outcome_text(run.outcome)
        colour = CATEGORY.get(run.outcome.category, colour)
        notes += say.pairs(run.outcome.meta)
    if run.failed_step is not None:
        notes.append(f"failed step: {clip(run.failed_step, say.LONGEST_NAME)}")
    notes += say.failure_lines(run.failure)
    notes += [f"can reach {say.outcome_text(each)}" for each in run.reachable_outcomes[: say.MOST_LINES]]
    if len(run.reachable_outcomes) > say.MOST_LINES:
        notes.append(f"… and {len(run.reachable_outcomes) - say.MOST_LINES} more")
    notes += [f"policy denies `{clip(each.path)}`: {clip(each.message)}" for each in run.denied[: say.MOST_LINES]]
    if len(run.denied) > say.MOST_LINES:
        notes.append(f"… and {len(run.denied) - say.MOST_LINES} more")
    notes += [f"finally: {line}" for line in say.failure_lines(run.finally_failure)]
    if run.break_glass:
        notes.append(f"break glass: {plural(run.break_glass, 'decision')} overridden")
    what = "run" if run.mode == "real" else f"{run.mode} run"
    took = took_text(run.duration, run.waited)
    return Words(icon, columns(f"{what} {run.status}", came_to, took), colour, tuple(notes))


def _webhook_sent(sent: says.WebhookSent, _: Subject) -> Words:
    where = clip(sent.url, say.LONGEST_VALUE)
    if sent.delivered:
        return Words(say.DONE, f"webhook sent to {where}", say.GOOD, news=False)
    tried = f"given up after {plural(sent.attempts, 'attempt')}"
    return Words(say.WARNING, f"webhook to {where} {tried}", say.DOUBTFUL, say.lines_of(sent.error or ""))


RUN: Final[Wording] = {
    says.RunStart: _run_start,
    says.InputResolved: _input_resolved,
    says.RunResumed: _run_resumed,
    says.RunAdopted: _run_adopted,
    says.RunForked: _run_forked,
    says.RunCancelled: _run_cancelled,
    says.FinallyStart: _finally_start,
    says.FinallyComplete: _finally_complete,
    says.RunComplete: _run_complete,
    says.WebhookSent: _webhook_sent,
}
