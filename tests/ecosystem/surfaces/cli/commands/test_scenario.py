"""`gert scenario`: made from stubs or from a run, promoted, demoted, listed and shown."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ecosystem.surfaces.cli.workbench import Project, Recorded, call, events_in, note, snapshot

from gert.ecosystem.host.scenarios import retrace as retrace_module
from gert.ecosystem.host.scenarios.folders import Folder
from gert.ecosystem.host.scenarios.retrace import find_record, retrace
from gert.ecosystem.host.scenarios.scaffold import require_free
from gert.errors import UsageError

BOTH = ("scenario.yaml", "test.yaml")


@pytest.fixture
def ran(project: Project) -> Project:
    """A project with a run that was recorded as a scenario outside the layout, too."""
    project.runbook(note("one", "{{ .word }}"), inputs={"word": {"type": "string"}})
    project.exec("--var", "word=hello", "--as", "kim", "--record", "recorded/friday").ended(0)
    return project


def of_book(project: Project, name: str = "friday") -> Path:
    return project.root / "scenarios" / "book" / name


def data(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    return document


# --- stubs


def test_stubs_are_valid_and_name_every_question(project: Project) -> None:
    project.tool(
        "probe",
        ["true"],
        extract={"up": {"from": "json", "path": "a.b"}, "raw": {"from": "stderr", "pattern": "x=(.*)"}},
    )
    evidence = [
        {"kind": "text", "name": "why"},
        {"kind": "checklist", "name": "done", "items": ["a", "b"]},
        {"kind": "attachment", "name": "log"},
    ]
    project.runbook(
        call("first", "probe"),
        call("second", "probe"),
        note("third"),
        {"id": "ask", "type": "manual", "instructions": "look\nclosely # now", "required_evidence": evidence},
        {"id": "more", "type": "extension", "extension": "runner", "contract": {"outputs": {"x": {"type": "int"}}}},
        tools=["probe", "note"],
        inputs={
            "host": {"type": "string", "required": True, "description": "which: #one\nof them"},
            "size": {"type": "int", "min": 3},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "code": {"type": "string", "pattern": "^[a-z]{9}$", "required": True},
            "words": {"type": "list", "default": ["x", "y"]},
            "token": {"type": "string", "secret": True},
            "bound": {"type": "string", "from": "env/SOMETHING"},
        },
    )
    said = project.gert("scenario", "new", "book.yaml", "stub", "--json").ended(0).said
    assert said == {"folder": "scenarios/book/stub", "runbook": "book.yaml", "recorded": None}
    checked = project.gert("validate", "scenarios", "--json").ended(0).said
    # No value can be made up for `code`, so the author has to write one.
    assert checked["summary"] == {"errors": 0, "warnings": 1, "notes": 0, "skipped": 0, "unfinished": 0}
    found = [finding["message"] for each in checked["files"] for finding in each["findings"]]
    assert found == ["no value for the required input `code`"]
    scenario = data(of_book(project, "stub") / "scenario.yaml")
    assert scenario["inputs"] == {
        "host": "",
        "size": 3,
        "kind": "a",
        "words": ["x", "y"],
        "token": "[REDACTED]",
        "bound": "",
    }
    assert set(scenario["tool_responses"]) == {"probe:go", "note:go"}
    assert scenario["extension_responses"] == {"more": {"outputs": {}}}
    assert scenario["evidence"]["ask"]["done"] is True
    text = (of_book(project, "stub") / "scenario.yaml").read_text()
    for words in ("# up: from JSON on stdout at a.b", "# raw: from stderr, matching x=(.*)", "# for first, second",
                  '#   code: ""  # string, required, matching ^[a-z]{9}$', "# look closely # now"):  # fmt: skip
        assert words in text, text


def test_stubs_run_as_far_as_they_can(project: Project) -> None:
    project.runbook(call("quiet", "silent"), tools=["silent"])
    project.tool("silent", ["true"])
    project.gert("scenario", "new", "book.yaml", "stub").ended(0)
    project.exec("--mode", "replay", "--scenario", "stub").ended(0)
    assert "✓ same" in project.gert("diff", "book.yaml").ended(0).out


# --- from a run


@pytest.mark.parametrize("named", ["by its id", "by its trace", "by its folder", "by a trace elsewhere"])
def test_a_run_becomes_the_scenario_that_recording_it_gives(project: Project, tmp_path: Path, named: str) -> None:
    project.runbook(
        {
            "id": "both",
            "type": "parallel",
            "branches": [{"label": each, "steps": [note(each, "{{ .word }}", scope=each)]} for each in ("a", "b")],
        },
        note("each", "{{ .item }}", for_each={"over": "{{ .words }}", "as": "item"}),
        note("last", "{{ .token }}"),
        inputs={
            "word": {"type": "string"},
            "words": {"type": "list", "default": [1, 2]},
            "token": {"type": "string", "secret": True},
        },
    )
    elsewhere = tmp_path / "t.jsonl"
    words = ["--var", "word=hi", "--var", "token=tK1canary", "--as", "kim", "--record", "scenarios/book/recorded"]
    traced = ["--trace", str(elsewhere)] if named == "by a trace elsewhere" else []
    run = Recorded(project.root / "runs" / project.exec(*words, *traced, "--json").ended(0).said["run_id"])
    options: dict[str, list[str | Path]] = {
        "by its id": ["--run", run.folder.name],
        "by its trace": ["--trace", run.trace],
        "by its folder": ["--trace", run.folder],
        "by a trace elsewhere": ["--trace", elsewhere],
    }
    before, effects = snapshot(project.root / "runs"), project.noted()
    said = project.gert("scenario", "new", "book.yaml", "again", *options[named], "--json").ended(0).said
    assert said["differs"] is None
    recorded, again = of_book(project, "recorded"), of_book(project, "again")
    for file in BOTH:
        assert data(again / file) == data(recorded / file)
    assert (again / "trace.jsonl").read_bytes() == (recorded / "trace.jsonl").read_bytes()
    assert b"canary" not in b"".join(path.read_bytes() for path in again.iterdir())
    assert (snapshot(project.root / "runs"), project.noted()) == (before, effects)
    project.exec("--mode", "replay", "--scenario", "again").ended(0)


def test_a_failed_run_becomes_a_scenario_too(project: Project) -> None:
    project.script("bad", "echo broken >&2; exit 3")
    project.runbook(note("one"), call("two", "bad"), tools=["note", "bad"], after=[note("cleanup")])
    project.exec().ended(3)
    project.gert("scenario", "new", "book.yaml", "bad-day", "--run", project.run().folder.name).ended(0)
    test = data(of_book(project, "bad-day") / "test.yaml")
    assert (test["expected_status"], test["golden"]) == ("failed", False)
    assert "✓ same" in project.gert("diff", "book.yaml", "--all").ended(0).out


def test_a_scenario_that_another_process_made_is_not_taken_for_the_own_one(
    ran: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two make one of the same name at once: the second is told that it made none."""
    first = of_book(ran, "x")
    free = require_free

    def taken_meanwhile(folder: Folder) -> None:
        free(folder)
        shutil.copytree(ran.root / "recorded/friday", first)

    monkeypatch.setattr(retrace_module, "require_free", taken_meanwhile)
    book, environ = str(ran.root / "book.yaml"), dict(os.environ)

    async def made() -> object:
        record = await find_record(ran.run().id, None, book, None, environ)
        return await retrace(book, "x", record, environ)

    with pytest.raises(UsageError, match="makes no scenario"):
        asyncio.run(made())
    assert snapshot(first) == snapshot(ran.root / "recorded/friday")


