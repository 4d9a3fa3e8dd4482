"""A run is named the same way by every command: its id, a unique prefix of it, or `last`; with and without `--run`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, note, of_type

ASKS = {"rules": [{"writes": ["disk"], "action": "require-approval"}, {"default": "allow"}]}

COMMANDS = {
    "run show": ["run", "show", "--json"],
    "run status": ["run", "status", "--json"],
    "run tail": ["run", "tail", "--json"],
    "run verify-ledger": ["run", "verify-ledger", "--json"],
    "run export": ["run", "export"],
    "logs": ["logs", "--json"],
    "trace show": ["trace", "show", "--json"],
    "trace verify": ["trace", "verify", "--json"],
    "trace export": ["trace", "export"],
    "approvals list": ["approvals", "list", "--json"],
    "resume": ["resume", "--json"],
    "run abandon": ["run", "abandon", "--reason", "gone", "--json"],
}
PRINTED = {"logs": '"text":"noted one\\n"'}
"""What a command prints of the run, where that is not its id."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run that has ended, and then one that waits for an approval."""
    project = Project(tmp_path_factory.mktemp("runs"))
    project.note_tool("asks", contract={"writes": ["disk"]})
    project.runbook(note("one"), note("two"), name="ended")
    project.exec("ended.yaml").ended(0)
    project.runbook(note("one"), note("two", tool="asks"), tools=["note", "asks"], governance=ASKS)
    project.exec("--detach").ended(0)
    return project


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(["{prefix}"], id="a prefix"),
        pytest.param(["last"], id="last"),
        pytest.param(["--run", "{prefix}"], id="a prefix with --run"),
        pytest.param(["--run", "last"], id="last with --run"),
    ],
)
def test_every_command_finds_the_run(made: Project, tmp_path: Path, command: str, name: list[str]) -> None:
    waiting = made.runs()[1]
    shutil.copytree(made.root / "runs", tmp_path / "runs")
    words = [word.format(prefix=waiting.id[:19]) for word in name]
    said = made.gert(*COMMANDS[command], *words, "--state-dir", tmp_path)
    # Its trace has no end yet.
    assert said.code == (1 if command == "trace verify" else 0), said
    assert PRINTED.get(command, waiting.id) in said.out
    assert made.runs()[0].id not in said.out


def test_a_rerun_and_a_scenario_find_the_run(made: Project, tmp_path: Path) -> None:
    ended, place = made.runs()[0], ["--state-dir", str(tmp_path)]
    shutil.copytree(made.root / "runs", tmp_path / "runs")
    made.gert("rerun", ended.id[:19], "--from", "two", *place).ended(0)
    assert made.gert("run", "show", "last", "--json", *place).ended(0).said["parent_run_id"] == ended.id
    made.gert("scenario", "new", "ended.yaml", "again", "--run", "last", *place).ended(0)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("named", "message"),
    [
        pytest.param(["2"], "matches 2 runs", id="a prefix of two runs"),
        pytest.param(["nope"], "there is no run `nope`", id="no run"),
        pytest.param(["../x"], "is not a run id", id="no id"),
        pytest.param(["last", "--run", "last"], "named twice", id="both"),
    ],
)
def test_what_names_no_run_is_refused(made: Project, command: str, named: list[str], message: str) -> None:
    if command == "logs" and len(named) > 1:
        message = "has not run a step `last`"
    if command.startswith("trace") and named == ["../x"]:
        message = "there is no file"
    assert message in made.gert(*COMMANDS[command], *named).ended(2).err


@pytest.mark.parametrize("words", [["run", "show"], ["logs"], ["resume"], ["rerun", "--from", "x"], ["trace", "show"]])
def test_a_run_has_to_be_named(made: Project, words: list[str]) -> None:
    said = made.gert(*words).ended(2)
    assert "name a run" in said.err
    assert "`last`" in said.err


def test_a_step_may_follow_the_run_of_logs(made: Project) -> None:
    ended = made.runs()[0]
    both = made.gert("logs", ended.id, "one").ended(0)
    assert "noted one" in both.out
    assert made.gert("logs", "--run", ended.id[:19], "one").ended(0).out == both.out


