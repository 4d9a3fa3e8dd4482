"""A tool that outlives a killed gert: `resume` reports it, and calls nothing while it runs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.users import Machine, User, machine
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, finish, is_alive, note, of_type, until

USES = (machine,)
"""Fixtures of another file that tests here ask for by name."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")

LOOP = "while ! test -e enough; do sleep 0.05; done"


@pytest.fixture(autouse=True)
def nothing_is_left(project: Project) -> Iterator[None]:
    yield
    for pid in filter(is_alive, pids(project)):
        os.kill(pid, signal.SIGKILL)


def pids(project: Project) -> list[int]:
    file = project.root / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def killed(project: Project, script: str, *, idempotent: bool = True, before: str = "exec >/dev/null 2>&1;") -> str:
    """Kill a gert in the middle of a call of this script, which notes its processes; give the run."""
    contract = {"idempotent": idempotent, "effects": ["files"], "writes": ["files"]}
    project.note_tool("works", before=f"{before} {script}", contract=contract, outputs={}, action={"extract": {}})
    project.runbook(note("first"), note("work", tool="works"), note("last"), tools=["note", "works"])
    process = project.start()
    until(lambda: pids(project))
    process.send_signal(signal.SIGKILL)
    finish(process)
    return project.run().folder.name


def resumed(project: Project, run: str, *words: str) -> Ran:
    return project.gert("resume", "--run", run, *words)


def refused(script: str, *words: str, idempotent: bool = True) -> Callable[[Project], str]:
    """Resume while the tool runs: it is named, and nothing is called and nothing written."""

    def attempt(project: Project) -> str:
        run = killed(project, script, idempotent=idempotent)
        [pid] = pids(project)
        before = project.run().trace.read_bytes()
        ran = resumed(project, run, *words).ended(3)
        assert pids(project) == [pid], "it was called again"
        assert project.noted() == ["first"]
        assert project.run().trace.read_bytes() == before
        assert str(pid) in ran.err
        return ran.err

    return attempt


NOTES = f"echo $$ >> pids; {LOOP}"
ATTACKS = [
    Attack(what, why="a call is not made while it is under way", attempt=attempt, reason="`work` is still running")
    for what, attempt in [
        ("an idempotent call, which would be repeated without a question", refused(NOTES)),
        ("a call that is not idempotent", refused(NOTES, idempotent=False)),
        ("one that the operator wants repeated", refused(NOTES, "--reconcile", "retry", idempotent=False)),
        ("one that the operator calls done", refused(NOTES, "--reconcile", "work=success", idempotent=False)),
        ("a daemon that a call left before gert was killed", refused(f"setsid -f sh -c '{NOTES}'; sleep 2")),
        ("a changed tool file", refused(NOTES, "--allow-changed")),
    ]
]  # fmt: skip


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_nothing_is_called_beside_a_running_tool(attack: Attack, project: Project) -> None:
    attack.fails(project)


def test_it_says_what_to_do(project: Project) -> None:
    run = killed(project, NOTES)
    [pid] = pids(project)
    said = resumed(project, run).ended(3).err
    assert f"process {pid} `sh -c" in said
    assert f"end it with `kill {pid}`" in said
    assert "--allow-running" in said


@pytest.mark.parametrize("how", ["it ended by itself", "the operator ended it", "the operator allows it"])
def test_the_run_is_resumed_once(project: Project, how: str) -> None:
    run = killed(project, NOTES)
    [pid] = pids(project)
    words = ["--allow-running"] if how == "the operator allows it" else []
    if how != "the operator ended it":
        (project.root / "enough").touch()
    else:
        end_all(pid)
        (project.root / "enough").touch()
    if not words:
        until(lambda: not is_alive(pid))
    resumed(project, run, *words).ended(0)
    # Where both run beside each other, the first may be the last to write.
    until(lambda: not is_alive(pid))
    assert [word for word in project.noted() if word != "work"] == ["first", "last"]
    assert project.noted().count("work") == (1 if how == "the operator ended it" else 2)
    assert len(of_type(project.run().events(), "step_reconciled")) == 1
    project.verifies()


