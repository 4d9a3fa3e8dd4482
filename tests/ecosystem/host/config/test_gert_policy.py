"""`GERT_POLICY`: a floor that the environment sets, that nothing takes away, and that is never missing in silence."""

import os
from pathlib import Path

import pytest

from gert.ecosystem.host.config.policies import Floor, floor_for, require_sound
from gert.ecosystem.host.config.settings import settings_for
from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import DocumentError, GertError, UsageError
from gert.kernel.foundation.canonical import digest
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import decide
from gert.kernel.governance.verdict import Verdict

BOOK = "apiVersion: kernel/v0\nmeta: {name: book%s}\nsteps: [{type: end, outcome: {category: resolved, code: x}}]\n"


def policy(name: str, verdict: str) -> str:
    return f"apiVersion: policy/v0\nmeta: {{name: {name}}}\ngovernance: {{rules: [{{default: {verdict}}}]}}\n"


class Place:
    """A project, and a folder beside it that gert is called in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.book("")

    def book(self, meta: str) -> None:
        self.write("p/book.yaml", BOOK % meta)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def floor(self, demanded: str | None, *named: str, config: str | None = None) -> Floor:
        environ = {} if demanded is None else {"GERT_POLICY": demanded}
        workspace = Workspace()
        file = str(self.root / "p/book.yaml")
        checked = require_sound(workspace.program(file))
        assert checked.program is not None
        settings = settings_for(workspace, str(self.root / "p"), config, environ)
        return floor_for(workspace, file, checked.program, named, settings)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return Place(tmp_path)


def names(floor: Floor) -> list[str]:
    return [each.name for each in floor.policies]


def verdict(floor: Floor) -> Verdict:
    return decide(Contract(effects=frozenset({"x"}), writes=frozenset({"y"})), floor.policies).verdict


def test_without_it_nothing_changes(place: Place) -> None:
    assert names(place.floor(None)) == ["runbook"]


def test_it_names_files_and_folders_from_where_gert_is_called(place: Place) -> None:
    place.write("here/one.yaml", policy("one", "allow"))
    place.write("org/a.yaml", policy("a", "allow"))
    place.write("org/b/b.yml", policy("b", "deny"))
    floor = place.floor(os.pathsep.join(["one.yaml", str(place.root / "org")]))
    assert names(floor) == ["runbook", "one", "a", "b"]
    assert verdict(floor) is Verdict.DENY


def test_what_it_names_is_recorded(place: Place) -> None:
    one = place.write("here/one.yaml", policy("one", "allow"))
    assert place.floor("one.yaml").digests == {"one": digest(one.read_bytes())}


def test_it_joins_the_project_the_configuration_and_the_call(place: Place) -> None:
    for name in ("project", "config", "env", "call"):
        place.write(f"p/{name}.yaml", policy(name, "allow"))
    place.write("p/gert-project.yaml", "name: p\npolicies: [project.yaml]\n")
    place.write("here/mine.yaml", "policies: [../p/config.yaml]\n")
    floor = place.floor("../p/env.yaml", "../p/call.yaml", config="mine.yaml")
    assert names(floor) == ["runbook", "project", "config", "env", "call"]


def test_a_file_that_is_named_in_several_ways_is_read_once(place: Place) -> None:
    one = place.write("here/one.yaml", policy("one", "deny"))
    place.write("p/gert-project.yaml", "name: p\npolicies: [../here/one.yaml]\n")
    assert names(place.floor(f"one.yaml{os.pathsep}./one.yaml{os.pathsep}{one}", "one.yaml", ".")) == ["runbook", "one"]


# --- nothing loosens it

KIND = "{rules: [{default: allow}]}"


@pytest.mark.parametrize("demand", ["require-approval", "deny"])
@pytest.mark.parametrize(
    "loosen",
    [
        pytest.param({"book": f", governance: {KIND}"}, id="the runbook"),
        pytest.param({"p/gert-project.yaml": "name: p\npolicies: [kind.yaml]\n"}, id="the project"),
        pytest.param({"p/gert-project.yaml": "name: p\npolicies: []\n"}, id="a project without policies"),
        pytest.param({"p/.gert/config.yaml": "policies: []\n", "p/gert-project.yaml": "name: p\n"}, id="a config"),
        pytest.param({"here/gert-config.yaml": "policies: [../p/kind.yaml]\n"}, id="a config where gert is called"),
        pytest.param({"config": "policies: [../p/kind.yaml]\n"}, id="a config that is named"),
        pytest.param({"flag": "../p/kind.yaml"}, id="a flag"),
        pytest.param({"flag": "../p/same.yaml"}, id="a policy that calls itself the same"),
        pytest.param({"first": "../p/kind.yaml"}, id="a kinder one before it"),
        pytest.param({"last": "../p/kind.yaml"}, id="a kinder one after it"),
    ],
)
def test_nothing_loosens_it(place: Place, demand: str, loosen: dict[str, str]) -> None:
    place.write("here/floor.yaml", policy("floor", demand))
    place.write("p/kind.yaml", policy("kind", "allow"))
    place.write("p/same.yaml", policy("floor", "allow"))
    for name, text in loosen.items():
        if "/" in name:
            place.write(name, text)
    place.book(loosen.get("book", ""))
    config = "mine.yaml" if "config" in loosen else None
    if config is not None:
        place.write("here/mine.yaml", loosen["config"])
    entries = [loosen.get("first"), "floor.yaml", loosen.get("last")]
    demanded = os.pathsep.join(each for each in entries if each)
    flags = [loosen["flag"]] if "flag" in loosen else []
    assert verdict(place.floor(demanded, *flags, config=config)).word == demand
    assert verdict(place.floor(None, *flags, config=config)) is Verdict.ALLOW, "nothing else is strict here"


@pytest.mark.parametrize("book", ["deny", "require-approval"])
def test_it_loosens_nothing_either(place: Place, book: str) -> None:
    place.book(f", governance: {{rules: [{{default: {book}}}]}}")
    place.write("here/kind.yaml", policy("kind", "allow"))
    assert verdict(place.floor("kind.yaml")).word == book


# --- what must not pass in silence


@pytest.mark.parametrize(
    ("demanded", "error", "message"),
    [
        pytest.param("", UsageError, "GERT_POLICY is empty", id="set to nothing"),
        pytest.param("one.yaml:", UsageError, "an entry of GERT_POLICY is empty", id="an empty entry at the end"),
        pytest.param(":one.yaml", UsageError, "an entry of GERT_POLICY is empty", id="an empty entry at the start"),
        pytest.param("one.yaml::one.yaml", UsageError, "an entry of GERT_POLICY is empty", id="an empty entry between"),
        pytest.param("gone.yaml", UsageError, "GERT_POLICY names `gone.yaml`", id="a file that is not there"),
        pytest.param("one.yaml:gone", UsageError, "GERT_POLICY names `gone`", id="one of two that is not there"),
        pytest.param(" one.yaml", UsageError, "GERT_POLICY names ` one.yaml`", id="a path with a space before it"),
        pytest.param("one.yaml,one.yaml", UsageError, "GERT_POLICY names", id="another separator"),
        pytest.param("dangling.yaml", UsageError, "GERT_POLICY names", id="a link to nowhere"),
        pytest.param("one.yaml/x", UsageError, "GERT_POLICY names", id="a path through a file"),
        pytest.param("empty", UsageError, "there are no policies", id="an empty folder"),
        pytest.param("broken.yaml", DocumentError, "broken.yaml:1:", id="a file that is no YAML"),
        pytest.param("typo.yaml", DocumentError, "unknown key", id="a policy with a typo"),
        pytest.param("../p/book.yaml", DocumentError, "expected `policy/v0`", id="a runbook"),
        pytest.param("/dev/null", DocumentError, "not a regular file", id="a device"),
        pytest.param("~/one.yaml", UsageError, "GERT_POLICY names", id="a tilde that is not expanded"),
    ],
)
def test_a_floor_that_is_missing_stops_the_run(
    place: Place, demanded: str, error: type[GertError], message: str
) -> None:
    place.write("here/one.yaml", policy("one", "allow"))
    place.write("here/broken.yaml", "{")
    place.write("here/typo.yaml", policy("typo", "allow").replace("rules", "rulse"))
    (place.root / "here" / "empty").mkdir()
    (place.root / "here" / "dangling.yaml").symlink_to("nowhere.yaml")
    with pytest.raises(error) as caught:
        place.floor(demanded.replace(":", os.pathsep))
    assert message in caught.value.message


def test_who_only_wants_to_know_where_traces_are_needs_no_floor(place: Place) -> None:
    settings = settings_for(Workspace(), str(place.root / "p"), environ={"GERT_POLICY": "gone.yaml"})
    assert settings.demanded == ("gone.yaml",)
