"""Where scenarios are found: beside their runbook, each once, and by a name somebody may have misspelt."""

import os
from pathlib import Path

import pytest

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.scenarios.curate import scenario_info
from gert.ecosystem.host.scenarios.folders import (
    Folder,
    find_scenario,
    find_scenarios,
    load,
    scenario_folder,
    scenarios_of,
)
from gert.errors import DocumentError, UsageError

BOOK = """
apiVersion: kernel/v0
meta: {name: book}
steps: [{type: end, outcome: {category: resolved, code: done}}]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runbooks with scenarios, a stray one, and folders that are nobody's business."""
    for book in ("one.yaml", "deep/er/two.yml"):
        write(tmp_path / book, BOOK)
    for place in (
        "scenarios/one/b",
        "scenarios/one/a",
        "deep/er/scenarios/two/c",
        "scenarios/gone/stray",
        ".hidden/scenarios/one/x",
        "node_modules/scenarios/one/x",
        "venv/scenarios/one/x",
    ):
        write(tmp_path / place / "scenario.yaml", "{}")
    write(tmp_path / "scenarios/one/not-one/test.yaml", "{}")
    write(tmp_path / "scenarios/one/file", "")
    (tmp_path / "scenarios/one/folder/scenario.yaml").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_scenarios_of_a_runbook_by_name(project: Path) -> None:
    assert [folder.name for folder in scenarios_of("one.yaml")] == ["a", "b"]
    assert [folder.name for folder in scenarios_of(str(project / "deep/er/two.yml"))] == ["c"]
    assert scenarios_of("nowhere.yaml") == []


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param(["."], ["c", "stray", "a", "b"], id="everything below, hidden folders and dependencies left out"),
        pytest.param(["one.yaml"], ["a", "b"], id="of a runbook"),
        pytest.param(["scenarios/one"], ["a", "b"], id="of a folder"),
        pytest.param(["scenarios/one/a"], ["a"], id="itself"),
        pytest.param(["scenarios/one/a/scenario.yaml"], ["a"], id="its file"),
        pytest.param(["scenarios/one/not-one/test.yaml"], ["not-one"], id="a test without a scenario"),
        pytest.param(["one.yaml", ".", "./scenarios/one/a/"], ["a", "b", "c", "stray"], id="each once"),
        pytest.param(["deep"], ["c"], id="far below"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_what_is_found(project: Path, names: list[str], found: list[str]) -> None:
    folders = find_scenarios(names)
    assert sorted(folder.name for folder in folders) == sorted(found)
    assert len({folder.path for folder in folders}) == len(folders)


def test_a_scenario_knows_its_runbook_and_a_stray_one_that_it_has_none(project: Path) -> None:
    runbooks = {folder.name: folder.runbook for folder in find_scenarios(["."])}
    assert runbooks == {"a": "one.yaml", "b": "one.yaml", "c": "deep/er/two.yml", "stray": None}


@pytest.mark.parametrize("name", ["nowhere", "scenarios/nowhere/", "one.yaml/x", "\0", ""])
def test_what_is_not_there_is_a_mistake(project: Path, name: str) -> None:
    with pytest.raises((UsageError, DocumentError)):
        find_scenarios([name])


@pytest.mark.parametrize("name", ["a", "scenarios/one/a", "./scenarios/one/a/", "scenarios/one/a/scenario.yaml"])
def test_a_scenario_is_picked_by_name_or_folder(project: Path, name: str) -> None:
    picked = find_scenario("one.yaml", name)
    assert (picked.name, picked.runbook) == ("a", "one.yaml")


def test_a_folder_elsewhere_can_be_picked(project: Path) -> None:
    assert find_scenario("one.yaml", str(project / "deep/er/scenarios/two/c")).name == "c"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("A", "did you mean `a`", id="in other letters"),
        pytest.param("zzz", "there are `a`, `b`", id="nothing like it"),
        pytest.param("scenarios/one/not-one", "there are", id="a folder without answers"),
        pytest.param("", "there are", id="no name"),
        pytest.param("..", "there are", id="the folder above"),
    ],
)
def test_a_scenario_that_is_not_there_is_guessed_at(project: Path, name: str, hint: str) -> None:
    with pytest.raises(UsageError) as problem:
        find_scenario("one.yaml", name)
    assert hint in (problem.value.hint or "")


def test_a_runbook_without_scenarios_says_so(project: Path) -> None:
    write(project / "three.yaml", BOOK)
    with pytest.raises(UsageError) as problem:
        find_scenario("three.yaml", "a")
    assert "no scenarios yet" in (problem.value.hint or "")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", ".hidden", "a b", "con", "x" * 200, "a\n"])
