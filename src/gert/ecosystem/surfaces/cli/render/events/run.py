"""Descriptions of events about a run as a whole."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import (
    CATEGORY,
    STATUS,
    Describers,
    Description,
    Subject,
    clip,
    columns,
    took_text,
)
from gert.kernel.events import runbook as says
from gert.kernel.foundation.text import path_text

RUN_STATUS: Final[Mapping[str, tuple[str, str]]] = {
    "completed": (style.DONE, style.GOOD),
    "failed": (style.FAILED, style.BAD),
    "error": (style.FAILED, style.BAD),
    "cancelled": (style.REFUSED, style.BAD),
}


def _run_start(run: says.RunStart, about: Subject) -> Description:
    scenario = f"scenario {clip(run.scenario, style.LONGEST_NAME)}" if run.scenario else ""
    parent = f"started by run {clip(run.parent_run_id, style.LONGEST_NAME)}" if run.parent_run_id else ""
    who = f"by {clip(run.actor, style.LONGEST_NAME)} on {clip(run.host, style.LONGEST_NAME)}"
    text = columns(clip(run.runbook, style.LONGEST_NAME), f"{run.mode} run {about.name}", who, scenario, parent)
    return Description(style.BEGUN, text, style.LIVELY)


def _input_resolved(given: says.InputResolved, _: Subject) -> Description:
    text = f"{clip(given.name, style.LONGEST_NAME)} = {style.value_text(given.value)}"
    return Description(style.NOTED, f"{text} ({clip(given.source, style.LONGEST_NAME)})", style.QUIET)


def _run_resumed(run: says.RunResumed, _: Subject) -> Description:
    notes = (f"accepted changes: {style.listed(run.accepted_changes)}",) if run.accepted_changes else ()
    text = f"resumed by {clip(run.actor, style.LONGEST_NAME)} on {clip(run.host, style.LONGEST_NAME)}"
    return Description(style.AGAIN, f"{text}, {plural(run.answered, 'recorded answer')} used", style.LIVELY, notes)


def _run_adopted(run: says.RunAdopted, _: Subject) -> Description:
    source = f" of run {clip(run.source_run_id, style.LONGEST_NAME)}" if run.source_run_id else ""
    text = f"{plural(run.events, 'unsealed event')}{source} adopted by {clip(run.actor, style.LONGEST_NAME)}"
    return Description(style.WARNING, f"{text}: {clip(run.reason)}", style.DOUBTFUL)


def _run_forked(run: says.RunForked, _: Subject) -> Description:
    # A reader who sees recorded steps that delete something must know that they did not run again.
    step, source = clip(run.from_step, style.LONGEST_NAME), clip(run.source_run_id, style.LONGEST_NAME)
    text = f"live from {step} on; the steps above were recorded in run {source} and did not run again"
    return Description(style.AGAIN, text, style.LIVELY, (f"{plural(run.answered, 'recorded answer')} used",))


def _run_cancelled(run: says.RunCancelled, _: Subject) -> Description:
    return Description(style.REFUSED, f"run cancelled: {clip(run.reason)}", style.BAD)


def _finally_start(block: says.FinallyStart, _: Subject) -> Description:
    return Description(
        style.BEGUN, f"finally: {plural(block.step_count, 'step')}, after the run {block.status}", style.LIVELY
    )


def _finally_complete(block: says.FinallyComplete, _: Subject) -> Description:
    icon, colour = STATUS[block.status]
    return Description(icon, f"finally {block.status}", colour, style.failure_lines(block.failure))


def _run_complete(run: says.RunComplete, about: Subject) -> Description:
    icon, colour = RUN_STATUS[run.status]
    notes: list[str] = []
    outcome = ""
    if run.outcome is not None:
        outcome = style.outcome_text(run.outcome)
        colour = CATEGORY.get(run.outcome.category, colour)
        notes += style.pairs(run.outcome.meta)
    if run.failed_step is not None:
        notes.append(f"failed step: {clip(path_text(run.failed_step), style.LONGEST_NAME)}")
    notes += style.failure_lines(run.failure)
    notes += [f"reachable: {style.outcome_text(each)}" for each in run.reachable_outcomes[: style.MOST_LINES]]
    if len(run.reachable_outcomes) > style.MOST_LINES:
        notes.append(f"… and {len(run.reachable_outcomes) - style.MOST_LINES} more")
    notes += [
        f"policy denies `{clip(path_text(each.path))}`: {clip(each.message)}" for each in run.denied[: style.MOST_LINES]
    ]
    if len(run.denied) > style.MOST_LINES:
        notes.append(f"… and {len(run.denied) - style.MOST_LINES} more")
    notes += [f"finally: {line}" for line in style.failure_lines(run.finally_failure)]
    if run.break_glass:
        notes.append(f"break glass: {plural(run.break_glass, 'decision')} overridden")
    what = "run" if run.mode == "real" else f"{run.mode} run"
    took = took_text(run.duration, run.waited, interrupted=about.interrupted)
    return Description(icon, columns(f"{what} {run.status}", outcome, took), colour, tuple(notes))


def _webhook_sent(sent: says.WebhookSent, _: Subject) -> Description:
    where = clip(sent.url, style.LONGEST_VALUE)
    if sent.delivered:
        return Description(style.DONE, f"webhook sent to {where}", style.GOOD, news=False)
    tried = f"given up after {plural(sent.attempts, 'attempt')}"
    return Description(style.WARNING, f"webhook to {where} {tried}", style.DOUBTFUL, style.lines_of(sent.error or ""))


RUN: Final[Describers] = {
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
