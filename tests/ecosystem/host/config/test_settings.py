"""Settings: which file wins, what only grows, and that nothing broken is passed over."""

import os
from pathlib import Path

import pytest

from gert.ecosystem.host.config.policies import floor_for, require_sound
from gert.ecosystem.host.config.settings import Settings, settings_for, trace_file
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.options import RunOptions, with_trace_file
from gert.errors import DocumentError, GertError, UsageError

BOOK = """
apiVersion: kernel/v0
meta: {name: book}
steps: [{type: end, outcome: {category: resolved, code: x}}]
"""


class Place:
    """A folder with a runbook in `books/`, and a working folder elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.working = root / "working"
        self.working.mkdir(parents=True)
        self.book = self.write("p/books/book.yaml", BOOK)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def settings(self, config: str | None = None, **environ: str) -> Settings:
        return settings_for(Workspace(str(self.working)), str(self.book.parent), config, environ)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def hook(name: str) -> str:
    return f"{{webhook: 'https://{name}.example.com'}}"


def hooks(settings: Settings) -> dict[str, str]:
    return {category: str(notice.webhook) for category, notice in settings.on_outcome.items()}


def test_without_any_file_nothing_is_set(place: Place) -> None:
    assert place.settings() == Settings()


def test_files_are_read_weakest_first(place: Place) -> None:
    project = place.write("p/gert-project.yaml", "name: p\n")
    config = place.write("p/gert-config.yaml", "{}")
    hidden = place.write("p/.gert/config.yaml", "{}")
    named = place.write("working/mine.yaml", "{}")
    assert place.settings("mine.yaml").files == tuple(map(str, (project, config, hidden, named)))


def test_without_a_project_the_working_folder_has_the_files(place: Place) -> None:
    place.write("p/gert-config.yaml", "traces: {dir: not-this}")
    config = place.write("working/gert-config.yaml", "traces: {dir: this}")
    assert place.settings().files == (str(config),)
    assert place.settings().traces_dir == str(place.working / "this")


def test_with_a_project_the_working_folder_has_no_say(place: Place) -> None:
    place.write("p/gert-project.yaml", "name: p\n")
    place.write("working/gert-config.yaml", "traces: {dir: this}")
    assert place.settings().traces_dir is None


@pytest.mark.parametrize("stronger", range(1, 4))
def test_a_stronger_file_wins(place: Place, stronger: int) -> None:
    names = ["p/gert-project.yaml", "p/gert-config.yaml", "p/.gert/config.yaml", "working/mine.yaml"]
    place.write(names[0], "name: p\n")
    for number, name in enumerate(names[: stronger + 1]):
        who = f"file{number}"
        place.write(
            name,
            ("name: p\n" if number == 0 else "")
            + f"traces: {{dir: {who}}}\n"
            + f"groups: {{sre: [{who}], only{number}: [x]}}\n"
            + f"providers: {{cmdb: {{binary: {who}}}, only{number}: {{binary: x}}}}\n"
            + f"on_outcome: {{escalated: {hook(who)}}}\n",
        )
    settings = place.settings("mine.yaml" if stronger == 3 else None)
    who = f"file{stronger}"
    assert settings.traces_dir == str((place.root / names[stronger]).parent / who)
    assert settings.groups == {"sre": (who,), **{f"only{n}": ("x",) for n in range(stronger + 1)}}
    assert settings.providers["cmdb"].block.binary == who
    assert set(settings.providers) == {"cmdb", *(f"only{n}" for n in range(stronger + 1))}
    assert hooks(settings) == {"escalated": f"https://{who}.example.com"}


def test_categories_a_stronger_file_does_not_mention_stay(place: Place) -> None:
    place.write("p/gert-project.yaml", f"name: p\non_outcome: {{escalated: {hook('a')}, resolved: {hook('a')}}}\n")
    place.write("p/gert-config.yaml", f"on_outcome: {{resolved: {hook('b')}, needs_rca: {hook('b')}}}\n")
    assert hooks(place.settings()) == {
        "escalated": "https://a.example.com",
        "resolved": "https://b.example.com",
        "needs_rca": "https://b.example.com",
    }


def test_the_drop_box_stays_beside_channels_of_a_stronger_file(place: Place) -> None:
    place.write("p/gert-project.yaml", "name: p\napprovals: {drop_box: ../box}\n")
    place.write("p/gert-config.yaml", "approvals: {listen: '127.0.0.1:8765'}\n")
    said = place.settings().approvals
    assert said is not None
    assert os.path.isabs(said.drop_box or "")
    assert (os.path.basename(said.drop_box or ""), said.listen) == ("box", "127.0.0.1:8765")


@pytest.mark.parametrize("value", ["''", "[ops]", "{name: ops}"], ids=lambda value: f"drop box {value}")
def test_what_is_no_path_of_a_drop_box_is_an_error(place: Place, value: str) -> None:
    place.write("p/gert-project.yaml", f"name: p\napprovals: {{drop_box: {value}}}\n")
    with pytest.raises(DocumentError):
        place.settings()


def test_policies_only_grow_and_are_named_from_the_file_that_says_them(place: Place) -> None:
    place.write("p/gert-project.yaml", "name: p\npolicies: [rules, /etc/gert/floor.yaml]\n")
    place.write("p/.gert/config.yaml", "policies: [../rules, own.yaml]\n")
    place.write("working/mine.yaml", "policies: []\n")
    p = place.root / "p"
    assert place.settings("mine.yaml").policies == (
        str(p / "rules"),
        os.path.normpath("/etc/gert/floor.yaml"),
        str(p / ".gert/own.yaml"),
    )


def test_policies_of_a_config_file_are_the_floor(place: Place) -> None:
    place.write("p/gert-project.yaml", "name: p\n")
    place.write("p/gert-config.yaml", "policies: [deny.yaml]\n")
    place.write("p/deny.yaml", "apiVersion: policy/v0\nmeta: {name: no}\ngovernance: {rules: [{default: deny}]}\n")
    workspace = Workspace(str(place.working))
    checked = require_sound(workspace.program(str(place.book)))
    assert checked.program is not None
    floor = floor_for(workspace, str(place.book), checked.program)
    assert [policy.name for policy in floor.policies] == ["runbook", "no"]


# --- where traces are kept


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("traces", "p/.gert/traces", id="relative to the file that says it"),
        pytest.param("../traces", "p/traces", id="beside its folder"),
        pytest.param("/var/log/gert", "/var/log/gert", id="absolute"),
        pytest.param("~/traces", "home/traces", id="in the home folder"),
    ],
)
def test_the_folder_of_traces(place: Place, said: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place.root / "home"))
    place.write("p/gert-project.yaml", "name: p\n")
    place.write("p/.gert/config.yaml", f"traces: {{dir: {said}}}\n")
    assert place.settings().traces_dir == str(place.root / expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("/elsewhere", "/elsewhere", id="the environment wins"),
        pytest.param("here", "working/here", id="relative to where we are"),
        pytest.param("", "p/traces", id="an empty variable says nothing"),
    ],
)
def test_the_environment_says_where_traces_are_kept(place: Place, value: str, expected: str) -> None:
    place.write("p/gert-project.yaml", "name: p\ntraces: {dir: traces}\n")
    assert place.settings(GERT_TRACES_DIR=value).traces_dir == str(place.root / expected)


@pytest.mark.parametrize(
    ("more", "is_there"),
    [
        pytest.param({}, True, id="a real run"),
        pytest.param({"trace": "mine.jsonl"}, False, id="not where a trace is given"),
        pytest.param({"db": "mine.db"}, False, id="not where a database is given"),
        pytest.param({"dsn": "postgresql://h/d"}, False, id="not where a ledger is given"),
        pytest.param({"mode": "dry-run"}, False, id="not in a dry run"),
        pytest.param({"mode": "probe"}, False, id="not in a probe"),
    ],
)
def test_which_runs_are_recorded_there(tmp_path: Path, more: dict[str, str], is_there: bool) -> None:
    options = RunOptions(file="x", **more)  # type: ignore[arg-type]
    found = with_trace_file(options, Settings(traces_dir=str(tmp_path / "t")), "book", "run-1")
    assert found.trace == (str(tmp_path / "t/book-run-1.jsonl") if is_there else more.get("trace"))
    assert (tmp_path / "t").exists() == is_there


@pytest.mark.parametrize(
    ("runbook", "name"),
    [
        ("health-check", "health-check-1"),
        ("a.b_c", "a.b_c-1"),
        ("../../etc/cron.d/x", "run-1"),
        ("-rf", "run-1"),
        (".hidden", "run-1"),
        ("con.x", "run-1"),
        ("ä" * 10, "run-1"),
        ("a" * 128, "run-1"),
        ("a\0b", "run-1"),
    ],
)
def test_a_runbooks_name_leads_nowhere_else(tmp_path: Path, runbook: str, name: str) -> None:
    assert trace_file(str(tmp_path), runbook, "1") == str(tmp_path / f"{name}.jsonl")


def test_only_its_owner_can_look_into_the_folder(tmp_path: Path) -> None:
    trace_file(str(tmp_path / "t"), "a", "1")
    assert (tmp_path / "t").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("folder", ["file/below", "nul\0"])
def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        trace_file(f"{tmp_path}/{folder}", "a", "1")


# --- what must not pass in silence


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("{", DocumentError, id="no YAML"),
        pytest.param("", DocumentError, id="an empty file"),
        pytest.param("[]", DocumentError, id="a list"),
        pytest.param("polices: [x]", DocumentError, id="a key that is none"),
        pytest.param("policies: nope", DocumentError, id="policies that are no list"),
        pytest.param("traces: {folder: x}", DocumentError, id="an unknown key within"),
        pytest.param("on_outcome: {fine: {}}", DocumentError, id="a category that is none"),
        pytest.param("on_outcome: {resolved: {webhook: 'http://example.com'}}", DocumentError, id="plain http"),
        pytest.param("on_outcome: {resolved: {pagerduty_severity: dire}}", DocumentError, id="a severity that is none"),
        pytest.param("on_outcome: {resolved: {pagerduty_routing_key: abc}}", DocumentError, id="a key in the open"),
        pytest.param("groups: {a: ['group:b'], b: [x]}", DocumentError, id="a group in a group"),
        pytest.param("a: 1\na: 2", DocumentError, id="a key twice"),
    ],
)
@pytest.mark.parametrize("name", ["p/gert-project.yaml", "p/gert-config.yaml", "p/.gert/config.yaml", "working/c.yaml"])
def test_a_broken_file_is_an_error(place: Place, name: str, text: str, error: type[GertError]) -> None:
    place.write("p/gert-project.yaml", "name: p\n")
    place.write(name, text)
    with pytest.raises(error) as caught:
        place.settings("c.yaml" if name.endswith("c.yaml") else None)
    assert str(place.root / name) in caught.value.message


def test_a_file_that_was_named_has_to_be_there(place: Place) -> None:
    with pytest.raises(UsageError):
        place.settings("nowhere.yaml")


def test_a_folder_in_place_of_a_file_is_an_error(place: Place) -> None:
    (place.working / "gert-config.yaml").mkdir()
    with pytest.raises(DocumentError):
        place.settings()


def test_a_link_that_leads_nowhere_is_an_error(place: Place) -> None:
    (place.working / "gert-config.yaml").symlink_to("nowhere")
    with pytest.raises(UsageError):
        place.settings()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_cannot_be_looked_into_is_an_error(place: Place) -> None:
    place.write("working/.gert/config.yaml", "policies: [x]")
    (place.working / ".gert").chmod(0)
    try:
        with pytest.raises(DocumentError):
            place.settings()
    finally:
        (place.working / ".gert").chmod(0o700)


def test_a_fifo_is_not_waited_for(place: Place) -> None:
    os.mkfifo(place.working / "gert-config.yaml")
    with pytest.raises(DocumentError):
        place.settings()


ASKING = """
apiVersion: kernel/v0
meta:
  name: book
  inputs: {owner: {type: string, from: provider/cmdb.owner}}
  governance: {rules: [{default: require-approval, approvers: ["group:sre"]}]}