def test_a_run_of_another_runbook_is_refused_unless_forced(ran: Project) -> None:
    run = ran.run().folder.name
    ran.runbook(note("one", "{{ .word }}"), inputs={"word": {"type": "string"}}, description="changed")
    refused = ran.gert("scenario", "new", "book.yaml", "x", "--run", run).ended(2)
    assert "has changed since run" in refused.err
    assert not of_book(ran, "x").exists()
    ran.gert("scenario", "new", "book.yaml", "x", "--run", run, "--force").ended(0)
    # Where it goes another way, nothing helps.
    ran.runbook(note("other"), note("one", "{{ .word }}"), inputs={"word": {"type": "string"}})
    refused = ran.gert("scenario", "new", "book.yaml", "y", "--run", run, "--force").ended(2)
    assert "does not go the same way again" in refused.err
    ran.runbook(note("one", "{{ .word }}"), note("two"), inputs={"word": {"type": "string"}})
    refused = ran.gert("scenario", "new", "book.yaml", "y", "--run", run, "--force").ended(2)
    assert "replay diverged at event 7" in refused.err
    assert "at `two`" in refused.err
    assert not of_book(ran, "y").exists()


def test_a_run_whose_answers_lead_to_other_events_by_now_is_refused_and_the_first_one_is_named(ran: Project) -> None:
    run = ran.run().folder.name
    ran.note_tool("note", contract={"outputs": {"said": {"type": "int"}}})
    refused = ran.gert("scenario", "new", "book.yaml", "x", "--run", run).ended(2)
    assert "does not go the same way again: replay diverged at event 6: `step_complete` is recorded" in refused.err
    assert not of_book(ran, "x").exists()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        pytest.param("UPDATE answers SET line = x'7b7d' WHERE run_id = ?1", "was changed", id="an answer that is none"),
        pytest.param("DELETE FROM answers WHERE run_id = ?1", "was changed", id="no answers"),
        pytest.param("UPDATE events SET line = x'7b7d' WHERE run_id = ?1", "was changed", id="events that are none"),
        pytest.param("DELETE FROM events WHERE run_id = ?1", "was changed", id="no events"),
        pytest.param("DELETE FROM runs WHERE run_id = ?1", "there is no run", id="no such run"),
    ],
)
def test_a_run_that_is_damaged_makes_no_scenario(ran: Project, damage: str, why: str) -> None:
    run = ran.run()
    run.change(damage)
    refused = ran.gert("scenario", "new", "book.yaml", "x", "--run", run.folder.name)
    assert refused.code in (1, 2), refused.err
    assert why in refused.err
    assert "Traceback" not in refused.err
    assert not of_book(ran, "x").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["book.yaml", "../evil"], "invalid scenario name", id="a name that leads elsewhere"),
        pytest.param(["book.yaml", "x", "--run", "nobody"], "there is no run `nobody`", id="a run that is not there"),
        pytest.param(["book.yaml", "x", "--run", "../../x"], "is not a run id", id="a run that is a path"),
        pytest.param(["book.yaml", "x", "--run", "a", "--trace", "b"], "found both", id="two runs"),
        pytest.param(["book.yaml", "x", "--trace", "nobody"], "there is no file", id="a trace that is not there"),
        pytest.param(["book.yaml", "x", "--force"], "require `--run` or `--trace`", id="force without a run"),
        pytest.param(["nobody.yaml", "x"], "there is no file", id="a runbook that is not there"),
        pytest.param(["book.yaml", "taken"], "already", id="a name that is taken"),
    ],
)
def test_what_cannot_be_made_is_told(ran: Project, words: list[str], why: str) -> None:
    ran.write("scenarios/book/taken/scenario.yaml", {})
    before = snapshot(ran.root)
    refused = ran.gert("scenario", "new", *words).ended(2)
    assert why in refused.err
    assert snapshot(ran.root) == before


