"""`gert init`: the project it writes works at once, and whatever was there before is not harmed."""

import json
import os
import re
import stat
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ecosystem.surfaces.cli.workbench import Ran, called, environment, snapshot

from gert.ecosystem.host.scaffold import write_files
from gert.ecosystem.host.scaffold.starter_files import FALLBACK_NAME, OPTIONAL_FILES, STARTER, name_from, starter_files
from gert.ecosystem.host.scaffold.write_files import write_all
from gert.errors import UsageError
from gert.kernel.foundation.names import is_safe_name

RUNBOOK = "runbooks/check-disk.yaml"


def gert(folder: Path, *words: str | Path, **environ: str) -> Ran:
    return called(folder, [str(word) for word in words], environment(environ))


def begun(folder: Path, *words: str) -> dict[str, Any]:
    return gert(folder, "init", ".", "--json", *words).ended(0).said


# --- what it writes


@pytest.mark.parametrize("name", ["ops", "two words", "Überwachung", "проверка", "a'b\"c", "x$(id)", "..odd", "a/b/c"])
def test_a_new_project_validates_and_is_covered_whatever_its_folder_is_called(tmp_path: Path, name: str) -> None:
    ran = gert(tmp_path, "init", name).ended(0)
    assert "gert test . --coverage" in ran.out
    where = tmp_path / name
    assert set(snapshot(where)) == set(STARTER)
    gert(tmp_path, "validate", where, "--strict").ended(0)
    report = gert(tmp_path, "test", where, "--coverage", "--json").ended(0).said
    assert (report["passed"], report["failed"], report["errors"], report["skipped"]) == (4, 0, 0, 0)
    assert [each["complete"] for each in report["coverage"]] == [True]


def test_its_runbook_really_runs_and_is_recorded(tmp_path: Path) -> None:
    begun(tmp_path)
    ran = gert(tmp_path, "exec", RUNBOOK, "--var", "limit=100", "--json").ended(0)
    assert ran.said["outcome"]["code"] == "enough_space"
    assert (tmp_path / "runs").is_dir()
    gert(tmp_path, "trace", "verify", ran.said["trace"]).ended(0)


def test_without_an_approver_its_runbook_deletes_nothing(tmp_path: Path) -> None:
    begun(tmp_path)
    ran = gert(tmp_path, "exec", RUNBOOK, "--var", "limit=1", "--var", "path=/", "--json")
    assert ran.code == 3, "every disk holds more than nothing"
    assert ran.said["failed_step"].endswith("free_space")


@pytest.mark.parametrize("path", ["/no/such/place", "-a", "--help", "$(touch mark)", "; touch mark"])
def test_its_tool_takes_a_path_as_a_path(tmp_path: Path, path: str) -> None:
    begun(tmp_path)
    gert(tmp_path, "exec", RUNBOOK, "--var", f"path={path}", "--json").ended(3)
    assert not (tmp_path / "mark").exists()


def test_a_path_that_looks_like_an_option_is_measured(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "-a").mkdir()
    ran = gert(tmp_path, "exec", RUNBOOK, "--var", "path=-a", "--var", "limit=100", "--json").ended(0)
    assert ran.said["outcome"]["code"] == "enough_space"


def test_what_it_records_itself_is_a_scenario_that_passes(tmp_path: Path) -> None:
    begun(tmp_path)
    folder = "runbooks/scenarios/check-disk/today"
    gert(tmp_path, "exec", RUNBOOK, "--var", "limit=100", "--record", folder).ended(0)
    assert gert(tmp_path, "test", "--all", "--json").ended(0).said["passed"] == 5
    gert(tmp_path, "validate", ".", "--strict").ended(0)


def test_runs_are_not_for_version_control_and_ci_validates_and_tests(tmp_path: Path) -> None:
    begun(tmp_path)
    assert "runs/" in (tmp_path / ".gitignore").read_text().splitlines()
    workflow = (tmp_path / ".github/workflows/gert.yml").read_text()
    assert "gert validate . --strict" in workflow
    assert "gert test . --coverage" in workflow
    assert "approvals/" in (tmp_path / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("words", [[], ["--profile", "enforced"]], ids=["runbooks", "an agent"])
def test_nothing_it_writes_installs_gert_by_its_name_from_an_index(tmp_path: Path, words: list[str]) -> None:
    """Nothing is released under that name, so another person could be."""
    gert(tmp_path, "init", ".", "--json", *words).ended(0)
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        text = path.read_text()
        assert "pypi.org" not in text, path
        assert not re.search(r"^\s*(- run: )?(pip|uv|pipx|uvx) .*(?<![/\w-])gert(\s|$|\[)", text, re.MULTILINE), path


@pytest.mark.parametrize(
    ("source", "installs"),
    [("", False), ("gert", False), ("gert==1.0", False), ("git+https://git.example.com/gert@0123", True)],
)
def test_the_workflow_installs_only_from_an_address(tmp_path: Path, source: str, installs: bool) -> None:
    begun(tmp_path)
    workflow = yaml.safe_load((tmp_path / ".github/workflows/gert.yml").read_text())
    (step,) = [each for each in workflow["jobs"]["test"]["steps"] if each.get("name") == "Install gert"]
    pip = tmp_path / "bin" / "pip"
    pip.parent.mkdir()
    pip.write_text('#!/bin/sh\necho "$@" > installed\n')
    pip.chmod(0o755)
    environ = {"PATH": f"{pip.parent}:{os.environ['PATH']}", "SOURCE_OF_GERT": source}
    ran = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environ, check=False)
    assert (ran.returncode == 0, (tmp_path / "installed").exists()) == (installs, installs)


