"""Coverage: every step, arm and outcome of a runbook is counted once, whatever its name, and missed by name."""

from typing import Any

import pytest
from tests.kernel.scenario.plays import END, call, play, program, scenario

from gert.kernel.scenario.coverage import Coverage

ONE = {"t": {"stdout": "x=1"}}


def branch(*labels: str | None, take: int = 0) -> dict[str, Any]:
    arms = [
        {
            "condition": "{{ true }}" if at == take else "{{ false }}",
            **({"label": label} if label is not None else {}),
            "steps": [call(f"in{at}")],
        }
        for at, label in enumerate(labels)
    ]
    return {"id": "b", "type": "branch", "branches": arms}


LABELS: list[tuple[str | None, ...]] = [
    ("plain", "other"),
    (None, None),
    ("a/b", "[c]"),
    ("100%", "%41"),
    ("ü ✓", "A"),
    ("*", "**"),
    ("in0", "b"),
]


@pytest.mark.parametrize("labels", LABELS)
def test_arms_are_counted_whatever_they_are_called(labels: tuple[str, ...]) -> None:
    made = program(branch(*labels), call("last"))
    coverage = Coverage(made)
    _, seen, _ = play(made, scenario(tool_responses=ONE))
    coverage.add(seen)
    report = coverage.report()
    assert (report.arms.reached, report.arms.total) == (1, 2)
    assert (report.steps.reached, report.steps.total) == (3, 4)
    assert not report.is_complete
    other = program(branch(*labels, take=1), call("last"))
    _, seen, _ = play(other, scenario(tool_responses=ONE))
    coverage.add(seen)
    assert coverage.report().is_complete


NESTED: dict[str, list[dict[str, Any]]] = {
    "loops": [call("l", for_each={"as": "i", "over": [1, 2]})],
    "keyed loops": [call("l", for_each={"as": "i", "over": ["a/b", "*"], "key": "{{ .i }}"})],
    "a repeat": [{"id": "r", "type": "repeat", "repeat": {"max": 2, "until": "{{ false }}"}, "steps": [call("in")]}],
    "a repeat in a repeat": [
        {
            "id": "r",
            "type": "repeat",
            "repeat": {"max": 2, "until": "{{ false }}"},
            "steps": [
                {
                    "id": "q",
                    "type": "repeat",
                    "repeat": {"max": 2, "until": "{{ false }}"},
                    "steps": [branch("x"), call("in")],
                }
            ],
        }
    ],
    "lanes": [
        {
            "id": "p",
            "type": "parallel",
            "branches": [{"label": "a/b", "steps": [call("x", scope="x")]}, {"steps": [call("y", scope="y")]}],
        }
    ],
}


@pytest.mark.parametrize("steps", NESTED.values(), ids=NESTED)
def test_everything_that_runs_is_reached(steps: list[dict[str, Any]]) -> None:
    made = program(*steps, after=(call("tidy"),))
    coverage = Coverage(made)
    assert coverage.report().steps.reached == 0
    _, seen, script = play(made, scenario(tool_responses=ONE))
    assert script.missing == []
    coverage.add(seen)
    report = coverage.report()
    assert report.is_complete, report
    assert report.outcomes.total == 1


def test_what_is_skipped_is_not_reached() -> None:
    made = program(call("s", when="{{ false }}"))
    coverage = Coverage(made)
    _, seen, _ = play(made, scenario(tool_responses=ONE))
    coverage.add(seen)
    assert coverage.report().steps.missed == ("s",)


def test_a_step_that_is_denied_is_not_reached() -> None:
    made = program(call("s"), governance={"rules": [{"default": "deny"}]})
    coverage = Coverage(made)
    _, seen, _ = play(made, scenario(tool_responses=ONE))
    coverage.add(seen)
    report = coverage.report()
    assert report.steps.missed == ("s",)
    assert report.outcomes.reached == 0


def test_two_outcomes_of_the_same_code_are_two() -> None:
    arms = [{"condition": "{{ true }}", "label": "a", "steps": [END]}, {"condition": "default", "steps": [END]}]
    made = program({"id": "b", "type": "branch", "branches": arms}, ends=False)
    coverage = Coverage(made)
    _, seen, _ = play(made, scenario())
    coverage.add(seen)
    report = coverage.report()
    assert (report.outcomes.reached, report.outcomes.total) == (1, 2)
    assert "done" in report.outcomes.missed[0]


def test_the_same_run_twice_reaches_no_more() -> None:
    made = program(branch("a", "b"))
    coverage = Coverage(made)
    for _ in range(2):
        _, seen, _ = play(made, scenario(tool_responses=ONE))
        coverage.add(seen)
    assert coverage.report().arms.reached == 1
