"""The floor: which policies a run is held to, that none is passed over in silence, and what is recorded of them."""

from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.host.config.policies import Floor, floor_for, require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import DocumentError, GertError, UsageError
from gert.kernel.foundation.canonical import digest
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import decide
from gert.kernel.governance.verdict import Verdict

BOOK = """
apiVersion: kernel/v0
meta: {name: book%s}
steps: [{type: end, outcome: {category: resolved, code: x}}]
"""
PROJECT = "name: p\n"


def policy(name: str, rule: str = "{default: allow}") -> str:
    return f"apiVersion: policy/v0\nmeta: {{name: {name}}}\ngovernance: {{rules: [{rule}]}}\n"


class Place:
    """A project in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("book.yaml", BOOK % "")

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def project(self, *policies: str) -> None:
        self.write("gert-project.yaml", PROJECT + f"policies: [{', '.join(policies)}]\n")

    def floor(self, *named: str | Path, working: Path | None = None) -> Floor:
        workspace = Workspace(str(working or self.root))
        file = str(self.root / "book.yaml")
        checked = require_sound(workspace.program(file))
        assert checked.program is not None
        return floor_for(workspace, file, checked.program, map(str, named))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "p")


def names(floor: Floor) -> list[str]:
    return [each.name for each in floor.policies]


def verdict(floor: Floor) -> Verdict:
    return decide(Contract(effects=frozenset({"x"}), writes=frozenset({"y"})), floor.policies).verdict


def test_a_runbook_alone_is_held_to_its_own_policy(place: Place) -> None:
    assert names(place.floor()) == ["runbook"]
    assert place.floor().digests == {}


def test_the_runbooks_own_comes_first_then_the_projects_then_those_named(place: Place) -> None:
    place.write("rules/one.yaml", policy("one"))
    place.project("rules/one.yaml")
    two = place.write("two.yaml", policy("two"))
    assert names(place.floor(two)) == ["runbook", "one", "two"]


def test_what_was_read_is_recorded_by_name_and_digest(place: Place) -> None:
    one = place.write("one.yaml", policy("one"))
    assert place.floor(one).digests == {"one": digest(one.read_bytes())}


def test_two_files_with_one_name_are_both_recorded_or_refused(place: Place) -> None:
    one = place.write("a/one.yaml", policy("same"))
    other = place.write("b/one.yaml", policy("same", "{default: deny}"))
    try:
        floor = place.floor(one, other)
    except GertError:
        return
    assert verdict(floor) is Verdict.DENY
    assert {digest(one.read_bytes()), digest(other.read_bytes())} <= set(floor.digests.values())


def test_a_folder_stands_for_every_policy_in_it(place: Place) -> None:
    place.write("rules/b.yaml", policy("b"))
    place.write("rules/deep/a.yml", policy("a"))
    place.write("rules/notes.txt", "no policy")
    assert names(place.floor(place.root / "rules")) == ["runbook", "b", "a"]


def test_a_file_that_is_named_twice_is_read_once(place: Place) -> None:
    one = place.write("rules/one.yaml", policy("one"))
    place.project("rules/one.yaml")
    again = place.root / "rules" / ".." / "rules" / "one.yaml"
    assert names(place.floor(one, again, place.root / "rules")) == ["runbook", "one"]


@pytest.mark.parametrize("rule", ["{default: deny}", "{default: require-approval}"], ids=["deny", "approval"])
def test_a_floor_only_tightens(rule: str, place: Place) -> None:
    place.write("book.yaml", BOOK % ", governance: {rules: [{default: allow}]}")
    strict = place.write("strict.yaml", policy("strict", rule))
    kind = place.write("kind.yaml", policy("kind"))
    assert verdict(place.floor()) is Verdict.ALLOW
    assert verdict(place.floor(strict)) > Verdict.ALLOW
    assert verdict(place.floor(kind, strict)) == verdict(place.floor(strict, kind)) == verdict(place.floor(strict))


def test_a_kind_policy_does_not_loosen_the_runbooks_own(place: Place) -> None:
    place.write("book.yaml", BOOK % ", governance: {rules: [{default: deny}]}")
    assert verdict(place.floor(place.write("kind.yaml", policy("kind")))) is Verdict.DENY


def test_policies_alone_can_be_asked_for(place: Place) -> None:
    workspace = Workspace(str(place.root))
    checked = workspace.program(str(place.root / "book.yaml"))
    assert checked.program is not None
    found = floor_for(workspace, checked.file, checked.program, [str(place.write("one.yaml", policy("one")))]).policies
    assert [each.name for each in found] == ["runbook", "one"]


# --- what must not pass in silence


@pytest.mark.parametrize(
    ("named", "error"),
    [
        pytest.param("nowhere.yaml", UsageError, id="a file that is not there"),
        pytest.param("empty", UsageError, id="a folder without policies"),
        pytest.param("broken.yaml", DocumentError, id="a file that is no YAML"),
        pytest.param("book.yaml", DocumentError, id="a runbook"),
        pytest.param("typo.yaml", DocumentError, id="a policy with a key that is none"),
        pytest.param("nothing.yaml", DocumentError, id="an empty file"),
        pytest.param("mixed", DocumentError, id="a folder in which one file is no policy"),
        pytest.param("a\0b", UsageError, id="what is no path"),
    ],
)
@pytest.mark.parametrize("by", ["named", "project"])
def test_a_floor_that_cannot_be_read_stops_the_run(by: str, named: str, error: type[GertError], place: Place) -> None:
    (place.root / "empty").mkdir()
    place.write("broken.yaml", "{")
    place.write("typo.yaml", policy("typo", "{defualt: deny}"))
    place.write("nothing.yaml", "")
    place.write("mixed/a.yaml", policy("a"))
    place.write("mixed/b.yaml", BOOK % "")
    if by == "named":
        with pytest.raises(error):
            place.floor(f"{place.root}/{named}")
    elif "\0" not in named:
        place.project(named)
        with pytest.raises(error):
            place.floor()


def test_a_project_that_cannot_be_read_stops_the_run(place: Place) -> None:
    place.write("gert-project.yaml", PROJECT + "polices: [rules]\n")
    with pytest.raises(GertError):
        place.floor()


def test_the_projects_policies_are_found_wherever_we_are(place: Place, tmp_path: Path, monkeypatch: Any) -> None:
    place.write("rules/one.yaml", policy("one"))
    place.project("rules")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert names(place.floor(working=tmp_path / "elsewhere")) == ["runbook", "one"]


def test_the_first_error_of_a_document_is_told_with_its_place(place: Place) -> None:
    bad = place.write("bad.yaml", policy("bad", "{default: perhaps}"))
    with pytest.raises(DocumentError, match=r"bad\.yaml:3:") as caught:
        place.floor(bad)
    assert f"gert validate {bad}" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("inner", "outer", "line"),
    [
        pytest.param("[gone.yaml]", "[]", "gert-project.yaml:2:12", id="of the project"),
        pytest.param("[]", "[gone.yaml]", "outer/gert-project.yaml:2:12", id="of the project around it"),
    ],
)
def test_a_policy_that_is_missing_is_reported_with_the_line_that_names_it(
    tmp_path: Path, inner: str, outer: str, line: str
) -> None:
    place = Place(tmp_path / "outer" / "p")
    place.write("gert-project.yaml", f"{PROJECT}policies: {inner}\n")
    place.write("../gert-project.yaml", f"name: outer\npolicies: {outer}\n")
    with pytest.raises(UsageError) as caught:
        place.floor()
    assert f"{line}: there is no policy at `" in caught.value.message
    assert caught.value.message.endswith("gone.yaml`")


def test_a_policy_on_record_replaces_one_that_was_removed(place: Place) -> None:
    path = place.write("one.yaml", policy("one"))
    place.project("one.yaml")
    workspace = Workspace(str(place.root), stored={str(path): path.read_bytes()})
    path.unlink()
    file = str(place.root / "book.yaml")
    program = workspace.program(file).program
    assert program is not None
    assert names(floor_for(workspace, file, program)) == ["runbook", "one"]
