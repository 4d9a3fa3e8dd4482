"""Scenarios are found by name, told apart, and marked; stubs are valid for every runbook there is."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.scenarios.curate import demote, list_scenarios, locate, promote, scenario_info
from gert.ecosystem.host.scenarios.folders import Folder
from gert.ecosystem.host.scenarios.scaffold import expectations_text, scaffold, scenario_text
from gert.errors import DocumentError, UsageError
from gert.kernel.runbook.finding import Severity

ROOT = Path(__file__).parents[4]
BOOK = """\
apiVersion: kernel/v0
meta: {name: book}
steps:
  - {type: end, outcome: {category: resolved, code: done}}
"""


class Place:
    """A folder with runbooks and scenarios."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("book.yaml", BOOK)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def scenario(self, below: str, test: str | None = None, text: str = "{}\n") -> Folder:
        self.write(f"{below}/scenario.yaml", text)
        if test is not None:
            self.write(f"{below}/test.yaml", test)
        return locate(below)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


def test_a_scenario_is_found_by_folder_by_file_and_by_name(place: Place) -> None:
    place.scenario("scenarios/book/one")
    for named in ("scenarios/book/one", "scenarios/book/one/", "scenarios/book/one/scenario.yaml", "one"):
        found = locate(named)
        assert (found.path, found.runbook) == ("scenarios/book/one", "book.yaml"), named
    assert locate("one", "book.yaml").name == "one"
    absolute = locate(str(place.root / "scenarios" / "book" / "one"))
    assert absolute.runbook == str(place.root / "book.yaml")


@pytest.mark.parametrize(
    ("named", "runbook", "why"),
    [
        ("two", None, "no scenario `two` below"),
        ("x/two", None, "there is no `scenario.yaml` in `x/two`"),
        (".", None, "there is no `scenario.yaml` in `.`"),
        ("..", None, "there is no `scenario.yaml`"),
        ("", None, "there is no"),
        ("same", None, "several scenarios are named `same`"),
        ("one", "nobody.yaml", "there is no file `nobody.yaml`"),
        ("onne", "book.yaml", "there is no scenario `onne`"),
        ("\0", None, "there is no"),
    ],
)
def test_what_is_not_found_is_told(place: Place, named: str, runbook: str | None, why: str) -> None:
    for below in ("scenarios/book/one", "a/same", "b/same"):
        place.scenario(below)
    with pytest.raises(UsageError, match=why.replace(".", r"\.")):
        locate(named, runbook)


@pytest.mark.parametrize(
    ("test", "kind", "expects"),
    [
        (None, "by hand", None),
        ("expected_status: failed\n", "by hand", "failed"),
        ("golden: true\nexpected_outcome: resolved\nexpected_code: done\n", "golden", "resolved (done)"),
        ("golden: false\nexpected_outcome: resolved\n", "archived", "resolved"),
        ("golden: 'no'\nexpected_code: 7\n", "by hand", None),
    ],
)
def test_what_a_scenario_is_stands_in_its_files(place: Place, test: str | None, kind: str, expects: str | None) -> None:
    entry = scenario_info(place.scenario("scenarios/book/one", test))
    assert (entry.kind, entry.expects, entry.problem) == (kind, expects, None)


@pytest.mark.parametrize("text", ["{", "[]", "a: &a [*a]\n", "\x00", ""])
def test_a_scenario_that_cannot_be_read_is_listed_all_the_same(place: Place, text: str) -> None:
    place.scenario("scenarios/book/bad", text=text)
    place.scenario("scenarios/book/good")
    found = list_scenarios(["."])
    assert [(each.scenario, each.problem is None) for each in found] == [("bad", False), ("good", True)]


def test_when_it_was_recorded_is_told_by_its_trace_or_its_run(place: Place) -> None:
    text = "extensions: {x-recorded: {run_id: run-1}}\n"
    assert scenario_info(place.scenario("scenarios/book/one", text=text)).recorded == "run-1"
    place.write("scenarios/book/one/trace.jsonl", "{\n")
    assert scenario_info(locate("one")).recorded == "run-1"
    event = '{"run_id":"r","type":"x","timestamp":"2026-02-28T12:00:00.000Z","prev_hash":"' + "0" * 64 + '","data":{}}'
    place.write("scenarios/book/one/trace.jsonl", event + "\n")
    assert scenario_info(locate("one")).recorded == "2026-02-28T12:00:00.000Z"


