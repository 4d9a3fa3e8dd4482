"""What is seen of a run: steps, arms, outputs, the strictest decision, and events that were waited for."""

from typing import Any

import pytest
from tests.kernel.scenario.plays import call, play, program, scenario

from gert.kernel.events.runbook import GovernanceDecision, StepComplete, StepStart
from gert.kernel.scenario.observed import RunObservation

ONE = {"t": {"stdout": "x=1"}}


def test_steps_are_visited_by_id_iteration_and_path() -> None:
    loop = call("l", for_each={"as": "i", "over": ["p", "q"], "key": "{{ .i }}"})
    arm = {"condition": "default", "label": "arm", "steps": [call("in")]}
    made = program(call("a"), loop, {"id": "b", "type": "branch", "branches": [arm]}, call("no", when="{{ false }}"))
    _, seen, _ = play(made, scenario(tool_responses=ONE))
    assert [name for name in seen.visited if "#" not in name] == ["a", "l", "l[p]", "l[q]", "b", "in"]
    assert "b/arm/in" in seen.paths
    assert list(seen.arms) == [("b", "arm")]
    assert seen.status == "completed"
    assert [outcome.code for outcome in seen.ends.values()] == ["done"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("x", (True, "2")),
        ("a.x", (True, "1")),
        ("b.x", (True, "2")),
        ("b.y.k.0", (True, "v")),
        ("y.k", (True, ["v"])),
        ("b.y.k.1", (False, None)),
        ("b.y.k.-1", (False, None)),
        ("b.y.k.00000000000000000000", (False, None)),
        ("b.y.gone", (False, None)),
        ("a.x.y", (False, None)),
        ("gone", (False, None)),
        ("gone.x", (False, None)),
        ("", (False, None)),
        (".", (False, None)),
        ("a.", (False, None)),
        (".x", (False, None)),
    ],
)
def test_outputs_are_found_by_name_step_and_path(name: str, found: tuple[bool, Any]) -> None:
    seen = RunObservation()
    seen.take(StepComplete(step_id="a", status="success", outputs={"x": "1"}, duration="0s"), "a")
    seen.take(StepComplete(step_id="b", status="success", outputs={"x": "2", "y": {"k": ["v"]}}, duration="0s"), "b")
    assert seen.output(name) == found


def test_a_key_with_dots_does_not_hide_an_output() -> None:
    seen = RunObservation()
    seen.take(StepComplete(step_id="s[a.b]", status="success", outputs={"x": 1}, duration="0s"), "s[a.b]")
    assert seen.output("s[a.b].x") == (True, 1)


def test_the_strictest_decision_stands_for_a_loop() -> None:
    seen = RunObservation()
    for step, verdict, risk in (
        ("s[0]", "allow", "low"),
        ("s[1]", "deny", "critical"),
        ("s[2]", "require-approval", "high"),
    ):
        seen.take(GovernanceDecision(step_id=step, decision=verdict, risk_level=risk), step)  # type: ignore[arg-type]
    assert seen.decisions["s"].word == "deny"
    assert seen.risks["s"].word == "critical"
    assert seen.decisions["s[2]"].word == "require-approval"


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        pytest.param((), 0, id="nothing"),
        pytest.param(("step_start",), 0, id="a kind"),
        pytest.param(("step_start a", "step_start b"), 0, id="in order"),
        pytest.param(("step_start b", "step_start a"), 1, id="not in order"),
        pytest.param(("step_start a", "step_start a"), 1, id="each event counts once"),
        pytest.param(("step_start  b ",), 0, id="spaces around"),
        pytest.param(("step_start p/b",), 0, id="by path"),
        pytest.param(("step_started a",), 1, id="no such kind"),
        pytest.param(("step_start A",), 1, id="in other letters"),
    ],
)
def test_events_that_are_waited_for(wanted: tuple[str, ...], left: int) -> None:
    seen = RunObservation(wanted)
    for path in ("a", "p/b"):
        seen.take(StepStart(step_id=path[-1], step_type="tool"), path)
    assert len(seen.pending) == left


DEEP = "/".join(f"g{at}[{at}%2Fx]" for at in range(12)) + "/del"


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        (DEEP, True),
        ("/".join(f"g{at}" for at in range(12)) + "/del", True),
        ("g10[10/x]/g11/del", True),
        ("g11[11%2Fx]/del", True),
        ("g10[11/x]/g11/del", False),
        ("g10/del", False),
        ("11[11/x]/del", False),
        ("/del", False),
    ],
)
def test_a_step_is_found_by_the_end_of_its_path_however_deep_it_is(name: str, reached: bool) -> None:
    seen = RunObservation()
    seen.take(StepStart(step_id="del", step_type="tool"), DEEP)
    assert seen.is_reached(name) is reached