# --- promoting


def test_a_recorded_folder_is_copied_to_its_runbook(ran: Project) -> None:
    source = ran.root / "recorded" / "friday"
    before = snapshot(source)
    said = ran.gert("scenario", "promote", "recorded/friday/", "--name", "healthy", "--json").ended(0).said
    assert (said["folder"], said["golden"], said["moved_from"]) == ("scenarios/book/healthy", True, "recorded/friday")
    assert snapshot(source) == before, "what was recorded stays as it was"
    healthy = of_book(ran, "healthy")
    assert data(healthy / "test.yaml") == {**data(source / "test.yaml"), "golden": True}
    assert (healthy / "trace.jsonl").read_bytes() == (source / "trace.jsonl").read_bytes()
    there = data(healthy / "scenario.yaml")["extensions"]["x-recorded"]["runbook"]
    assert (healthy / there).resolve() == ran.root / "book.yaml"
    ran.gert("validate", "scenarios", "--strict").ended(0)
    refused = ran.gert("scenario", "promote", "recorded/friday", "--name", "healthy").ended(2)
    assert "already" in refused.err


def test_a_scenario_in_its_place_is_marked_and_nothing_else_changes(ran: Project) -> None:
    shutil.copytree(ran.root / "recorded" / "friday", of_book(ran))
    test = of_book(ran) / "test.yaml"
    test.write_text("# why\n" + test.read_text().replace("golden: false", "golden: false  # not yet"))
    shutil.rmtree(ran.root / "recorded")
    text = test.read_text()
    assert "is now golden" in ran.gert("scenario", "promote", "friday").ended(0).out
    assert test.read_text() == text.replace("golden: false", "golden: true")
    assert "already golden" in ran.gert("scenario", "promote", "friday").ended(0).out
    assert "is now archived" in ran.gert("scenario", "demote", of_book(ran)).ended(0).out
    assert test.read_text() == text


