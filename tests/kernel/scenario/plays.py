"""Runs played from a scenario, without any world: programs in one call, and a driver that knows no time."""

from collections.abc import Mapping
from typing import Any

import yaml

from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import Request, RunLanes, Steps
from gert.kernel.engine.run import RunResult, run
from gert.kernel.events.runbook import RunStart
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.runbook.documents.scenario import Scenario
from gert.kernel.runbook.program import Program, ToolLookup, policy_of
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.scenario.script import Script

END: dict[str, Any] = {"type": "end", "outcome": {"category": "resolved", "code": "done"}}
ALLOW: dict[str, Any] = {"rules": [{"default": "allow"}]}


def program(*steps: dict[str, Any], after: tuple[dict[str, Any], ...] = (), ends: bool = True, **meta: Any) -> Program:
    """A program of these steps and the tool `t`, which extracts `x` from what it prints."""
    tool = {
        "apiVersion": "tool/v0",
        "meta": {"name": "t"},
        "contract": {
            "effects": ["network"],
            "writes": [],
            "idempotent": True,
            "outputs": {"x": {"type": "string"}, "y": {"type": "any"}},
        },
        "actions": {
            "go": {"argv": ["t"], "extract": {"x": {"from": "stdout", "pattern": "x=(.*)"}}},
            "other": {"argv": ["t"]},
        },
    }
    book: dict[str, Any] = {
        "apiVersion": "kernel/v0",
        "meta": {"name": "b", "governance": ALLOW, **meta},
        "tools": ["t"],
        "steps": [*steps, END] if ends else list(steps),
        **({"finally": list(after)} if after else {}),
    }
    lookup = ToolLookup("t", (), "t.tool.yaml", load(yaml.safe_dump(tool).encode(), kind="tool"))
    model = load(yaml.safe_dump(book).encode(), kind="runbook").model
    assert model is not None
    assert lookup.tool is not None
    return Program(model, {"t": lookup})


def call(step: str = "a", action: str = "go", **more: Any) -> dict[str, Any]:
    return {"id": step, "type": "tool", "tool": "t", "action": action, **more}


def scenario(**sections: Any) -> Scenario:
    document = load(yaml.safe_dump(sections, sort_keys=False).encode(), kind="scenario")
    assert not document.findings, document.findings
    model: Scenario = document.model
    return model


def expectations(**said: Any) -> Expectations:
    document = load(yaml.safe_dump(said, sort_keys=False).encode(), kind="test")
    assert not document.findings, document.findings
    model: Expectations = document.model
    return model


def setup(made: Program, **more: Any) -> Setup:
    recorded = ("actor", "inputs", "input_sources")
    given = {"actor": "ann", **{name: more.pop(name) for name in recorded if name in more}}
    started = RunStart(
        runbook="book", runbook_hash="sha256:0", mode="replay", host="host", gert_version="gert test", **given
    )
    return Setup(
        program=made,
        run_id="run-1",
        started=started,
        policies=(policy_of(made.runbook.meta.governance),),
        **more,
    )


def play(
    made: Program, played: Scenario, wanted: tuple[str, ...] = (), groups: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[RunResult, RunObservation, Script]:
    """Run a program on a scenario; lanes go one after the other."""
    script = Script(played, made, "ann")
    seen = RunObservation(wanted, made)
    result = drive(run(setup(made, groups=dict(groups or {}))), script, seen)
    return result, seen, script


def drive(steps: Steps[Any], script: Script, seen: RunObservation) -> Any:
    value: Any = None
    while True:
        try:
            item = steps.send(value)
        except StopIteration as end:
            return end.value
        value = None
        if isinstance(item, RunLanes):
            value = [drive(lane, script, seen) for lane in item.lanes]
        elif isinstance(item, Request):
            value = script.answer(item)
        else:
            seen.take(item.payload, item.path)
