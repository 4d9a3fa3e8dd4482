"""Runs one step: guard, contract, decision, approval, execution, result."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gert.errors import GertError, InputError
from gert.kernel.engine.approval_flow import OUTDATED, Approval, approve, outdated_event, run_preview
from gert.kernel.engine.clock import format_seconds
from gert.kernel.engine.frame import Frame, RunBlock, request_keys
from gert.kernel.engine.kinds.assertion import run_assert
from gert.kernel.engine.kinds.branch import run_branch
from gert.kernel.engine.kinds.end import run_end
from gert.kernel.engine.kinds.extension import run_extension
from gert.kernel.engine.kinds.group import run_group
from gert.kernel.engine.kinds.manual import run_manual
from gert.kernel.engine.kinds.parallel import run_parallel
from gert.kernel.engine.kinds.repeat import run_repeat
from gert.kernel.engine.kinds.tool import run_tool
from gert.kernel.engine.loop import DuplicateKey, run_loop
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.policy_gate import break_glass_override, permit, permit_retry
from gert.kernel.engine.requests import Pause, Steps
from gert.kernel.engine.results import NEVER_CONTINUED, Result, failed
from gert.kernel.engine.state import State
from gert.kernel.engine.state_maps import outputs_of
from gert.kernel.engine.step_events import (
    final_result,
    flow_start_event,
    scope_of,
    step_complete_event,
    step_start_event,
    store_outputs,
)
from gert.kernel.engine.step_inputs import error_line, inputs_for
from gert.kernel.events.runbook import ContractEvaluated, Failure, StepRetry, VisibilityApplied
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.principal import Principal, principal_of
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.runbook.documents.modifiers import ForEachBlock, PrincipalBlock
from gert.kernel.runbook.documents.steps import ExtensionStep, ManualStep, Step, ToolStep
from gert.kernel.template.unknown import UNKNOWN

RunExecuting: TypeAlias = Callable[
    [Any, Frame, Plan, dict[str, Any], Iterator[str], ApprovalRequest | None], Steps[Result]
]
RunFlow: TypeAlias = Callable[[Any, Frame, RunBlock], Steps[Result]]

EXECUTING_KINDS: Final[Mapping[str, RunExecuting]] = {
    "tool": run_tool,
    "manual": run_manual,
    "assert": run_assert,
    "extension": run_extension,
}

FLOW_KINDS: Final[Mapping[str, RunFlow]] = {
    "branch": run_branch,
    "parallel": run_parallel,
    "repeat": run_repeat,
    "group": run_group,
    "end": run_end,
}


def run_step(step: Step, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Run one step of a list with its modifiers, and record what it set."""
    if step.for_each is not None:
        return _run_each(step, step.for_each, frame, run_block)
    return _run_once(step, frame, run_block)


