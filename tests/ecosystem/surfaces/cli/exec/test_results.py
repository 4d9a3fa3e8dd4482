"""How `gert exec` ends: its exit codes, in all their ways, and what it says on which stream."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, call, completed, note

DENY = {"rules": [{"name": "never", "effects": ["files"], "action": "deny"}, {"default": "allow"}]}
ASK = {"rules": [{"name": "ask first", "effects": ["files"], "action": "require-approval"}, {"default": "allow"}]}


def fails(project: Project, *, code: int = 7, **more: Any) -> dict[str, Any]:
    project.script("fails", f"echo it broke >&2; exit {code}")
    return call("bad", "fails", **more)


# --- 0: the run completed


@pytest.mark.parametrize("category", ["resolved", "no_action", "escalated", "needs_rca"])
def test_every_outcome_is_a_run_that_completed(project: Project, category: str) -> None:
    project.runbook(note("one"), {"type": "end", "outcome": {"category": category, "code": "x"}}, ends=False)
    said = project.exec("--json").ended(0).said
    assert (said["status"], said["outcome"]) == ("completed", {"category": category, "code": "x"})


def test_a_failure_that_is_continued_is_no_failure(project: Project) -> None:
    project.runbook(fails(project, continue_on_fail=True), note("after"), tools=["note", "fails"])
    project.exec().ended(0)
    assert project.noted() == ["after"]
    assert completed(project.run().events(), "bad")["continued"]


def test_a_failure_in_finally_does_not_change_the_result(project: Project) -> None:
    project.runbook(note("one"), after=[fails(project), note("last")], tools=["note", "fails"])
    said = project.exec("--json").ended(0).said
    assert said["status"] == "completed"
    assert said["finally_failure"]["kind"] == "exit_code"
    assert project.noted() == ["one", "last"]


# --- 1: a check said no, and nothing ran


def _wrong_runbook(project: Project) -> Path:
    return project.runbook({"id": "x", "type": "tol"}, note("one"))


def _no_yaml(project: Project) -> Path:
    return project.write("book.yaml", "a: [")


def _missing_tool(project: Project) -> Path:
    return project.runbook(note("one"), tools=["note", "nowhere"])


def _wrong_tool(project: Project) -> Path:
    project.tool("odd", ["sh"], surprise=1)
    return project.runbook(note("one"), tools=["note", "odd"])


def _not_a_runbook(project: Project) -> Path:
    return (project.root / "tools/note.tool.yaml").rename(project.root / "book.yaml")


def _no_end(project: Project) -> Path:
    return project.runbook(note("one"), ends=False)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(_wrong_runbook, id="a step of no kind"),
        pytest.param(_no_yaml, id="no YAML"),
        pytest.param(_missing_tool, id="a tool that is not there"),
        pytest.param(_wrong_tool, id="a tool that is not valid"),
        pytest.param(_not_a_runbook, id="a tool instead of a runbook"),
        pytest.param(_no_end, id="a way without an end"),
    ],
)
def test_what_is_not_valid_does_not_run(project: Project, write: Callable[[Project], Path]) -> None:
    write(project)
    ran = project.exec().ended(1)
    assert ran.err.startswith("error: ")
    assert (project.noted(), project.runs(), ran.out) == ([], [], "")


@pytest.mark.parametrize(
    ("option", "content"),
    [
        pytest.param("--policy", "apiVersion: policy/v0\nrules: 1\n", id="a policy"),
        pytest.param("--evidence", "- a list\n", id="evidence"),
        pytest.param("--vars-file", "a: [\n", id="values"),
    ],
)
def test_a_file_given_along_has_to_be_valid(project: Project, option: str, content: str) -> None:
    project.runbook(note("one"))
    ran = project.exec(option, project.write("along.yaml", content)).ended(1)
    assert "along.yaml" in ran.err
    assert (project.noted(), project.runs()) == ([], [])


# --- 2: called wrongly, and nothing ran


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["--nonsense"], "--nonsense", id="no such option"),
        pytest.param(["--mode", "real-ish"], "real-ish", id="no such mode"),
        pytest.param(["--mode", "replay"], "replay", id="a mode that needs a scenario"),
        pytest.param(["--trace", "t", "--db", "d"], "--trace, --db and --dsn", id="two places to record"),
        pytest.param(["--as", " "], "--as", id="an actor without a name"),
        pytest.param(["--timeout", "soon"], "soon", id="no duration"),
        pytest.param(["--max-parallel", "0"], "max-parallel", id="no lane at once"),
        pytest.param(["--var", "a"], "--var", id="a value without a name"),
        pytest.param(["--var", "a=1", "--input", "a=2"], "given twice", id="a value given twice"),
        pytest.param(["--var", "wrod=1"], "wrod", id="an undeclared input"),
        pytest.param(["--vars-file", "none.yaml"], "none.yaml", id="no file of values"),
        pytest.param(["--policy", "none.yaml"], "none.yaml", id="no policy"),
        pytest.param(["--evidence", "none.yaml"], "none.yaml", id="no evidence"),
        pytest.param(["another.yaml"], "another.yaml", id="two runbooks"),
    ],
)
def test_a_wrong_call_is_told_before_anything_runs(project: Project, words: list[str], why: str) -> None:
    project.runbook(note("one"), inputs={"word": {"type": "string", "default": "x"}})
    ran = project.gert("exec", "book.yaml", *words).ended(2)
    assert why in ran.err
    assert (project.noted(), project.runs(), ran.out) == ([], [], "")


def test_a_runbook_that_is_not_there_is_a_wrong_call(project: Project) -> None:
    assert "nowhere.yaml" in project.exec("nowhere.yaml").ended(2).err


# --- 3: the run failed or was denied


@pytest.mark.parametrize(
    ("step", "governance", "status", "kind"),
    [
        pytest.param(call("x", "fails"), None, "failed", "exit_code", id="a tool that exits with 7"),
        pytest.param(call("x", "gone"), None, "error", "not_found", id="a program that is not there"),
        pytest.param(call("x", "slow", timeout="50ms"), None, "error", "timeout", id="a step that takes too long"),
        pytest.param(call("x", "dies"), None, "failed", "exit_code", id="a tool killed by a signal"),
        pytest.param(call("x", "mute"), None, "error", "extraction", id="output that is not there"),
        pytest.param(note("x"), DENY, "failed", "denied", id="a step that is denied"),
        pytest.param(note("x"), ASK, "failed", "denied", id="an approval that is not given"),
        pytest.param(
            {"id": "x", "type": "assert", "assert": [{"type": "equals", "value": "1", "expected": "2"}]},
            None,
            "failed",
            "assertion",
            id="an assertion that does not hold",
        ),
        pytest.param(
            {"id": "x", "type": "manual", "instructions": "do it", "contract": {"effects": []}},
            None,
            "error",
            "evidence",
            id="a manual step that is not done",
        ),
    ],
)
def test_a_run_that_does_not_complete_says_why(
    project: Project, step: dict[str, Any], governance: dict[str, Any] | None, status: str, kind: str
) -> None:
    fails(project)
    project.tool("gone", ["no-such-program"])
    project.script("slow", "exec sleep 60")
    project.script("dies", "kill -9 $$")
    project.script("mute", ":", extract={"word": {"from": "stdout", "pattern": "(x+)"}})
    tools = ["note", "fails", "gone", "slow", "dies", "mute"]
    project.runbook(step, note("after"), tools=tools, governance=governance, after=[])
    said = project.exec("--json").ended(3).said
    assert (said["status"], said["failure"]["kind"], said["failed_step"]) == (status, kind, "x")
    assert "outcome" not in said
    assert project.noted() == []
    last = project.run().events()[-1]
    assert (last["type"], last["data"]["status"], last["data"]["failure"]["kind"]) == ("run_complete", status, kind)
    project.verifies()


# --- what is said, and where


def test_json_is_the_only_thing_on_standard_output(project: Project) -> None:
    project.runbook(note("one"))
    ran = project.exec("--json", "--as", "kim").ended(0)
    said = ran.said
    run = project.run()
    events = run.events()
    assert said == {
        "run_id": run.folder.name,
        "runbook_name": "book",
        "mode": "real",
        "status": "completed",
        "duration": said["duration"],
        "waited": 0.0,
        "outcome": {"category": "resolved", "code": "done"},
        "events": len(events),
        "trace": str(run.trace),
        "db": None,
        "steps": said["steps"],
        "outputs": {"one": {"said": "one"}},
    }
    assert [(step["path"], step["status"]) for step in said["steps"]] == [("one", "success"), ("end#2", "success")]
    assert isinstance(said["duration"], float)
    assert "one" in ran.err


def test_json_of_a_failure_names_the_step_and_the_reason(project: Project) -> None:
    project.runbook(fails(project), tools=["note", "fails"])
    said = project.exec("--json", "--quiet").ended(3).said
    assert said["failure"] == {"kind": "exit_code", "message": said["failure"]["message"]}
    assert "it broke" in said["failure"]["message"]
    assert said["failed_step"] == "bad"


def test_quiet_is_irrelevant_about_a_run_that_completes(project: Project) -> None:
    project.runbook(note("one"))
    ran = project.exec("--quiet").ended(0)
    assert (ran.out, ran.err, project.noted()) == ("", "", ["one"])


def test_quiet_still_says_why_a_run_did_not_complete(project: Project) -> None:
    project.runbook(fails(project), tools=["note", "fails"])
    ran = project.exec("-q").ended(3)
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert "bad" in ran.err
    assert "it broke" in ran.err


def test_the_item_of_a_loop_that_failed_is_named_once(project: Project) -> None:
    project.runbook(fails(project, for_each={"as": "i", "over": ["x"], "key": "{{ .i }}"}), tools=["note", "fails"])
    ran = project.exec("-q").ended(3)
    assert ran.err.count("bad[x]") == 1


def test_several_items_of_a_loop_that_failed_are_all_named(project: Project) -> None:
    loop = {"as": "i", "over": ["x", "y"], "key": "{{ .i }}", "parallel": True}
    project.runbook(fails(project, for_each=loop), tools=["note", "fails"])
    assert "`bad[x]`, `bad[y]`: " in project.exec("-q").ended(3).err


def test_a_tool_is_no_runbook(project: Project) -> None:
    ran = project.exec("tools/note.tool.yaml").ended(1)
    assert "expected `kernel/v0`, found `tool/v0`: this is a gert tool, not a gert runbook" in ran.err
    assert "`gert tool try` runs one action of a tool" in ran.err


@pytest.mark.parametrize("name", ["care", "care.yaml"])
def test_a_runbook_is_suggested_by_its_name(project: Project, name: str) -> None:
    project.write("runbooks/care.yaml", "apiVersion: kernel/v0\n")
    assert "did you mean `runbooks/care.yaml`?" in project.gert("exec", name).ended(2).err


def test_quiet_json_is_json_alone(project: Project) -> None:
    project.runbook(note("one"))
    ran = project.exec("--json", "--quiet").ended(0)
    assert ran.err == ""
    assert json.loads(ran.out)["status"] == "completed"


def test_a_pipe_gets_plain_lines(project: Project) -> None:
    project.runbook(note("one"), note("two"))
    ran = project.exec(TERM="xterm-256color").ended(0)
    assert "\x1b" not in ran.out + ran.err
    assert "\r" not in ran.out
    lines = ran.out.splitlines()
    assert [line.split()[:2] for line in lines[1:5]] == [["▸", "one"], ["✓", "one"], ["▸", "two"], ["✓", "two"]]
    assert lines[-1].endswith(f" {project.run().trace}")
    assert ran.err == ""


def test_what_tools_print_is_shown_with_verbose_only_and_cannot_act_on_a_terminal(project: Project) -> None:
    project.script("loud", "printf 'red \\033[31m alert\\n'; printf 'and this\\n' >&2")
    project.runbook(call("loud", "loud"), tools=["loud"])
    assert "alert" not in project.exec().ended(0).out
    shown = project.exec("--verbose").ended(0).out
    assert "alert" in shown
    assert "and this" in shown
    assert "\x1b" not in shown


def test_a_reader_that_goes_away_does_not_end_the_run(project: Project) -> None:
    project.runbook(*(note(f"s{n}") for n in range(5)), note("slow", tool="slow"), note("last"), tools=["note", "slow"])
    project.note_tool("slow", before="sleep 0.1")
    process = project.start()
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    process.communicate()
    assert project.noted()[-1] == "last"
    assert project.run().events()[-1]["data"]["status"] == "completed"


def test_help_names_every_option(project: Project) -> None:
    shown = project.gert("exec", "--help").ended(0).out
    assert all(f"--{word}" in shown for word in ("var", "input", "mode", "trace", "db", "policy", "evidence", "json"))
