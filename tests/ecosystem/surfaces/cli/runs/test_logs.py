"""`gert logs` on real runs: finished steps, running steps, and what a killed process left."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import (
    GERT,
    PATIENCE,
    Project,
    call,
    completed,
    environment,
    finish,
    note,
    until,
)

SLOW = """
printf 'begin\\n'; printf 'careful\\n' >&2
while [ ! -e "$1" ]; do sleep 0.05; done
printf 'end\\n'
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project(tmp_path / "project")
    found.tool("slow", ["sh", "-c", SLOW, "sh", str(found.root / "gate")])
    found.script("loud", "printf 'one\\t1\\ntwo\\033[2J\\n'; printf 'oops\\n' >&2; exit 3")
    return found


@contextmanager
def running(project: Project, key: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """The runbook, running and shown; whatever happens, it ends."""
    process = project.start(KEY=key)
    try:
        until(lambda: project.runs() and "begin" in project.gert("logs", project.run().id, "--json").out)
        yield process
    finally:
        (project.root / "gate").touch()
        if process.poll() is None:
            finish(process)


def pieces(project: Project, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.gert("logs", *words, "--json").ended(0).out.splitlines()]


def test_what_finished_steps_printed_is_shown(project: Project) -> None:
    project.runbook(note("a"), call("b", "loud"), tools=["note", "loud"])
    project.exec().ended(3)
    run = project.run().id
    assert project.gert("logs", run[:-3]).ended(0).out.splitlines() == [
        "▸ a  stdout (exit 0)",
        "noted a",
        "▸ b  stdout (exit 3)",
        "one\t1",
        "two\ufffd[2J",
        "▸ b  stderr (exit 3)",
        "oops",
    ]
    assert pieces(project, run, "b")[1] == {
        "step": "b",
        "request": "b",
        "stream": "stderr",
        "preview": False,
        "running": False,
        "exit_code": 3,
        "text": "oops\n",
    }
    assert "\x1b" not in project.gert("logs", run, "--json").out


def test_every_attempt_of_a_step_is_shown(project: Project) -> None:
    retry = {"max": 2, "backoff": "10ms"}
    project.runbook(call("b", "loud", retry=retry), tools=["loud"])
    project.exec().ended(3)
    found = [piece["request"] for piece in pieces(project, project.run().id) if piece["stream"] == "stderr"]
    assert len(found) == len(set(found)) == 3


def test_steps_of_a_loop_are_chosen_by_id_or_path(project: Project) -> None:
    project.runbook({**note("a", "{{ .x }}"), "for_each": {"over": ["p", "q"], "as": "x"}})
    project.exec().ended(0)
    run = project.run().id
    assert [piece["text"] for piece in pieces(project, run, "a")] == ["noted p\n", "noted q\n"]
    [first, _] = [piece["step"] for piece in pieces(project, run)]
    assert [piece["text"] for piece in pieces(project, run, first)] == ["noted p\n"]


def test_an_item_is_chosen_and_shown_as_people_read_it(project: Project) -> None:
    project.runbook({**note("a", "{{ .x }}"), "for_each": {"over": ["p/1", "q"], "as": "x", "key": "{{ .x }}"}})
    project.exec().ended(0)
    assert project.gert("logs", "last", "a[p/1]").ended(0).out.splitlines() == [
        "▸ a[p/1]  stdout (exit 0)",
        "noted p/1",
    ]
    assert [piece["step"] for piece in pieces(project, "last", "a[p/1]")] == ["a[p%2F1]"]
    assert "did you mean `a[p/1]`?" in project.gert("logs", "last", "a[p/2]").ended(2).err


def test_a_running_step_is_shown_while_it_runs_and_its_output_is_dropped_with_the_answer(project: Project) -> None:
    project.runbook(call("s", "slow"), tools=["slow"])
    with running(project) as process:
        run = project.run()
        live = pieces(project, run.id)
        assert [(piece["step"], piece["stream"], piece["text"], piece["running"]) for piece in live] == [
            ("s", "stdout", "begin\n", True),
            ("s", "stderr", "careful\n", True),
        ]
        assert "▸ s  stdout (running)" in project.gert("logs", run.id, "s").out
        (project.root / "gate").touch()
        assert finish(process).code == 0
    assert run.rows("SELECT * FROM output WHERE run_id = ?1") == []
    assert [(piece["text"], piece["running"]) for piece in pieces(project, run.id)] == [
        ("begin\nend\n", False),
        ("careful\n", False),
    ]


def test_follow_shows_output_as_it_comes_until_the_run_ends_and_none_twice(project: Project) -> None:
    project.runbook(note("a"), call("s", "slow"), note("z"), tools=["note", "slow"])
    with running(project) as process:
        words = [*GERT, "logs", project.run().id, "--follow"]
        with subprocess.Popen(
            words, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.root, env=environment()
        ) as following:
            assert following.stdout is not None
            first = [following.stdout.readline().decode() for _ in range(4)]
            (project.root / "gate").touch()
            rest, err = following.communicate(timeout=PATIENCE)
        assert finish(process).code == 0
    assert first == ["▸ a  stdout (exit 0)\n", "noted a\n", "▸ s  stdout (running)\n", "begin\n"]
    shown = (*first, *rest.decode().splitlines(keepends=True))
    assert [shown.count(f"{line}\n") for line in ("begin", "careful", "end", "noted z")] == [1, 1, 1, 1]
    assert (err, following.returncode) == (b"", 0)


def test_what_a_killed_process_left_is_shown_and_dropped_once_the_step_has_an_answer(project: Project) -> None:
    project.runbook(call("s", "slow"), tools=["slow"])
    with running(project) as process:
        process.send_signal(signal.SIGKILL)
        finish(process)
        run = project.run()
        assert [piece["text"] for piece in pieces(project, run.id)] == ["begin\n", "careful\n"]
    project.gert("resume", "--run", run.id, "--reconcile", "s=retry", "--allow-running").ended(0)
    assert run.rows("SELECT * FROM output WHERE run_id = ?1") == []
    assert [piece["text"] for piece in pieces(project, run.id)] == ["begin\nend\n", "careful\n"]


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        pytest.param(["none"], "there is no run `none`", "gert run list", id="no run"),
        pytest.param(["RUN", "nothing"], "has not run a step `nothing`", "it has run `a`", id="no step"),
        pytest.param(["RUN", "x\x1b[2J"], "a step `x\ufffd[2J`", "it has run `a`", id="no name of a step"),
        pytest.param(["RUN", "mesure"], "a step `mesure`", "did you mean `measure`?", id="a step like another"),
        pytest.param(["..", "a"], "is not a run id", "gert run list", id="no id"),
    ],
)
def test_mistakes_are_named(words: list[str], says: str, hint: str, project: Project) -> None:
    project.runbook(note("a"), note("measure"))
    project.exec().ended(0)
    said = project.gert("logs", *(project.run().id if word == "RUN" else word for word in words)).ended(2)
    assert says in said.err
    assert hint in said.err


