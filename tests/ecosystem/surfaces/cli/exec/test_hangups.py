"""Closed terminals and storms of signals: whatever comes at once, the run is stopped in order and `finally` runs."""

import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.terminal import INTERRUPT, Terminal
from tests.ecosystem.surfaces.cli.workbench import (
    GERT,
    PATIENCE,
    Project,
    environment,
    finish,
    is_alive,
    note,
    of_type,
    until,
)

ROUNDS = 3
"""How many terminals are closed at once; each closes at another moment of its run."""


def project_at(root: Path, *, steps: int = 1) -> Project:
    """A run that waits in a tool, with `finally` steps that take a moment."""
    project = Project(root)
    waits = f"echo $$ >> {root / 'pids'}; while :; do echo tick; sleep 0.02; done"
    project.note_tool("waits", before=waits)
    project.note_tool("tidies", before="sleep 0.3")
    project.runbook(
        note("first"), note("wait", tool="waits"), tools=["note", "waits", "tidies"],
        after=[note("tidy", tool="tidies"), note("swept")],
    )  # fmt: skip
    return project


def has_begun(project: Project) -> bool:
    return (project.root / "pids").exists()


def is_over(project: Project) -> bool:
    runs = project.runs()
    return bool(runs) and [e["type"] for e in runs[0].events()][-1:] == ["run_complete"]


def stopped_in_order(project: Project) -> None:
    until(lambda: is_over(project))
    assert project.noted() == ["first", "tidy", "swept"]
    events = project.run().events()
    assert events[-1]["data"]["status"] == "cancelled"
    assert [event["data"]["reason"] for event in of_type(events, "run_cancelled")] == ["interrupted"]
    assert not any(is_alive(int(pid)) for pid in (project.root / "pids").read_text().split())
    project.verifies()


class Shell:
    """An interactive shell at a terminal, which runs gert as a job; like a window with a prompt."""

    def __init__(self, project: Project, term: str, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=project.root,
            env=environment({"TERM": term, "LANG": "C.UTF-8"}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads are running here
        )
        os.close(slave)
        command = " ".join([*GERT, "exec", "book.yaml", *words])
        os.write(self.master, f"{command}\n".encode())


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"], ids=["plain lines", "live view"])
@pytest.mark.parametrize("words", [(), ("--verbose",)], ids=["quiet tools", "tools that print"])
def test_a_closed_terminal_stops_the_run_in_order(tmp_path: Path, term: str, words: tuple[str, ...]) -> None:
    """The kernel and the shell both send SIGHUP, and every write to the terminal fails."""
    projects = [project_at(tmp_path / str(number)) for number in range(ROUNDS)]
    shells = [Shell(project, term, *words) for project in projects]
    for number, (project, shell) in enumerate(zip(projects, shells, strict=True)):
        until(lambda project=project: has_begun(project))  # type: ignore[misc]
        time.sleep(0.05 * number)
        os.close(shell.master)
    for project, shell in zip(projects, shells, strict=True):
        stopped_in_order(project)
        shell.process.wait(PATIENCE)


def test_a_terminal_that_closes_on_a_question_does_not_skip_finally(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    project.runbook(
        note("first"), {"id": "ask", "type": "manual", "instructions": "look"}, note("never"),
        after=[note("tidy"), note("swept")],
    )  # fmt: skip
    terminal = Terminal(project, environ={"TERM": "xterm-256color", "LANG": "C.UTF-8"})
    terminal.expect("done?")
    os.close(terminal._master)
    until(lambda: is_over(project))
    terminal.process.wait(PATIENCE)
    assert project.noted() == ["first", "tidy", "swept"]
    assert project.run().events()[-1]["data"]["status"] != "completed"
    project.verifies()


BURSTS: list[tuple[str, list[signal.Signals]]] = [
    ("SIGTERM again and again", [signal.SIGTERM] * 20),
    ("SIGHUP again and again", [signal.SIGHUP] * 20),
    ("all three, mixed", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM] * 10),
    ("SIGINT again and again, from another program", [signal.SIGINT] * 20),
]


@pytest.mark.parametrize("burst", [pytest.param(numbers, id=what) for what, numbers in BURSTS])
def test_repeated_signals_change_nothing(tmp_path: Path, burst: list[signal.Signals]) -> None:
    project = project_at(tmp_path)
    process = project.start("--json")
    until(lambda: has_begun(project))
    for number in burst:
        if process.poll() is None:
            process.send_signal(number)
        time.sleep(0.02)
    ran = finish(process).ended(130)
    assert ran.said["status"] == "cancelled"
    stopped_in_order(project)


def test_one_ctrl_c_and_a_closed_terminal_do_not_abort(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    shell = Shell(project, "xterm-256color")
    until(lambda: has_begun(project))
    os.write(shell.master, INTERRUPT.encode())
    os.close(shell.master)
    stopped_in_order(project)
    shell.process.wait(PATIENCE)


@pytest.mark.parametrize("when", ["in the tool", "in `finally`"])
def test_a_second_ctrl_c_at_a_terminal_aborts(tmp_path: Path, when: str) -> None:
    project = project_at(tmp_path)
    project.note_tool("waits", before=f"trap '' TERM; echo $$ >> {project.root / 'pids'}; while :; do sleep 0.02; done")
    project.note_tool("tidies", before="touch tidies; sleep 60")
    with Terminal(project) as terminal:
        until(lambda: has_begun(project))
        terminal.type(INTERRUPT)
        if when == "in `finally`":
            until((project.root / "tidies").exists)
        else:
            time.sleep(0.2)
        terminal.type(INTERRUPT)
        terminal.ended(130)
    assert project.noted() == ["first"]
    assert not is_over(project)
    until(lambda: not any(is_alive(int(pid)) for pid in (project.root / "pids").read_text().split()))


def test_a_signal_that_comes_while_finally_runs_lets_it_finish(tmp_path: Path) -> None:
    """Also the first one: the run itself has ended, and what is left is what must not be skipped."""
    project = project_at(tmp_path)
    project.note_tool("tidies", before="touch tidies; sleep 0.5")
    project.runbook(note("first"), tools=["note", "tidies"], after=[note("tidy", tool="tidies"), note("swept")])
    process = project.start("--json", "--timeout", "30s")
    until((project.root / "tidies").exists)
    process.send_signal(signal.SIGTERM)
    ran = finish(process).ended(0)
    assert ran.said["status"] == "completed"
    assert project.noted() == ["first", "tidy", "swept"]
    project.verifies()


def test_the_end_of_a_runs_time_lets_finally_finish(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    project.note_tool("tidies", before="sleep 2")
    project.runbook(note("first"), tools=["note", "tidies"], after=[note("tidy", tool="tidies"), note("swept")])
    project.exec("--timeout", "1500ms").ended(0)
    assert project.noted() == ["first", "tidy", "swept"]