steps: [{type: end, outcome: {category: resolved, code: x}}]
"""


def unknown_names(place: Place) -> list[str]:
    place.book.write_text(ASKING)
    findings = Workspace(str(place.working)).check(str(place.book)).findings
    return [each.message for each in findings if each.rule in {"D40", "D42"}]


@pytest.mark.parametrize("file", ["p/gert-project.yaml", "p/gert-config.yaml", "p/.gert/config.yaml"])
def test_validation_knows_the_providers_and_groups_of_every_file(file: str, place: Place) -> None:
    place.write("p/gert-project.yaml", "name: p\n")
    assert len(unknown_names(place)) == 2
    name = "name: p\n" if file.endswith("project.yaml") else ""
    place.write(file, f"{name}groups: {{sre: [ann]}}\nproviders: {{cmdb: {{binary: x}}}}\n")
    assert unknown_names(place) == []


def test_validation_knows_the_configuration_where_gert_is_called(place: Place) -> None:
    place.write("working/gert-config.yaml", "groups: {other: [ann]}\n")
    assert len(unknown_names(place)) == 2
    place.write("working/gert-config.yaml", "groups: {sre: [ann]}\nproviders: {cmdb: {binary: x}}\n")
    assert unknown_names(place) == []


def test_a_configuration_that_is_not_understood_makes_names_unknown_rather_than_wrong(place: Place) -> None:
    place.write("p/gert-project.yaml", "name: p\n")
    place.write("p/gert-config.yaml", "grups: {}\n")
    assert unknown_names(place) == []


def test_a_project_inside_another_adds_to_its_floor(place: Place) -> None:
    place.write("gert-project.yaml", "name: outer\npolicies: [outer.yaml]\ntraces: {dir: not-this}\n")
    place.write("p/gert-project.yaml", "name: p\npolicies: [inner.yaml]\n")
    settings = place.settings()
    assert settings.policies == (str(place.root / "outer.yaml"), str(place.root / "p" / "inner.yaml"))
    assert settings.traces_dir is None
