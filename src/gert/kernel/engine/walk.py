"""Steps one after the other, and what happens around each: guard, contract, decision, approval, act, record."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gert.errors import GertError, InputError
from gert.kernel.engine.asks import Pause, Steps
from gert.kernel.engine.frame import Frame, RunBlock, questions, written
from gert.kernel.engine.govern import approve, permit
from gert.kernel.engine.handover import inputs_for, said
from gert.kernel.engine.kinds.assertion import run_assert
from gert.kernel.engine.kinds.branch import run_branch
from gert.kernel.engine.kinds.end import run_end
from gert.kernel.engine.kinds.extension import run_extension
from gert.kernel.engine.kinds.manual import run_manual
from gert.kernel.engine.kinds.parallel import run_parallel
from gert.kernel.engine.kinds.repeat import run_repeat
from gert.kernel.engine.kinds.tool import run_tool
from gert.kernel.engine.loop import DuplicateKey, run_loop
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.results import DONE, NEVER_CONTINUED, Result, failed
from gert.kernel.engine.unknown import is_unknown
from gert.kernel.events.runbook import (
    NextTaken,
    ScopeExport,
    StepComplete,
    StepRetry,
    StepStart,
    VisibilityApplied,
)
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.globs import split_path
from gert.kernel.foundation.principal import Principal, principal_of
from gert.kernel.runbook.documents.steps import AssertStep, ExtensionStep, ManualStep, Step, ToolStep

Act: TypeAlias = Callable[[Any, Frame, Plan, dict[str, Any], Iterator[str]], Steps[Result]]
Direct: TypeAlias = Callable[[Any, Frame, RunBlock], Steps[Result]]


# --- lists


def run_list(steps: tuple[Step, ...], frame: Frame, *, to_the_end: bool = False) -> Steps[Result]:
    """Run steps in order, minding jumps; `to_the_end` runs the rest after a failure, too."""
    jumps = _Jumps(steps, frame)
    first: Result | None = None
    at = 0
    while at < len(steps):
        step = steps[at]
        inside = frame.at_step(step.id or f"{step.type}#{at + 1}", jumps.visit(at))
        result = yield from run_step(step, inside)
        if result.failure is not None and not result.continued:
            first = first or result
        if result.stops and not (to_the_end and not result.ended and not _is_cancelled(result)):
            return result
        jump: NextTaken | None = None
        if step.next is not None and result.reason != "when_false":
            try:
                jump = jumps.take(at, inside)
            except GertError as error:
                return failed("evaluation", f"`next` of {step.label}: {said(error)}", failed_step=inside.path)
        if jump is not None:
            yield inside.say(jump)
            at = jumps.index[jump.target]
        else:
            at += 1
    return first or DONE


def _is_cancelled(result: Result) -> bool:
    return result.failure is not None and result.failure.kind == "cancelled"


class _Jumps:
    """The jumps of one list: how often each was taken, and how often each step was visited."""

    __slots__ = ("_frame", "_steps", "_taken", "_visits", "index")

    def __init__(self, steps: tuple[Step, ...], frame: Frame) -> None:
        self._steps = steps
        self._frame = frame
        self._taken: dict[int, int] = {}
        self._visits: dict[int, int] = {}
        self.index: dict[str, int] = {}
        if any(step.next is not None for step in steps):
            self.index = {step.id: index for index, step in enumerate(steps) if step.id is not None}
            for step in steps:
                for name in (step.id, step.next.step) if step.next is not None else ():
                    if name is not None:
                        frame.state.count(name, 0)

    def visit(self, at: int) -> int:
        """How often a step is visited, this time included."""
        if not self.index:
            return 1
        self._visits[at] = self._visits.get(at, 0) + 1
        return self._visits[at]

    def take(self, at: int, frame: Frame) -> NextTaken | None:
        """The jump a step makes, unless its bound is reached."""
        step = self._steps[at]
        block = step.next
        assert block is not None  # noqa: S101 - only called for steps with `next`
        most = frame.count(block.max) if block.max is not None else None
        count = self._taken.get(at, 0) + 1
        backward = self.index[block.step] <= at
        if most is not None and count > most:
            return None
        # A jump back whose bound is unknown shows nothing new in a dry run, and without a bound might never end.
        if backward and most is None:
            return None
        self._taken[at] = count
        for name in (step.id, block.step):
            if name is not None:
                frame.state.count(name, count)
        return NextTaken(step_id=frame.step_id, target=block.step, count=count, backward=backward, max=most)


# --- one step


def run_step(step: Step, frame: Frame) -> Steps[Result]:
    """Run one step of a list with its modifiers, and record what it set."""
    if step.for_each is None:
        return (yield from run_once(step, frame))
    yield frame.say(_start(step, frame))
    start = frame.clock.spent
    try:
        result = yield from run_loop(step, step.for_each, frame, run_once)
    except DuplicateKey as duplicate:
        result = failed("duplicate_key", f"two items have the key `{duplicate}`")
    except GertError as error:
        result = failed("evaluation", said(error))
    return (yield from _complete(step, _settled(step, result, frame), frame, start))


def run_once(step: Step, frame: Frame) -> Steps[Result]:
    """Run a step, or one iteration of it, if its guard allows."""
    try:
        holds = frame.holds(step.when)
    except GertError as error:
        start = frame.clock.spent
        return (yield from _complete(step, _settled(step, failed("evaluation", said(error)), frame), frame, start))
    if holds is False:
        _note(step, frame, "skipped")
        return (yield from _complete(step, Result(status="skipped", reason="when_false"), frame, frame.clock.spent))
    if holds is None:
        return (yield from _explored(step, frame))
    return (yield from _run(step, frame))


def _explored(step: Step, frame: Frame) -> Steps[Result]:
    """Nobody knows whether the guard holds: run the step, and doubt what it sets and how it ends."""
    state = frame.state.fork()
    result = yield from _run(step, msgspec.structs.replace(frame, state=state))
    frame.state.doubt([state, None])
    return result if _is_cancelled(result) else DONE


def _run(step: Step, frame: Frame) -> Steps[Result]:
    plan = frame.run.plan(step)
    start = frame.clock.spent
    if plan is None:
        yield frame.say(_start(step, frame))
        try:
            result = yield from DIRECT[step.type](step, frame, run_list)
        except GertError as error:
            result = failed("evaluation", said(error))
    else:
        try:
            frame = frame.seeing(plan, _principal(step, frame))
        except GertError as error:
            result = failed("evaluation", said(error))
        else:
            result = yield from _execute(step, frame, plan)
    return (yield from _complete(step, _settled(step, result, frame), frame, start))


def _execute(step: Step, frame: Frame, plan: Plan) -> Steps[Result]:
    """Contract, visibility, decision, inputs, approval, then the step itself."""
    evaluated = plan.evaluated
    if evaluated.step_id != frame.step_id:
        evaluated = msgspec.structs.replace(evaluated, step_id=frame.step_id)
    yield frame.say(evaluated)
    if frame.view is not None and step.visibility is not None:
        yield frame.say(
            VisibilityApplied(
                step_id=frame.step_id,
                view_hash=digest_value(frame.view),
                allow=step.visibility.allow,
                deny=step.visibility.deny or (),
            )
        )
    refusal = yield from permit(step, frame, plan)
    if refusal is not None:
        return refusal
    names = questions(frame)
    try:
        inputs = _prepared(step, frame, plan)
        refusal = yield from approve(step, frame, plan, inputs, names)
        if refusal is not None:
            return refusal
        yield frame.say(_start(step, frame, plan, inputs), frame.principal)
        result = yield from _attempts(step, frame, plan, inputs, names)
        return (yield from _kept(step, result, frame))
    except InputError as error:
        return failed("invalid_input", said(error))
    except GertError as error:
        return failed("evaluation", said(error))


def _prepared(step: Step, frame: Frame, plan: Plan) -> dict[str, Any]:
    if isinstance(step, ToolStep | ExtensionStep):
        return inputs_for(step, frame, plan)
    if isinstance(step, ManualStep):
        return {"instructions": frame.render_text(step.instructions)}
    return {}


def _attempts(step: Step, frame: Frame, plan: Plan, inputs: dict[str, Any], names: Iterator[str]) -> Steps[Result]:
    """Act, and again while the contract allows it and the failure is one the author wants retried."""
    act = ACT[step.type]
    attempt = 1
    while True:
        result = yield from act(step, frame, plan, inputs, names)
        failure = result.failure
        if failure is None or attempt > plan.retry.max or failure.kind in NEVER_CONTINUED:
            break
        if ("timeout" if failure.kind == "timeout" else result.status) not in plan.retry.on:
            break
        delay = plan.retry.delay(attempt)
        attempt += 1
        yield frame.say(
            StepRetry(
                step_id=frame.step_id,
                attempt=attempt,
                max=plan.retry.max + 1,
                delay=written(delay),
                failure=failure,
            )
        )
        if delay > 0:
            waited = yield from frame.ask(
                Pause(key=next(names), path=frame.path or "", step_id=frame.step_id, seconds=delay)
            )
            if waited.failure is not None:
                return failed(waited.failure.kind, waited.failure.message, attempts=attempt - 1)
    return msgspec.structs.replace(result, attempts=attempt) if attempt > 1 else result


# --- what a step leaves


def _kept(step: Step, result: Result, frame: Frame) -> Steps[Result]:
    """Set the outputs where they belong: global or in a scope, and what is exported."""
    state, outputs = frame.state, result.outputs
    scope: str | None = None
    if step.scope is not None and outputs:
        scope = frame.render_text(step.scope)
        state.set_scoped(_segments(scope), outputs)
    elif step.for_each is None and step.scope is None and not isinstance(step, AssertStep):
        for name, value in outputs.items():
            state.set_name(name, value)
    exported = tuple(name for name in step.export if name in outputs) if step.for_each is None else ()
    if exported:
        for name in exported:
            state.export(name, outputs[name])
        yield frame.say(ScopeExport(step_id=frame.step_id, exported_vars=exported, scope=scope))
    return result


def _segments(scope: str) -> tuple[str, ...]:
    if is_unknown(scope):
        return ("(unknown)",)
    segments = split_path(scope)
    if not all(segments) or len(segments) > 50:
        raise InputError(f"`{scope}` is not the path of a scope", hint="write for example `round/0`")
    return segments


def _settled(step: Step, result: Result, frame: Frame) -> Result:
    """The result as the run sees it: continued where the author says so, and with the step that failed."""
    if result.failure is not None:
        result = msgspec.structs.replace(
            result,
            failed_step=result.failed_step or frame.path,
            continued=step.continue_on_fail and result.failure.kind not in NEVER_CONTINUED,
        )
        if result.continued and result.outcome is not None:
            # The failure of one lane goes on record; the end another lane reached stands.
            result = msgspec.structs.replace(result, ended=True)
    if step.for_each is None and step.id is not None:
        frame.state.set_record(step.id, result.outputs, result.facts)
    return result


def _note(step: Step, frame: Frame, status: str) -> None:
    if step.for_each is None and step.id is not None:
        frame.state.set_status(step.id, status)


def _complete(step: Step, result: Result, frame: Frame, start: float) -> Steps[Result]:
    # What a loop or a block collects is recorded with the steps that gave it.
    shown = result.outputs if step.executes else {}
    yield frame.say(
        StepComplete(
            step_id=frame.step_id,
            status=result.status,
            duration=frame.clock.since(start),
            outputs=shown,
            failure=result.failure,
            reason=result.reason,
            exit_code=result.exit_code,
            evidence=result.evidence,
            attempts=result.attempts,
            continued=result.continued,
            assumed=result.assumed,
        ),
        result.principal or frame.principal,
    )
    return result


def _start(step: Step, frame: Frame, plan: Plan | None = None, inputs: Mapping[str, Any] | None = None) -> StepStart:
    if plan is None:
        return StepStart(step_id=frame.step_id, step_type=step.type, extensions=step.extensions)
    return StepStart(
        step_id=frame.step_id,
        step_type=step.type,
        contract_summary=plan.summary,
        tool=step.tool if isinstance(step, ToolStep) else None,
        action=plan.action,
        extension=step.extension if isinstance(step, ExtensionStep) else None,
        inputs=dict(inputs or {}) if isinstance(step, ToolStep | ExtensionStep) else {},
        scope=frame.render_text(step.scope) if step.scope is not None else None,
        secrets=plan.secrets,
        extensions=step.extensions,
    )


def _principal(step: Step, frame: Frame) -> Principal:
    declared = None
    if step.principal is not None:
        block = step.principal
        declared = Principal(
            block.kind,  # type: ignore[arg-type]
            frame.render_text(block.id),
            frame.render_text(block.role) if block.role is not None else None,
            frame.render_text(block.model) if block.model is not None else None,
        )
    return principal_of(declared, frame.item_key, frame.item, frame.run.actor)


# --- the kinds

ACT: Final[Mapping[str, Act]] = {
    "tool": run_tool,
    "manual": run_manual,
    "assert": run_assert,
    "extension": run_extension,
}

DIRECT: Final[Mapping[str, Direct]] = {
    "branch": run_branch,
    "parallel": run_parallel,
    "repeat": run_repeat,
    "end": run_end,
}
