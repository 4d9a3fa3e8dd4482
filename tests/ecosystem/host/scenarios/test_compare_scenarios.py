"""Scenarios held against what they led to before, without a process around it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.host.scenarios import compare_scenarios as module
from gert.ecosystem.host.scenarios.compare_scenarios import ReplayedRunbook, compare, recorded_run, select_scenarios
from gert.ecosystem.host.scenarios.folders import Folder, is_archived, scenarios_of
from gert.ecosystem.host.scenarios.suite import run_suite
from gert.errors import DocumentError, UsageError

ENVIRON = dict(os.environ)
END = {"type": "end", "outcome": {"category": "resolved", "code": "done", "meta": {"load": "{{ .load }}"}}}


class Place:
    """A runbook that asks a tool and a person, and its scenarios."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("gert-project.yaml", {"name": "here"})
        contract = {"effects": [], "writes": [], "outputs": {"load": {"type": "int"}}}
        extract = {"load": {"from": "stdout", "pattern": "([0-9]+)"}}
        tool = {"apiVersion": "tool/v0", "meta": {"name": "look"}, "contract": contract}
        self.write("tools/look.tool.yaml", {**tool, "actions": {"go": {"argv": ["true"], "extract": extract}}})
        self.book()

    def write(self, name: str, document: Any) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    def book(self, *more: dict[str, Any], **meta: Any) -> str:
        look = {"id": "look", "type": "tool", "tool": "look"}
        said = {"name": "book", "governance": {"rules": [{"default": "allow"}]}, **meta}
        document = {"apiVersion": "kernel/v0", "meta": said, "tools": ["look"], "steps": [look, *more, END]}
        return self.write("book.yaml", document)

    def scenario(self, name: str, test: Any = None, **said: Any) -> Folder:
        below = f"scenarios/book/{name}"
        self.write(f"{below}/scenario.yaml", {"tool_responses": {"look": {"stdout": "load 3"}}, **said})
        if test is not None:
            self.write(f"{below}/test.yaml", test)
        return Folder(str(self.root / below), self.file)

    @property
    def file(self) -> str:
        return str(self.root / "book.yaml")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_scenario_is_held_against_its_test(place: Place) -> None:
    place.scenario("same", {"expected_code": "done", "expected_outputs": {"load": 3}, "must_reach": ["look"]})
    place.scenario("other", {"expected_code": "gone", "expected_meta": {"load": "4"}})
    place.scenario("bare")
    found = compare(place.file, scenarios_of(place.file), environ=ENVIRON)
    assert (found.runbook, found.changed) == ("book", 1)
    said = {each.scenario: (each.baseline, each.is_same) for each in found.compared}
    assert said == {"same": ("test", True), "other": ("test", False), "bare": ("none", True)}


def test_what_a_runbook_no_longer_has_is_a_note_not_an_error(place: Place) -> None:
    folder = place.scenario(
        "old",
        {"must_reach": ["look", "gone"], "expected_risk": {"gone": "low"}},
        inputs={"nobody": 1},
        evidence={"asked": {"x": "y"}},
    )
    (each,) = compare(place.file, [folder], environ=ENVIRON).compared
    assert each.changes is not None
    assert each.changes.unreached == ("gone",)
    assert [note for note in each.notes if "`nobody`" in note or "`asked`" in note or "`gone`" in note]
    assert each.problem is None


@pytest.mark.parametrize(
    ("scenario", "test", "why"),
    [
        pytest.param("{", None, "not valid YAML", id="no YAML"),
        pytest.param("[]", None, "expected a map", id="a list"),
        pytest.param('{"tool_responses": {"look": {"nobody": 1}}}', None, "nobody", id="an unknown key"),
        pytest.param("{}", '{"golden": "yes"}', "test.yaml:1:", id="a test that is none"),
        pytest.param('{"inputs": {"size": "x"}}', None, "the input `size`", id="an input that does not fit"),
        pytest.param("{}", None, "no value for required input `size`", id="an input that is not there"),
    ],
)
def test_a_scenario_that_does_not_load_is_a_change_of_its_own(
    place: Place, scenario: str, test: str | None, why: str
) -> None:
    place.book(inputs={"size": {"type": "int", "required": True}})
    good = place.scenario("good", inputs={"size": 1})
    folder = place.scenario("bad", test)
    place.write("scenarios/book/bad/scenario.yaml", scenario)
    found = compare(place.file, [folder, good], environ=ENVIRON)
    assert [each.is_same for each in found.compared] == [False, True]
    assert found.compared[0].problem is not None
    assert why in found.compared[0].problem