def test_a_name_is_never_a_path(name: str) -> None:
    with pytest.raises(UsageError):
        scenario_folder("one.yaml", name)


def test_where_a_scenario_belongs() -> None:
    folder = scenario_folder("deep/one.v2.yaml", "today")
    assert folder.path == "deep/scenarios/one.v2/today"
    assert (folder.scenario, folder.test, folder.trace) == (
        "deep/scenarios/one.v2/today/scenario.yaml",
        "deep/scenarios/one.v2/today/test.yaml",
        "deep/scenarios/one.v2/today/trace.jsonl",
    )


@pytest.mark.parametrize(
    ("scenario", "test", "why"),
    [
        pytest.param(None, None, "no `scenario.yaml`", id="no answers"),
        pytest.param("[", None, "scenario.yaml:1:", id="broken answers"),
        pytest.param("{}", "[", "test.yaml:1:", id="broken expectations"),
        pytest.param("{}", "must_reach: [gone]", "gone", id="expectations of another runbook"),
        pytest.param("tool_responses: {gone: {}}", None, "gone", id="answers for another runbook"),
        pytest.param("{}", "x: 1", "x", id="an unknown key"),
        pytest.param("a: &a [*a]", None, "scenario.yaml", id="an alias to itself"),
    ],
)
def test_what_is_not_sound_is_not_loaded(project: Path, scenario: str | None, test: str | None, why: str) -> None:
    folder = Folder("scenarios/one/new", "one.yaml")
    for name, text in (("scenario.yaml", scenario), ("test.yaml", test)):
        if text is not None:
            write(project / folder.path / name, text)
    workspace = Workspace()
    program = workspace.program("one.yaml").program
    assert program is not None
    with pytest.raises((UsageError, DocumentError)) as problem:
        load(workspace, folder, program)
    assert why in problem.value.message


@pytest.mark.parametrize(
    ("test", "runs"), [(None, True), ("golden: true", True), ("golden: false", False), ("expected_code: done", True)]
)
def test_which_run_by_default(project: Path, test: str | None, runs: bool) -> None:
    if test is not None:
        write(project / "scenarios/one/a/test.yaml", test)
    workspace = Workspace()
    program = workspace.program("one.yaml").program
    assert program is not None
    assert load(workspace, find_scenario("one.yaml", "a"), program).runs_by_default is runs


def test_a_scenario_that_is_a_link_is_found_wherever_one_looks_from(project: Path) -> None:
    write(project / "elsewhere/shared/scenario.yaml", "{}")
    (project / "scenarios/one/linked").symlink_to(project / "elsewhere/shared")
    (project / "scenarios/one/circle").symlink_to(project / "scenarios")
    (project / "scenarios/one/a/within").symlink_to(project / "scenarios/one/a")
    assert [folder.name for folder in scenarios_of("one.yaml")] == ["a", "b", "linked"]
    found = [folder for folder in find_scenarios(["scenarios/one"]) if folder.runbook == "one.yaml"]
    assert sorted(folder.name for folder in found) == ["a", "b", "linked"]


@pytest.mark.parametrize("kind", ["a link to nowhere", "a folder", "a pipe"])
def test_expectations_that_cannot_be_read_are_not_taken_for_none(project: Path, kind: str) -> None:
    test = project / "scenarios/one/a/test.yaml"
    if kind == "a link to nowhere":
        test.symlink_to("gone")
    elif kind == "a folder":
        test.mkdir()
    else:
        os.mkfifo(test)
    workspace = Workspace()
    program = workspace.program("one.yaml").program
    assert program is not None
    with pytest.raises((DocumentError, UsageError)):
        load(workspace, Folder("scenarios/one/a", "one.yaml"), program)
    assert scenario_info(Folder("scenarios/one/a", "one.yaml")).problem is not None


def test_a_scenario_file_that_is_a_pipe_is_not_passed_over(project: Path) -> None:
    (project / "scenarios/one/a/scenario.yaml").unlink()
    os.mkfifo(project / "scenarios/one/a/scenario.yaml")
    assert [folder.name for folder in scenarios_of("one.yaml")] == ["a", "b"]


@pytest.mark.parametrize(
    ("place", "counts"), [("scenarios/one", True), ("scenarios/gone/stray", True), ("data", False)]
)
def test_a_folder_of_scenarios_that_cannot_be_read_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch, place: str, counts: bool
) -> None:
    (project / "data").mkdir()
    real = os.scandir

    def scandir(path: str) -> object:
        if os.path.normpath(path) == place:
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    if not counts:
        assert len(find_scenarios(["."])) == 4
        return
    with pytest.raises(DocumentError, match="permission denied"):
        find_scenarios(["."])