def test_files_can_be_read_by_those_the_umask_admits(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    for path in STARTER:
        assert (tmp_path / path).stat().st_mode == (tmp_path / "plain").stat().st_mode
        assert (tmp_path / path).stat().st_nlink == 1
    assert (tmp_path / "tools").stat().st_mode == (tmp_path / "folder").stat().st_mode


def test_machines_are_told_what_was_written(tmp_path: Path) -> None:
    said = gert(tmp_path, "init", "a b", "--json", "--name", "mine").ended(0).said
    assert list(said) == ["folder", "name", "written", "replaced", "kept", "next"]
    assert said["folder"] == str(tmp_path / "a b")
    assert (said["name"], said["replaced"], said["kept"]) == ("mine", [], [])
    assert set(said["written"]) == set(STARTER)
    assert said["next"][0] == "cd 'a b'"


def test_in_this_folder_the_next_commands_do_not_change_folder(tmp_path: Path) -> None:
    assert all(not line.startswith("cd ") for line in begun(tmp_path)["next"])


def test_every_template_is_used_and_every_one_that_is_used_is_there() -> None:
    folder = files("gert.ecosystem.host.scaffold").joinpath("starter")
    there = {each.name for each in folder.iterdir() if each.name != "__pycache__"}
    assert there == set(STARTER.values())
    assert len(STARTER) == len(set(STARTER.values()))
    assert b"@NAME@" not in b"".join(starter_files("some-name").values())


# --- names


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        pytest.param("ops", "ops", id="a plain name stays"),
        pytest.param("My Runbooks", "My-Runbooks", id="spaces become dashes"),
        pytest.param("Überwachung", "Uberwachung", id="accents go"),
        pytest.param("проверка", FALLBACK_NAME, id="nothing is left"),
        pytest.param("--", FALLBACK_NAME, id="only dashes"),
        pytest.param("con", FALLBACK_NAME, id="a device on some systems"),
        pytest.param("...", FALLBACK_NAME, id="only dots"),
        pytest.param("", FALLBACK_NAME, id="the root of the file system"),
        pytest.param("a: {b}\n# c", "a-b-c", id="no YAML gets in"),
        pytest.param("x" * 300, "x" * 128, id="too long"),
    ],
)
def test_a_project_is_named_after_its_folder(folder: str, name: str) -> None:
    assert name_from(folder) == name
    assert is_safe_name(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "../x", "-x", ".x", "a: b", "nul", "x" * 129, "\x1b[2J"])
def test_a_name_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    ran = gert(tmp_path, "init", "new", f"--name={name}").ended(2)
    assert "invalid project name" in ran.err
    assert "\x1b[2J" not in ran.err
    assert list(tmp_path.iterdir()) == []


# --- what is there already


def test_a_repository_keeps_its_own_readme_and_gitignore(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[core]\n")
    (tmp_path / "README.md").write_text("mine\n")
    (tmp_path / ".gitignore").write_text("*.o\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/make.sh").write_text("#!/bin/sh\n")
    before = snapshot(tmp_path)
    ran = gert(tmp_path, "init", ".").ended(0)
    assert "add `runs/` and `approvals/` to it" in ran.out
    after = snapshot(tmp_path)
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) == set(STARTER) - OPTIONAL_FILES
    gert(tmp_path, "validate", ".", "--strict").ended(0)


@pytest.mark.parametrize("path", sorted(set(STARTER) - OPTIONAL_FILES))
def test_anything_in_the_way_is_named_and_nothing_is_written(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("mine")
    (tmp_path / "other").write_text("other")
    before = sorted(tmp_path.rglob("*"))
    ran = gert(tmp_path, "init", ".").ended(2)
    assert f"`{path}`" in ran.err
    assert "--force" in ran.err
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / path).read_text() == "mine"


def test_a_second_time_names_everything_and_changes_nothing(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / RUNBOOK).write_text("changed\n")
    before = snapshot(tmp_path)
    ran = gert(tmp_path, "init", ".").ended(2)
    assert all(f"`{path}`" in ran.err for path in set(STARTER) - OPTIONAL_FILES)
    assert snapshot(tmp_path) == before