def test_a_folder_that_is_gone_is_told_like_any_other_problem(place: Place) -> None:
    (each,) = compare(place.file, [Folder(str(place.root / "nowhere"), place.file)], environ=ENVIRON).compared
    assert each.problem is not None


def test_a_replay_takes_only_so_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"id": "again", "type": "tool", "tool": "look"}
    place.book({"id": "loop", "type": "repeat", "repeat": {"max": 10_000}, "steps": [body]})
    folder = place.scenario("long", tool_responses={"look": {"stdout": "1"}})
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    (each,) = compare(place.file, [folder], environ=ENVIRON).compared
    assert each.problem == "its replay takes longer than 0.001 seconds"
    assert not each.is_same


@pytest.mark.parametrize(
    ("test", "archived"),
    [
        ('{"golden": false}', True),
        ('{"golden": true}', False),
        ("expected_code: x\n", False),
        (None, False),
        ("{", False),
        ('{"golden": "false"}', False),
    ],
)
def test_only_what_says_so_is_archived(place: Place, test: str | None, archived: bool) -> None:
    folder = place.scenario("one", test)
    assert is_archived(folder) is archived
    assert len(select_scenarios(place.file, [], include_archived=False)) == (0 if archived else 1)
    assert len(select_scenarios(place.file, [], include_archived=True)) == 1
    assert len(select_scenarios(place.file, ["one", "one"], include_archived=False)) == 1


def test_a_runbook_that_is_not_valid_is_an_error(place: Place) -> None:
    place.write("book.yaml", "{")
    with pytest.raises(DocumentError):
        ReplayedRunbook(place.file, ENVIRON)


def test_an_unknown_scenario_is_a_usage_error(place: Place) -> None:
    with pytest.raises(UsageError, match="there is no scenario"):
        select_scenarios(place.file, ["nobody"], include_archived=False)


def test_a_trace_without_end_is_read_only_so_far(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place.scenario("one")
    head = '{"seq":1,"run_id":"r","type":"made_up","timestamp":"2026-02-28T12:00:00.000Z","prev_hash":"' + "0" * 64
    place.write("scenarios/book/one/trace.jsonl", (head + '","data":{}}\n') * 30)
    monkeypatch.setattr(module, "MOST_EVENTS", 20)
    assert recorded_run(folder) == (None, None, "`trace.jsonl` has more than 20 events")


def test_a_scenario_is_run_by_the_person_it_names_as_in_a_test(place: Place) -> None:
    rule = {"default": "require-approval", "approvers": ["ann", "bob"], "separation_of_duties": True}
    place.book(governance={"rules": [rule]})
    own_word = {"look": {"approved": True, "approver": "ann"}}
    place.scenario("own", {"expected_status": "failed", "must_not_reach": ["look"]}, actor="ann", approvals=own_word)
    assert [each.verdict for each in run_suite(place.file)] == ["passed"]
    (found,) = compare(place.file, scenarios_of(place.file), environ=ENVIRON).compared
    assert found.is_same, found


def test_a_replay_without_end_is_not_taken_for_an_ending(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    check = {"id": "c", "type": "assert", "assert": [{"type": "equals", "value": "1", "expected": "1"}]}
    loop = {"max": 10000, "until": "{{ false }}"}
    inner = {"id": "i", "type": "repeat", "repeat": loop, "steps": [check]}
    place.book({"id": "o", "type": "repeat", "repeat": loop, "steps": [inner]})
    place.scenario("long", {"expected_status": "cancelled"})
    (found,) = compare(place.file, scenarios_of(place.file), environ=ENVIRON).compared
    assert not found.is_same
    assert "takes longer" in (found.problem or "")
