"""Bringing expectations up to date: afterwards they are met, and nothing is said that was not said before."""

from typing import Any

import pytest
import yaml
from tests.kernel.scenario.plays import call, expectations, play, program, scenario

from gert.kernel.runbook.document import load
from gert.kernel.runbook.writer import to_yaml
from gert.kernel.scenario.expect import differences
from gert.kernel.scenario.update import updates

SAID: dict[str, dict[str, Any]] = {
    "another status": {"expected_status": "failed"},
    "another outcome": {"expected_outcome": "escalated", "expected_code": "other"},
    "steps that are not reached": {"must_reach": ["a", "gone", "skipped"]},
    "steps that are reached": {"must_not_reach": ["a", "skipped"]},
    "another value": {"expected_outputs": {"a.x": "9", "x": "/^1$/"}},
    "another type": {"expected_outputs": {"x": 1}},
    "an output that is gone": {"expected_outputs": {"gone": 1, "x": "1"}},
    "a nested pattern": {"expected_outputs": {"b.y": {"d": "/z/"}}},
    "details": {"expected_meta": {"m": 2, "gone": 1}},
    "no details any more": {"expected_meta": {"gone": 1}},
    "risk and decision": {"expected_risk": {"a": "critical"}, "expected_decisions": {"a": "deny", "skipped": "allow"}},
    "events": {"expected_events": ["step_start a", "step_retry a", "run_complete"]},
}


def played(wanted: tuple[str, ...] = ()) -> Any:
    end = {"type": "end", "outcome": {"category": "resolved", "code": "done", "meta": {"m": "1"}}}
    made = program(call("a"), call("b"), call("skipped", when="{{ false }}"), end, ends=False)
    answers = {"a": {"stdout": "x=1"}, "b": {"outputs": {"x": "1", "y": {"d": "/opt/c++/", "l": ["/(/"]}}}}
    return play(made, scenario(tool_responses=answers), wanted)[1]


def applied(said: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    seen = played(tuple(said.get("expected_events", ())))
    changes = updates(expectations(**said), seen)
    merged = {name: value for name, value in {**said, **changes}.items() if value is not None}
    return changes, merged


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_what_was_brought_up_to_date_is_met(said: dict[str, Any]) -> None:
    seen = played(tuple(said.get("expected_events", ())))
    assert list(differences(expectations(**said), seen, []))
    changes, merged = applied(said)
    assert changes
    assert merged.keys() <= said.keys()
    loaded = load(to_yaml(merged).encode(), kind="test")
    assert not loaded.findings
    again = played(tuple(merged.get("expected_events", ())))
    assert list(differences(loaded.model, again, [])) == []


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_second_time_changes_nothing(said: dict[str, Any]) -> None:
    _, merged = applied(said)
    assert applied(merged)[0] == {}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="nothing is expected"),
        pytest.param({"expected_status": "completed", "must_reach": ["a"]}, id="everything is met"),
        pytest.param({"expected_outputs": {"x": "/./"}}, id="a pattern that matches stays"),
        pytest.param({"expected_meta": {"m": "1"}, "must_not_reach": ["skipped"]}, id="details and steps"),
    ],
)
def test_what_is_met_is_left_alone(said: dict[str, Any]) -> None:
    assert updates(expectations(**said), played()) == {}


@pytest.mark.parametrize("said", [{}, {"expected_outputs": {"a.x": "1"}}, {"must_reach": ["a"]}], ids=str)
def test_a_test_that_loses_all_it_expected_does_not_pass_whatever_happens(said: dict[str, Any]) -> None:
    """A broken run must not make a test that accepts every broken run."""
    seen = play(program(call("a"), governance={"rules": [{"default": "deny"}]}), scenario())[1]
    assert seen.status == "failed"
    assert list(differences(expectations(**said), seen, []))
    changes = updates(expectations(**said), seen)
    merged = {name: value for name, value in {**said, **changes}.items() if value is not None}
    assert merged == {"expected_status": "failed"}
    assert list(differences(expectations(**merged), played(), []))


def test_it_is_plain_data() -> None:
    changes, _ = applied(SAID["a nested pattern"])
    assert yaml.safe_load(yaml.safe_dump(changes)) == changes
