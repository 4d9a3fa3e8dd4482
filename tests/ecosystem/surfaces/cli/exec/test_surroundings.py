"""What surrounds a run and goes wrong: streams, signals, bytes that are no text, disks, and others who write."""

import os
import signal
import sqlite3
import subprocess
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.terminal import INTERRUPT, Terminal
from tests.ecosystem.surfaces.cli.workbench import (
    PATIENCE,
    Project,
    Ran,
    call,
    environment,
    events_in,
    finish,
    note,
    until,
)

ASK = {"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]}


def shell(project: Project, redirection: str, *words: str, **environ: str) -> Ran:
    """`gert exec book.yaml`, started by a shell that closes or redirects streams."""
    command = [f'exec "$@" {redirection}', "sh", *project.command("book.yaml", *words)]
    ended = subprocess.run(
        ["sh", "-c", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=project.root,
        env=environment(environ),
        timeout=PATIENCE,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


# --- streams


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param("<&-", id="no standard input"),
        pytest.param(">&-", id="no standard output"),
        pytest.param("2>&-", id="no standard error"),
        pytest.param("<&- >&- 2>&-", id="none at all"),
        pytest.param("> /dev/full", id="a full disk behind standard output"),
    ],
)
def test_a_run_does_without_its_streams(project: Project, redirection: str) -> None:
    project.runbook(note("one"), note("two"))
    ran = shell(project, redirection)
    assert project.noted() == ["one", "two"]
    assert "Traceback" not in ran.err
    assert project.run().events()[-1]["data"]["status"] == "completed"
    project.verifies()


def test_without_standard_input_nothing_is_approved(project: Project) -> None:
    project.runbook(note("one"), governance=ASK)
    shell(project, "<&-").ended(3)
    assert project.noted() == []


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_a_terminal_of_another_alphabet_is_no_reason_to_fail(project: Project, variables: dict[str, str]) -> None:
    project.script("says", "echo größe ✓")
    project.runbook(call("says", "says", title="Größe ✓"), tools=["says"])
    ran = shell(project, "", "--verbose", **variables).ended(0)
    assert "Traceback" not in ran.err


def test_a_tool_does_not_swallow_the_answers_that_are_meant_for_questions(project: Project) -> None:
    project.script("reads", f"cat > {project.root}/swallowed; exit 0")
    project.runbook(call("reads", "reads"), note("one"), tools=["note", "reads"], governance=ASK)
    project.exec(stdin="y\ny\n").ended(0)
    assert project.noted() == ["one"]
    assert (project.root / "swallowed").read_text() == ""


def test_a_tool_inherits_no_open_files(project: Project) -> None:
    project.script("looks", f"ls -l /proc/self/fd > {project.root}/files")
    project.runbook(call("looks", "looks"), tools=["looks"])
    project.exec(stdin="").ended(0)
    listed = (project.root / "files").read_text()
    assert "runs" not in listed.replace(str(project.root / "files"), "")
    assert "trace.jsonl" not in listed


def test_the_live_view_leaves_the_terminal_as_it_was(project: Project) -> None:
    ready = project.root / "ready"
    project.note_tool("waits", before=f": > {ready}; exec sleep 60")
    project.runbook(note("one"), note("waits", tool="waits"), tools=["note", "waits"], after=[note("tidy")])
    with Terminal(project, environ={"TERM": "xterm-256color", "LANG": "C.UTF-8"}) as terminal:
        terminal.expect("one")
        until(ready.exists)
        terminal.type(INTERRUPT)
        terminal.ended(130)
    assert terminal.screen.count("\x1b[?25l") <= terminal.screen.count("\x1b[?25h")
    assert project.noted() == ["one", "tidy"]


# --- signals


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_that_was_ignored_before_stays_ignored(project: Project, number: signal.Signals) -> None:
    """`nohup gert exec` goes on when its terminal is closed, and Ctrl-C does not reach a job in the background."""
    ready = project.root / "ready"
    project.note_tool("waits", before=f": > {ready}; while [ ! -e {ready}.go ]; do sleep 0.01; done")
    project.runbook(note("one", tool="waits"), tools=["waits"])
    process = subprocess.Popen(
        ["sh", "-c", f"trap '' {number.name.removeprefix('SIG')}; exec \"$@\"", "sh", *project.command("book.yaml")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project.root,
        env=environment(),
    )
    until(ready.exists)
    process.send_signal(number)
    (project.root / "ready.go").touch()
    finish(process).ended(0)
    assert project.noted() == ["one"]


# --- bytes that are no text


def raw(project: Project, *words: bytes, environ: dict[bytes, bytes] | None = None) -> Ran:
    """`gert exec book.yaml` with bytes for words and variables."""
    ended = subprocess.run(
        [*(os.fsencode(word) for word in project.command("book.yaml")), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=project.root,
        env={**{os.fsencode(k): os.fsencode(v) for k, v in environment().items()}, **(environ or {})},
        timeout=PATIENCE,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))


def is_handled(ran: Ran) -> None:
    assert "Traceback" not in ran.err
    assert "internal" not in ran.err + ran.out


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        pytest.param([b"--var", b"word=a\xffb"], {}, id="a value"),
        pytest.param([b"--input", b"word=a\xffb"], {}, id="a native value"),
        pytest.param([], {b"BYTES": b"a\xffb"}, id="an input from the environment"),
        pytest.param([b"--as", b"k\xffm"], {}, id="the actor"),
        pytest.param([b"--vars-file", b"n\xffne.yaml"], {}, id="the name of a file of values"),
        pytest.param([b"--state-dir", b"st\xffte"], {}, id="the state folder"),
        pytest.param([b"--trace", b"tr\xffce.jsonl"], {}, id="the trace"),
        pytest.param([b"--db", b"r\xffns.db"], {}, id="the database"),
    ],
)
def test_bytes_that_are_no_text_are_refused_or_kept_and_never_a_crash(
    project: Project, words: list[bytes], environ: dict[bytes, bytes]
) -> None:
    project.runbook(
        note("one", "{{ .word }}{{ .bytes }}x"),
        inputs={"word": {"type": "string"}, "bytes": {"type": "string", "from": "env/BYTES"}},
    )
    ran = raw(project, *words, environ=environ)
    is_handled(ran)
    assert ran.code in (0, 1, 2, 4)
    assert ran.code == 0 or project.noted() == []


