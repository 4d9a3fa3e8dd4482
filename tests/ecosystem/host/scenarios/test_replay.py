"""Replays within this process: what is seen, what was missing, what was never asked for, and how long it may take."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.host.run.execute import run_file
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.scenarios.folders import find_scenario, load
from gert.ecosystem.host.scenarios.replay import Replayed, replay
from gert.errors import UsageError
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.scenario.inputs import replayed_inputs

TOOL = {
    "apiVersion": "tool/v0",
    "meta": {"name": "t"},
    "contract": {
        "effects": [],
        "writes": [],
        "outputs": {"x": {"type": "string"}, "k": {"type": "any", "secret": True}},
    },
    "actions": {
        "go": {"argv": ["false"], "extract": {"x": {"from": "stdout", "pattern": "x=(.*)"}}},
        "key": {"argv": ["false"], "extract": {"k": {"from": "stdout", "pattern": "k=(.*)"}}},
    },
}
END = {"type": "end", "outcome": {"category": "resolved", "code": "done"}}


def call(step: str, action: str = "go", **more: Any) -> dict[str, Any]:
    return {"id": step, "type": "tool", "tool": "t", "action": action, **more}


def book(folder: Path, *steps: dict[str, Any], test: Any = None, **scenario: Any) -> str:
    """A runbook with one scenario, `case`."""
    document = {"apiVersion": "kernel/v0", "meta": {"name": "b"}, "tools": ["t"], "steps": [*steps, END]}
    where = folder / "scenarios/b/case"
    where.mkdir(parents=True, exist_ok=True)
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools/t.tool.yaml").write_text(json.dumps(TOOL))
    (folder / "b.yaml").write_text(json.dumps(document))
    (where / "scenario.yaml").write_text(json.dumps(scenario))
    if test is not None:
        (where / "test.yaml").write_text(json.dumps(test))
    return str(folder / "b.yaml")


def replayed(file: str, timeout: float | None = None) -> Replayed:
    prepared = Prepared(RunOptions(file=file, mode="replay", scenario="case", actor="ann"), {})
    loaded = load(prepared.workspace, find_scenario(file, "case"), prepared.program)
    inputs = replayed_inputs(prepared.program.runbook.meta.inputs, loaded.scenario)
    return asyncio.run(replay(loaded, prepared.setup(inputs, Redactor(), "case"), timeout))


def test_what_a_replay_led_to(tmp_path: Path) -> None:
    file = book(tmp_path, call("a"), call("b"), tool_responses={"t": [{"stdout": "x=1"}, {"stdout": "x=2"}]})
    ran = replayed(file)
    assert (ran.result.status, ran.missing, ran.unused) == ("completed", [], [])
    assert (ran.seen.outputs["x"], ran.seen.by_step["a"]["x"]) == ("2", "1")


def test_missing_and_unused_answers_are_reported(tmp_path: Path) -> None:
    responses = {"a": [{"stdout": "x=1"}] * 2, "c": {"stdout": "x=3"}}
    steps = (call("a"), call("b", continue_on_fail=True), call("c", when="{{ false }}"))
    ran = replayed(book(tmp_path, *steps, tool_responses=responses))
    assert ran.result.status == "completed"
    assert len(ran.missing) == 1
    assert "`b`" in ran.missing[0]
    assert ran.unused == ["tool_responses.a", "tool_responses.c"]


def test_what_a_contract_calls_secret_is_not_kept_here_either(tmp_path: Path) -> None:
    ran = replayed(book(tmp_path, call("a", "key"), tool_responses={"a": {"stdout": "k=canary"}}))
    assert ran.seen.by_step["a"] == {"k": "[REDACTED]"}


def test_one_answer_for_two_contracts_is_withheld_only_where_it_is_secret(tmp_path: Path) -> None:
    answer = {"stdout": "x=1\nk=canary"}
    ran = replayed(book(tmp_path, call("a"), call("b", "key"), call("c"), tool_responses={"t": answer}))
    assert [ran.seen.by_step[step] for step in "abc"] == [{"x": "1"}, {"k": "[REDACTED]"}, {"x": "1"}]


@pytest.mark.parametrize("timeout", [0.0, 0.05])
def test_a_run_that_never_ends_is_stopped(tmp_path: Path, timeout: float) -> None:
    loop = {"max": 10000, "until": "{{ false }}"}
    inner = {"id": "i", "type": "repeat", "repeat": loop, "steps": [call("a")]}
    outer = {"id": "o", "type": "repeat", "repeat": loop, "steps": [inner]}
    ran = replayed(book(tmp_path, outer, tool_responses={"a": {"stdout": "x=1"}}), timeout)
    assert ran.result.status == "cancelled"


def test_answers_that_are_too_large_fail_the_step(tmp_path: Path) -> None:
    ran = replayed(book(tmp_path, call("a"), tool_responses={"a": {"stdout": "x=" + "y" * 5_000_000}}))
    assert ran.result.status != "completed"
    assert ran.result.failure is not None
    assert "too large" in ran.result.failure.message


def test_it_is_the_same_as_a_run_in_replay_mode(tmp_path: Path) -> None:
    file = book(tmp_path, call("a"), tool_responses={"a": {"stdout": "x=1", "duration": "2s"}})
    executed = run_file(file, mode="replay", scenario="case")
    assert executed.result == replayed(file).result
    assert (executed.trace, executed.db) == (None, None)


@pytest.mark.parametrize(
    "options", [{"mode": "replay"}, {"scenario": "case"}, {"mode": "replay", "scenario": "case", "record": "x"}]
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    file = book(tmp_path, call("a"), tool_responses={"a": {"stdout": "x=1"}})
    with pytest.raises(UsageError):
        run_file(file, **options)
