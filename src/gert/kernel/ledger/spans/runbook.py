"""The spans of a runbook run: the run, its steps, lanes and items by their paths, and approvals."""

from collections.abc import Iterator
from typing import Final

import msgspec

from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import child
from gert.kernel.events.payload import Payload
from gert.kernel.ledger.spans.open_spans import OpenSpans, approval_event
from gert.kernel.ledger.spans.span import link_to, nanoseconds, trace_id_of

RUN: Final = "run"
_Key = str | tuple[str, str]
_OPENING: Final = (
    says.StepStart,
    says.StepComplete,
    says.ContractEvaluated,
    says.GovernanceDecision,
    says.ForEachItem,
    says.ApprovalSubmitted,
    says.PreviewCaptured,
    says.PreviewSkipped,
)
"""Events that may be the first of a step."""


def fold_runbook(spans: OpenSpans, event: Envelope, said: Payload) -> None:
    """Fold one event of a runbook run."""
    if isinstance(said, says.RunStart):
        _start(spans, event, said)
        return
    if isinstance(said, says.RunComplete):
        _complete(spans, event, said)
        return
    key = _around(spans, event, said)
    spans.touch(key, nanoseconds(event.timestamp))
    if approval_event(spans, event, said, key) or _step_event(spans, event, said, key):
        return
    _marks(spans, event, said, key)


def _start(spans: OpenSpans, event: Envelope, said: says.RunStart) -> None:
    links = spans.join(said.parent_run_id, said.root_run_id)
    span = spans.begin(
        RUN,
        f"invoke_workflow {said.runbook}",
        event,
        parent_id=spans.caller,
        links=links,
        gen_ai__operation__name="invoke_workflow",
        gen_ai__workflow__name=said.runbook,
        gert__run__id=event.run_id,
        gert__run__kind="runbook",
        gert__run__mode=said.mode,
        gert__run__parent_id=said.parent_run_id,
        gert__actor=said.actor,
        gert__tenant=event.tenant,
    )
    spans.capture(span, gert__run__inputs=said.inputs)


def _complete(spans: OpenSpans, event: Envelope, said: says.RunComplete) -> None:
    outcome, failure = said.outcome, said.failure
    spans.say(
        spans.get(RUN),
        gert__run__status=said.status,
        gert__outcome__category=outcome.category if outcome is not None else None,
        gert__outcome__code=outcome.code if outcome is not None else None,
        gert__failed_step=said.failed_step,
        gert__break_glass=said.break_glass or None,
    )
    error = None if said.status == "completed" else failure.kind if failure is not None else said.status
    spans.end(RUN, event, error=error, message=failure.message if failure is not None else None)


def _around(spans: OpenSpans, event: Envelope, said: Payload) -> _Key:
    """Return the key of the span that an event is about; its first event begins it."""
    path = event.path
    if path is None:
        return RUN
    key = ("step", path)
    if spans.get(key) is not None:
        return key
    outer = next((("step", each) for each in outer_paths(path) if spans.get(("step", each)) is not None), None)
    if not isinstance(said, _OPENING):
        return outer or RUN
    step_id = getattr(said, "step_id", path)
    spans.begin(key, f"step {step_id}", event, parent=outer or RUN, gert__step__id=step_id, gert__step__path=path)
    return key


def outer_paths(path: str) -> Iterator[str]:
    """Yield the paths around a path, the nearest first."""
    while path:
        path = path[: path.rindex("[")] if path.endswith("]") and "[" in path else path.rpartition("/")[0]
        if path:
            yield path


