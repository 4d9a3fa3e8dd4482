"""`gert resume`: what was done is not done again, what is in doubt is asked, and what is not the same is refused."""

import hashlib
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import (
    GERT,
    NOTE,
    PATIENCE,
    Project,
    Ran,
    Recorded,
    completed,
    environment,
    files_under,
    finish,
    note,
    of_type,
    snapshot,
    until,
)

WORD = {"word": {"type": "string", "required": True}}
ASK = {"rules": [{"name": "restarts", "effects": ["restart"], "action": "require-approval"}, {"default": "allow"}]}


def deadly(project: Project, name: str, *, idempotent: bool, before: str = "") -> None:
    """A tool that leaves its word, and the first time kills the gert that called it."""
    kill = f'if [ ! -e "$2.{name}" ]; then : > "$2.{name}"; kill -9 $PPID; fi'
    project.tool(
        name,
        ["sh", "-c", f"{before}\n{NOTE}\n{kill}", "sh", "{{ .word }}", str(project.effects)],
        inputs=WORD,
        extract={"said": {"from": "stdout", "pattern": "noted (.*)"}},
        outputs={"said": {"type": "any", "required": False}},
        contract={"idempotent": idempotent},
    )


def tools(project: Project) -> list[str]:
    deadly(project, "safe", idempotent=True)
    deadly(project, "once", idempotent=False)
    return ["note", "safe", "once"]


@pytest.fixture
def killed(project: Project) -> Recorded:
    """A run that was killed while it called `b`, which may not be repeated."""
    project.runbook(note("a"), note("b", tool="once"), note("c"), tools=tools(project))
    project.exec().ended(-signal.SIGKILL)
    assert project.noted() == ["a", "b"]
    return project.run()


def resume(project: Project, run: Recorded | None = None, *words: str | Path, **environ: str) -> Ran:
    return project.gert("resume", "--run", (run or project.run()).folder.name, *words, **environ)


def refused(project: Project, code: int, *words: str | Path, run: Recorded | None = None, **environ: str) -> str:
    """Go on with a run, which is refused, and changes nothing; gives what is said."""
    before, noted = project.kept(), project.noted()
    ran = resume(project, run, *words, **environ).ended(code)
    after = project.kept()
    assert after == before, [name for name in {**before, **after} if before.get(name) != after.get(name)]
    assert project.noted() == noted
    assert "internal error" not in ran.err, ran.err
    assert "Traceback" not in ran.err, ran.err
    return ran.err


def resumed(run: Recorded) -> list[dict[str, Any]]:
    return [event["data"] for event in of_type(run.events(), "run_resumed")]


# --- what is in doubt


def test_a_call_that_may_have_happened_is_asked_about_by_name(project: Project, killed: Recorded) -> None:
    said = refused(project, 3)
    assert "outcome of `b` is unknown" in said
    assert "--reconcile" in said


@pytest.mark.parametrize(
    ("choice", "code", "words", "status"),
    [
        pytest.param("success", 0, ["a", "b", "c"], "success", id="it happened"),
        pytest.param("failed", 3, ["a", "b"], "failed", id="it failed"),
        pytest.param("retry", 0, ["a", "b", "b", "c"], "success", id="it is to be done again"),
        pytest.param("b=success", 0, ["a", "b", "c"], "success", id="this step happened"),
        pytest.param("b=failed", 3, ["a", "b"], "failed", id="this step failed"),
        pytest.param("b=retry", 0, ["a", "b", "b", "c"], "success", id="this step is to be done again"),
    ],
)
def test_the_operator_settles_what_is_in_doubt(
    project: Project, killed: Recorded, choice: str, code: int, words: list[str], status: str
) -> None:
    resume(project, killed, "--reconcile", choice, "--as", "lou").ended(code)
    assert project.noted() == words
    events = killed.events()
    assert completed(events, "b")["status"] == status
    (settled,) = of_type(events, "step_reconciled")
    assert (settled["path"], settled["data"]) == ("b", {"step_id": "b", "choice": choice.rpartition("=")[2]})
    assert [(each["actor"], each["answered"]) for each in resumed(killed)] == [("lou", 1)]
    project.verifies(killed)


def test_a_failure_the_operator_reports_says_so(project: Project, killed: Recorded) -> None:
    resume(project, killed, "--reconcile", "failed").ended(3)
    assert completed(killed.events(), "b")["failure"]["kind"] == "reported"


