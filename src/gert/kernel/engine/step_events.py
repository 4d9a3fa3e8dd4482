"""Events of a step's start and end, and the outputs it stores in the state."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.errors import GertError, InputError
from gert.kernel.engine.clock import format_wait
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import StepSettings
from gert.kernel.engine.requests import Emit
from gert.kernel.engine.results import NEVER_CONTINUED, Result
from gert.kernel.engine.state import REPEAT, STEP
from gert.kernel.engine.state_maps import outputs_of
from gert.kernel.engine.step_inputs import masked_inputs
from gert.kernel.events.path import split
from gert.kernel.events.runbook import ScopeExport, StepComplete, StepStart
from gert.kernel.foundation.globs import split_path
from gert.kernel.foundation.secret_refs import is_marked, masked
from gert.kernel.runbook.documents.steps import AssertStep, ExtensionStep, ManualStep, Step, ToolStep
from gert.kernel.template.unknown import is_unknown

_DEEPEST_SCOPE = 50
RESERVED_SCOPES: Final = frozenset({REPEAT, STEP})
"""Scopes of gert's own: archives of repeated blocks, and records of steps. No step writes there."""


def flow_start_event(step: Step, frame: Frame) -> Emit:
    """Return the start event of a loop, or of a step that only directs flow."""
    started = StepStart(
        step_id=frame.step_id, step_type=step.type, title=title_of(step, frame), extensions=step.extensions
    )
    return Emit(started, frame.path, None)


def title_of(step: Step, frame: Frame) -> str | None:
    """Return the title of a step after templates; a title that cannot be rendered is left out, the step still runs."""
    if step.title is None:
        return None
    item = step.for_each.as_ if step.for_each is not None and not (frame.path or "").endswith("]") else None
    if item is not None and any(each.path[:1] == (item,) for each in step.title.references):
        return None  # the title of one item names no loop
    try:
        text: str = masked(frame.render_text(step.title))
        return text
    except GertError:
        return None


class Scope(msgspec.Struct, frozen=True):
    """The scope of a step: its rendered text, and the path that its outputs are stored at."""

    text: str
    segments: tuple[str, ...]


def scope_of(step: Step, frame: Frame) -> Scope | None:
    """Return the scope of a step, if it declares one; InputError if it is not a valid path.

    A loop with one scope stores each item under its key or index, so that items do not replace each other.
    """
    if step.scope is None:
        return None
    text = frame.render_text(step.scope)
    segments = _segments(text)
    block = step.for_each
    if block is not None and not any(each.path[:1] == (block.as_,) for each in step.scope.references):
        _, name = split(frame.path or "")[-1]
        segments = (*segments, name or "")
    return Scope(text, segments)


def step_start_event(
    step: Step, frame: Frame, settings: StepSettings, inputs: Mapping[str, Any], scope: str | None
) -> Emit:
    """Return the start event of a step that is about to execute."""
    if isinstance(step, ToolStep):
        started = StepStart(
            step_id=frame.step_id,
            step_type="tool",
            title=title_of(step, frame),
            contract_summary=settings.summary,
            tool=step.tool,
            action=settings.action,
            inputs=masked_inputs(inputs, settings.contract) if settings.hides else dict(inputs),
            scope=scope,
            secrets=settings.secrets,
            extensions=step.extensions,
        )
    else:
        started = StepStart(
            step_id=frame.step_id,
            step_type=step.type,
            title=title_of(step, frame),
            contract_summary=settings.summary,
            extension=step.extension if isinstance(step, ExtensionStep) else None,
            inputs=masked_inputs(inputs, settings.contract) if isinstance(step, ExtensionStep) else {},
            instructions=masked(inputs["instructions"]) if isinstance(step, ManualStep) else None,
            scope=scope,
            extensions=step.extensions,
        )
    return Emit(started, frame.path, frame.principal)


def store_outputs(step: Step, result: Result, frame: Frame, scope: Scope | None) -> Emit | None:
    """Store the outputs as global names or in a scope, and export them; return the event of the export."""
    state, outputs = frame.lane.state, outputs_of(result.outputs)
    if scope is not None:
        if outputs:
            state.set_scoped(scope.segments, outputs, frame.path or "")
    elif step.for_each is None and not isinstance(step, AssertStep):
        for name, value in outputs.items():
            state.set_name(name, value, outputs.origins[name])
    if not step.export or step.for_each is not None:
        return None
    exported = tuple(name for name in step.export if name in outputs)
    for name in exported:
        state.export(name, outputs[name], outputs.origins[name])
    if not exported:
        return None
    text = scope.text if scope is not None else None
    return frame.emit(ScopeExport(step_id=frame.step_id, exported_vars=exported, scope=text))


def final_result(step: Step, result: Result, frame: Frame) -> Result:
    """Return the result for the run: with the path of the failed step, and continued if the author says so."""
    if result.failure is not None:
        continued = step.continue_on_fail and result.failure.kind not in NEVER_CONTINUED
        result = msgspec.structs.replace(
            result,
            failed_step=result.failed_step or frame.path,
            continued=continued,
            # The failure of one lane is recorded; the outcome that another lane reached counts.
            ended=result.ended or (continued and result.outcome is not None),
        )
    if step.for_each is None and step.id is not None:
        frame.lane.state.set_record(step.id, result.outputs, result.facts)
    return result


def step_complete_event(step: Step, result: Result, frame: Frame, start: float) -> Emit:
    """Return the end event of a step. The outputs of a loop or a block are recorded with the steps inside it."""
    completed = StepComplete(
        step_id=frame.step_id,
        status=result.status,
        duration=frame.lane.clock.since(start),
        waited=format_wait(frame.lane.clock.waited(start)),
        outputs=result.outputs if step.executes else {},
        exit_code=result.exit_code,
        child_run_id=result.child_run_id,
    )
    if result.reason is not None and result.failure is not None:
        frame.run.refusals.setdefault(frame.path or frame.step_id, result.reason)
    if result.status != "success" or result.attempts > 1 or result.evidence or result.assumed:
        completed = msgspec.structs.replace(
            completed,
            failure=result.failure,
            reason=result.reason,
            evidence=result.evidence,
            attempts=result.attempts,
            continued=result.continued,
            assumed=result.assumed,
        )
    return Emit(completed, frame.path, result.principal or frame.principal)


def _segments(scope: str) -> tuple[str, ...]:
    if is_unknown(scope):
        return (scope,)
    if is_marked(scope):
        raise InputError(
            "a secret cannot be part of a scope", hint="scopes are recorded and shown; use another value in `scope`"
        )
    segments = split_path(scope)
    if segments[0] in RESERVED_SCOPES:
        raise InputError(
            f"the scope `{scope}` begins with `{segments[0]}`, which gert reserves", hint="rename the scope"
        )
    if not all(segments) or len(segments) > _DEEPEST_SCOPE:
        raise InputError(f"`{scope}` is not a valid scope path", hint="use a path such as `round/0`")
    return segments