def test_a_daemon_of_a_completed_step_does_not_hold_up_a_resume(project: Project) -> None:
    project.script("serves", f"setsid -f sh -c '{NOTES}' >/dev/null 2>&1; while ! test -s pids; do sleep 0.01; done")
    project.script("hangs", "touch hangs; sleep 60 & echo $! > child; wait")
    project.runbook(
        {"id": "serve", "type": "tool", "tool": "serves"}, {"id": "hang", "type": "tool", "tool": "hangs"},
        tools=["serves", "hangs"],
    )  # fmt: skip
    process = project.start()
    until((project.root / "child").exists)
    process.send_signal(signal.SIGKILL)
    finish(process)
    project.script("hangs", "true")
    child = int((project.root / "child").read_text())
    said = resumed(project, project.run().folder.name, "--allow-changed").ended(3).err
    assert "`hang` is still running" in said
    for pid in (child, *_parents(child)):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(child))
    resumed(project, project.run().folder.name, "--allow-changed").ended(0)
    assert all(map(is_alive, pids(project)))


def end_all(pid: int) -> None:
    """Kill a process with its children; it is stopped first, so that it starts no other."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    for each in (pid, *map(int, children.split())):
        os.kill(each, signal.SIGKILL)
    until(lambda: not any(map(is_alive, map(int, children.split()))))


def _parents(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return [each for each in map(int, found.split()) if each > 1]


# --- processes whose environment an ordinary user cannot read

CLOSED = """
import ctypes, os, pathlib, sys, time
if "daemon" in sys.argv and os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
elif "daemon" in sys.argv:
    time.sleep(0.3)
    os.kill(os.getppid(), 9)
    os._exit(0)
gert = os.getppid()
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
with open("pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
if "gert" in sys.argv:
    os.kill(gert, 9)
end = time.time() + 60
while time.time() < end and not os.path.exists("enough"):
    time.sleep(0.05)
"""
PYTHON = "/usr/bin/python3"
needs_users = pytest.mark.skipif(
    not os.path.exists(PYTHON) or not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can start gert as another user, with a Python that every user can run",
)


@pytest.fixture
def ann(machine: Machine) -> Iterator[User]:
    machine.project.write("closed.py", CLOSED)
    yield machine.ann
    for pid in filter(is_alive, left(machine)):
        os.kill(pid, signal.SIGKILL)


def left(machine: Machine) -> list[int]:
    file = machine.ann.home / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def killed_as_a_user(machine: Machine, script: str) -> list[str]:
    """Let a tool kill the gert that called it, and give the words of a resume."""
    machine.project.note_tool("works", before=f"{script};", outputs={}, action={"extract": {}})
    machine.project.runbook(note("work", tool="works"), tools=["works"])
    where = ["--state-dir", str(machine.state)]
    machine.ann.gert("exec", machine.project.root / "book.yaml", *where).ended(-signal.SIGKILL)
    (run,) = filter(Path.is_dir, (machine.state / "runs").iterdir())
    return ["resume", "--run", run.name, *where]


@needs_users
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("exec {python} {file} gert", id="a tool that cannot be inspected"),
        pytest.param("exec {python} {file} daemon", id="a daemon that cannot be inspected"),
        pytest.param(
            "echo $$ >> pids; kill -9 $PPID; exec ssh-agent -D -a ./agent >/dev/null 2>&1",
            marks=pytest.mark.needs("ssh-agent"),
            id="an agent",
        ),
    ],
)
def test_nothing_is_called_beside_a_tool_that_cannot_be_inspected(machine: Machine, ann: User, script: str) -> None:
    words = killed_as_a_user(machine, script.format(python=PYTHON, file=machine.project.root / "closed.py"))
    until(lambda: left(machine))
    [pid] = left(machine)
    said = ann.gert(*words).ended(3).err
    assert "`work` may still be running" in said
    assert f"process {pid} `" in said
    assert "--allow-running" in said
    assert left(machine) == [pid], "it was called again"
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    machine.project.note_tool("works", before="true;", outputs={}, action={"extract": {}})
    ann.gert(*words, "--allow-changed").ended(0)


@needs_users
def test_other_processes_that_cannot_be_inspected_do_not_hold_up_a_resume(machine: Machine, ann: User) -> None:
    """One that ran before the call, and one that a program which still runs has started meanwhile."""
    file = machine.project.root / "closed.py"
    run = [PYTHON, str(file)]
    before = subprocess.Popen(run, user=ann.uid, cwd=ann.home, start_new_session=True)
    until(lambda: len(left(machine)) == 1)
    words = killed_as_a_user(machine, "sleep 1.5; test -e killed || { touch killed; kill -9 $PPID; }")
    beside = subprocess.Popen(run, user=ann.uid, cwd=ann.home, start_new_session=True)
    until(lambda: len(left(machine)) == 2)
    try:
        ann.gert(*words).ended(0)
    finally:
        for process in (before, beside):
            process.kill()
            process.wait()