@pytest.mark.parametrize(
    ("choice", "code", "says"),
    [
        pytest.param("maybe", 2, "takes success, failed, retry", id="maybe is no choice"),
        pytest.param("b=maybe", 2, "not `maybe`", id="nor for one step"),
        pytest.param("", 2, "takes success", id="nor nothing"),
        pytest.param("b=succes", 2, "did you mean `success`?", id="and a misspelt choice gets the one that is meant"),
        pytest.param("a=success", 2, "`a` is not a call without a result", id="nor for a step that has a result"),
        pytest.param("bb=success", 2, "there is `b`", id="nor for a step that is not there"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(
    project: Project, killed: Recorded, choice: str, code: int, says: str
) -> None:
    assert says in refused(project, code, "--reconcile", choice)


def test_a_call_that_may_be_repeated_is_repeated_without_a_word(project: Project) -> None:
    project.runbook(note("a"), note("b", tool="safe"), note("c"), tools=tools(project))
    project.exec().ended(-signal.SIGKILL)
    resume(project).ended(0)
    assert project.noted() == ["a", "b", "b", "c"]
    (settled,) = of_type(project.run().events(), "step_reconciled")
    assert settled["data"] == {"step_id": "b", "choice": "retry", "automatic": True}
    project.verifies()


def lanes(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "both", "type": "parallel", "branches": [{"steps": [step]} for step in steps]}


def test_a_choice_for_all_is_one_for_those_in_doubt_only(project: Project) -> None:
    """A lane that may be repeated was not named, and nobody has said that it happened."""
    names = tools(project)
    project.tool("slow", ["sh", "-c", "sleep 30"], contract={"idempotent": True})
    slow = {"id": "slow", "type": "tool", "tool": "slow", "scope": "l", "timeout": "2s", "continue_on_fail": True}
    project.runbook(lanes(slow, note("b", tool="once", scope="r")), tools=[*names, "slow"])
    project.exec().ended(-signal.SIGKILL)
    project.tool("slow", ["sh", "-c", "exit 0"], contract={"idempotent": True})
    assert "`b`" not in refused(project, 1)  # the tool was changed
    assert "`both/0/slow` is still running" in refused(project, 3, "--allow-changed")
    said = refused(project, 3, "--allow-changed", "--allow-running")
    assert "/b` is unknown" in said
    assert "slow" not in said
    resume(project, None, "--allow-changed", "--allow-running", "--reconcile", "success").ended(0)
    choices = {each["data"]["step_id"]: each["data"] for each in of_type(project.run().events(), "step_reconciled")}
    assert choices["slow"] == {"step_id": "slow", "choice": "retry", "automatic": True}
    assert choices["b"] == {"step_id": "b", "choice": "success"}
    assert completed(project.run().events(), "slow")["exit_code"] == 0


def test_two_lanes_in_doubt_are_both_named_and_settled_one_by_one(project: Project) -> None:
    project.note_tool("still", after="sleep 30", contract={"idempotent": False})
    # The first lane has left its word before the second one kills.
    first = f"until grep -q l {project.effects}; do sleep 0.01; done"
    deadly(project, "once", idempotent=False, before=first)
    project.runbook(
        lanes(note("l", tool="still", scope="l"), note("b", tool="once", scope="r")), tools=["note", "once", "still"]
    )
    project.exec().ended(-signal.SIGKILL)
    assert "`both/0/l` is still running" in refused(project, 3)
    said = refused(project, 3, "--allow-running")
    assert "both/0/l`" in said
    assert "both/1/b`" in said
    one = refused(project, 3, "--allow-running", "--reconcile", "l=success")
    assert "/l`" not in one
    assert "/b` is unknown" in one
    resume(project, None, "--allow-running", "--reconcile", "l=success", "--reconcile", "b=failed").ended(3)
    assert sorted(project.noted()) == ["b", "l"]


def test_what_was_settled_and_killed_again_is_asked_again(project: Project, killed: Recorded) -> None:
    """Retried, and killed once more: nobody knows about the second time either."""
    (project.root / "effects.once").unlink()
    resume(project, killed, "--reconcile", "retry").ended(-signal.SIGKILL)
    assert "outcome of `b` is unknown" in refused(project, 3)
    resume(project, killed, "--reconcile", "success").ended(0)
    assert project.noted() == ["a", "b", "b", "c"]
    assert [each["answered"] for each in resumed(killed)] == [1, 1]
    assert [each["data"]["choice"] for each in of_type(killed.events(), "step_reconciled")] == ["retry", "success"]
    project.verifies(killed)


# --- where the run stood

ROUND, KEY = "{{ .repeat.index }}", "{{ .n }}"


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(note("b", tool="safe", retry={"max": 2, "backoff": "1ms"}), id="in a step that is retried"),
        pytest.param(
            {"id": "r", "type": "repeat", "repeat": {"max": 2}, "steps": [note("b", ROUND, tool="safe")]},
            id="in a repeat",
        ),
        pytest.param(note("b", "b-{{ .n }}", tool="safe", for_each={"as": "n", "over": [1, 2, 3]}), id="in a loop"),
        pytest.param(
            note("b", KEY, tool="safe", for_each={"as": "n", "over": [1, 2], "parallel": True, "key": KEY}),
            id="in a loop by key",
        ),
        pytest.param(note("b", tool="safe", next={"step": "b", "max": 2}), id="before a jump"),
        pytest.param(lanes(note("l", scope="l"), note("b", tool="safe", scope="r")), id="in a lane"),
    ],
)  # fmt: skip
def test_a_run_goes_on_from_within(project: Project, step: dict[str, Any]) -> None:
    project.runbook(note("a"), step, note("c"), tools=tools(project), after=[note("z")])
    project.exec().ended(-signal.SIGKILL)
    resume(project).ended(0)
    counts = Counter(project.noted())
    assert counts["a"] == counts["c"] == counts["z"] == 1
    (project.root / "effects").unlink()
    whole = project.exec("--json").ended(0).said
    assert set(counts) == set(project.noted()), whole
    for run in project.runs():
        project.verifies(run)


def test_a_run_is_killed_in_finally_and_goes_on_there(project: Project) -> None:
    project.runbook(note("a"), tools=tools(project), after=[note("y", tool="safe"), note("z")])
    project.exec().ended(-signal.SIGKILL)
    resume(project).ended(0)
    assert project.noted() == ["a", "y", "y", "z"]
    project.verifies()


def test_the_time_a_run_may_take_counts_from_its_beginning(project: Project) -> None:
    project.runbook(note("a"), note("b", tool="safe"), note("c"), tools=tools(project), after=[note("z")])
    project.exec("--timeout", "3s").ended(-signal.SIGKILL)
    began = datetime.fromisoformat(project.run().events()[0]["timestamp"])
    time.sleep(max(0.0, 3.01 - (datetime.now(UTC) - began).total_seconds()))
    said = resume(project, None, "--json").ended(3).said
    assert said["status"] == "cancelled"
    assert project.noted() == ["a", "b", "z"], "something began after the time was over"
    assert of_type(project.run().events(), "run_cancelled")[0]["data"]["reason"] == "timeout"
    project.verifies()


def test_time_that_is_left_is_used(project: Project) -> None:
    project.runbook(note("a"), note("b", tool="safe"), note("c"), tools=tools(project))
    project.exec("--timeout", "10m").ended(-signal.SIGKILL)
    resume(project).ended(0)


def test_a_run_goes_on_from_another_folder_in_the_folder_it_began_in(project: Project, tmp_path: Path) -> None:
    names = tools(project)
    project.tool("where", ["pwd"], extract={"at": {"from": "stdout", "pattern": "(.*)"}})
    project.runbook(note("b", tool="safe"), {"id": "w", "type": "tool", "tool": "where"}, tools=[*names, "where"])
    project.exec().ended(-signal.SIGKILL)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    call = [*GERT, "resume", "--run", project.run().folder.name, "--state-dir", str(project.root)]
    subprocess.run(call, cwd=elsewhere, env=environment(), check=True, capture_output=True, timeout=PATIENCE)
    assert completed(project.run().events(), "w")["outputs"]["at"] == str(project.root)


# --- secrets

CANARY = "canary-4f1d97"


def secretive(project: Project) -> Recorded:
    names = tools(project)
    project.tool("tell", ["sh", "-c", 'printf "%s\\n" "$TOKEN $1"', "sh", "{{ .key }}"],
                 inputs={"key": {"type": "string"}}, secrets=[{"env": "TOKEN"}])  # fmt: skip
    project.runbook(
        note("b", tool="safe"),
        {"id": "t", "type": "tool", "tool": "tell", "inputs": {"key": "{{ .key }}"}},
        tools=[*names, "tell"],
        secrets=[{"env": "TOKEN"}],
        inputs={"key": {"type": "string", "secret": True, "from": "env/KEY", "required": True}},
    )
    project.exec(TOKEN=CANARY, KEY=f"{CANARY}-key").ended(-signal.SIGKILL)
    return project.run()


def test_secrets_are_found_again_and_never_written(project: Project) -> None:
    run = secretive(project)
    ran = resume(project, run, "-v", TOKEN=CANARY, KEY=f"{CANARY}-key").ended(0)
    assert CANARY not in ran.out + ran.err
    for file in files_under(project.root):
        assert CANARY.encode() not in file.read_bytes(), file
    assert completed(run.events(), "t")["status"] == "success"
    project.verifies(run)


def test_a_secret_that_is_changed_in_between_is_not_written_either(project: Project) -> None:
    run = secretive(project)
    resume(project, run, TOKEN="rotated-8c21", KEY="rotated-key-77aa").ended(0)
    for file in files_under(project.root):
        assert b"rotated" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        pytest.param({"KEY": "k"}, "`TOKEN`", id="the secret of the runbook"),
        pytest.param({"TOKEN": "t"}, "`key`", id="the secret input"),
    ],
)
def test_without_a_secret_nothing_goes_on(project: Project, environ: dict[str, str], says: str) -> None:
    run = secretive(project)
    before = project.kept()
    ran = resume(project, run, **environ)
    assert ran.code in (1, 2), ran
    assert says in ran.err
    assert project.kept() == before
    assert project.noted() == ["b"]


