"""Descriptions of events about one step."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import (
    STATUS,
    Describers,
    Description,
    Subject,
    clip,
    columns,
    duration_text,
    took_text,
)
from gert.kernel.events import runbook as says
from gert.kernel.foundation.text import one_line

SKIPPED_BECAUSE: Final[Mapping[str, str]] = {
    "when_false": "skipped: its condition is false",
    "governance_denied": "denied by policy",
    "approval_rejected": "approval rejected",
    "dry_run": "not run: dry-run",
    "probe": "not run: probe",
    "after_skipped_write": "not run: an earlier write was skipped",
}

REFUSALS: Final = ("governance_denied", "approval_rejected")


def _step_start(step: says.StepStart, about: Subject) -> Description:
    return Description(style.BEGUN, columns(about.name, does_text(step)), style.LIVELY)


def _step_complete(step: says.StepComplete, about: Subject) -> Description:
    icon, colour = STATUS[step.status]
    if step.reason in REFUSALS:
        icon, colour = style.REFUSED, style.BAD
    why = SKIPPED_BECAUSE[step.reason] if step.reason else "skipped" if step.status == "skipped" else ""
    tries = f"after {step.attempts} attempts" if step.attempts > 1 else ""
    took = "" if step.status == "skipped" else took_text(step.duration, step.waited, interrupted=about.interrupted)
    notes = style.failure_lines(step.failure)
    if step.child_run_id is not None:
        notes = (f"run {clip(step.child_run_id, style.LONGEST_NAME)}", *notes)
    if step.continued:
        notes = (*notes, "the run continues: `continue_on_fail`")
    return Description(icon, columns(about.name, about.does, why, took, tries), colour, notes)


def _step_retry(step: says.StepRetry, about: Subject) -> Description:
    when = f"attempt {step.attempt} of {step.max} in {duration_text(step.delay)}"
    return Description(style.AGAIN, f"{about.name}: {when}", style.DOUBTFUL, style.failure_lines(step.failure))


def _step_reconciled(step: says.StepReconciled, about: Subject) -> Description:
    who = "it may be made again" if step.automatic else "the operator decided"
    return Description(
        style.AGAIN, f"{about.name}: call without a result reconciled as {step.choice}: {who}", style.DOUBTFUL
    )


def _step_waiting(step: says.StepWaiting, about: Subject) -> Description:
    ticket = clip(step.ticket_id, style.LONGEST_NAME)
    return Description(style.NOTED, f"{about.name}: its agent waits for ticket {ticket}", style.DOUBTFUL)


def _redaction_applied(step: says.RedactionApplied, about: Subject) -> Description:
    return Description(style.NOTED, f"{about.name}: {plural(step.pattern_count, 'secret')} masked", style.QUIET)


def _visibility_applied(step: says.VisibilityApplied, about: Subject) -> Description:
    allow = "all" if step.allow is None else style.listed(step.allow) or "nothing"
    deny = f", except {style.listed(step.deny)}" if step.deny else ""
    return Description(style.NOTED, f"{about.name}: may see {allow}{deny}", style.QUIET, news=False)


def _missing_key(step: says.MissingKey, about: Subject) -> Description:
    keys = f"it has {style.listed(step.keys)}" if step.keys else "it has none"
    loop, key = clip(step.loop, style.LONGEST_NAME), clip(step.key, style.LONGEST_NAME)
    return Description(style.WARNING, f"{about.name}: {loop} has no key {key}; {keys}", style.DOUBTFUL)


def _scope_export(step: says.ScopeExport, about: Subject) -> Description:
    scope = f" from {clip(step.scope, style.LONGEST_NAME)}" if step.scope else ""
    return Description(
        style.NOTED, f"{about.name}: exports {style.listed(step.exported_vars)}{scope}", style.QUIET, news=False
    )


def does_text(step: says.StepStart) -> str:
    """What a step does: its title, and `kubectl:delete`, the name of its extension, or its type."""
    does = step.extension or step.step_type
    if step.tool is not None:
        does = f"{step.tool}:{step.action}" if step.action else step.tool
    title = one_line(step.title, style.LONGEST_TITLE) if step.title else ""
    return f"{title} ({clip(does, style.LONGEST_NAME)})" if title else clip(does, style.LONGEST_NAME)


STEPS: Final[Describers] = {
    says.StepStart: _step_start,
    says.StepComplete: _step_complete,
    says.StepRetry: _step_retry,
    says.StepReconciled: _step_reconciled,
    says.StepWaiting: _step_waiting,
    says.RedactionApplied: _redaction_applied,
    says.VisibilityApplied: _visibility_applied,
    says.MissingKey: _missing_key,
    says.ScopeExport: _scope_export,
}
