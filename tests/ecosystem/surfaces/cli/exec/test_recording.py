"""Where a run is recorded, who may read it, and what can be verified afterwards."""

import os
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, Recorded, events_in, mode_of, note, of_type

from gert.kernel.foundation.names import is_safe_name

# --- the project's own folder


def test_a_run_is_recorded_in_its_project_for_its_owner_alone(project: Project) -> None:
    project.runbook(note("one"), inputs={"name": {"type": "string", "default": "n"}})
    before = os.umask(0)
    try:
        project.exec("--as", "kim", "--var", "name=Åsa", "--max-parallel", "3", stdin="").ended(0)
    finally:
        os.umask(before)
    run = project.run()
    assert run.folder.parent == project.root / "runs"
    assert is_safe_name(run.folder.name)
    assert mode_of(run.folder) == mode_of(run.folder.parent) == 0o700
    assert {path.name: mode_of(path) for path in run.folder.iterdir()} == {"trace.jsonl": 0o600}
    assert mode_of(run.ledger) == 0o600
    assert sorted(path.name for path in run.folder.parent.iterdir()) == [run.id, "ledger.db"]
    project.verifies()


def test_the_first_event_says_what_the_run_was_started_with(project: Project) -> None:
    project.runbook(
        note("one"),
        inputs={"name": {"type": "string"}, "token": {"type": "string", "secret": True}, "size": {"type": "int"}},
    )
    project.exec("--as", "kim", "--var", "name=Åsa", "--var", "token=tK1canary", "--input", "size=3").ended(0)
    run = project.run()
    first, start = run.events()[0], run.start()
    assert first["run_id"] == run.id
    assert start["file"] == str(project.root / "book.yaml")
    assert start["working"] == str(project.root)
    assert first["data"]["inputs"] == {"name": "Åsa", "size": 3, "token": "[REDACTED]"}
    assert start["secret_inputs"] == ["token"]
    assert b"tK1canary" not in run.ledger.read_bytes()


def test_every_answer_and_every_document_is_kept(project: Project) -> None:
    book = project.runbook(note("one"), note("two"))
    project.exec().ended(0)
    run = project.run()
    assert [(each["key"], each["answer"]["outputs"]) for each in run.answers()] == [
        ("one", {"said": "one"}),
        ("two", {"said": "two"}),
    ]
    kept = {bytes(body) for (body,) in run.rows("SELECT body FROM documents WHERE ?1 <> ''")}
    assert {book.read_bytes(), (project.root / "tools/note.tool.yaml").read_bytes()} <= kept


def test_runs_sort_by_time(project: Project) -> None:
    project.runbook(note("one"))
    ids = [project.exec("--json").ended(0).said["run_id"] for _ in range(3)]
    assert ids == sorted(ids) == [run.folder.name for run in project.runs()]


@pytest.mark.parametrize("where", ["option", "variable", "home"])
def test_the_state_folder_can_be_elsewhere(project: Project, tmp_path: Path, where: str) -> None:
    state = tmp_path / "state"
    project.runbook(note("one"))
    if where == "home":
        (project.root / "gert-project.yaml").unlink()
        project.exec(XDG_STATE_HOME=str(state)).ended(0)
        state = state / "gert"
    elif where == "option":
        project.exec("--state-dir", state, GERT_STATE_DIR=str(tmp_path / "other")).ended(0)
    else:
        project.exec(GERT_STATE_DIR=str(state)).ended(0)
    (run,) = (each for each in (state / "runs").iterdir() if each.is_dir())
    assert mode_of(run) == 0o700
    assert mode_of(state / "runs" / "ledger.db") == 0o600
    assert events_in(run / "trace.jsonl")[-1]["type"] == "run_complete"
    assert project.runs() == []


def test_a_runbook_in_another_folder_finds_its_project_and_its_files(project: Project, tmp_path: Path) -> None:
    deep = project.root / "runböoks" / "ünder here"
    deep.mkdir(parents=True)
    (deep / "wörd.txt").write_text("größe\n")
    project.runbook(
        note("eins", "{{ .word }} ✓"),
        file="runböoks/ünder here/büch.yaml",
        inputs={"word": {"type": "string", "from": "file/wörd.txt"}},
    )
    here = tmp_path / "elsewhere"
    here.mkdir()
    project.gert("exec", os.path.relpath(deep / "büch.yaml", project.root)).ended(0)
    assert project.noted() == ["größe ✓"]
    assert project.run().start()["file"] == str(deep / "büch.yaml")
    project.verifies()