def test_a_secret_input_may_be_given_again(project: Project) -> None:
    run = secretive(project)
    resume(project, run, "--input", f"key={CANARY}-other", TOKEN=CANARY).ended(0)
    for file in files_under(project.root):
        assert CANARY.encode() not in file.read_bytes(), file


def secret_with_default(project: Project, *words: str, source: str | None = None, **environ: str) -> Recorded:
    """A run that was killed before the step that writes its secret input down."""
    bound = {"from": source} if source is not None else {}
    project.runbook(
        note("b", tool="safe"),
        note("t", "{{ .key }}"),
        tools=tools(project),
        inputs={"key": {"type": "string", "secret": True, "default": "the-default", **bound}},
    )
    project.exec(*words, **environ).ended(-signal.SIGKILL)
    return project.run()


@pytest.mark.parametrize(
    ("words", "source", "environ", "hint"),
    [
        pytest.param(["--var", "key=given-key"], None, {}, "--input key=@FILE", id="given on the command line"),
        pytest.param([], "env/KEY", {"KEY": "given-key"}, "environment variable `KEY`", id="from a variable"),
        pytest.param(["--var", "key=given-key"], "env/KEY", {}, "--input key=@FILE", id="given in place of it"),
    ],
)
def test_a_secret_input_that_had_a_value_never_takes_its_default(
    project: Project, words: list[str], source: str | None, environ: dict[str, str], hint: str
) -> None:
    run = secret_with_default(project, *words, source=source, **environ)
    before = project.kept()
    ran = resume(project, run, **({} if environ else {"KEY": "another-key"})).ended(2)
    assert "the run was started with the secret input `key`, and it has no value now" in ran.err
    assert hint in ran.err
    assert project.kept() == before
    resume(project, run, "--input", "key=given-key").ended(0)
    assert project.noted()[-1] == "given-key"