def _step_event(spans: OpenSpans, event: Envelope, said: Payload, key: _Key) -> bool:
    span = spans.get(key)
    match said:
        case says.StepStart():
            tool = f"{said.tool}.{said.action}" if said.tool and said.action else said.tool or said.extension
            if span is not None and tool:
                span.name = f"execute_tool {tool}"[:256]
                spans.say(span, gen_ai__operation__name="execute_tool", gen_ai__tool__name=tool)
                spans.say(span, gen_ai__tool__type="extension")
            spans.say(span, gert__step__type=said.step_type)
            spans.capture(span, gen_ai__tool__call__arguments=said.inputs if tool else None)
        case says.StepComplete():
            failure = said.failure
            spans.say(
                span,
                gert__step__status=said.status,
                gert__step__skipped=said.reason,
                gert__step__attempts=said.attempts if said.attempts > 1 else None,
                gert__step__continued=said.continued or None,
                gert__step__exit_code=said.exit_code,
            )
            spans.capture(span, gen_ai__tool__call__result=said.outputs)
            failed = said.status in ("failed", "error")
            error: str | None = failure.kind if failure is not None else said.status if failed else None
            if said.reason in ("governance_denied", "approval_rejected"):
                error = error or said.reason
            spans.end(key, event, error=error, message=failure.message if failure is not None else None)
        case says.GovernanceDecision():
            spans.say(
                span,
                gert__decision=said.decision,
                gert__rule=said.rule,
                gert__risk=said.risk_level,
                gert__approval__status=said.approval_result,
            )
        case says.ForEachStart():
            items = None if said.explored else said.item_count
            spans.say(span, gert__loop__items=items, gert__loop__parallel=said.parallel)
        case says.ForEachItem():
            spans.say(span, gert__loop__index=said.index)
        case says.ParallelFork():
            _fork(spans, event, said)
        case says.ParallelMerge():
            _merge(spans, event, said)
        case _:
            return False
    return True


def _fork(spans: OpenSpans, event: Envelope, said: says.ParallelFork) -> None:
    path = event.path or ""
    for index in range(said.branch_count):
        lane = said.branches[index] if index < len(said.branches) else str(index)
        spans.begin(
            ("step", child(path, lane)),
            f"lane {lane}",
            event,
            parent=("step", path),
            part=index + 1,
            gert__lane=lane,
            gert__lane__index=index,
            gert__step__path=child(path, lane),
        )


def _merge(spans: OpenSpans, event: Envelope, said: says.ParallelMerge) -> None:
    path = event.path or ""
    for each in said.branch_outcomes:
        for lane in (each.label, str(each.index)):
            key = ("step", child(path, lane)) if lane else None
            if key is not None and spans.get(key) is not None:
                failure = each.failure
                spans.say(spans.get(key), gert__step__status=each.status)
                error = failure.kind if failure is not None else each.status if each.status == "error" else None
                spans.end(key, event, error=error, message=failure.message if failure else None, late=False)
                break


def _marks(spans: OpenSpans, event: Envelope, said: Payload, key: _Key) -> None:
    match said:
        case says.StepRetry():
            spans.mark(
                key,
                "step.retry",
                event,
                gert__attempt=said.attempt,
                gert__delay=said.delay,
                error__type=said.failure.kind,
            )
        case says.BreakGlass():
            spans.mark(key, "break_glass", event, gert__actor=said.actor, gert__decision=said.overridden)
        case says.ContractViolation():
            spans.mark(key, "contract_violation", event, error__type=said.kind, gert__severity=said.severity)
        case says.StepWaiting():
            spans.mark(key, "step.waiting", event, gert__ticket__id=said.ticket_id)
        case says.StepReconciled():
            spans.mark(key, "step.reconciled", event, gert__choice=said.choice, gert__automatic=said.automatic)
        case says.BranchEnter():
            spans.mark(key, "branch.enter", event, gert__branch=said.branch_label)
        case says.RepeatIteration():
            spans.mark(key, "repeat.iteration", event, gert__loop__index=said.index)
        case says.NextTaken():
            spans.mark(key, "next", event, gert__target=said.target, gert__count=said.count)
        case says.RunResumed():
            spans.mark(RUN, "run.resumed", event, gert__actor=said.actor)
        case says.RunAdopted():
            spans.mark(RUN, "run.adopted", event, gert__actor=said.actor)
        case says.RunForked():
            _relink(spans, said)
            spans.mark(RUN, "run.forked", event, gert__run__id=said.source_run_id, gert__step__id=said.from_step)
        case says.RunCancelled():
            spans.mark(RUN, "run.cancelled", event)
        case says.FinallyStart():
            spans.mark(RUN, "finally", event, gert__run__status=said.status)
        case _:
            pass


def _relink(spans: OpenSpans, said: says.RunForked) -> None:
    """Link a rerun to the run that it repeats in the trace of that run's root."""
    span = spans.get(RUN)
    if span is not None and said.source_root_run_id is not None:
        link = link_to(said.source_run_id, "parent")
        span.links = [msgspec.structs.replace(link, trace_id=trace_id_of(said.source_root_run_id))]