def test_a_variable_of_the_environment_that_is_no_text_is_inherited_as_it_is(project: Project) -> None:
    project.script("shows", f'printf %s "$ODD" > {project.root}/odd')
    project.runbook(call("shows", "shows"), tools=["shows"])
    raw(project, environ={b"ODD": b"a\xffb"}).ended(0)
    assert (project.root / "odd").read_bytes() == b"a\xffb"


def test_a_secret_that_is_no_text_is_masked_or_refused(project: Project) -> None:
    project.script(
        "shows", 'printf "%s\\n" "$ODD_KEY"; printf "%s\\n" "$ODD_KEY" >&2; exit 1', secrets=[{"env": "ODD_KEY"}]
    )
    project.runbook(call("shows", "shows"), tools=["shows"])
    ran = raw(project, b"--verbose", environ={b"ODD_KEY": b"\xff\xfecanary-of-bytes\xfd"})
    is_handled(ran)
    kept = b"".join(path.read_bytes() for path in project.root.rglob("runs/*/*"))
    assert b"canary-of-bytes" not in kept + ran.out.encode() + ran.err.encode()


def test_what_a_tool_prints_may_be_anything(project: Project) -> None:
    project.script(
        "blurts",
        "printf 'a\\377\\376\\000b\\033[31m\\r\\n\\355\\240\\200 ok\\n'; printf '\\001\\002' >&2",
        extract={"all": {"from": "stdout"}},
    )
    project.runbook(call("blurts", "blurts"), tools=["blurts"])
    ran = project.exec("--verbose").ended(0)
    assert "\x1b" not in ran.out
    project.verifies()


def test_an_actor_cannot_act_on_the_terminal(project: Project) -> None:
    project.runbook(note("one"))
    ran = project.exec("--as", "kim\x1b[31m\x07\u202e", "--trace", "t.jsonl")
    assert not {"\x1b", "\x07", "\u202e"} & set(ran.out + ran.err)


# --- disks, and others who write


def test_what_is_announced_is_on_disk_before_the_tool_runs(project: Project) -> None:
    trace = project.root / "t.jsonl"
    project.note_tool("checks", before=f'grep -q "\\"step_start\\".*\\"word\\":\\"$1\\"" {trace} || exit 9')
    project.runbook(*(note(f"s{n}", tool="checks") for n in range(5)), tools=["checks"])
    project.exec("--trace", trace).ended(0)
    assert project.noted() == [f"s{n}" for n in range(5)]


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param("rm -r runs/*", id="removed"),
        pytest.param("mv runs/ledger.db runs/other.db", id="moved"),
        pytest.param("cp runs/ledger.db copy && mv copy runs/ledger.db", id="exchanged for a copy"),
        pytest.param("rm runs/ledger.db-wal", id="its latest commits removed"),
    ],
)
def test_a_run_whose_record_is_harmed_does_not_go_on(project: Project, harm: str) -> None:
    project.note_tool("harms", after=harm)
    project.runbook(note("one"), note("harm", tool="harms"), note("never"), tools=["note", "harms"])
    ran = project.exec("--json")
    assert ran.code not in (0, 3)
    assert "Traceback" not in ran.err
    assert project.noted() == ["one", "harm"]


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        pytest.param("rm", "may not be complete: no such file or directory", id="removed"),
        pytest.param("sh -c 'rm $0 && : > $0'", "was replaced", id="replaced"),
    ],
)
def test_a_mirror_that_is_harmed_is_said_and_does_not_stop_the_run(project: Project, harm: str, says: str) -> None:
    project.note_tool("harms", after=f"{harm} runs/*/trace.jsonl")
    project.runbook(note("one"), note("harm", tool="harms"), note("last"), tools=["note", "harms"])
    ran = project.exec("--quiet").ended(0)
    assert says in ran.err
    assert project.noted() == ["one", "harm", "last"]
    project.gert("run", "verify", project.run().id).ended(0)