def test_a_secret_input_that_took_its_default_takes_it_again(project: Project) -> None:
    run = secret_with_default(project, source="env/KEY")
    resume(project, run, KEY="set-in-between").ended(0)
    assert project.noted()[-1] == "the-default"


# --- refusals


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    data = path.read_bytes()
    changed = change(data)
    assert changed != data
    path.write_bytes(changed)


def _add_policy(project: Project) -> None:
    rules = [{"default": "allow"}]
    project.write("p.policy.yaml", {"apiVersion": "policy/v0", "meta": {"name": "p"}, "rules": rules})
    project.write("gert-project.yaml", {"name": "bench", "policies": ["p.policy.yaml"]})


def _sql(statement: str, *values: Any) -> "Change":
    """A change of the ledger; `?1` is the id of the run."""
    return lambda _, run: run.change(statement, *values)


def _pragma(setting: str) -> "Change":
    def change(_: Project, run: Recorded) -> None:
        with closing(sqlite3.connect(run.ledger)) as database:
            database.execute(f"PRAGMA {setting}")

    return change


def _replaced(table: str, old: str, new: str, number: int) -> "Change":
    column = "seq" if table == "events" else "n"
    return _sql(
        f"UPDATE {table} SET line = CAST(replace(CAST(line AS TEXT), ?2, ?3) AS BLOB)"
        f" WHERE run_id = ?1 AND {column} = ?4",
        old,
        new,
        number,
    )


def _exchange_answers(_: Project, run: Recorded) -> None:
    run.change("UPDATE answers SET n = -n WHERE run_id = ?1")
    run.change("UPDATE answers SET n = 3 + n WHERE run_id = ?1")


