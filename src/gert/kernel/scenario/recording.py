"""Records the requests and answers of a run as a scenario that reproduces it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from gert.errors import TraceError
from gert.kernel.engine.extract import ToolOutput, extract
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import UNSET
from gert.kernel.engine.requests import (
    Answer,
    AnyAnswer,
    ApprovalAnswer,
    AwaitApproval,
    CallExtension,
    CallPreview,
    CallTool,
    CollectEvidence,
    Emit,
    EvidenceAnswer,
    Request,
    RunLanes,
    Steps,
    SubmitApproval,
    TicketAnswer,
    ToolAnswer,
)
from gert.kernel.foundation.duration import MAX_SECONDS, format_duration
from gert.kernel.foundation.redaction import PLACEHOLDER
from gert.kernel.runbook.program import Program
from gert.kernel.scenario.script import BY, DURATION, FAILURE, REDACTED, REJECT

T = TypeVar("T")
Asks = dict[str, Request[Any]]

_BOUND: Final = ("env/", "file/", "provider/")


def collect_requests(steps: Steps[T], asks: Asks) -> Steps[T]:
    """Run the same steps, and collect their requests by key, including those of lanes."""
    value: Any = None
    go_on: Callable[[Any], Request[Any] | RunLanes | Emit] = steps.send
    while True:
        try:
            item = go_on(value)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(item, Request):
            asks[item.key] = item
        elif isinstance(item, RunLanes):
            item = RunLanes(tuple(collect_requests(lane, asks) for lane in item.lanes), item.after)
        try:
            value, go_on = (yield item), steps.send
        except TraceError as error:
            value, go_on = error, steps.throw


def recorded_scenario(setup: Setup, asks: Asks, answers: Iterable[tuple[str, AnyAnswer]]) -> dict[str, Any]:
    """Return the scenario document of a run."""
    program = setup.program
    sections: dict[str, list[tuple[Request[Any], dict[str, Any]]]] = {}
    stopped: list[tuple[str, str]] = []
    for ask, answer in _whole(asks, answers):
        if answer.failure is not None and answer.failure.kind == "cancelled":
            stopped.append((ask.key, answer.failure.message))
            continue
        section, block = _section(ask, answer, program)
        if section is not None:
            sections.setdefault(section, []).append((ask, block))
    given, found = _inputs(setup)
    document: dict[str, Any] = {"actor": setup.actor, "inputs": given, "input_answers": found}
    for section in ("tool_responses", "extension_responses", "evidence", "approvals", "previews"):
        document[section] = _by_key(sections.get(section, ()))
    if stopped:
        document["cancelled"] = {"reason": stopped[0][1], "questions": [key for key, _ in stopped]}
    return {name: value for name, value in document.items() if value}


def _whole(asks: Asks, answers: Iterable[tuple[str, AnyAnswer]]) -> Iterator[tuple[Request[Any], AnyAnswer]]:
    """The recorded questions with their answers; responses to one ticket are one answer, however often a run waited."""
    found = [(ask, answer) for key, answer in answers if (ask := asks.get(key)) is not None]
    last = {ask.ticket_id: ask.key for ask, _ in found if isinstance(ask, AwaitApproval)}
    before: dict[str, ApprovalAnswer] = {}
    for ask, answer in found:
        if isinstance(ask, AwaitApproval) and isinstance(answer, ApprovalAnswer):
            joined = before[ask.ticket_id] = _joined(before.get(ask.ticket_id), answer)
            if last[ask.ticket_id] == ask.key:
                yield ask, joined
        else:
            yield ask, answer


def _joined(before: ApprovalAnswer | None, answer: ApprovalAnswer) -> ApprovalAnswer:
    if before is None:
        return answer
    return msgspec.structs.replace(
        answer,
        responses=(*before.responses, *answer.responses),
        duration=before.duration + answer.duration,
        redacted=before.redacted + answer.redacted,
    )


def _inputs(setup: Setup) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs given by the caller, and the resolved ones; defaults are not recorded."""
    given: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for name, source in setup.started.input_sources.items():
        if source in ("default", UNSET):
            continue
        value = PLACEHOLDER if name in setup.secret_inputs else setup.inputs.get(name)
        (found if source == "prompt" or source.startswith(_BOUND) else given)[name] = value
    return given, found


