"""Runs a program from `run_start` through its steps and `finally` to `run_complete`."""

from typing import Any

import msgspec

from gert.errors import GertError
from gert.kernel.engine.clock import Clock, Timeline, format_seconds, format_wait
from gert.kernel.engine.frame import Frame, LaneContext, Run, Setup
from gert.kernel.engine.requests import Emit, Steps
from gert.kernel.engine.results import Result, failed
from gert.kernel.engine.state import State
from gert.kernel.engine.step_inputs import error_line
from gert.kernel.engine.walk import run_list
from gert.kernel.events.runbook import (
    DeniedStep,
    Failure,
    FinallyComplete,
    FinallyStart,
    InputResolved,
    Outcome,
    RunCancelled,
    RunComplete,
    RunStart,
)
from gert.kernel.events.vocabulary import RunStatus, SkipReason
from gert.kernel.governance.decide import decide_outcome
from gert.kernel.runbook.program import Program
from gert.kernel.template import render_value
from gert.kernel.template.unknown import unknown_as_text


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended.

    duration: seconds from its first to its last event
    waited: the part of it spent waiting for people, a free lane or a resume
    reason: why a step was not allowed to run, where that failed the run
    notify: people to notify, from the rules on the outcome
    """

    status: RunStatus
    duration: float
    waited: float = 0.0
    outcome: Outcome | None = None
    failure: Failure | None = None
    failed_step: str | None = None
    reason: SkipReason | None = None
    reachable_outcomes: tuple[Outcome, ...] = ()
    denied: tuple[DeniedStep, ...] = ()
    finally_failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()


def run(setup: Setup) -> Steps[RunResult]:
    """Run a validated program with resolved inputs."""
    context = Run(setup)
    constants, flaw = _constants(setup)
    yield Emit(_run_start(setup, constants), None, context.actor)
    for name, source in setup.started.input_sources.items():
        # For a secret this is the reference, which is recorded as a placeholder.
        yield Emit(InputResolved(name=name, source=source, value=setup.inputs.get(name)), None, None)
    state = State({**setup.inputs, **constants}, context.report_missing_key)
    frame = Frame(LaneContext(run=context, state=state, clock=Clock(Timeline())))
    steps = setup.program.runbook.steps
    result = flaw if flaw is not None else (yield from run_list(steps, frame))
    if not result.stops:
        result = failed("no_outcome", "the run reached the end of its steps without an `end`")
    context.add_outcome(result.outcome if result.ended else None)
    status = _status(result)
    if status == "cancelled" and result.failure is not None:
        yield Emit(RunCancelled(reason=result.failure.message), None, None)
    after = yield from _finally(setup.program, frame, status)
    for path, missing in context.missing.items():
        for each in missing:
            yield Emit(each, path or None, None)
    outcome = None if setup.explores or status != "completed" else result.outcome
    ended = RunResult(
        status=status,
        duration=frame.clock.now,
        waited=frame.clock.waited(0.0),
        outcome=outcome,
        notify=() if outcome is None else tuple(sorted(decide_outcome(outcome.category, setup.policies).notify)),
        failure=result.failure if status != "completed" else None,
        failed_step=result.failed_step if status != "completed" else None,
        reason=context.refusals.get(result.failed_step or "") if status == "failed" else None,
        reachable_outcomes=tuple(_plain_outcome(each) for each in context.outcomes) if setup.explores else (),
        denied=tuple(context.denied.values()) if setup.explores else (),
        finally_failure=after,
        warnings=tuple(context.warnings.values()),
    )
    yield Emit(_run_complete(ended, frame, setup), None, None)
    return ended


def _plain_outcome(outcome: Outcome) -> Outcome:
    """Return an outcome whose unknown values are plain text."""
    return Outcome(outcome.category, str(outcome.code), unknown_as_text(outcome.meta))


def _status(result: Result) -> RunStatus:
    if result.ended:
        return "completed"
    if result.failure is None:
        return "error"
    if result.failure.kind == "cancelled":
        return "cancelled"
    # A denied step is skipped; the run it stopped has failed (DECISIONS 23).
    return "failed" if result.status in ("failed", "skipped") else "error"


def _constants(setup: Setup) -> tuple[dict[str, Any], Result | None]:
    """Render the constants; each can read the inputs and the constants before it."""
    constants: dict[str, Any] = {}
    for name, value in setup.program.runbook.meta.constants.items():
        try:
            constants[name] = render_value(value, {**setup.inputs, **constants})
        except GertError as error:
            return constants, failed("evaluation", f"the constant `{name}`: {error_line(error)}")
    return constants, None


def _finally(program: Program, frame: Frame, status: RunStatus) -> Steps[Failure | None]:
    """Run every `finally` step; they do not change how the run ended."""
    steps = program.runbook.finally_
    if not steps:
        return None
    if frame.run.skipped_write:
        # The path that led here is unknown.
        frame.state.skip_write()
    yield Emit(FinallyStart(status=status, step_count=len(steps)), None, None)
    result = yield from run_list(steps, frame.inside("finally"), to_the_end=True)
    failure = None if result.continued else result.failure
    step_status = result.status if failure is not None else "success"
    yield Emit(FinallyComplete(status=step_status, failure=failure), None, None)
    return failure


def _run_start(setup: Setup, constants: dict[str, Any]) -> RunStart:
    runbook = setup.program.runbook
    tools = {
        lookup.tool.meta.name: lookup.document.digest
        for lookup in setup.program.lookups.values()
        if lookup.document is not None and lookup.tool is not None
    }
    return msgspec.structs.replace(
        setup.started,
        runbook=runbook.meta.name,
        tool_hashes=tools,
        constants=constants,
        secrets=tuple(secret_names(setup.program)),
        extensions=runbook.meta.extensions,
    )


def secret_names(program: Program) -> list[str]:
    """Return the environment variables that the runbook and its tools declare as secrets."""
    tools = [lookup.tool for lookup in program.lookups.values() if lookup.tool is not None]
    declared = [*program.runbook.meta.secrets, *(secret for tool in tools for secret in tool.all_secrets)]
    return list(dict.fromkeys(secret.env for secret in declared))


def _run_complete(ended: RunResult, frame: Frame, setup: Setup) -> RunComplete:
    return RunComplete(
        status=ended.status,
        mode=setup.mode,
        duration=format_seconds(ended.duration),
        waited=format_wait(ended.waited),
        outcome=ended.outcome,
        failure=ended.failure,
        failed_step=ended.failed_step,
        reachable_outcomes=ended.reachable_outcomes,
        denied=ended.denied,
        finally_failure=ended.finally_failure,
        break_glass=frame.run.break_glass_count,
    )