@pytest.mark.parametrize("place", ["a file", "a folder that cannot be written"])
def test_a_state_folder_that_cannot_be_used_is_told_with_a_way_out(project: Project, place: str) -> None:
    project.runbook(note("one"))
    state = project.write("taken", "x") if place == "a file" else Path("/proc/gert")
    ran = project.exec("--state-dir", state)
    assert ran.code in (2, 4)
    assert str(state) in ran.err
    assert "--state-dir" in ran.err
    assert "Traceback" not in ran.err
    assert project.noted() == []


# --- a file


def test_a_trace_goes_where_it_is_asked_for(project: Project, tmp_path: Path) -> None:
    trace = tmp_path / "träce.jsonl"
    project.runbook(note("one"))
    said = project.exec("--trace", trace, "--json").ended(0).said
    assert said["trace"] == str(trace)
    assert mode_of(trace) == 0o600
    project.gert("trace", "verify", trace).ended(0)
    # It is in the ledger all the same, and no second mirror is written.
    run = Recorded(project.root / "runs" / said["run_id"])
    assert run.start()["trace"] == str(trace)
    assert trace.read_bytes() == b"".join(line + b"\n" for line in run.lines())
    assert project.runs() == []


@pytest.mark.parametrize("content", ["a trace", "other words\n", "a link"])
def test_a_file_that_is_there_is_not_written_to(project: Project, tmp_path: Path, content: str) -> None:
    project.runbook(note("one"))
    trace = tmp_path / "t.jsonl"
    if content == "a trace":
        project.exec("--trace", trace).ended(0)
    elif content == "a link":
        (tmp_path / "other").write_text("")
        trace.symlink_to(tmp_path / "other")
    else:
        trace.write_text(content)
    kept, noted, runs = trace.read_bytes(), project.noted(), len(project.runs())
    ran = project.exec("--trace", trace)
    assert ran.code in (2, 4)
    assert "t.jsonl" in ran.err
    assert (trace.read_bytes(), project.noted()) == (kept, noted)
    assert len(project.runs()) == runs, "a run that never began left a folder"


@pytest.mark.parametrize("where", ["no/such/folder/t.jsonl", "."])
def test_a_trace_that_cannot_be_written_stops_the_run_before_it_begins(project: Project, where: str) -> None:
    project.runbook(note("one"))
    ran = project.exec("--trace", where)
    assert ran.code in (2, 4)
    assert "Traceback" not in ran.err
    assert (project.noted(), project.runs()) == ([], [])


# --- a database


def test_a_database_holds_many_runs(project: Project) -> None:
    db = project.root / "runs.db"
    project.runbook(note("one"))
    runs = [project.exec("--db", db, "--json").ended(0).said for _ in range(3)]
    assert [run["db"] for run in runs] == [str(db)] * 3
    assert mode_of(db) == 0o600
    for run in runs:
        project.gert("trace", "verify", "--db", db, "--run", run["run_id"]).ended(0)
        exported = project.gert("trace", "export", "--db", db, "--run", run["run_id"]).ended(0).out
        assert exported.count("\n") == run["events"]
    assert "several runs" in project.gert("trace", "verify", "--db", db).ended(2).err
    assert project.gert("trace", "verify", "--db", db, "--run", "nobody").code == 2
    assert project.runs() == []


def test_what_is_no_database_is_not_written_to(project: Project) -> None:
    project.runbook(note("one"))
    db = project.write("runs.db", "these are notes, and no database at all")
    ran = project.exec("--db", db)
    assert ran.code not in (0, 3)
    assert "Traceback" not in ran.err
    assert db.read_text().startswith("these are notes")
    assert project.noted() == []


# --- seals


