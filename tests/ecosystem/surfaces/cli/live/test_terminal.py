"""A run on a terminal: what moves, what stays, and that the terminal is given back."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.ecosystem.surfaces.cli.live.events import event

from gert.ecosystem.surfaces.cli.live.plain import PlainView
from gert.ecosystem.surfaces.cli.live.terminal import FULL, MOST_MEANWHILE, LiveView, Screen
from gert.kernel.events import runbook as says
from gert.kernel.events.path import child
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import Failure, Outcome

WIDTH, HEIGHT = 60, 20
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m[red]x[/red]\r\n\u202e\x00障害"
NEVER = 3600.0


class Stage:
    """A live view on a terminal that only remembers; its clock stands until it is moved."""

    def __init__(self, *, period: float = NEVER, height: int = HEIGHT, verbose: bool = False) -> None:
        self.now = 1000.0
        self.out = io.StringIO()
        console = Console(file=self.out, force_terminal=True, width=WIDTH, height=height, color_system="standard")
        self.view = LiveView(console, verbose=verbose, clock=lambda: self.now, period=period)

    def say(self, payload: Payload, path: str | None = None) -> None:
        self.view.said(event(payload, path), payload)

    def begin(self) -> None:
        start = says.RunStart(runbook="pod", runbook_hash="h", actor="a", host="h", gert_version="1", mode="real")
        self.say(start)

    def start(self, path: str, kind: str = "tool", tool: str | None = None) -> None:
        self.say(says.StepStart(step_id=path.rpartition("/")[2], step_type=kind, tool=tool), path)

    def done(self, path: str, status: Any = "success", **fields: Any) -> None:
        step_id = path.rpartition("/")[2]
        self.say(says.StepComplete(step_id=step_id, status=status, duration="1s", **fields), path)

    @property
    def rows(self) -> list[str]:
        return [row.plain for row in self.view.rows()]

    @property
    def tree(self) -> list[str]:
        """What is running, with a star for the spinner that turns."""
        return [re.sub("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "*", row) for row in self.rows[:-1]]


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.view.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


class TestTheTree:
    def test_running_steps_stand_in_it_with_their_time_and_leave_when_done(self, stage: Stage) -> None:
        stage.start("a", tool="curl")
        stage.now += 2.5
        assert stage.tree == ["* a  2.5s  curl"]
        stage.done("a")
        assert stage.tree == []

    def test_lanes_are_groups(self, stage: Stage) -> None:
        stage.start("fan", "parallel")
        stage.say(says.ParallelFork(step_id="fan", branch_count=2, forked_state_hash="h"), "fan")
        for lane in ("west", "east"):
            stage.start(f"fan/{lane}/ping")
        assert stage.tree == [
            "* fan  0ms  2 lanes  parallel",
            "  west",
            "    * ping  0ms  tool",
            "  east",
            "    * ping  0ms  tool",
        ]
        stage.done("fan/west/ping")
        assert stage.tree == ["* fan  0ms  2 lanes  parallel", "  east", "    * ping  0ms  tool"]

    def test_a_loop_says_how_far_it_is(self, stage: Stage) -> None:
        stage.start("roll")
        stage.say(says.ForEachStart(step_id="roll", over="x", item_count=3, parallel=False, variable="v"), "roll")
        stage.start("roll[0]")
        stage.done("roll[0]")
        stage.start("roll[1]")
        assert stage.tree == ["* roll  0ms  1 of 3  tool", "  * roll[1]  0ms  tool"]

    @pytest.mark.parametrize(
        "loop",
        [
            pytest.param(
                says.ForEachStart(step_id="a", over="x", item_count=1, parallel=False, variable="v", explored=True),
                id="items",
            ),
            pytest.param(says.RepeatStart(step_id="a", max=2, explored=True), id="iterations"),
        ],
    )
    def test_a_loop_of_unknown_length_does_not_say_how_far_it_is(self, stage: Stage, loop: Payload) -> None:
        stage.start("a")
        stage.say(loop, "a")
        stage.say(says.RepeatIteration(step_id="a", index=0), "a[0]")
        assert stage.tree == ["* a  0ms  tool"]

    def test_totals_of_long_loops_are_readable_and_only_active_items_are_listed(self, stage: Stage) -> None:
        stage.start("roll")
        stage.say(says.ForEachStart(step_id="roll", over="x", item_count=1000, parallel=True, variable="v"), "roll")
        for n in range(5):
            stage.start(f"roll[{n}]")
            stage.done(f"roll[{n}]")
        stage.start("roll[5]")
        stage.done("roll[6]", "failed", failure=Failure("timeout", "late"))
        assert stage.tree == ["* roll  0ms  6 of 1,000  tool", "  * roll[5]  0ms  tool"]
        stage.view.close()
        written = without_escapes(stage.out.getvalue())
        assert "roll[4]" not in written
        assert "✗ roll[6]" in written

    def test_the_items_of_a_short_loop_each_keep_their_line(self, stage: Stage) -> None:
        stage.start("roll")
        stage.say(says.ForEachStart(step_id="roll", over="x", item_count=2, parallel=True, variable="v"), "roll")
        stage.start("roll[0]")
        stage.done("roll[0]")
        stage.view.close()
        assert "✓ roll[0]" in without_escapes(stage.out.getvalue())

    def test_a_running_step_shows_its_title(self, stage: Stage) -> None:
        stage.say(says.StepStart(step_id="a", step_type="tool", tool="curl", title="Is it up?\n\x1b[2J"), "a")
        assert stage.tree == ["* a  0ms  Is it up? \ufffd[2J (curl)"]

    def test_a_repeat_says_how_far_it_is(self, stage: Stage) -> None:
        stage.start("again", "repeat")
        stage.say(says.RepeatStart(step_id="again", max=5), "again")
        stage.say(says.RepeatIteration(step_id="again", index=0), "again[0]")
        assert stage.tree == ["* again  0ms  1 of 5  repeat"]

    def test_an_approval_is_waited_for_until_it_is_resolved(self, stage: Stage) -> None:
        ticket: dict[str, Any] = {"ticket_id": "T", "step_id": "rm", "method": "slack"}
        stage.say(says.ApprovalSubmitted(risk_level="high", request_hash="h", min_approvers=2, **ticket), "rm")
        stage.now += 90
        assert stage.tree == ["? rm  1m30s  waiting for 2 approvals"]
        stage.say(says.ApprovalResolved(approved=True, status="approved", **ticket), "rm")
        assert stage.tree == []

    def test_a_retry_is_counted(self, stage: Stage) -> None:
        stage.start("s")
        retry = says.StepRetry(step_id="s", attempt=2, max=3, delay="1s", failure=Failure("timeout", "late"))
        stage.say(retry, "s")
        assert stage.tree == ["* s  0ms  attempt 2 of 3  tool"]

    def test_a_step_that_ends_takes_what_was_cancelled_inside_with_it(self, stage: Stage) -> None:
        stage.start("fan", "parallel")
        stage.start("fan/a/x")
        stage.start("fan/b/y[1]/z")
        stage.done("fan", "failed")
        assert stage.tree == []

    def test_an_end_without_a_beginning_is_survived(self, stage: Stage) -> None:
        stage.done("never")
        stage.done("x[0]")
        stage.view.printed("never", "stdout", "boo")
        assert stage.tree == []

    def test_the_last_lines_of_output_stand_below_and_the_one_being_redrawn(self, stage: Stage) -> None:
        stage.start("s")
        stage.view.printed("s", "stdout", "".join(f"line {n}\n" for n in range(9)) + "10%\r20%")
        assert stage.tree[1:] == [*(f"  │ line {n}" for n in range(5, 9)), "  │ 20%"]

    def test_the_summary_counts(self, stage: Stage) -> None:
        stage.begin()
        stage.done("a")
        stage.done("b", "failed", failure=Failure("timeout", "late"))
        stage.now += 61
        assert stage.rows[-1].endswith(" pod  1m01s  2 done, 1 failed")

    def test_a_resumed_run_has_a_summary_although_its_beginning_was_said_elsewhere(self, stage: Stage) -> None:
        stage.say(says.RunResumed(actor="a", host="h", gert_version="1", answered=3))
        assert stage.rows[-1].endswith(" run-1  0ms  0 done")


class TestBounds:
    @pytest.mark.parametrize("height", [1, 5, 20, 200])
    def test_a_thousand_running_steps_fit_on_any_screen(self, height: int) -> None:
        stage = Stage(height=height)
        stage.begin()
        for n in range(1000):
            stage.start(f"fan/{n}/s")
            stage.view.printed(f"fan/{n}/s", "stdout", "a\nb\nc\n")
        assert len(stage.rows) <= max(height - 2, 3)
        assert re.search(r"… and [\d,]+ more running", stage.rows[-2])
        stage.view.close()

    def test_output_gives_way_before_steps_do(self, stage: Stage) -> None:
        for n in range(8):
            stage.start(f"s{n}")
            stage.view.printed(f"s{n}", "stdout", "a\nb\nc\n")
        assert sum("* s" in row for row in stage.tree) == 8
        assert len(stage.rows) <= HEIGHT - 2

    def test_no_row_is_wider_than_the_terminal_and_there_is_room_for_an_interrupt(self, stage: Stage) -> None:
        stage.begin()
        path = child(None, "障害" * 500)
        stage.say(says.StepStart(step_id="障害" * 500, step_type="tool", tool="t" * 500), path)
        stage.view.printed(path, "stdout", "障" * 1_000_000)
        assert len(stage.rows) == 3
        assert all(cell_len(row) <= WIDTH - 2 for row in stage.rows)

    def test_ten_thousand_steps_leave_ten_thousand_lines_and_nothing_else(self) -> None:
        stage = Stage()
        for n in range(10_000):
            stage.start(f"s{n}")
            stage.done(f"s{n}")
        assert stage.rows == [""]
        stage.view.close()
        lines = without_escapes(stage.out.getvalue()).splitlines()
        assert [line.strip() for line in lines if "✓" in line] == [f"✓ s{n}  tool  1.0s" for n in range(10_000)]

    def test_a_flood_of_output_is_written_not_forgotten(self) -> None:
        stage = Stage(verbose=True)
        stage.start("s")
        many = 15 * FULL
        stage.view.printed("s", "stdout", "".join(f"<{n}>\n" for n in range(many)))
        stage.view.close()
        assert all(f"<{n}>" in stage.out.getvalue() for n in (0, many // 2, many - 1))


class TestWhatStays:
    def test_it_reads_as_a_log_does_without_the_beginnings(self) -> None:
        plain: list[str] = []
        log = PlainView(plain.append)
        stage = Stage()
        outcome = Outcome("resolved", "up")
        said: list[tuple[Payload, str | None]] = [
            (says.StepStart(step_id="a", step_type="tool", tool="t"), "a"),
            (says.StepComplete(step_id="a", status="failed", duration="1s", failure=Failure("timeout", "late")), "a"),
            (says.StepStart(step_id="b", step_type="branch"), "b"),
            (says.BranchEnter(step_id="b", branch_label="x", condition=".y"), "b/x"),
            (says.StepComplete(step_id="b", status="success", duration="1s"), "b"),
            (says.RunComplete(status="completed", mode="real", duration="2s", outcome=outcome), None),
        ]
        for payload, path in said:
            log.said(event(payload, path), payload)
            stage.say(payload, path)
        stage.view.close()
        written = [line.rstrip() for line in without_escapes(stage.out.getvalue()).splitlines()]
        assert [line for line in written if line] == [line for line in plain if line != "▸ a  t"]

    def test_hostile_data_is_neither_obeyed_nor_read_as_markup(self) -> None:
        stage = Stage(period=0.005, verbose=True)
        stage.begin()
        path = child("fan", EVIL)
        stage.say(says.StepStart(step_id=EVIL, step_type="tool", tool=EVIL), path)
        stage.view.printed(path, "stdout", f"{EVIL}\n:smile: {EVIL}")
        until(lambda: "fan" in stage.out.getvalue())
        stage.done(path, "failed", failure=Failure("exit_code", EVIL))
        stage.view.close()
        written = stage.out.getvalue()
        assert "[red]x[/red]" in written
        assert ":smile:" in written
        assert without_escapes(written).replace("\n", "").replace("\r", "").isprintable()
        assert "\x1b[2J" not in written
        assert "\x1b]" not in written


class TestTheTerminalIsGivenBack:
    def drawn(self, **options: Any) -> Stage:
        stage = Stage(period=0.005, **options)
        stage.begin()
        stage.start("s")
        until(lambda: "0ms" in stage.out.getvalue())
        return stage

    def test_the_cursor_is_back_and_the_thread_gone_after_closing_twice(self) -> None:
        stage = self.drawn()
        stage.view.close()
        stage.view.close()
        written = stage.out.getvalue()
        assert HIDE in written
        assert written.rindex(SHOW) > written.rindex(HIDE)
        assert "gert-live-view" not in {thread.name for thread in threading.enumerate()}

    def test_closing_what_never_began_is_quiet(self) -> None:
        stage = Stage()
        stage.view.close()
        assert without_escapes(stage.out.getvalue()) == ""

    def test_what_is_said_after_closing_is_not_drawn(self) -> None:
        stage = self.drawn()
        stage.view.close()
        before = stage.out.getvalue()
        stage.done("late")
        assert stage.out.getvalue() == before

    def test_a_question_has_the_terminal_for_itself_until_the_last_is_answered(self) -> None:
        stage = self.drawn()
        stage.view.pause()
        stage.view.pause()
        before = stage.out.getvalue()
        assert before.rindex(SHOW) > before.rindex(HIDE)
        stage.done("meanwhile")
        stage.view.unpause()
        threading.Event().wait(0.03)
        assert stage.out.getvalue() == before
        stage.view.unpause()
        until(lambda: "meanwhile" in stage.out.getvalue())
        stage.view.close()

    def test_other_lanes_stay_visible_during_a_question(self) -> None:
        stage = self.drawn()
        stage.start("both/west/copy")
        stage.view.pause()
        asked = without_escapes(stage.out.getvalue())
        assert "running meanwhile:" in asked
        assert "copy" in asked[asked.index("running meanwhile:") :]
        stage.now += 2
        stage.done("both/west/copy")
        until(lambda: "✓ copy" in without_escapes(stage.out.getvalue()))
        # Inserted above the prompt: what was typed there stays, and the cursor returns to it.
        assert re.search(r"\x1bD\x1bM\x1b7\r\x1b\[L[^\n]*✓[^\n]*copy[^\n]*\x1b8\x1b\[B", stage.out.getvalue())
        stage.view.close()

    def test_few_lines_are_inserted_so_that_what_is_decided_on_stays_in_sight(self) -> None:
        stage = self.drawn()
        stage.view.pause()
        stage.now += 2
        for n in range(50):
            stage.done(f"s{n}")
        until(lambda: stage.out.getvalue().count("\x1b[L") == MOST_MEANWHILE)
        threading.Event().wait(0.05)
        assert stage.out.getvalue().count("\x1b[L") == MOST_MEANWHILE
        stage.view.unpause()
        until(lambda: "s49" in stage.out.getvalue())
        stage.view.close()

    def test_a_view_that_is_closed_during_a_question_shows_what_it_held(self) -> None:
        stage = self.drawn()
        stage.view.pause()
        stage.done("meanwhile")
        stage.view.close()
        assert "meanwhile" in stage.out.getvalue()

    @pytest.mark.parametrize("problem", [OSError(5, "input/output error"), BrokenPipeError(), ValueError("closed")])
    def test_a_terminal_that_has_gone_does_not_end_the_run(self, problem: Exception) -> None:
        class Gone(io.StringIO):
            def isatty(self) -> bool:
                return True

            def write(self, text: str) -> int:
                raise problem

        view = LiveView(Screen(Gone()), period=0.005)
        payload = says.StepComplete(step_id="s", status="success", duration="1s")
        for _ in range(3 * FULL):
            view.said(event(payload, "s"), payload)
        view.pause()
        view.unpause()
        view.close()


PROGRAM = """
import sys, time
from gert.ecosystem.surfaces.cli.live.view import make_view
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import to_data