STRAY = '{"key":"zz","answer":{"kind":"tool"}}'
Change = Callable[[Project, Recorded], object]
OTHER_ANSWERS = "names answers that are not the stored ones"
NOT_THE_HEAD = "the stored answers are not those of the head"
REFUSALS: dict[str, tuple[Change, int, str]] = {
    "the runbook was changed": (
        lambda project, _: edit(project.root / "book.yaml", lambda data: data + b"\n# changed\n"),
        1,
        "book.yaml` was changed since the run began",
    ),
    "the runbook is none any more": (lambda project, _: project.write("book.yaml", "steps: ["), 1, "book.yaml"),
    "a tool was changed": (
        lambda project, _: edit(project.root / "tools/note.tool.yaml", lambda data: data + b"\n"),
        1,
        "the tool `note` was changed",
    ),
    "a policy came": (lambda project, _: _add_policy(project), 1, "p.policy.yaml"),
    "the ledger is gone": (lambda _, run: run.ledger.unlink(), 2, "there is no ledger"),
    "the ledger is no database": (lambda _, run: _overwrite(run.ledger, b"[1]" * 100), 4, "is not a database"),
    "the ledger is of another program": (_pragma("application_id = 1"), 4, "is not a ledger of gert"),
    "another gert made the ledger": (
        _sql("UPDATE meta SET value = 99 WHERE ?1 <> ''"),
        4,
        "was made by another version of gert",
    ),
    "the run is gone": (_sql("DELETE FROM runs WHERE run_id = ?1"), 2, "there is no run"),
    "an answer was changed": (_replaced("answers", '"said":"a"', '"said":"x"', 1), 1, OTHER_ANSWERS),
    "an answer is not one": (_replaced("answers", '{"key":', '{"kez":', 1), 1, OTHER_ANSWERS),
    "an answer is no text": (_sql("UPDATE answers SET line = x'ff' WHERE run_id = ?1 AND n = 2"), 1, OTHER_ANSWERS),
    "an answer was added": (_sql("INSERT INTO answers VALUES (?1, 3, ?2)", STRAY.encode()), 1, NOT_THE_HEAD),
    "an answer is there twice": (
        _sql("INSERT INTO answers SELECT run_id, 3, line FROM answers WHERE run_id = ?1 AND n = 1"),
        1,
        NOT_THE_HEAD,
    ),
    "an answer is missing": (_sql("DELETE FROM answers WHERE run_id = ?1 AND n = 1"), 1, "is missing"),
    "answers were exchanged": (_exchange_answers, 1, OTHER_ANSWERS),
    "all answers are gone": (_sql("DELETE FROM answers WHERE run_id = ?1"), 1, OTHER_ANSWERS),
    "what it was started with was changed": (
        _replaced("events", '"actor":"', '"actor":"x', 1),
        1,
        "the chain breaks at line 2",
    ),
    "an event was changed": (_replaced("events", '"step_id":"a"', '"step_id":"x"', 5), 1, "the chain breaks at line"),
    "an event is missing": (_sql("DELETE FROM events WHERE run_id = ?1 AND seq = 3"), 1, "the chain breaks at line 3"),
    "the last event is missing": (
        _sql("DELETE FROM events WHERE run_id = ?1 AND seq = (SELECT max(seq) FROM events)"),
        1,
        "the end of the run is missing",
    ),
    "the head was changed": (
        _sql("UPDATE runs SET hash = ?2 WHERE run_id = ?1", "0" * 64),
        1,
        "the stored head is not the head",
    ),
}


def _overwrite(path: Path, data: bytes) -> None:
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    path.write_bytes(data)


@pytest.fixture
def further(project: Project) -> Recorded:
    """A run that was killed after a few answers."""
    project.runbook(note("a"), note("a2"), note("b", tool="once"), note("c"), tools=tools(project))
    project.exec().ended(-signal.SIGKILL)
    assert project.noted() == ["a", "a2", "b"]
    return project.run()


@pytest.mark.parametrize("name", [name for name in REFUSALS if name.startswith("an answer")])
def test_changes_that_are_accepted_are_not_those_of_the_record(project: Project, further: Recorded, name: str) -> None:
    change, code, says = REFUSALS[name]
    change(project, further)
    edit(project.root / "book.yaml", lambda data: data + b"\n")
    assert says in refused(project, code, "--reconcile", "retry", "--allow-changed", run=further)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_not_as_it_was_is_refused_and_nothing_is_changed(
    project: Project, further: Recorded, name: str
) -> None:
    change, code, says = REFUSALS[name]
    change(project, further)
    said = refused(project, code, "--reconcile", "retry", run=further)
    assert says in said, said


def test_a_run_is_resumed_with_the_runbook_in_the_ledger_where_its_file_is_gone(
    project: Project, further: Recorded
) -> None:
    (project.root / "book.yaml").unlink()
    resume(project, further, "--reconcile", "retry").ended(0)
    assert project.noted() == ["a", "a2", "b", "b", "c"]


@pytest.mark.parametrize(
    "run_id",
    ["../runs", "..", ".", "a/b", "/etc", "", "-x", "con", "x" * 300, "..\\x", "~", "$HOME"],
    ids=lambda text: repr(text[:10]),
)
@pytest.mark.parametrize("place", [(), ("--db", "runs.db")], ids=["of a folder", "of a database"])
def test_a_run_id_is_a_name_and_never_a_path(project: Project, run_id: str, place: tuple[str, ...]) -> None:
    if place:
        project.runbook()
        project.exec("--db", project.root / "runs.db").ended(0)
    before = snapshot(project.root)
    ran = project.gert("resume", f"--run={run_id}", *place)
    assert ran.code == 2, ran
    assert snapshot(project.root) == before
    assert "internal" not in ran.err


def test_a_run_that_is_not_there_is_refused(project: Project) -> None:
    assert "there is no run `nobody`" in project.gert("resume", "--run", "nobody").ended(2).err