def test_a_scenario_in_its_place_can_get_a_better_name(ran: Project) -> None:
    shutil.copytree(ran.root / "recorded" / "friday", of_book(ran, "20260228-1200"))
    ran.gert("scenario", "promote", "20260228-1200", "--name", "cold-cache").ended(0)
    assert not of_book(ran, "20260228-1200").exists()
    assert data(of_book(ran, "cold-cache") / "test.yaml")["golden"] is True


def test_a_scenario_without_a_test_gets_the_least_one(ran: Project) -> None:
    (ran.root / "recorded" / "friday" / "test.yaml").unlink()
    ran.gert("scenario", "promote", "recorded/friday").ended(0)
    assert data(of_book(ran) / "test.yaml") == {"golden": True, "expected_status": "completed"}
    (of_book(ran) / "test.yaml").unlink()
    ran.gert("scenario", "demote", of_book(ran)).ended(0)
    assert data(of_book(ran) / "test.yaml") == {"golden": False, "expected_status": "completed"}


def test_a_test_that_had_to_be_written_anew_is_told(ran: Project) -> None:
    (ran.root / "recorded" / "friday" / "test.yaml").write_text('{"golden": false, "expected_status": "completed"}')
    assert "comments in it are lost" in ran.gert("scenario", "promote", "recorded/friday").ended(0).out


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        pytest.param(["recorded/friday", "--name", "../x"], 2, "invalid scenario name", id="a name that leads out"),
        pytest.param(["recorded/friday", "--runbook", "nobody.yaml"], 2, "there is no file", id="no such runbook"),
        pytest.param(["recorded/friday", "--runbook", "other.yaml"], 1, "has no input `word`", id="another runbook"),
        pytest.param(["nobody"], 2, "no scenario `nobody` below this folder", id="an unknown name"),
        pytest.param(["firday"], 2, "did you mean `friday`?", id="a name that is misspelled"),
        pytest.param(["no/body"], 2, "there is no `scenario.yaml` in `no/body`", id="a folder that is none"),
        pytest.param(["stray"], 2, "name the runbook with --runbook", id="a scenario without a runbook"),
        pytest.param(["lost"], 2, "no longer exists", id="a runbook that is gone"),
        pytest.param(["twice"], 2, "several scenarios are named `twice`", id="a name two have"),
        pytest.param(["taken"], 2, "already", id="a name that is taken"),
    ],
)  # fmt: skip
def test_what_cannot_be_promoted_is_told(ran: Project, words: list[str], code: int, why: str) -> None:
    ran.runbook(note("other"), name="other")
    ran.write("stray/scenario.yaml", {"inputs": {}})
    ran.write("lost/scenario.yaml", {"extensions": {"x-recorded": {"runbook": "../nobody.yaml"}}})
    ran.write("a/twice/scenario.yaml", {})
    ran.write("b/twice/scenario.yaml", {})
    ran.write("taken/scenario.yaml", {"extensions": {"x-recorded": {"runbook": "../book.yaml"}}})
    of_book(ran, "taken").mkdir(parents=True)
    before = snapshot(ran.root)
    refused = ran.gert("scenario", "promote", *words).ended(code)
    assert why in refused.err
    assert "Traceback" not in refused.err
    assert snapshot(ran.root) == before


