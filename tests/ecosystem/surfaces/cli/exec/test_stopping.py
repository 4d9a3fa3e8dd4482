"""Stopping: Ctrl-C once and twice, time limits of runs and steps, and what is left of processes afterwards."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.terminal import INTERRUPT, Terminal
from tests.ecosystem.surfaces.cli.workbench import Project, call, completed, finish, is_alive, note, of_type, until

from gert.ecosystem.host.runs.traces import open_trace, verify_trace
from gert.kernel.foundation.signature import Keys

STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def waiting(project: Project, *, stubborn: bool = False, lanes: int = 1, **more: Any) -> None:
    """A run that waits in a tool with a child of its own, each of which notes its pid."""
    pids = project.root / "pids"
    trap = "trap '' TERM INT HUP;" if stubborn else ""
    child = f"sh -c '{trap} echo $$ >> {pids}; while :; do sleep 0.05; done' &"
    project.note_tool("waits", before=f"{trap} {child} echo $$ >> {pids}; while :; do sleep 0.05; done")
    steps = [note(f"wait{n}", tool="waits", scope=f"lane{n}") for n in range(lanes)]
    block = [{"id": "all", "type": "parallel", "branches": [{"label": s["id"], "steps": [s]} for s in steps]}]
    project.runbook(
        note("first"),
        *(steps if lanes == 1 else block),
        note("never"),
        tools=["note", "waits"],
        after=[note("tidy"), note("swept")],
        **more,
    )


def pids(project: Project, count: int) -> list[int]:
    """The processes of the tools, once so many are there."""
    file = project.root / "pids"
    until(lambda: file.exists() and file.read_text().count("\n") >= count)
    return [int(line) for line in file.read_text().split()]


def gone(processes: list[int]) -> None:
    until(lambda: not any(map(is_alive, processes)))


def check_cancelled(project: Project, reason: str = "interrupted") -> None:
    events = project.run().events()
    last = events[-1]["data"]
    assert (events[-1]["type"], last["status"], last["failure"]["kind"]) == ("run_complete", "cancelled", "cancelled")
    assert [event["data"]["reason"] for event in of_type(events, "run_cancelled")] == [reason]
    assert project.noted() == ["first", "tidy", "swept"]
    project.verifies()


# --- Ctrl-C


@pytest.mark.parametrize("number", STOPS, ids=lambda number: number.name)
def test_one_signal_stops_children_tidies_up_and_finishes_the_record(project: Project, number: signal.Signals) -> None:
    waiting(project)
    process = project.start("--json")
    children = pids(project, 2)
    process.send_signal(number)
    ran = finish(process).ended(130)
    assert not any(map(is_alive, children))
    assert ran.said["status"] == "cancelled"
    check_cancelled(project)


def test_one_signal_stops_every_lane(project: Project) -> None:
    waiting(project, lanes=3)
    process = project.start("--max-parallel", "2")
    children = pids(project, 4)
    process.send_signal(signal.SIGINT)
    finish(process).ended(130)
    gone(children)
    check_cancelled(project)
    starts = {event["data"]["step_id"] for event in of_type(project.run().events(), "step_start")}
    assert len(starts & {"wait0", "wait1", "wait2"}) == 2


def test_a_tool_that_does_not_listen_is_made_to_stop(project: Project) -> None:
    waiting(project, stubborn=True)
    process = project.start("--quiet")
    children = pids(project, 2)
    process.send_signal(signal.SIGINT)
    finish(process).ended(130)
    assert not any(map(is_alive, children))
    check_cancelled(project)


def test_a_second_ctrl_c_at_a_terminal_ends_it_at_once_and_leaves_nothing_running(project: Project) -> None:
    waiting(project, stubborn=True)
    with Terminal(project) as terminal:
        children = pids(project, 2)
        terminal.type(INTERRUPT)
        time.sleep(0.3)  # a terminal that is busy may deliver two at once, and then they are one
        terminal.type(INTERRUPT)
        terminal.ended(130)
    assert "Traceback" not in terminal.screen
    gone(children)
    # Its record may lack the end, but what is there holds.
    report, _ = verify_trace(open_trace(str(project.run().trace), None, None), Keys())
    assert report.intact
    # Nobody waited for the tool to give in, or there would have been time to tidy up.
    assert project.noted() == ["first"]


def test_a_finished_run_is_not_touched_by_a_late_signal(project: Project) -> None:
    project.runbook(note("one"), note("two"))
    process = project.start()
    until(lambda: project.noted() == ["one", "two"])
    until(lambda: project.run().events()[-1]["type"] == "run_complete")
    process.send_signal(signal.SIGINT)
    ran = finish(process)
    assert ran.code in (0, 130, -signal.SIGINT)
    project.verifies()


def test_a_cancelled_run_answers_open_retries_and_loops(project: Project) -> None:
    project.note_tool("fails", after="exit 1")
    project.runbook(
        note("loop", tool="fails", retry={"max": 1000, "backoff": "1h"}), tools=["note", "fails"], after=[note("tidy")]
    )
    process = project.start("--json")
    until(lambda: project.noted() == ["loop"])
    until(lambda: len(project.run().events()) > 4)
    process.send_signal(signal.SIGINT)
    assert finish(process).ended(130).said["status"] == "cancelled"
    assert project.noted() == ["loop", "tidy"]


# --- time


@pytest.mark.parametrize("declared", [False, True], ids=["asked for by the caller", "declared in the runbook"])
def test_a_run_has_only_so_much_time(project: Project, declared: bool) -> None:
    waiting(project, timeout="700ms" if declared else "1h")
    said = project.exec("--json", "--timeout", "1h" if declared else "700ms").ended(3).said
    assert said["status"] == "cancelled"
    assert not any(map(is_alive, pids(project, 2)))
    check_cancelled(project, "timeout")


def test_a_step_has_only_so_much_time_and_its_whole_group_ends(project: Project) -> None:
    waiting(project)
    document = (project.root / "book.yaml").read_text()
    (project.root / "book.yaml").write_text(document.replace('"id": "wait0",', '"id": "wait0", "timeout": "400ms",'))
    said = project.exec("--json").ended(3).said
    assert (said["status"], said["failure"]["kind"], said["failed_step"]) == ("error", "timeout", "wait0")
    assert not any(map(is_alive, pids(project, 2)))
    assert project.noted() == ["first", "tidy", "swept"]
    project.verifies()


def test_a_timeout_that_is_continued_goes_on(project: Project) -> None:
    project.script("slow", "exec sleep 60", action={"timeout": "100ms"})
    project.runbook(call("slow", "slow", continue_on_fail=True), note("after"), tools=["note", "slow"])
    project.exec().ended(0)
    assert project.noted() == ["after"]
    assert completed(project.run().events(), "slow")["failure"]["kind"] == "timeout"


def test_an_approval_that_is_not_answered_in_time_lapses(project: Project) -> None:
    rule = {"effects": ["files"], "action": "require-approval"}
    project.runbook(note("one"), governance={"rules": [rule, {"default": "allow"}], "approval_timeout": "200ms"})
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            project.command("book.yaml"),
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=project.root,
        )
        ran = finish(process)
    finally:
        os.close(reading)
        os.close(writing)
    assert ran.code == 3
    assert project.noted() == []


# --- output


def test_output_is_bounded(project: Project) -> None:
    project.script(
        "floods",
        "head -c 40000000 /dev/zero | tr '\\0' 'x'; echo; echo done >&2",
        extract={"last": {"from": "stderr", "pattern": "(done)"}},
    )
    project.runbook(call("floods", "floods"), tools=["floods"])
    project.exec().ended(0)
    run = project.run()
    assert completed(run.events(), "floods")["outputs"] == {"last": "done"}
    assert sum(path.stat().st_size for path in run.folder.iterdir()) < 1_000_000


def test_what_a_tool_leaves_running_does_not_hold_up_the_run(project: Project) -> None:
    pid = project.root / "pid"
    project.script("leaves", f"sleep 60 & echo $! > {pid}; echo ok", extract={"ok": {"from": "stdout"}})
    project.runbook(call("leaves", "leaves"), note("after"), tools=["note", "leaves"])
    project.exec().ended(0)
    assert project.noted() == ["after"]
    left = int(Path(pid).read_text())
    if is_alive(left):
        os.kill(left, signal.SIGKILL)