def test_a_run_that_has_ended_is_refused(project: Project) -> None:
    project.runbook(note("a"))
    project.exec().ended(0)
    assert "has ended" in refused(project, 2)
    assert "has ended" in refused(project, 2, "--reconcile", "retry", "--allow-changed")


def test_a_copy_of_a_run_under_another_name_is_refused(project: Project, killed: Recorded) -> None:
    for table in ("runs", "events", "answers", "calls"):
        columns = [name for (name,) in killed.rows(f"SELECT name FROM pragma_table_info('{table}') WHERE ?1 <> ''")]
        listed = ", ".join(columns[1:])
        killed.change(f"INSERT INTO {table} SELECT 'copy', {listed} FROM {table} WHERE run_id = ?1")
    said = refused(project, 1, "--reconcile", "retry", run=Recorded(killed.folder.with_name("copy")))
    assert f"expected run `copy`, found `{killed.id}`" in said


@pytest.mark.parametrize("gone", ["book.yaml", "tools/note.tool.yaml"])
def test_a_document_that_is_gone_is_read_from_the_ledger(project: Project, further: Recorded, gone: str) -> None:
    (project.root / gone).unlink()
    resume(project, further, "--reconcile", "retry").ended(0)
    assert project.noted()[-1] == "c"
    project.verifies()


def test_a_folder_that_is_gone_is_refused(project: Project, tmp_path: Path) -> None:
    project.runbook(note("b", tool="safe"), tools=tools(project))
    working = tmp_path / "working"
    working.mkdir()
    call = [*GERT, "exec", str(project.root / "book.yaml")]
    subprocess.run(call, cwd=working, env=environment(), check=False, capture_output=True, timeout=PATIENCE)
    working.rmdir()
    assert f"`{working}` is gone" in refused(project, 2)
    working.mkdir()
    resume(project).ended(0)


# --- changes that are accepted


def test_changes_that_are_accepted_are_on_record(project: Project, killed: Recorded) -> None:
    edit(project.root / "book.yaml", lambda data: data.replace(b'"word": "c"', b'"word": "d"'))
    edit(project.root / "tools/note.tool.yaml", lambda data: data + b"\n")
    resume(project, killed, "--allow-changed", "--reconcile", "success").ended(0)
    assert project.noted() == ["a", "b", "d"]
    (said,) = resumed(killed)
    assert said["accepted_changes"] == [f"the runbook `{project.root / 'book.yaml'}`", "the tool `note`"]
    project.verifies(killed)