def test_demoting_what_is_not_there_is_told(ran: Project) -> None:
    assert "no scenario" in ran.gert("scenario", "demote", "nobody").ended(2).err
    assert "no scenarios yet" in ran.gert("scenario", "demote", "fridey", "--runbook", "book.yaml").ended(2).err
    ran.gert("scenario", "promote", "recorded/friday").ended(0)
    assert "`friday`" in ran.gert("scenario", "demote", "fridey", "--runbook", "book.yaml").ended(2).err
    ran.gert("scenario", "demote", "friday", "--runbook", "book.yaml").ended(0)


# --- looking


def test_the_list_tells_what_each_is(ran: Project) -> None:
    ran.gert("scenario", "promote", "recorded/friday", "--name", "kept").ended(0)
    ran.gert("scenario", "new", "book.yaml", "mine").ended(0)
    ran.write("scenarios/book/broken/scenario.yaml", "{")
    said = {each["scenario"]: each for each in json.loads(ran.gert("scenario", "list", "--json").ended(0).out)}
    assert {name: (each["runbook"], each["kind"]) for name, each in said.items()} == {
        "friday": (None, "archived"),
        "kept": ("book.yaml", "golden"),
        "mine": ("book.yaml", "by hand"),
        "broken": ("book.yaml", "by hand"),
    }
    assert said["kept"]["expects"] == "resolved (done)"
    assert said["kept"]["recorded"] == events_in(ran.run().trace)[0]["timestamp"]
    assert said["broken"]["problem"] is not None
    table = ran.gert("scenario", "list", "book.yaml", "--golden").ended(0).out
    assert "friday" not in table
    assert "resolved (done)" in table
    assert "unreadable" in table
    assert "3 scenarios" in table


def test_a_list_of_nothing_says_how_to_begin(project: Project) -> None:
    project.runbook(note("one"))
    assert "gert scenario new" in project.gert("scenario", "list").ended(0).out
    assert json.loads(project.gert("scenario", "list", "book.yaml", "--json").ended(0).out) == []
    assert "there is no file or folder" in project.gert("scenario", "list", "nobody").ended(2).err
    assert "did you mean `./book.yaml`?" in project.gert("test", "./bok.yaml").ended(2).err


def test_a_scenario_is_shown_in_brief_and_in_full(ran: Project) -> None:
    out = ran.gert("scenario", "show", "friday").ended(0).out
    for words in ("friday (archived)", "word = hello", "one: exit_code 0, stdout noted hello", "expected_code: done"):
        assert words in out
    said = ran.gert("scenario", "show", "recorded/friday", "--json").ended(0).said
    assert said["answers"]["tool_responses"]["one"][0]["stdout"] == "noted hello\n"
    assert said["expectations"]["must_reach"] == ["one"]


def test_what_is_shown_acts_on_no_terminal(ran: Project) -> None:
    evil = "\x1b[2J\u202e" + "x" * 5000
    key = evil[:900]
    answers = {"inputs": {key: evil}, "tool_responses": {key: [{"stdout": evil}]}, "description": evil}
    ran.write("scenarios/book/evil/scenario.yaml", json.dumps(answers))
    for words in (["show", "evil"], ["list"]):
        out = ran.gert("scenario", *words).ended(0).out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert len(out) < 5000


@pytest.mark.parametrize("name", ["new", "promote", "demote", "list", "show"])
def test_every_command_explains_itself(project: Project, name: str) -> None:
    out = project.gert("scenario", name, "--help").ended(0).out
    assert "Example: gert scenario" in out
    assert "--json" in out


def test_a_folder_that_cannot_be_written_is_an_error(ran: Project) -> None:
    if os.geteuid() == 0:
        (ran.root / "scenarios").write_text("a file")
    else:
        (ran.root / "scenarios").mkdir(mode=0o500)
    refused = ran.gert("scenario", "promote", "recorded/friday").ended(2)
    assert "cannot be written" in refused.err
