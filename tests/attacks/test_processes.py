"""Attempts to outlive a timeout: processes that leave the group, the session, the environment or the parent."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project, call, is_alive, note

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")

LOOP = "while :; do sleep 0.05; done"
FORKS = """
import os, time
while True:
    if os.fork() == 0:
        os.setsid()
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(60)
        os._exit(0)
    time.sleep(0.01)
"""
RENAMED = """
import ctypes, os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"kworker/0:1", 0, 0, 0)
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def nothing_is_left(project: Project) -> Iterator[None]:
    yield
    for pid in filter(is_alive, noted_pids(project)):
        os.kill(pid, signal.SIGKILL)


def noted_pids(project: Project) -> list[int]:
    file = project.root / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def timed_out(*argv: str, least: int = 1, timeout: str = "1500ms") -> Callable[[Project], str]:
    """Run a tool that notes the processes it starts, until its time is over: none of them runs on."""

    def attempt(project: Project) -> str:
        project.tool("hides", argv, action={"timeout": timeout})
        project.runbook(call("hides", "hides"), tools=["hides"])
        said = project.exec("--json").ended(3).said
        pids = noted_pids(project)
        assert len(pids) >= least
        assert [pid for pid in pids if is_alive(pid)] == []
        return str(said["failure"]["message"])

    return attempt


def shell(script: str) -> Callable[[Project], str]:
    return timed_out("sh", "-c", script)


def nested(project: Project) -> str:
    """A tool that starts gert, whose own tool leaves a daemon behind."""
    project.script("deep", f"setsid -f sh -c 'echo $$ >> pids; {LOOP}'; sleep 60")
    project.runbook(call("deep", "deep"), name="inner", tools=["deep"])
    words = json.dumps([sys.executable, "-m", "gert", "exec", "inner.yaml"])
    source = f"import subprocess, time; subprocess.Popen({words}, start_new_session=True); time.sleep(60)"
    return timed_out(sys.executable, "-c", source, timeout="8s")(project)


DAEMON = f"sh -c 'echo $$ >> pids; {LOOP}'"
SHIELDED = f"_GERT_CALL=foo setsid -f {DAEMON}; env -i setsid -f {DAEMON}; sleep 60"

ATTACKS = [
    Attack(
        what,
        why="a timeout reaches every descendant",
        attempt=attempt,
        reason="no answer within",
    )
    for what, attempt in [
        ("a grandchild in a session of its own", shell(f"setsid {DAEMON} & wait")),
        ("a daemon that was forked twice", shell(f"setsid -f {DAEMON}; sleep 60")),
        ("a daemon without any output", shell(f"(setsid -f {DAEMON}) </dev/null >/dev/null 2>&1; sleep 60")),
        ("a daemon that ignores SIGTERM", shell(f"trap '' TERM HUP INT; setsid -f {DAEMON}; sleep 60")),
        ("a child in a session of its own with an empty environment", shell(f"setsid env -i {DAEMON} & wait")),
        ("an orphan with an empty environment", shell(f"env -i setsid -f {DAEMON}; sleep 60")),
        ("an orphan of an orphan", shell(f"setsid -f setsid -f {DAEMON}; sleep 60")),
        ("a process that takes the name of a kernel thread", timed_out(sys.executable, "-c", RENAMED)),
        ("a process that starts others without end", timed_out(sys.executable, "-c", FORKS, least=5)),
        ("a daemon with a mark that no call has", shell(f"_GERT_CALL=foo setsid -f {DAEMON}; sleep 60")),
        ("a mark that no call has, and nothing else", shell(f"env -i _GERT_CALL=foo setsid -f {DAEMON}; sleep 60")),
        ("a mark with the run's id", shell(f"_GERT_CALL=${{_GERT_CALL%/*}}/0 setsid -f {DAEMON}; sleep 60")),
        ("an orphan behind one with a mark that no call has", timed_out("sh", "-c", SHIELDED, least=2)),
        ("the daemon of a tool of a gert that a tool started", nested),
    ]
]  # fmt: skip


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_no_process_outlives_its_timeout(attack: Attack, project: Project) -> None:
    attack.fails(project)


@pytest.mark.parametrize("clears", ["", "env -i "], ids=["with its mark", "with an empty environment"])
def test_a_daemon_of_a_successful_step_outlives_the_timeout_of_a_later_step(project: Project, clears: str) -> None:
    project.script("serves", f"{clears}setsid -f {DAEMON} >/dev/null 2>&1; while ! test -s pids; do sleep 0.01; done")
    project.script("hangs", "sleep 60", action={"timeout": "300ms"})
    project.runbook(call("serves", "serves"), call("hangs", "hangs"), tools=["serves", "hangs"])
    project.exec().ended(3)
    [pid] = noted_pids(project)
    assert is_alive(pid)


def test_orphans_that_have_ended_are_reaped_and_tools_keep_their_exit_codes(project: Project) -> None:
    """gert adopts what tools leave behind; as its parent it has to take the exit status, and only that one."""
    project.script("leaves", "(setsid -f true) ; exit 7")
    project.script("looks", "sleep 0.1; ps -o stat= --ppid $PPID | grep -c Z", extract={"zombies": {"from": "stdout"}})
    steps = [call(f"leave{n}", "leaves", continue_on_fail=True) for n in range(5)]
    project.runbook(
        *steps, note("between"), call("look", "looks", continue_on_fail=True), tools=["leaves", "looks", "note"]
    )
    project.exec().ended(0)
    ends = {e["data"]["step_id"]: e["data"] for e in project.run().events() if e["type"] == "step_complete"}
    assert [ends[step["id"]]["exit_code"] for step in steps] == [7] * 5
    assert ends["look"]["exit_code"] == 1, "grep found a zombie"


def test_a_program_that_uses_gert_as_a_library_adopts_nothing(project: Project) -> None:
    project.script("leaves", "setsid -f sh -c 'sleep 0.2; echo $PPID > parent' >/dev/null 2>&1")
    project.runbook(call("leave", "leaves"), tools=["leaves"])
    script = "import os, sys, time; import gert; gert.run('book.yaml'); time.sleep(0.5); print(os.getpid())"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=project.root)
    time.sleep(0.1)
    assert (project.root / "parent").read_text().strip() != ran.stdout.strip()