def test_force_replaces_what_is_in_the_way_and_nothing_else(tmp_path: Path) -> None:
    begun(tmp_path)
    clean = snapshot(tmp_path)
    (tmp_path / RUNBOOK).write_text("changed\n")
    (tmp_path / "README.md").write_text("mine\n")
    (tmp_path / "tools/own.tool.yaml").write_text("mine\n")
    said = begun(tmp_path, "--force")
    assert RUNBOOK in said["replaced"]
    assert said["kept"] == ["README.md", ".gitignore"]
    after = snapshot(tmp_path)
    assert after[RUNBOOK] == clean[RUNBOOK]
    assert (tmp_path / "README.md").read_text() == "mine\n"
    assert (tmp_path / "tools/own.tool.yaml").read_text() == "mine\n"


def test_force_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    project = tmp_path / "project"
    project.mkdir()
    (project / "gert-project.yaml").symlink_to(outside)
    gert(tmp_path, "init", project).ended(2)
    gert(tmp_path, "init", project, "--force").ended(0)
    assert outside.read_text() == "precious"
    assert not (project / "gert-project.yaml").is_symlink()


def test_a_link_to_nowhere_is_in_the_way_too(tmp_path: Path) -> None:
    (tmp_path / "gert-project.yaml").symlink_to(tmp_path / "nowhere")
    gert(tmp_path, "init", ".").ended(2)
    assert not (tmp_path / "nowhere").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["gert-project.yaml"]


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize(
    ("blocker", "is_folder"),
    [
        pytest.param("tools", False, id="a file where a folder has to be"),
        pytest.param("runbooks/scenarios", False, id="a file deep inside"),
        pytest.param("gert-project.yaml", True, id="a folder where a file has to be"),
    ],
)
def test_what_no_force_moves_is_named(tmp_path: Path, blocker: str, is_folder: bool, force: tuple[str, ...]) -> None:
    path = tmp_path / blocker
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if is_folder else path.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    ran = gert(tmp_path, "init", ".", *force).ended(2)
    assert f"`{blocker}`" in ran.err
    assert "--force" not in ran.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_file_is_no_folder_to_begin_in(tmp_path: Path, force: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("mine")
    gert(tmp_path, "init", "file", *force).ended(2)
    gert(tmp_path, "init", "file/below", *force).ended(2)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "mine")]


@pytest.mark.parametrize("words", [["init"], ["init", ""], ["init", "a", "b"], ["init", "a", "--profile", "none"]])
def test_called_wrongly_it_writes_nothing(tmp_path: Path, words: list[str]) -> None:
    gert(tmp_path, *words).ended(2)
    assert list(tmp_path.iterdir()) == []


def test_escapes_in_the_name_of_a_folder_do_not_steer_the_terminal(tmp_path: Path) -> None:
    ran = gert(tmp_path, "init", "a\x1b[31mb\nc").ended(0)
    assert "\x1b[31m" not in ran.out
    assert "\nc" not in ran.out


def test_a_folder_that_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert "permission denied" in gert(tmp_path, "init", "new").ended(2).err
    finally:
        tmp_path.chmod(0o700)


# --- failing half-way


CONTENTS = {"a": b"1", "b/c": b"2", "b/d/e": b"3", "last": b"4"}


@pytest.mark.parametrize("exists", [True, False], ids=["in a folder that is there", "in a new folder"])
@pytest.mark.parametrize("at", range(len(CONTENTS)))
@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "^C"])
def test_a_failure_half_way_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, exists: bool, problem: BaseException
) -> None:
    root = tmp_path / "above" / "project"
    if exists:
        root.mkdir(parents=True)
        (root / "a").write_text("old")
        (root / "mine").write_text("mine")
    before = {path: path.read_text() if path.is_file() else None for path in tmp_path.rglob("*")}
    placed = write_files._name
    calls: list[str] = []

    def fails(staged: str, target: str) -> None:
        calls.append(target)
        if len(calls) > at:
            raise problem
        placed(staged, target)

    monkeypatch.setattr(write_files, "_name", fails)
    with pytest.raises(UsageError if isinstance(problem, OSError) else KeyboardInterrupt):
        write_all(str(root), CONTENTS, yields=frozenset(), force=True)
    assert {path: path.read_text() if path.is_file() else None for path in tmp_path.rglob("*")} == before


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = write_files._name

    def races(staged: str, target: str) -> None:
        if target.endswith("last"):
            Path(target).write_text("somebody else's")
        placed(staged, target)

    monkeypatch.setattr(write_files, "_name", races)
    with pytest.raises(UsageError):
        write_all(str(tmp_path), CONTENTS, yields=frozenset())
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("last", "somebody else's")]


def test_a_file_system_without_links_is_good_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    write_all(str(tmp_path), CONTENTS, yields=frozenset())
    assert {path: (tmp_path / path).read_bytes() for path in CONTENTS} == CONTENTS
    assert len(list(tmp_path.iterdir())) == 3


def test_json_is_one_document_even_where_something_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "gert-project.yaml").write_text("mine")
    ran = gert(tmp_path, "init", ".", "--json").ended(2)
    assert ran.out == "" or json.loads(ran.out)