def _by_key(entries: Iterable[tuple[Request[Any], dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Group answers in order by step; by path if a step ran in several places, whose order is not guaranteed."""
    listed = list(entries)
    paths: dict[str, set[str]] = {}
    for ask, _ in listed:
        paths.setdefault(ask.step_id, set()).add(ask.path)
    blocks: dict[str, list[dict[str, Any]]] = {}
    for ask, block in listed:
        blocks.setdefault(ask.step_id if len(paths[ask.step_id]) == 1 else ask.path, []).append(block)
    return blocks


def _section(ask: Request[Any], answer: AnyAnswer, program: Program) -> tuple[str | None, dict[str, Any]]:
    """Return the section of an answer, and its block there."""
    if isinstance(ask, CallTool) and isinstance(answer, ToolAnswer):
        return "tool_responses", _block(answer, _tool(ask, answer, program))
    if isinstance(ask, CallPreview) and isinstance(answer, ToolAnswer):
        return "previews", _block(answer, {"stdout": answer.stdout})
    if isinstance(ask, CallExtension) and isinstance(answer, ToolAnswer):
        by = msgspec.to_builtins(answer.principal) if answer.principal is not None else None
        said = {"exit_code": answer.exit_code, "stdout": answer.stdout, "stderr": answer.stderr}
        return "extension_responses", _block(answer, {**said, "outputs": answer.outputs, BY: by})
    if isinstance(ask, CollectEvidence) and isinstance(answer, EvidenceAnswer):
        return "evidence", _evidence(answer)
    if isinstance(ask, AwaitApproval) and isinstance(answer, ApprovalAnswer):
        return "approvals", _approval(answer)
    if isinstance(ask, SubmitApproval) and isinstance(answer, TicketAnswer) and answer.failure is not None:
        return "approvals", _block(answer, {"submitted": False})
    return None, {}


def _tool(ask: CallTool, answer: ToolAnswer, program: Program) -> dict[str, Any]:
    """Return what a tool printed; its outputs only if extracting them again would give different ones."""
    said: dict[str, Any] = {"exit_code": answer.exit_code, "stdout": answer.stdout, "stderr": answer.stderr}
    tool = program.tool_names[ask.tool].tool
    if tool is not None and answer.exit_code is not None:
        printed = ToolOutput(exit_code=answer.exit_code, stdout=answer.stdout, stderr=answer.stderr)
        again = extract(tool.actions[ask.action], ask.contract.outputs, printed)
        expected = again.failure if answer.failure is None or answer.failure.kind == "extraction" else None
        if again.outputs == answer.outputs and (expected is None or expected == answer.failure):
            return {**said, "again": answer.again}
    return {**said, "outputs": answer.outputs, "again": answer.again}


def _block(answer: Answer, said: Mapping[str, Any]) -> dict[str, Any]:
    failure = msgspec.to_builtins(answer.failure) if answer.failure is not None else None
    block = {**said, FAILURE: failure, REDACTED: answer.redacted or None, DURATION: _duration(answer)}
    # Empty outputs differ from none, which would be extracted.
    return {name: value for name, value in block.items() if value not in (None, "") or name == "outputs"}


def _evidence(answer: EvidenceAnswer) -> dict[str, Any]:
    failure = answer.failure
    beside: dict[str, Any] = {
        BY: answer.by.id if answer.by is not None else None,
        REDACTED: answer.redacted or None,
        DURATION: _duration(answer),
    }
    if failure is not None and failure.kind == "rejected":
        beside[REJECT] = failure.message
    elif failure is not None:
        beside[FAILURE] = msgspec.to_builtins(failure)
    # Evidence wins over `by` and `reject` if it has the same name.
    return {**{name: value for name, value in beside.items() if value is not None}, **answer.evidence}


def _approval(answer: ApprovalAnswer) -> dict[str, Any]:
    responses = [_response(each) for each in answer.responses]
    said = {"responses": responses or None, "expired": answer.expired or None}
    return _block(answer, said)


def _response(response: Any) -> dict[str, Any]:
    said = {
        "approver": response.approver,
        "approved": response.approved,
        "reason": response.reason,
        "timestamp": response.timestamp,
        "signed": response.verified or None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _duration(answer: Answer) -> str | None:
    seconds = min(answer.duration, MAX_SECONDS)
    return format_duration(timedelta(seconds=seconds)) if seconds > 0 else None