def test_a_run_that_printed_nothing_says_so(project: Project) -> None:
    project.runbook()
    project.exec().ended(0)
    run = project.run().id
    assert project.gert("logs", run).ended(0).out == f"no step of run {run} has printed anything\n"
    assert project.gert("logs", run, "--json").ended(0).out == ""
    assert "has not run a step `a`" in project.gert("logs", run, "a").ended(2).err


@pytest.mark.parametrize("step", ["quiet", "checks", "checks[0]"], ids=["a step", "a loop", "an item of a loop"])
def test_a_step_that_printed_nothing_says_so(project: Project, step: str) -> None:
    project.tool("silent", ["true"])
    loop = call("checks", "silent", for_each={"over": ["p"], "as": "x"})
    project.runbook(note("a"), call("quiet", "silent"), loop, tools=["note", "silent"])
    project.exec().ended(0)
    run = project.run().id
    assert project.gert("logs", run, step).ended(0).out == f"step `{step}` of run {run} has printed nothing\n"
    assert project.gert("logs", run, step, "--json").ended(0).out == ""


def test_secrets_are_not_shown(project: Project) -> None:
    project.tool(
        "tell",
        ["sh", "-c", 'printf "%s\\n%s\\n" "$1" "$3"; while [ ! -e "$2" ]; do sleep 0.05; done', "sh", "{{ .key }}",
         str(project.root / "gate"), "begin" + "." * 4000],
        inputs={"key": {"type": "string", "secret": True}},
    )  # fmt: skip
    project.runbook(
        call("t", "tell", inputs={"key": "{{ .key }}"}),
        tools=["tell"],
        inputs={"key": {"type": "string", "secret": True, "from": "env/KEY"}},
    )
    with running(project, "hunter2secret"):
        assert b"hunter2secret" not in b"".join(path.read_bytes() for path in (project.root / "runs").glob("ledger*"))
    assert "hunter2secret" not in project.gert("logs", project.run().id).ended(0).out