@pytest.fixture
def accepted(project: Project) -> dict[str, Any]:
    """A run that waits for approval, and whose changed runbook and tool were accepted."""
    asks = {"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]}
    project.runbook(note("a"), tools=["note"], governance=asks)
    project.exec("--detach").ended(0)
    edit(project.root / "book.yaml", lambda data: data + b"\n")
    edit(project.root / "tools/note.tool.yaml", lambda data: data + b"\n")
    assert "was changed since the run began" in refused(project, 1, "--detach")
    return resume(project, None, "--allow-changed", "--detach", "--json").ended(0).said


@pytest.mark.parametrize(("answer", "code"), [("approve", 0), ("reject", 3)])
def test_an_accepted_change_need_not_be_accepted_again(
    project: Project, accepted: dict[str, Any], answer: str, code: int
) -> None:
    resume(project, None, "--detach").ended(0)
    project.gert(answer, accepted["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    resume(project, None, "--detach").ended(code)
    first, second = resumed(project.run())
    assert list(first["accepted_digests"]) == first["accepted_changes"]
    assert first["accepted_digests"] == second["accepted_digests"]
    tool = (project.root / "tools/note.tool.yaml").read_bytes()
    assert first["accepted_digests"]["the tool `note`"] == f"sha256:{hashlib.sha256(tool).hexdigest()}"
    project.verifies()


def test_a_file_that_changes_after_it_was_accepted_has_to_be_accepted_again(
    project: Project, accepted: dict[str, Any]
) -> None:
    edit(project.root / "tools/note.tool.yaml", lambda data: data + b"\n")
    project.gert("reject", accepted["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    assert "the tool `note` was changed since it was accepted" in refused(project, 1, "--detach")
    resume(project, None, "--allow-changed", "--detach").ended(3)


def test_another_file_that_changes_later_has_to_be_accepted(project: Project, accepted: dict[str, Any]) -> None:
    floor = {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": {"rules": [{"default": "allow"}]}}
    project.write("policies/floor.policy.yaml", floor)
    project.write("gert-project.yaml", {"name": "bench", "policies": ["policies"]})
    assert "was changed since the run began" in refused(project, 1, "--detach")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('"id": "a"', '"id": "other"', id="a step that ran has another name"),
        pytest.param('"id": "a",', '"id": "a", "when": "{{ false }}",', id="a step that ran is skipped"),
        pytest.param('"id": "b",', '"id": "b", "when": "{{ false }}",', id="the step under way is skipped"),
    ],
)
def test_a_change_that_takes_another_way_is_refused_all_the_same(
    project: Project, killed: Recorded, old: str, new: str
) -> None:
    edit(project.root / "book.yaml", lambda data: data.replace(old.encode(), new.encode()))
    said = refused(project, 1, "--allow-changed", "--reconcile", "success")
    assert "replay diverged at event" in said, said


# --- the mirror decides nothing


def _as_link(path: Path) -> None:
    kept = path.parent.parent.parent / "kept"
    path.rename(kept)
    path.symlink_to(kept)


MIRRORS: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "it was changed": (lambda path: edit(path, lambda data: data.replace(b'"a"', b'"x"', 1)), "was moved to"),
    "a line is missing": (
        lambda path: edit(path, lambda data: data.split(b"\n", 1)[0] + b"\n" + data.split(b"\n", 2)[2]),
        "was moved to",
    ),
    "it goes further": (lambda path: edit(path, lambda data: data + b'{"seq":99}\n'), "was moved to"),
    "its last lines were lost": (lambda path: edit(path, lambda data: data[: data.index(b"\n", 900) + 1]), None),
    "its last line is torn": (lambda path: edit(path, lambda data: data[:-40]), None),
    "it is empty": (lambda path: edit(path, lambda _: b""), None),
    "it is gone": (lambda path: path.unlink(), None),
    "its folder is gone": (lambda path: shutil.rmtree(path.parent), None),
}


@pytest.mark.parametrize("name", MIRRORS)
def test_the_mirror_is_never_believed_and_is_a_copy_again_afterwards(
    project: Project, further: Recorded, name: str
) -> None:
    change, says = MIRRORS[name]
    change(further.trace)
    ran = resume(project, further, "--reconcile", "success").ended(0)
    assert project.noted() == ["a", "a2", "b", "c"]
    project.verifies(further)
    assert (says or "warning") in ran.out + ran.err or says is None
    assert says is not None or "warning" not in ran.out + ran.err


def test_a_mirror_that_cannot_be_written_does_not_stop_the_run(project: Project, further: Recorded) -> None:
    _as_link(further.trace)
    kept = (project.root / "kept").read_bytes()
    ran = resume(project, further, "--reconcile", "success", "--quiet").ended(0)
    assert "is a symbolic link" in ran.err
    assert (project.root / "kept").read_bytes() == kept
    project.gert("run", "verify", further.id).ended(0)


# --- one at a time


@pytest.mark.parametrize("place", ["a folder", "a database"])
def test_of_those_who_go_on_at_once_one_wins(project: Project, place: str) -> None:
    names = tools(project)
    project.note_tool("slow", after="sleep 0.2", contract={"idempotent": False})
    project.runbook(note("b", tool="safe"), note("c", tool="slow"), tools=[*names, "slow"])
    where = ["--db", str(project.root / "runs.db")] if place == "a database" else []
    for _ in range(2):
        for file in project.root.glob("effects*"):
            file.unlink()
        project.exec("--json", *where).ended(-signal.SIGKILL)
        run_id = newest(project, where)
        call = [*GERT, "resume", "--run", run_id, "--json", *where]
        racers = [
            subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.root, env=environment())
            for _ in range(3)
        ]
        ended = [finish(each) for each in racers]
        assert sorted(each.code for each in ended)[0] == 0, ended
        assert [each.code for each in ended].count(0) == 1, ended
        for each in ended:
            assert each.code == 0 or "driven by another process" in each.err or "has ended" in each.err, each
        assert project.noted() == ["b", "b", "c"]
        project.gert("trace", "verify", *(["--run", run_id, *where] if where else [project.runs()[-1].trace])).ended(0)


def newest(project: Project, where: list[str]) -> str:
    if not where:
        return project.runs()[-1].folder.name
    with sqlite3.connect(project.root / "runs.db") as database:
        return str(database.execute("SELECT max(run_id) FROM runs WHERE count > 0").fetchone()[0])


@pytest.mark.parametrize("place", ["a folder", "a database"])
def test_a_run_that_is_driven_cannot_be_resumed(project: Project, place: str) -> None:
    project.note_tool("slow", after="sleep 1")
    project.runbook(note("b", tool="slow"), tools=["slow"])
    where = ["--db", str(project.root / "runs.db")] if place == "a database" else []
    process = project.start(*where)
    try:
        until(lambda: project.noted() == ["b"])
        ran = project.gert("resume", "--run", newest(project, where), *where)
        assert "is being driven by another process" in ran.err
        assert ran.code not in (0, 70)
    finally:
        assert finish(process).code == 0
    assert project.noted() == ["b"]


# --- in a database


def test_a_run_in_a_database_goes_on(project: Project) -> None:
    project.runbook(note("a"), note("b", tool="once"), note("c"), tools=tools(project))
    db = project.root / "runs.db"
    project.exec("--db", db).ended(-signal.SIGKILL)
    run_id = newest(project, ["--db"])
    assert "outcome of `b` is unknown" in project.gert("resume", "--run", run_id, "--db", db).ended(3).err
    assert project.noted() == ["a", "b"]
    project.gert("resume", "--run", run_id, "--db", db, "--reconcile", "success").ended(0)
    assert project.noted() == ["a", "b", "c"]
    project.gert("trace", "verify", "--db", db).ended(0)
    assert "has ended" in project.gert("resume", "--run", run_id, "--db", db).ended(2).err


# --- tickets


def waiting(project: Project, *words: str) -> tuple[str, str]:
    """A run that waits for an approval; its id, and that of its ticket."""
    project.runbook(note("a"), note("b", contract={"effects": ["files", "restart"]}), note("c"), governance=ASK)
    said = project.exec("--detach", "--json", "--as", "kim", *words).ended(0).said
    assert said["status"] == "waiting"
    return said["run_id"], said["pending"][0]["ticket_id"]


def test_a_run_that_waits_goes_on_when_it_is_approved(project: Project) -> None:
    _, ticket = waiting(project)
    assert resume(project, None, "--json").ended(0).said["status"] == "waiting"
    assert project.noted() == ["a"]
    project.gert("approve", ticket, "--as", "lou").ended(0)
    assert resume(project, None, "--json", "--ticket", ticket).ended(0).said["status"] == "completed"
    assert project.noted() == ["a", "b", "c"]
    assert [each.get("ticket_id") for each in resumed(project.run())] == [ticket]
    project.verifies()


@pytest.mark.parametrize("words", [(), ("--detach",)], ids=["as it was started", "said again"])
def test_a_run_that_still_waits_is_left_as_it_was_however_often_it_is_resumed(
    project: Project, words: tuple[str, ...]
) -> None:
    run_id, ticket = waiting(project)
    before = project.kept()
    for _ in range(3):
        said = resume(project, None, "--json", *words).ended(0).said
        assert (said["run_id"], said["status"]) == (run_id, "waiting")
        assert [each["ticket_id"] for each in said["pending"]] == [ticket]
    assert project.kept() == before


def test_a_run_whose_time_is_over_while_it_waits_is_not_left_waiting(project: Project) -> None:
    project.runbook(note("b", contract={"effects": ["files", "restart"]}), governance=ASK, timeout="1s")
    project.exec("--detach", "--as", "kim").ended(0)
    until(lambda: resume(project).code != 0)
    assert of_type(project.run().events(), "run_complete")
    assert project.noted() == []


def test_a_run_that_is_rejected_fails(project: Project) -> None:
    _, ticket = waiting(project)
    project.gert("reject", ticket, "--as", "lou").ended(0)
    resume(project).ended(3)
    assert project.noted() == ["a"]
    project.verifies()


@pytest.mark.parametrize("ticket", ["nobody", "", "../x"])
def test_a_ticket_that_is_not_waited_for_is_refused(project: Project, ticket: str) -> None:
    _, waited = waiting(project)
    said = refused(project, 2, f"--ticket={ticket}")
    assert f"does not wait for the ticket `{ticket}`" in said
    assert waited in said


def test_a_ticket_that_was_waited_for_is_refused_when_it_is_not_any_more(project: Project, killed: Recorded) -> None:
    assert "does not wait for the ticket `x`" in refused(project, 2, "--ticket", "x", "--reconcile", "success")


def test_an_approval_does_not_hold_for_a_step_that_was_changed(project: Project) -> None:
    _, ticket = waiting(project)
    project.gert("approve", ticket, "--as", "lou").ended(0)
    edit(project.root / "book.yaml", lambda data: data.replace(b'"word": "b"', b'"word": "evil"'))
    resume(project, None, "--allow-changed", "--json")
    assert "evil" not in project.noted()


# --- a disk that takes nothing more


def test_a_disk_that_is_full_leaves_a_run_that_can_go_on(project: Project, killed: Recorded) -> None:
    size = killed.ledger.stat().st_size

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    call = [*GERT, "resume", "--run", killed.id, "--reconcile", "success", "--quiet"]
    ended = subprocess.run(
        call, cwd=project.root, env=environment(), capture_output=True, timeout=PATIENCE, check=False, preexec_fn=small
    )
    assert ended.returncode == 4, ended
    assert b"cannot be read or written" in ended.stderr
    assert project.noted() == ["a", "b"]
    resume(project, killed, "--reconcile", "success").ended(0)
    assert project.noted() == ["a", "b", "c"]
    project.verifies(killed)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_ledger_that_cannot_be_written_is_refused(project: Project, killed: Recorded) -> None:
    killed.ledger.chmod(0o400)
    refused(project, 4, "--reconcile", "success")
