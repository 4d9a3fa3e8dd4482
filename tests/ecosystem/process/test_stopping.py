"""Stopping: a cancelled call ends everything it started, politely and then by force, before it goes on."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.ecosystem.process.calls import SH, call, failed, finished, run, stdio, tool_of

from gert.ecosystem.process import child, descendants
from gert.ecosystem.process.descendants import Descendants
from gert.ecosystem.process.process_table import ProcessInfo, ProcessTable
from gert.ecosystem.process.spawn import spawn
from gert.ecosystem.process.stdin import StdinPipe
from gert.ecosystem.tools.outputs import Interrupted
from gert.ecosystem.tools.stdio import Stdio
from gert.kernel.engine.requests import ToolAnswer


def is_alive(pid: int) -> bool:
    """Whether a process is there and not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_zombie_of_ours(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] == "Z" and int(fields[1]) == os.getpid()


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def pids(folder: Path) -> list[int]:
    return [int(file.read_text()) for file in sorted(folder.glob("*.pid")) if file.read_text().strip()]


def cancelled(
    script: str, folder: Path, processes: int = 1, *, transport: Stdio | None = None, **action: Any
) -> list[int]:
    """Cancel a call once it has written down this many processes; give their ids."""
    tool = tool_of({"argv": [*SH, script], **action})
    transport = transport or stdio(working=str(folder), stop_grace=2.0)

    async def story() -> None:
        task = asyncio.create_task(call(transport, tool))
        await until(lambda: len(pids(folder)) >= processes)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not transport._live

    finished(story)
    return pids(folder)


TRAP = "trap 'echo asked > asked; exit 0' TERM; echo $$ > a.pid; while :; do sleep 0.01; done"


@pytest.mark.parametrize(
    ("script", "processes"),
    [
        pytest.param("echo $$ > a.pid; exec sleep 60", 1, id="a process"),
        pytest.param("echo $$ > a.pid; sleep 60 & echo $! > b.pid; wait", 2, id="with a child"),
        pytest.param("(sleep 60 & echo $! > b.pid; wait) & echo $! > a.pid; wait", 2, id="with a grandchild"),
        pytest.param("sleep 60 >/dev/null 2>&1 & echo $! > b.pid; echo $$ > a.pid; wait", 2, id="a silent child"),
        pytest.param("exec >&- 2>&-; echo $$ > a.pid; exec sleep 60", 1, id="one that closed its output"),
    ],
)
def test_a_cancelled_call_ends_its_whole_group(tmp_path: Path, script: str, processes: int) -> None:
    for pid in cancelled(script, tmp_path, processes):
        assert not is_alive(pid)
        assert not is_zombie_of_ours(pid)


def test_a_process_is_asked_first(tmp_path: Path) -> None:
    cancelled(TRAP, tmp_path)
    assert (tmp_path / "asked").exists()


def test_a_child_that_cleans_up_gets_its_time_though_its_parent_is_gone(tmp_path: Path) -> None:
    (tmp_path / "clean.sh").write_text(
        "trap 'sleep 0.2; echo done > cleaned; exit 0' TERM; echo $$ > b.pid; while :; do sleep 0.01; done"
    )
    cancelled("sh clean.sh >/dev/null 2>&1 & echo $$ > a.pid; wait", tmp_path, 2)
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("trap '' TERM; echo $$ > a.pid; while :; do sleep 0.01; done", id="the process"),
        pytest.param("sh -c 'trap \"\" TERM; echo $$ > a.pid; while :; do sleep 0.01; done' & wait", id="its child"),
        pytest.param("echo $$ > a.pid; kill -STOP $$", id="one that is stopped"),
    ],
)
def test_who_does_not_listen_is_killed(tmp_path: Path, script: str) -> None:
    [pid] = cancelled(script, tmp_path, transport=stdio(working=str(tmp_path), stop_grace=0.1))
    assert not is_alive(pid)


def test_stdin_that_is_not_read_does_not_hold_up_a_cancelled_call(tmp_path: Path) -> None:
    [pid] = cancelled("echo $$ > a.pid; exec sleep 60", tmp_path, stdin="x" * 3_000_000)
    assert not is_alive(pid)


