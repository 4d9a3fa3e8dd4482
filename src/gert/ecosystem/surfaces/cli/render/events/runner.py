"""Descriptions of the events of a runner execution."""

from typing import Final

from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import Describers, Description, Subject, clip, columns
from gert.kernel.events import runner as says


def _created(plan: says.PlanCreated, about: Subject) -> Description:
    parent = f"for run {clip(plan.parent_run_id, style.LONGEST_NAME)}" if plan.parent_run_id else ""
    who = f"by {clip(plan.actor, style.LONGEST_NAME)}" if plan.actor else ""
    text = columns(clip(plan.skill_id, style.LONGEST_NAME), f"plan {about.name}", who, parent)
    return Description(style.BEGUN, text, style.LIVELY, (clip(plan.digest),))


def _authorized(plan: says.PlanAuthorized, _: Subject) -> Description:
    by = f"approved by {style.listed(plan.approvers)}" if plan.approvers else ""
    rule = clip(plan.rule) if plan.rule else ""
    key = f"key {clip(plan.key_id, style.LONGEST_NAME)}" if plan.key_id else ""
    return Description(style.DONE, columns(f"authorized: {plan.verdict}", by, rule, key), style.GOOD)


def _started(run: says.RunnerStarted, _: Subject) -> Description:
    scope = f"scope {style.listed(run.scope)}" if run.scope else ""
    text = columns(f"runner {clip(run.runner_id, style.LONGEST_NAME)} started", f"isolation {run.isolation}", scope)
    return Description(style.BEGUN, text, style.LIVELY)


def _recorded(run: says.RunnerRecorded, _: Subject) -> Description:
    sent = plural(int(run.record.get("requests") or 0), "request")
    notes = (clip(f"{run.rule}: {run.message}"),) if run.rule else ()
    text = columns(f"recorded with exit code {run.exit_code}", sent, "found by recover" if run.recovered else "")
    is_done = run.exit_code == 0
    return Description(style.DONE if is_done else style.FAILED, text, style.GOOD if is_done else style.BAD, notes)


def _in_doubt(run: says.RunnerInDoubt, _: Subject) -> Description:
    return Description(style.WARNING, f"in doubt: {clip(run.reason)}", style.DOUBTFUL)


RUNNER: Final[Describers] = {
    says.PlanCreated: _created,
    says.PlanAuthorized: _authorized,
    says.RunnerStarted: _started,
    says.RunnerRecorded: _recorded,
    says.RunnerInDoubt: _in_doubt,
}