def test_the_id_of_a_run_comes_before_the_word_last(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.runbook(note("one"))
    for _ in range(2):
        project.exec().ended(0)
    first, second = project.runs()
    assert project.gert("run", "show", "last", "--json").said["run_id"] == second.id
    for table in ("runs", "events", "answers", "calls"):
        if first.rows(f"SELECT 1 FROM {table} WHERE run_id = ?1"):
            first.change(f"UPDATE {table} SET run_id = 'last' WHERE run_id = ?1")
    assert project.gert("run", "show", "last", "--json").said["run_id"] == "last"


@pytest.mark.parametrize("words", [["cancel", "last"], ["advance", "last"], ["evidence", "last", "one"]])
def test_a_run_that_has_ended_takes_no_messages(tmp_path: Path, words: list[str]) -> None:
    project = Project(tmp_path)
    project.runbook(note("one"))
    project.exec().ended(0)
    assert f"run `{project.run().id}` has ended: completed" in project.gert("run", *words).ended(2).err


def test_two_runs_are_compared_by_prefix_and_last(made: Project) -> None:
    assert "two" in made.gert("run", "diff", made.runs()[0].id[:19], "last").ended(0).out


def test_without_runs_there_is_no_last_one(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for words in (["run", "show", "last"], ["resume", "last"], ["trace", "show", "last"]):
        assert "there is no run" in project.gert(*words).ended(2).err


# --- tickets


def _open(project: Project) -> list[dict[str, Any]]:
    """The open tickets."""
    found: list[dict[str, Any]] = json.loads(project.gert("approvals", "list", "--json").ended(0).out)
    return found


def _waits(project: Project, count: int) -> list[str]:
    """A run that waits for so many approvals at once, after a first one was given; the ids of its open tickets."""
    project.note_tool("asks", contract={"writes": ["disk"]})
    loop = {"over": [f"n{number}" for number in range(count)], "as": "item", "key": "{{ .item }}", "parallel": True}
    each = {**note("each", "{{ .item }}", tool="asks"), "for_each": loop}
    project.runbook(note("first", tool="asks"), each, tools=["note", "asks"], governance=ASKS)
    project.exec("--detach", "--as", "kim").ended(0)
    [first] = _open(project)
    project.gert("approve", first["ticket_id"], "--as", "lou").ended(0)
    project.gert("resume", "last", "--detach").ended(0)
    return [each["ticket_id"] for each in _open(project)]


@pytest.mark.parametrize("name", ["last", "{run}"], ids=["last", "the id of its run"])
def test_an_approval_names_the_one_ticket_that_the_last_run_waits_for(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path)
    [ticket] = _waits(project, 1)
    named = name.format(run=project.run().id)
    assert project.gert("approvals", "show", named, "--json").ended(0).said["ticket_id"] == ticket
    assert project.gert("approve", named, "--as", "lou", "--json").ended(0).said["ticket_id"] == ticket
    project.gert("resume", "last", "--ticket", ticket[:-2]).ended(0)
    assert project.noted() == ["first", "n0"]
    assert of_type(project.run().events(), "run_resumed")[-1]["data"]["ticket_id"] == ticket


@pytest.mark.parametrize("command", [["approve"], ["reject"], ["approvals", "show"]], ids=" ".join)
def test_where_the_last_run_waits_for_several_approvals_each_is_listed(tmp_path: Path, command: list[str]) -> None:
    project = Project(tmp_path)
    tickets = _waits(project, 2)
    said = project.gert(*command, "last").ended(2).err
    assert f"the last run, `{project.run().id}`, waits for 2 approvals" in said
    for ticket, path in zip(tickets, ("each[n0]", "each[n1]"), strict=True):
        assert f"`{ticket}` (`{path}`)" in said
    assert all(not each["received"] for each in _open(project))


def test_where_the_last_run_waits_for_no_approval_those_of_other_runs_are_listed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    [ticket] = _waits(project, 1)
    project.runbook(note("one"), name="ended")
    project.exec("ended.yaml").ended(0)
    said = project.gert("approve", "last").ended(2).err
    assert "waits for no approval" in said
    assert f"other runs wait: `{ticket}`" in said


@pytest.mark.parametrize("words", [["trace", "show"], ["trace", "verify"], ["diagram"]], ids=" ".join)
@pytest.mark.parametrize("name", ["last", "{id}"])
def test_no_file_takes_the_place_of_a_run(made: Project, tmp_path: Path, words: list[str], name: str) -> None:
    ended = made.runs()[0]
    shutil.copytree(made.root, tmp_path / "copy")
    here = Project(tmp_path / "copy")
    file = name.format(id=ended.id)
    (here.root / file).write_text("mine")
    here.gert(*words, file).ended(1 if name == "last" and words[-1] == "verify" else 0)
    assert here.gert(*words, f"./{file}").code != 0