def test_lanes_do_not_run_on_after_the_record_is_harmed(project: Project) -> None:
    pid = project.root / "pid"
    project.note_tool("harms", before=f"while [ ! -e {pid} ]; do sleep 0.01; done; rm -r runs/*")
    project.note_tool("waits", before=f"echo $$ > {pid}.tmp; mv {pid}.tmp {pid}; exec sleep 60")
    lanes = [{"steps": [note(name, tool=name, scope=name)]} for name in ("harms", "waits")]
    project.runbook({"id": "both", "type": "parallel", "branches": lanes}, tools=["harms", "waits"])
    assert project.exec().code not in (0, 3)
    assert not os.path.exists(f"/proc/{pid.read_text().strip()}")


def test_several_runs_share_a_database_at_the_same_time(project: Project) -> None:
    project.runbook(*(note(f"s{n}") for n in range(6)))
    processes = [project.start("--db", project.root / "runs.db", "--json") for _ in range(3)]
    runs = [finish(process).ended(0).said["run_id"] for process in processes]
    assert len(set(runs)) == 3
    for run in runs:
        project.gert("trace", "verify", "--db", project.root / "runs.db", "--run", run).ended(0)


def test_a_trace_is_written_by_one_run_alone(project: Project) -> None:
    ready = project.root / "ready"
    project.note_tool("waits", before=f": > {ready}; while [ ! -e {ready}.go ]; do sleep 0.01; done")
    project.runbook(note("one", tool="waits"), tools=["waits"])
    trace = project.root / "t.jsonl"
    process = project.start("--trace", trace)
    until(ready.exists)
    second = project.exec("--trace", trace)
    (project.root / "ready.go").touch()
    finish(process).ended(0)
    assert second.code in (2, 4)
    assert project.noted() == ["one"]
    assert {event["run_id"] for event in events_in(trace)} == {events_in(trace)[0]["run_id"]}


def test_a_run_waits_for_a_database_that_others_hold(project: Project) -> None:
    project.runbook(note("one"))
    db = project.root / "runs.db"
    project.exec("--db", db).ended(0)
    holder = sqlite3.connect(db)
    try:
        holder.execute("begin exclusive")
        process = project.start("--db", db)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.8)
        assert project.noted() == ["one"]
    finally:
        holder.close()
    finish(process).ended(0)
    assert project.noted() == ["one", "one"]


@pytest.mark.parametrize("limit", ["0s", "1ms", "0.001s"])
def test_a_run_without_time_ends_and_is_recorded_or_refused(project: Project, limit: str) -> None:
    project.script("slow", "sleep 60")
    project.runbook(call("slow", "slow"), tools=["slow"])
    ran = project.exec("--timeout", limit)
    assert ran.code in (2, 3)
    assert all(run.events()[-1]["type"] == "run_complete" for run in project.runs())


def deep(levels: int) -> dict[str, Any]:
    step: dict[str, Any] = note("inner")
    for level in range(levels):
        step = {"id": f"b{level}", "type": "branch", "branches": [{"condition": "default", "steps": [step]}]}
    return step


def test_blocks_within_blocks_run(project: Project) -> None:
    project.runbook(deep(10))
    project.exec().ended(0)
    assert project.noted() == ["inner"]


def test_a_working_folder_that_was_removed_is_named_as_the_reason(project: Project) -> None:
    project.runbook(note("one"))
    here = project.root / "here"
    here.mkdir()
    script = f'cd "{here}" && rmdir "{here}" && exec "$@"'
    ran = subprocess.run(
        ["sh", "-c", script, "sh", *project.command(project.root / "book.yaml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=environment(),
    )
    assert (ran.returncode, project.noted()) == (4, [])
    assert ran.stderr == "error: the working directory no longer exists\n  hint: change to a directory that exists\n"