def test_a_second_cancellation_does_not_wait(tmp_path: Path) -> None:
    transport = stdio(working=str(tmp_path), stop_grace=60)
    tool = tool_of({"argv": [*SH, "trap 'echo x > asked' TERM; echo $$ > a.pid; while :; do sleep 0.01; done"]})

    async def story() -> None:
        task = asyncio.create_task(call(transport, tool))
        await until(lambda: pids(tmp_path))
        task.cancel()
        await until((tmp_path / "asked").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [pid] = pids(tmp_path)
        await until(lambda: not is_alive(pid))

    finished(story)


def test_a_timeout_ends_the_process(tmp_path: Path) -> None:
    transport = stdio(working=str(tmp_path))
    tool = tool_of({"argv": [*SH, "echo $$ > a.pid; exec sleep 60"]})

    async def story() -> None:
        # A cancelled call says what was printed until then.
        with pytest.raises(Interrupted):
            async with asyncio.timeout(0.3):
                await call(transport, tool)

    finished(story)
    assert [is_alive(pid) for pid in pids(tmp_path)] == [False]


def test_a_call_cancelled_before_it_started_leaves_nothing(tmp_path: Path) -> None:
    transport = stdio(working=str(tmp_path))
    tool = tool_of({"argv": [*SH, "echo $$ > a.pid; sleep 60"], "stdin": "x" * 200_000})

    async def story(turns: int) -> None:
        task = asyncio.create_task(call(transport, tool))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not transport._live

    before = len(os.listdir("/proc/self/fd"))
    for turns in range(8):
        finished(lambda turns=turns: story(turns))  # type: ignore[misc]
    assert not [pid for pid in pids(tmp_path) if is_alive(pid)]
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_left_running_is_ended_when_the_call_is_cancelled_while_listening(tmp_path: Path) -> None:
    script = "sleep 60 & echo $! > a.pid; exit 0"
    [pid] = cancelled(script, tmp_path, transport=stdio(working=str(tmp_path), quiet=30.0))
    assert not is_alive(pid)


def test_other_calls_go_on_when_one_is_cancelled(tmp_path: Path) -> None:
    transport = stdio(working=str(tmp_path))
    long = tool_of({"argv": [*SH, "echo $$ > a.pid; exec sleep 60"]})
    short = tool_of({"argv": [*SH, "while ! test -e go; do sleep 0.01; done"]})

    async def story() -> ToolAnswer:
        doomed, other = asyncio.create_task(call(transport, long)), asyncio.create_task(call(transport, short))
        await until(lambda: pids(tmp_path))
        doomed.cancel()
        await asyncio.wait([doomed])
        (tmp_path / "go").touch()
        return await other

    assert finished(story).failure is None


def test_kill_all_ends_every_group_at_once(tmp_path: Path) -> None:
    transport = stdio(working=str(tmp_path), stop_grace=60, quiet=0.05)
    stubborn = (
        "trap '' TERM; (trap '' TERM; while :; do sleep 0.01; done) & echo $! > {0}c.pid; echo $$ > {0}.pid; wait"
    )

    async def story() -> list[ToolAnswer]:
        tasks = [asyncio.create_task(call(transport, tool_of({"argv": [*SH, stubborn.format(name)]}))) for name in "ab"]
        await until(lambda: len(pids(tmp_path)) == 4)
        transport.kill_all()
        return await asyncio.gather(*tasks)

    for answer in finished(story):
        failed(answer, "exit_code", "`sh` was killed by SIGKILL")
        assert answer.exit_code == 128 + signal.SIGKILL
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, pids(tmp_path)))


def test_kill_all_reaches_a_process_that_is_just_being_started(tmp_path: Path) -> None:
    transport = stdio(working=str(tmp_path))
    tool = tool_of({"argv": ["sleep", "60"]})

    async def story(turns: int) -> ToolAnswer:
        task = asyncio.create_task(call(transport, tool))
        for _ in range(turns):
            await asyncio.sleep(0)
        transport.kill_all()
        return await task

    for turns in range(1, 8):
        failed(finished(lambda turns=turns: story(turns)), "exit_code", "killed by SIGKILL")  # type: ignore[misc]