def test_only_the_mark_changes(place: Place) -> None:
    folder = place.scenario("scenarios/book/one", "# why\nexpected_code: done # so\ngolden: false\n")
    assert promote(folder).changed
    assert Path(folder.test).read_text() == "# why\nexpected_code: done # so\ngolden: true\n"
    assert not promote(folder).changed
    assert demote(folder).changed
    assert not demote(folder).changed
    assert Path(folder.test).read_text() == "# why\nexpected_code: done # so\ngolden: false\n"


def test_what_does_not_fit_its_runbook_is_not_promoted(place: Place) -> None:
    folder = place.scenario("scenarios/book/one", "golden: false\n", "inputs: {nobody: 1}\n")
    with pytest.raises(DocumentError, match="`nobody`"):
        promote(folder)
    assert Path(folder.test).read_text() == "golden: false\n"


def test_a_folder_is_copied_with_what_belongs_to_a_scenario_and_nothing_else(place: Place) -> None:
    folder = place.scenario("elsewhere/one", "golden: false # mine\n", "# note\ndescription: x\n")
    place.write("elsewhere/one/trace.jsonl", "{}\n")
    place.write("elsewhere/one/secrets.txt", "no")
    done = promote(folder, runbook="book.yaml", name="two")
    assert sorted(os.listdir(done.folder)) == ["scenario.yaml", "test.yaml", "trace.jsonl"]
    assert Path(done.folder, "scenario.yaml").read_text() == "# note\ndescription: x\n"
    assert Path(done.folder, "test.yaml").read_text() == "golden: true # mine\n"
    assert os.path.isdir("elsewhere/one")


def test_a_link_is_no_way_around_a_name_that_is_taken(place: Place) -> None:
    folder = place.scenario("elsewhere/one")
    (place.root / "scenarios" / "book").mkdir(parents=True)
    (place.root / "scenarios" / "book" / "one").symlink_to("/nonexistent")
    with pytest.raises(UsageError, match="already"):
        promote(folder, runbook="book.yaml")


def test_a_scenario_is_promoted_to_another_runbook_as_a_copy(place: Place) -> None:
    place.write("other.yaml", BOOK)
    folder = place.scenario("scenarios/book/one", "golden: false\n")
    done = promote(folder, runbook="other.yaml")
    assert done.folder == "scenarios/other/one"
    assert Path(folder.test).read_text() == "golden: false\n"


# --- stubs


def runbooks() -> list[Path]:
    """Every runbook of ours."""
    found = [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "conformance").rglob("*.yaml")]
    return sorted(path for path in found if "kernel/v0" in path.read_text("utf-8", "replace"))


def test_stubs_are_valid_for_every_runbook() -> None:
    workspace = Workspace()
    checked = 0
    for file in runbooks():
        book = workspace.program(str(file))
        program = book.program
        if program is None or not book.document.is_sound:
            continue
        for kind, text in (("scenario", scenario_text(program)), ("test", expectations_text(program, "stub"))):
            found = workspace.check(f"{kind}.yaml", source=text.encode(), kind=kind, runbook=program)
            errors = [each for each in found.findings if each.severity is Severity.ERROR]
            assert errors == [], (file, text)
            assert found.document.model is not None
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    ("block", "value"),
    [
        ({"type": "string"}, ""),
        ({"type": "int", "min": 7}, 7),
        ({"type": "float", "min": 0.5}, 0.5),
        ({"type": "list", "min": 1}, None),
        ({"type": "string", "pattern": "^x+$"}, None),
        ({"type": "int", "enum": [3, 4], "min": 1}, 3),
        ({"type": "string", "default": "a\nb"}, "a\nb"),
        ({"type": "object", "default": {"a": [1]}}, {"a": [1]}),
        ({"type": "string", "description": "x: {y}\n# z\x07"}, ""),
    ],
)
def test_an_input_is_given_a_value_that_fits_or_left_to_the_author(
    place: Place, block: dict[str, Any], value: Any
) -> None:
    document = yaml.safe_load(BOOK)
    document["meta"]["inputs"] = {"x": block, "other": {"type": "bool"}}
    place.write("book.yaml", yaml.safe_dump(document))
    folder = scaffold("book.yaml", "stub")
    given = yaml.safe_load(Path(folder.scenario).read_text())["inputs"]
    assert given == ({"x": value} if value is not None else {}) | {"other": False}
    assert Workspace().check(folder.scenario).document.is_sound
    assert "x" in Path(folder.scenario).read_text()


def test_a_name_that_is_taken_is_left_alone(place: Place) -> None:
    scaffold("book.yaml", "stub")
    with pytest.raises(UsageError, match="already"):
        scaffold("book.yaml", "stub")
    shutil.rmtree("scenarios")
    with pytest.raises(UsageError, match="invalid scenario name"):
        scaffold("book.yaml", "../stub")
    assert not os.path.exists("scenarios")