KEY = {"GERT_TRACE_SIGNING_KEY": "base64:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}


def test_a_run_is_signed_with_the_key_of_the_environment(project: Project) -> None:
    project.runbook(note("one"))
    project.exec(**KEY, GERT_TRACE_SIGNING_KEY_ID="prod").ended(0)
    trace = project.run().trace
    assert events_in(trace)[-1]["data"]["signature"]
    project.gert("trace", "verify", trace, "--key-id", "prod", **KEY, GERT_TRACE_SIGNING_KEY_ID="prod").ended(0)
    project.gert("trace", "verify", trace, "--key-id", "prod", **KEY).ended(1)
    project.gert("trace", "verify", trace, "--key-id", "prod", GERT_TRACE_KEY_PROD=KEY["GERT_TRACE_SIGNING_KEY"]).ended(
        0
    )
    project.gert("trace", "verify", trace, "--key-id", "prod", GERT_TRACE_KEY_PROD="another key").ended(1)
    assert KEY["GERT_TRACE_SIGNING_KEY"] not in trace.read_text()


def test_a_signed_run_that_was_changed_does_not_verify(project: Project) -> None:
    project.runbook(note("one"))
    project.exec(**KEY).ended(0)
    trace = project.run().trace
    trace.write_bytes(trace.read_bytes().replace(b"noted", b"hated").replace(b'"one"', b'"two"'))
    project.gert("trace", "verify", trace, **KEY).ended(1)


@pytest.mark.parametrize("key", ["", "short", "ed25519-public:xxx", "base64:%%%"])
def test_a_key_that_cannot_sign_stops_the_run_before_it_begins(project: Project, key: str) -> None:
    project.runbook(note("one"))
    ran = project.exec(GERT_TRACE_SIGNING_KEY=key)
    assert ran.code in (1, 2)
    assert (project.noted(), project.runs()) == ([], [])


def test_a_failed_and_a_denied_run_are_sealed_too(project: Project) -> None:
    project.runbook(note("one"), governance={"rules": [{"default": "deny"}]})
    project.exec(**KEY).ended(3)
    project.gert("trace", "verify", project.run().trace, "--require-signature", **KEY).ended(0)


# --- values


def test_the_command_line_wins_over_files_and_later_files_over_earlier_ones(project: Project) -> None:
    inputs = {name: {"type": "any", "default": "default"} for name in ("a", "b", "c", "d", "e")}
    project.runbook(note("one", "{{ .a }} {{ .b }} {{ .c }} {{ .d }} {{ .e }}"), inputs=inputs)
    first = project.write("first.yaml", {"a": "first", "b": "first", "c": "first", "d": "first"})
    second = project.write("second.json", {"b": "second", "c": "second", "d": "second"})
    project.exec("--vars-file", first, "--var", "c=var", "--vars-file", second, "--input", "d=[1, 2]").ended(0)
    assert project.noted() == ["first second var [1,2] default"]
    sources = {e["data"]["name"]: e["data"]["source"] for e in of_type(project.run().events(), "input_resolved")}
    assert sources == {
        "a": "file:first.yaml",
        "b": "file:second.json",
        "c": sources["c"],
        "d": sources["d"],
        "e": "default",
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["--var", "size=1.10"], "1.10", id="text stays as it was written"),
        pytest.param(["--var", "size=yes"], "yes", id="text is no truth"),
        pytest.param(["--var", "size=a=b"], "a=b", id="only the first sign of equality counts"),
        pytest.param(["--var", "size="], "", id="nothing is a text"),
        pytest.param(["--input", "size=1.10"], "1.10", id="a number for a text keeps its spelling"),
        pytest.param(["--input", "size=@size.txt"], "from a file", id="the text of a file"),
        pytest.param(["--var", "size={{ .other }}"], "{{ .other }}", id="a value is no template"),
        pytest.param(["--var", "size=$(id) `id` ; id"], "$(id) `id` ; id", id="a value is no command"),
    ],
)
def test_a_value_arrives_as_it_was_given(project: Project, words: list[str], expected: str) -> None:
    project.write("size.txt", "from a file\n")
    project.runbook(note("one", "<{{ .size }}>"), inputs={"size": {"type": "string"}})
    project.exec(*words).ended(0)
    assert project.noted() == [f"<{expected}>"]