def test_kill_all_without_calls_does_nothing() -> None:
    stdio().kill_all()


def test_a_process_is_in_a_session_of_its_own(tmp_path: Path) -> None:
    """Ctrl-C in the terminal reaches gert alone, and no tool can ask for a password there."""
    [pid] = cancelled("cut -d' ' -f5,6 /proc/$$/stat > ids; echo $$ > a.pid; sleep 60", tmp_path)
    assert (tmp_path / "ids").read_text().split() == [str(pid), str(pid)]


def test_a_status_that_other_code_took_is_not_taken_for_a_success() -> None:
    script = f"""
import asyncio, os, signal, sys
sys.path[:0] = {sys.path!r}
from tests.ecosystem.process.calls import run
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
answer = run(["sh", "-c", "exit 3"])
print(answer.failure.kind, answer.exit_code)
"""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "unknown_outcome None\n"


def test_without_descriptors_for_processes_a_thread_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    for code in (0, 3):
        answer = run(["sh", "-c", f"echo hi; exit {code}"], working=str(tmp_path))
        assert answer.exit_code == code
    [pid] = cancelled("echo $$ > a.pid; sleep 60", tmp_path)
    assert not is_alive(pid)


def test_a_process_that_cannot_be_watched_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "too many open files")

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    monkeypatch.setattr(Thread, "start", no_thread)
    before = len(os.listdir("/proc/self/fd"))
    answer = run(["sh", "-c", "sleep 0.3; touch ran"], working=str(tmp_path))
    failed(answer, "transport", "`sh` cannot be monitored: can't start new thread")
    time.sleep(0.5)
    assert not (tmp_path / "ran").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_cannot_be_given_its_input_does_not_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(StdinPipe, "write", refuse)
    answer = run(["sh", "-c", "sleep 0.3; touch ran"], action={"stdin": "x"}, working=str(tmp_path))
    assert answer.failure is not None
    assert answer.failure.kind == "transport"
    time.sleep(0.5)
    assert not (tmp_path / "ran").exists()


def test_a_process_that_cannot_be_given_its_input_is_gone_before_the_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def noted(*args: Any) -> int:
        started.append(spawn(*args))
        return started[-1]

    async def refuse(*_: object) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(child, "spawn", noted)
    monkeypatch.setattr(StdinPipe, "write", refuse)
    for _ in range(10):
        answer = run(["sleep", "60"], action={"stdin": "x"}, working=str(tmp_path))
        failed(answer, "transport", "`sleep` cannot be started: too many open files")
        assert not is_alive(started[-1])
        assert not is_zombie_of_ours(started[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")
@pytest.mark.parametrize(
    ("began", "ended", "started", "is_found"),
    [
        pytest.param(100.019, 0.0, 100.01, True, id="in the tick in which the call began"),
        pytest.param(100.019, 0.0, 100.02, True, id="later"),
        pytest.param(100.019, 0.0, 100.0, False, id="in the tick before"),
        pytest.param(100.012, 100.011, 100.01, False, id="in the tick in which another call ended, which may own it"),
        pytest.param(100.012, 100.011, 100.02, True, id="in the tick after another call ended"),
    ],
)
def test_an_orphan_without_a_mark_is_found_by_its_start_which_is_listed_in_whole_ticks(
    monkeypatch: pytest.MonkeyPatch, began: float, ended: float, started: float, is_found: bool
) -> None:
    orphan = ProcessInfo(pid=2**22 + 1, parent=os.getpid(), group=2**22 + 1, session=2**22 + 1, started=started)
    table = ProcessTable()
    table.taken_at, table.entries = float("inf"), {orphan.pid: orphan}
    monkeypatch.setattr(descendants, "is_adopted", lambda pid: pid == orphan.pid)
    monkeypatch.setattr(Descendants, "_live", set())
    monkeypatch.setattr(Descendants, "_last", table)
    monkeypatch.setattr(Descendants, "_ended", ended)
    call = Descendants(root=2**22, marks=b"run/1", began=began)
    assert call.find() == ([orphan] if is_found else [])