def test_what_a_failed_tool_printed_is_shown_whole(project: Project) -> None:
    project.script("loud", "yes out | head -n 10000; yes err | head -n 10000 >&2; echo last >&2; exit 3")
    project.runbook(call("loud", "loud"), tools=["loud"])
    project.exec().ended(3)
    found = {piece["stream"]: piece["text"] for piece in pieces(project, project.run().id, "loud")}
    assert found == {"stdout": "out\n" * 10000, "stderr": "err\n" * 10000 + "last\n"}


def test_what_a_tool_printed_before_its_timeout_is_shown(project: Project) -> None:
    project.script("slow", "echo begun; echo why >&2; sleep 60", action={"timeout": "1s"})
    project.runbook(call("slow", "slow"), tools=["slow"])
    project.exec().ended(3)
    assert completed(project.run().events(), "slow")["failure"]["kind"] == "timeout"
    found = {piece["stream"]: piece["text"] for piece in pieces(project, project.run().id)}
    assert found == {"stdout": "begun\n", "stderr": "why\n"}
    project.verifies()


def test_what_a_tool_printed_before_the_run_was_interrupted_is_shown(project: Project) -> None:
    project.script("slow", f"echo begun; : > {project.root}/up; sleep 60")
    project.runbook(call("slow", "slow"), tools=["slow"])
    process = project.start()
    until((project.root / "up").exists)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert completed(project.run().events(), "slow")["failure"]["kind"] == "cancelled"
    assert [piece["text"] for piece in pieces(project, project.run().id)] == ["begun\n"]


def test_bytes_that_are_not_utf_8_are_shown_escaped(project: Project) -> None:
    project.script("odd", "printf 'a\\377b\\n'")
    project.runbook(call("odd", "odd"), tools=["odd"])
    project.exec().ended(0)
    assert [piece["text"] for piece in pieces(project, project.run().id)] == ["a\\xffb\n"]
    assert "a\\xffb" in project.gert("logs", project.run().id).ended(0).out


def test_follow_ends_where_a_background_run_waits_for_approval(project: Project) -> None:
    project.note_tool("quiet")
    ask = {"rules": [{"default": "require-approval"}]}
    project.runbook(note("x", tool="quiet"), tools=["quiet"], governance=ask)
    started = project.exec("--background", "--json").ended(0).said
    until(lambda: project.gert("approvals", "list", "--json").said)
    followed = project.gert("logs", started["run_id"], "--follow").ended(0)
    assert "waits for approval" in followed.err
    project.gert("reject", "last", "--reason", "done").ended(0)
    until(lambda: project.gert("run", "status", started["run_id"], "--json").said["status"] != "waiting")
