"""Which place in a run somebody means, and how the way to it is held against a record."""

import json
from pathlib import Path

import pytest

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.redrive.fork import StepName
from gert.ecosystem.host.redrive.rerun import _without
from gert.errors import UsageError
from gert.kernel.events.runbook import Recent
from gert.kernel.runbook.program import Program

CHECK = {"type": "assert", "assert": [{"type": "equals", "value": "1", "expected": "1"}]}
BOOK = {
    "apiVersion": "kernel/v0",
    "meta": {"name": "b"},
    "steps": [
        {"id": "triage", "type": "branch", "branches": [
            {"condition": "default", "label": "restart", "steps": [{"id": "look", **CHECK}]},
        ]},
        {"id": "restart", **CHECK},
        {"type": "end", "outcome": {"category": "resolved", "code": "done"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    file = Path(tmp_path_factory.mktemp("book"), "b.yaml")
    file.write_text(json.dumps(BOOK))
    found = Workspace(str(file.parent)).program(str(file)).program
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("step", "path", "covered"),
    [
        pytest.param("look", "triage/restart/look", True, id="a step, wherever it is"),
        pytest.param("triage", "triage/restart/look", True, id="what lies inside a block"),
        pytest.param("restart", "triage/restart/look", False, id="an arm of the same name is not the step"),
        pytest.param("restart", "restart", True, id="the step itself"),
        pytest.param("restart", "restart[2]", True, id="every item of a loop"),
        pytest.param("restart[2]", "restart[2]", True, id="one item"),
        pytest.param("restart[2]", "restart[20]", False, id="another item"),
        pytest.param("restart[2]", "restart", False, id="one item is not the loop"),
        pytest.param("restart", "finally/restart", True, id="a step of finally"),
        pytest.param("triage/restart/look", "triage/restart/look", True, id="a path"),
        pytest.param("triage/restart", "triage/restart/look", True, id="an arm"),
        pytest.param("restart/look", "triage/restart/look", False, id="a path begins at the beginning"),
        pytest.param("restart[a/b]", "restart[a%2Fb]", True, id="an item as people read it"),
        pytest.param("restart[a/b]", "restart[a%2Fb]/x/look", True, id="what lies inside an item as people read it"),
        pytest.param("restart[a/b]", "restart[a%2Fbc]", False, id="another item than people read"),
        pytest.param("restart[a/b]", "finally/restart[a%2Fb]", True, id="an item of finally as people read it"),
        pytest.param("triage/x/look[a/[b]]", "triage/x/look[a%2F%5Bb%5D]", True, id="a path as people read it"),
        pytest.param("triage", None, False, id="the run as a whole"),
    ],
)
def test_what_a_step_covers(step: str, path: str | None, covered: bool, program: Program) -> None:
    assert StepName(step, program).covers(path) is covered


@pytest.mark.parametrize("step", ["", "a//b", "lok", "[0]", "look[0", "lok[a/b]"])
def test_what_is_no_step(step: str, program: Program) -> None:
    with pytest.raises(UsageError):
        StepName(step, program)


@pytest.mark.parametrize(
    ("counted", "left"),
    [
        pytest.param(Recent({"a": 3, "b": 1}), Recent({"a": 1}), id="what the new run counts itself is taken off"),
        pytest.param(Recent({"c": 1}), Recent({"c": 1}), id="others stay"),
        pytest.param(Recent(flaw="no"), Recent(flaw="no"), id="what could not be counted still cannot"),
        pytest.param(None, None, id="not counted"),
    ],
)
def test_what_is_left_of_the_count(counted: Recent | None, left: Recent | None) -> None:
    assert _without(counted, {"a": 2, "b": 5}) == left