def _run_each(step: Step, block: ForEachBlock, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Run a step for each item of a list."""

    def run_item(inside: Frame) -> Steps[Result]:
        return _run_once(step, inside, run_block)

    start = frame.clock.now
    yield flow_start_event(step, frame)
    try:
        result = yield from _run_block(step, frame, lambda inside: run_loop(step, block, inside, run_item))
    except DuplicateKey as duplicate:
        message = f"two items have the key `{duplicate}`; `uniq` leaves out equal items"
        result = _set_no_results(step, frame, failed("duplicate_key", message))
    except GertError as error:
        result = _set_no_results(step, frame, failed("evaluation", error_line(error)))
    result = final_result(step, result, frame)
    yield from frame.missing_key_events()
    yield step_complete_event(step, result, frame, start)
    return result


def _set_no_results(step: Step, frame: Frame, result: Result) -> Result:
    """Set an empty result for a loop that failed before its first item."""
    if step.id is not None:
        frame.state.set_results(step.id, [], result.status)
    return result


def _run_once(step: Step, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Run a step, or one iteration of it, if its `when` holds."""
    return _run(step, frame, run_block) if step.when is None else _run_guarded(step, frame, run_block)


def _run_guarded(step: Step, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    start = frame.lane.clock.now
    try:
        holds = frame.holds(step.when)
    except GertError as error:
        result = final_result(step, failed("evaluation", error_line(error)), frame)
        yield from frame.missing_key_events()
        yield step_complete_event(step, result, frame, start)
        return result
    if holds is None:
        return (yield from _explore(step, frame, run_block))
    if holds:
        return (yield from _run(step, frame, run_block))
    if step.for_each is None and step.id is not None:
        frame.state.set_status(step.id, "skipped")
    result = Result(status="skipped", reason="when_false")
    yield from frame.missing_key_events()
    yield step_complete_event(step, result, frame, start)
    return result


def _explore(step: Step, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    """Run a step whose `when` is unknown; its outputs and its result are uncertain."""
    state = frame.state.fork(uncertain=True)
    result = yield from _run(step, frame.with_state(state), run_block)
    return result if result.is_cancelled else _uncertain_result(result, frame, state)


def _uncertain_result(result: Result, frame: Frame, state: State) -> Result:
    """Return the result of a step that may have ended differently, or may not have run."""
    frame.run.add_uncertain_end(result)
    frame.state.merge_uncertain([state, None])
    return Result(
        status="skipped",
        reason=frame.run.assumption,
        outputs=outputs_of(result.outputs).with_values(dict.fromkeys(result.outputs, UNKNOWN)),
        assumed=True,
        uncertain=True,
    )


def _run_block(step: Step, frame: Frame, run: Callable[[Frame], Steps[Result]]) -> Steps[Result]:
    """Run a block; with `continue_on_fail`, a block that contains assumed steps may have failed."""
    if not (step.continue_on_fail and frame.run.setup.explores):
        return (yield from run(frame))
    state, guesses = frame.state.fork(uncertain=True), frame.run.guesses
    result = yield from run(frame.with_state(state))
    if frame.run.guesses > guesses and not result.is_cancelled:
        return _uncertain_result(result, frame, state)
    if state.changes is not None:
        frame.state.merge(state.changes)
    frame.state.executions.update(state.executions)
    return result


def _run(step: Step, frame: Frame, run_block: RunBlock) -> Steps[Result]:
    start = frame.lane.clock.now
    plan = frame.lane.run.plan(step)
    try:
        if plan is None:
            yield flow_start_event(step, frame)
            result = yield from _run_block(step, frame, lambda inside: FLOW_KINDS[step.type](step, inside, run_block))
        else:
            frame = frame.with_view(plan.settings.visibility, frame.lane.run.actor)
            frame = frame if _uses_run_actor(step, frame) else frame.acting_as(_principal(step.principal, frame))
            result = yield from _execute(step, frame, plan)
    except InputError as error:
        result = failed("invalid_input", error_line(error))
    except GertError as error:
        result = failed("evaluation", error_line(error))
    result = final_result(step, result, frame)
    yield from frame.missing_key_events()
    yield step_complete_event(step, result, frame, start)
    return result


def _uses_run_actor(step: Step, frame: Frame) -> bool:
    return step.principal is None and frame.lane.item_key is None


def _execute(step: Step, frame: Frame, plan: Plan) -> Steps[Result]:
    """Emit contract, visibility and decision, prepare inputs, get the approval, then run the step itself."""
    settings = plan.settings
    yield frame.emit(ContractEvaluated(step_id=frame.step_id, resolved_contract=settings.full))
    if frame.view is not None and step.visibility is not None:
        yield frame.emit(
            VisibilityApplied(
                step_id=frame.step_id,
                view_hash=digest_value(frame.view),
                allow=step.visibility.allow,
                deny=step.visibility.deny or (),
            )
        )
    decided, refusal = permit(step, frame, settings)
    yield decided
    override = None if settings.is_free else break_glass_override(frame, settings, refusal)
    if override is not None:
        yield frame.emit(override, frame.run.actor)
        refusal = None
    if refusal is not None:
        frame.run.add_denied(frame.path or "", refusal)
        return refusal
    keys = request_keys(frame)
    scope = scope_of(step, frame) if step.scope is not None else None
    inputs = _prepare_inputs(step, frame, plan)
    approval: Approval | Result | None = None
    if override is None and not settings.is_free:
        approval = yield from approve(step, frame, settings, inputs, keys)
        if isinstance(approval, Result) and not approval.assumed:
            return approval
    elif settings.preview is not None:
        yield from run_preview(step, frame, settings, inputs, keys)
    yield step_start_event(step, frame, settings, inputs, scope.text if scope is not None else None)
    if isinstance(approval, Result):
        result = approval
    elif approval is not None:
        result = yield from _run_approved(step, frame, plan, inputs, keys, approval)
    elif settings.retry.max:
        result = yield from _run_attempts(step, frame, plan, inputs, keys, None, unlimited=override is not None)
    else:
        result = yield from EXECUTING_KINDS[step.type](step, frame, plan, inputs, keys, None)
    if result.outputs:
        result = msgspec.structs.replace(result, outputs=outputs_of(result.outputs))
    exported = store_outputs(step, result, frame, scope)
    if exported is not None:
        yield exported
    return result


def _prepare_inputs(step: Step, frame: Frame, plan: Plan) -> dict[str, Any]:
    if isinstance(step, ToolStep | ExtensionStep):
        return inputs_for(step, frame, plan)
    return {"instructions": frame.render_text(step.instructions)} if isinstance(step, ManualStep) else {}


def _run_approved(
    step: Step, frame: Frame, plan: Plan, inputs: dict[str, Any], keys: Iterator[str], approval: Approval
) -> Steps[Result]:
    """Run an approved step; if the approval does not cover the call, get a new one first."""
    while True:
        result = yield from _run_attempts(step, frame, plan, inputs, keys, approval.request)
        if result.failure is None or result.failure.kind != OUTDATED:
            return result
        yield outdated_event(frame, approval, result.failure.message)
        again = yield from approve(step, frame, plan.settings, inputs, keys)
        if not isinstance(again, Approval):
            return again or result
        approval = again


def _run_attempts(
    step: Step,
    frame: Frame,
    plan: Plan,
    inputs: dict[str, Any],
    keys: Iterator[str],
    approval: ApprovalRequest | None,
    *,
    unlimited: bool = False,
) -> Steps[Result]:
    """Run the step, and retry while its `retry` covers the failure and no limit is reached.

    unlimited: limits were overridden in an emergency
    """
    act, retry = EXECUTING_KINDS[step.type], plan.settings.retry
    attempt = 1
    while True:
        result = yield from act(step, frame, plan, inputs, keys, approval)
        failure = result.failure
        if failure is None or attempt > retry.max or failure.kind in NEVER_CONTINUED:
            break
        if ("timeout" if failure.kind == "timeout" else result.status) not in retry.on:
            break
        denied, refusal = permit_retry(step, frame, plan.settings)
        if denied is not None and not unlimited:
            yield denied
            override = break_glass_override(frame, plan.settings, refusal)
            if override is None:
                return _retry_denied(step, result, refusal, attempt)
            unlimited = True
            yield frame.emit(override, frame.run.actor)
        delay = retry.delay(attempt)
        attempt += 1
        yield frame.emit(
            StepRetry(
                step_id=frame.step_id,
                attempt=attempt,
                max=retry.max + 1,
                delay=format_seconds(delay),
                failure=failure,
            )
        )
        if delay > 0:
            waited = yield from frame.request(
                Pause(key=next(keys), path=frame.path or "", step_id=frame.step_id, seconds=delay)
            )
            if waited.failure is not None:
                return failed(waited.failure.kind, waited.failure.message, attempts=attempt - 1)
    return msgspec.structs.replace(result, attempts=attempt) if attempt > 1 else result


def _retry_denied(step: Step, result: Result, refusal: Result | None, attempts: int) -> Result:
    """Return the result of a failed step that a limit keeps from a retry: it ran, so it failed and is not skipped."""
    last, limit = result.failure, refusal.failure if refusal is not None else None
    assert last is not None and limit is not None  # noqa: S101, PT018 - both have failed
    message = f"{step.label} was not retried: {limit.message}; the last attempt failed: {last.message}"
    failure = Failure("denied", message)
    return msgspec.structs.replace(result, status="failed", failure=failure, attempts=attempts)


def _principal(block: PrincipalBlock | None, frame: Frame) -> Principal:
    """Return the principal: declared on the step, else the keyed item, else the run's actor."""
    declared = None
    if block is not None:
        declared = Principal(
            block.kind,  # type: ignore[arg-type]
            frame.render_text(block.id),
            frame.render_text(block.role) if block.role is not None else None,
            frame.render_text(block.model) if block.model is not None else None,
        )
    return principal_of(declared, frame.lane.item_key, frame.lane.item, frame.run.actor)
