"""Compare two recorded runs, step by step."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from gert.errors import TraceError
from gert.kernel.events.agent import (
    ModelCompleted,
    ModelFailed,
    ModelRequested,
    RunEnded,
    ToolCompleted,
    ToolRequested,
    WorkflowStepCompleted,
    WorkflowStepRequested,
)
from gert.kernel.events.envelope import decode
from gert.kernel.events.runbook import RunComplete, StepComplete
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

Change = Literal["only_in_a", "only_in_b", "changed"]


class Difference(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a step differs between two runs.

    fields: for each field that differs, its two values
    """

    step: str
    change: Change
    fields: dict[str, tuple[Any, Any]] = {}


Steps = dict[str, dict[str, Any]]


def compare_runs(a: Iterable[bytes], b: Iterable[bytes]) -> tuple[list[Difference], int]:
    """Return how two runs differ, in the order of their steps, and how many steps are the same."""
    left, right = steps_of(a), steps_of(b)
    found: list[Difference] = []
    for step in dict.fromkeys((*left, *right)):
        if step not in right:
            found.append(Difference(step=step, change="only_in_a"))
        elif step not in left:
            found.append(Difference(step=step, change="only_in_b"))
        elif fields := _changed(left[step], right[step]):
            found.append(Difference(step=step, change="changed", fields=fields))
    return found, len(left.keys() & right.keys()) - sum(each.change == "changed" for each in found)


def steps_of(lines: Iterable[bytes]) -> Steps:
    """Return the steps of a run by name; times, ids and numbers that differ between any two runs are left out."""
    steps: Steps = {}
    names: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for line in lines:
        try:
            event = decode(line)
        except TraceError:
            continue  # `gert run verify` names lines that cannot be read
        said, seq = event.payload, event.seq
        match said:
            case ModelRequested():
                names[seq] = _name(counts, "model", said.step_key, said.model)
                asked = canonical_json_dumps([msgspec.to_builtins(each) for each in said.messages])
                steps[names[seq]] = {
                    "model": said.model,
                    "messages": sha256_hex(asked.encode())[:16],
                    "tools": said.allowed_tools,
                    "status": "open",
                }
            case ToolRequested():
                names[seq] = _name(counts, "tool", said.step_key, said.tool_name)
                steps[names[seq]] = {"tool": said.tool_name, "arguments": said.arguments_json, "status": "open"}
            case WorkflowStepRequested():
                names[seq] = _name(counts, "step", said.step_key, said.step_name)
                steps[names[seq]] = {"status": "open"}
            case ModelCompleted() if said.request_seq in names:
                calls = [[call.tool_name, call.arguments_json] for call in said.tool_calls]
                steps[names[said.request_seq]] |= {"status": "completed", "output": said.output_json, "calls": calls}
            case ModelFailed() if said.request_seq in names:
                steps[names[said.request_seq]] |= {"status": said.reason, "error": said.message}
            case ToolCompleted() if said.request_seq in names:
                steps[names[said.request_seq]] |= {"status": said.outcome, "result": said.result_json}
            case WorkflowStepCompleted() if said.request_seq in names:
                steps[names[said.request_seq]] |= {"status": "completed", "result": said.result_json}
            case RunEnded():
                steps["run"] = {"status": said.status, "error": said.message}
            case StepComplete():
                failure = None if said.failure is None else said.failure.message
                facts = {"status": said.status, "outputs": said.outputs, "failure": failure, "reason": said.reason}
                steps[event.path or said.step_id] = facts
            case RunComplete():
                outcome = None if said.outcome is None else f"{said.outcome.category}: {said.outcome.code}"
                steps["run"] = {"status": said.status, "outcome": outcome}
            case _:
                pass
    return steps


def _name(counts: Counter[str], kind: str, step_key: str | None, what: str) -> str:
    """Return the name of a step: its key, or its kind and place among those without one. A retry keeps the name."""
    if step_key is not None:
        return f"{kind} {step_key}"
    counts[f"{kind} {what}"] += 1
    return f"{kind} {what} #{counts[f'{kind} {what}']}"


def _changed(left: dict[str, Any], right: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys((*left, *right))
    return {name: (left.get(name), right.get(name)) for name in names if left.get(name) != right.get(name)}