view = make_view(stream=sys.stderr, verbose=False, quiet=False)
payload = says.StepStart(step_id="wait", step_type="tool", tool="sleep")
event = Envelope(seq=1, run_id="r", type=payload.type, timestamp="t", path="wait", prev_hash="0", data=to_data(payload))
try:
    view.said(event, payload)
    time.sleep(30)
except KeyboardInterrupt:
    pass
finally:
    view.close()
print("closed", flush=True)
"""


def on_a_terminal(program: str, **environment: str) -> bytes:
    """Run a program on a real terminal, and interrupt it once it draws."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", **environment}
    child_process = subprocess.Popen([sys.executable, "-c", program], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    written, interrupted = b"", False
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and select.select([ours], [], [], 30)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break  # its last writer is gone
        if not piece:
            break
        written += piece
        if b"sleep" in written and not interrupted:
            child_process.send_signal(signal.SIGINT)
            interrupted = True
    os.close(ours)
    assert child_process.wait(30) == 0
    return written


def test_an_interrupt_on_a_real_terminal_leaves_its_cursor_visible() -> None:
    written = on_a_terminal(PROGRAM, NO_COLOR="")
    assert HIDE.encode() in written
    assert b"\x1b[36m" in written
    assert SHOW.encode() in written[written.rindex(HIDE.encode()) :]
    assert written.endswith(b"closed\r\n")


def test_no_color_means_none() -> None:
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9][;m]", on_a_terminal(PROGRAM, NO_COLOR="1"))


def test_a_dumb_terminal_gets_no_escape() -> None:
    assert b"\x1b" not in on_a_terminal(PROGRAM, TERM="dumb")
