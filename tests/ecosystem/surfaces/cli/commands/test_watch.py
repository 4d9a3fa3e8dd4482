"""`gert watch` as a process: its lines, what ends it, its signals, and that its runs know nothing of each other."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.notify.servers import closed_port, serving, status
from tests.ecosystem.surfaces.cli.terminal import INTERRUPT, Terminal
from tests.ecosystem.surfaces.cli.workbench import (
    GERT,
    PATIENCE,
    Project,
    Ran,
    call,
    environment,
    events_in,
    finish,
    is_alive,
    note,
    of_type,
    until,
)

from gert.ecosystem.host.run.watch import next_due

LINE = re.compile(r"\d\d:\d\d:\d\d  ([✓✗]) (\w+ \(.*?\)) +([0-9.hms]+)(?:  ← stopping \((.*)\))?\Z")


def ending(category: str, code: str = "done") -> dict[str, Any]:
    return {"type": "end", "outcome": {"category": category, "code": code}}


def counted(project: Project, *endings: tuple[str, str]) -> None:
    """A runbook that ends another way each time, the last one from then on."""
    # Each run adds a letter to a file, and tells how many there are.
    project.script("count", f"printf x >> {project.root}/count; wc -c < {project.root}/count",
                   extract={"n": {"from": "stdout", "pattern": "([0-9]+)"}})  # fmt: skip
    arms: list[dict[str, Any]] = [
        {"condition": f"{{{{ eq .n {number} }}}}", "steps": [ending(*each)]}
        for number, each in enumerate(endings[:-1], start=1)
    ]
    arms.append({"condition": "default", "steps": [ending(*endings[-1])]})
    branch = {"id": "b", "type": "branch", "branches": arms}
    project.runbook(call("count", "count"), branch, tools=["count"], ends=False)


def watch(project: Project, *words: str | Path, **environ: str) -> Ran:
    return project.gert("watch", "book.yaml", "--interval", "10ms", *words, **environ)


@contextmanager
def watching(
    project: Project, *words: str | Path, interval: str = "10ms", stdin: int = subprocess.DEVNULL
) -> Iterator["subprocess.Popen[bytes]"]:
    """`gert watch` under way; whatever a test expects of it, it does not outlive the test."""
    with subprocess.Popen(
        [*GERT, "watch", "book.yaml", "--interval", interval, *map(str, words)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project.root,
        env=environment(),
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def waiting(project: Project) -> Path:
    """A runbook whose tool waits for a file; and the file that tells its pid."""
    pid = project.root / "pid"
    project.note_tool("waits", before=f"echo $$ > {pid}; while ! test -e {project.root}/go; do sleep 0.02; done")
    project.runbook(note("wait", tool="waits"), note("after"), tools=["note", "waits"])
    return pid


def lines(ran: Ran) -> list[tuple[str, str, str, str | None]]:
    found = [LINE.match(line) for line in ran.out.splitlines()]
    assert all(found), ran.out
    return [match.groups() for match in found if match is not None]  # type: ignore[misc]


def said_last(process: "subprocess.Popen[bytes]") -> None:
    """Wait until it says that this run is the last."""
    assert process.stderr is not None
    assert process.stderr.readline() == b"stopping after this run; press Ctrl-C again to cancel it\n"


# --- lines


def test_the_look_of_its_lines(project: Project) -> None:
    counted(project, ("resolved", "service_healthy"), ("no_action", "fine"), ("escalated", "unknown_failure"))
    ran = watch(project, "--stop-on", "escalated,needs_rca").ended(0)
    first, second, third = ran.out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  ✓ resolved \(service_healthy\) {3}\d+ms", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d  ✓ no_action \(fine\) {13}\d+ms", second)
    pattern = r"\d\d:\d\d:\d\d  ✗ escalated \(unknown_failure\)  \d+ms  ← stopping \(--stop-on escalated\)"
    assert re.fullmatch(pattern, third)
    assert ran.err == ""


def test_a_line_of_json_for_each_run(project: Project) -> None:
    counted(project, ("resolved", "a"), ("needs_rca", "b"))
    ran = watch(project, "--stop-on", "needs_rca", "--json").ended(0)
    first, second = map(json.loads, ran.out.splitlines())
    assert (first["outcome"]["code"], first["stopping"]) == ("a", None)
    assert (second["outcome"]["code"], second["stopping"]) == ("b", "stop-on")
    assert first["run_id"] != second["run_id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["started"])
    for each, recorded in zip((first, second), project.runs(), strict=True):
        assert each["trace"] == str(recorded.trace)


def test_a_code_cannot_steer_the_terminal(project: Project) -> None:
    counted(project, ("resolved", '{{ fromJson `"\\u001b[2J\\nx"` }}'))
    ran = watch(project, "--count", "1").ended(0)
    assert "\x1b" not in ran.out
    assert len(ran.out.splitlines()) == 1


# --- what ends it


def test_it_ends_after_so_many_runs(project: Project) -> None:
    project.runbook(note("a"))
    ran = watch(project, "--count", "3").ended(0)
    assert [line[3] for line in lines(ran)] == [None] * 3
    assert project.noted() == ["a"] * 3
    assert len(project.runs()) == 3
    for run in project.runs():
        project.verifies(run)


@pytest.mark.parametrize(
    ("step", "meta", "status"),
    [
        pytest.param(call("a", "fails"), {}, "failed", id="failed"),
        pytest.param(note("a"), {"governance": {"rules": [{"default": "deny"}]}}, "failed", id="denied"),
        pytest.param(
            note("a"), {"governance": {"rules": [{"default": "require-approval"}]}}, "failed", id="no approver"
        ),
        pytest.param(call("a", "slow"), {"timeout": "100ms"}, "cancelled", id="out of time"),
        pytest.param(note("a", "{{ .nope.nope }}{{ index .x 1 }}"), {}, None, id="not valid at all"),
    ],
)
def test_a_run_that_does_not_complete_ends_it(
    project: Project, step: Any, meta: dict[str, Any], status: str | None
) -> None:
    project.script("fails", "echo no such pod >&2; exit 1")
    project.script("slow", "sleep 20")
    project.runbook(step, tools=["note", "fails", "slow"], **meta)
    # No category stands for it, and none is needed.
    ran = watch(project, "--stop-on", "resolved,escalated,no_action,needs_rca", "--count", "5")
    if status is None:
        ran.ended(1)
        assert (ran.out, project.runs()) == ("", [])
        return
    ran.ended(3)
    ((icon, text, _, why),) = lines(ran)
    assert (icon, why) == ("✗", "the run did not complete")
    assert text.startswith(f"{status} (")
    assert len(project.runs()) == 1


def test_a_contract_that_is_broken_does_not_end_it(project: Project) -> None:
    extract = {"n": {"from": "stdout", "pattern": "(.*)"}}
    project.tool("odd", ["date", "+%N"], extract=extract, contract={"deterministic": True})
    # The same step with the same inputs, twice.
    project.runbook(call("a", "odd", for_each={"over": [1, 2], "as": "x"}), tools=["odd"])
    assert len(lines(watch(project, "--count", "2").ended(0))) == 2
    for run in project.runs():
        assert of_type(run.events(), "contract_violation")


def test_an_error_in_a_later_round_ends_it_as_it_would_end_exec(project: Project) -> None:
    project.script("spoil", f"echo nonsense > {project.root}/book.yaml")
    project.runbook(call("a", "spoil"), tools=["spoil"])
    ran = watch(project)
    assert len(ran.out.splitlines()) == 1
    ran.ended(1)


def test_the_last_line_of_json_says_why_it_ended(project: Project) -> None:
    """The first run makes the runbook invalid."""
    project.script("spoil", f"echo 'steps: 1' > {project.root}/book.yaml")
    project.runbook(call("s", "spoil"), tools=["spoil"])
    ran = watch(project, "--json", "--keep-going", "--count", "5").ended(1)
    first, last = map(json.loads, ran.out.splitlines())
    assert first["status"] == "completed"
    assert last["error"]["code"] == "invalid_document"
    assert last["error"]["exit_code"] == 1


def test_a_run_that_cannot_be_recorded_ends_it(project: Project) -> None:
    project.script("spoil", f"rm {project.root}/runs/ledger.db*")
    project.runbook(call("a", "spoil"), tools=["spoil"])
    ran = watch(project)
    assert "was removed or exchanged while it was open" in ran.ended(4).err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["--interval", "0s"], "the duration must be greater than zero", id="no interval"),
        pytest.param(["--interval", "5"], "it has no unit", id="an interval without a unit"),
        pytest.param(["--interval", "-5m"], "it is negative", id="a negative interval"),
        pytest.param(["--stop-on", "failed"], "`failed` is not an outcome category", id="a category that is none"),
        pytest.param(["--stop-on", "escalated,"], "`` is not an outcome category", id="an empty category"),
        pytest.param(["--count", "0"], "count", id="no runs"),
        pytest.param(["--timeout", "soon"], "is not a duration", id="a timeout that is none"),
        pytest.param(["--as", " "], "`--as` needs a name", id="an empty name"),
        pytest.param(["--config", "nowhere.yaml"], "there is no file", id="settings that are not there"),
        pytest.param(["--var", "nope=1"], "there is no input `nope`", id="an input that is none"),
    ],
)
def test_called_wrongly_nothing_runs(project: Project, words: list[str], message: str) -> None:
    project.runbook(note("a"))
    ran = watch(project, *words).ended(2)
    assert message in ran.err
    assert project.noted() == []


def test_an_unknown_category_lists_all_categories(project: Project) -> None:
    project.runbook(note("a"))
    ran = watch(project, "--stop-on", "excalated").ended(2)
    assert "did you mean `escalated`?" in ran.err
    assert "resolved, escalated, no_action, needs_rca" in ran.err


def test_without_an_interval_it_does_not_begin(project: Project) -> None:
    project.runbook(note("a"))
    assert "--interval" in project.gert("watch", "book.yaml").ended(2).err


# --- runs on their own


def test_inputs_policies_and_the_actor_are_those_of_exec(project: Project) -> None:
    project.runbook(note("a", "{{ .word }}"), inputs={"word": {"type": "string", "required": True}})
    watch(project, "--count", "2", "--var", "word=hello", "--as", "bob@example.com").ended(0)
    assert project.noted() == ["hello", "hello"]
    assert {run.events()[0]["data"]["actor"] for run in project.runs()} == {"bob@example.com"}


def test_a_trace_for_each_run_in_a_folder(project: Project) -> None:
    project.runbook(note("a"), name="health-check", file="book.yaml")
    watch(project, "--count", "3", "--trace-dir", "kept/traces").ended(0)
    traces = sorted((project.root / "kept/traces").iterdir())
    assert len(traces) == 3
    for trace in traces:
        # In one second there may be several.
        assert re.fullmatch(r"health-check-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(-\d+)?\.jsonl", trace.name)
        assert events_in(trace)[-1]["type"] == "run_complete"
        project.gert("trace", "verify", trace).ended(0)


def test_settings_for_the_watch_alone(project: Project) -> None:
    project.runbook(note("a"))
    with serving(status(200)) as server:
        project.write("watch.yaml", {"on_outcome": {"resolved": {"webhook": server.url()}}, "traces": {"dir": "t"}})
        watch(project, "--count", "2", "--config", "watch.yaml").ended(0)
    assert len(server.requests) == 2
    assert len({request.said["run_id"] for request in server.requests}) == 2
    assert len(list((project.root / "t").iterdir())) == 2


def test_a_notice_that_does_not_arrive_is_a_warning_and_no_more(project: Project) -> None:
    project.write(".gert/config.yaml", {"webhook_hosts": ["127.0.0.1"]})
    project.runbook(note("a"), on_outcome={"resolved": {"webhook": f"http://127.0.0.1:{closed_port()}/${{HOOK}}"}})
    ran = watch(project, "--count", "1", HOOK="h00k-canary").ended(0)
    assert re.search(r"warning: webhook not delivered to http://.*/\$\{HOOK\}: the connection was refused", ran.err)
    assert "canary" not in ran.out + ran.err


def test_answers_from_a_pipe_are_for_the_questions_of_all_runs(project: Project) -> None:
    project.runbook(note("a", "{{ .word }}"), inputs={"word": {"type": "string", "required": True, "from": "prompt"}})
    ran = project.gert("watch", "book.yaml", "--interval", "10ms", "--count", "2", stdin="one\ntwo\nthree\n").ended(0)
    assert project.noted() == ["one", "two"]
    assert len(lines(ran)) == 2


def test_a_pipe_that_ends_does_not_hang_it(project: Project) -> None:
    project.runbook(note("a", "{{ .word }}"), inputs={"word": {"type": "string", "required": True, "from": "prompt"}})
    ran = project.gert("watch", "book.yaml", "--interval", "10ms", stdin="one\n")
    assert ran.code == 2
    assert project.noted() == ["one"]


# --- when


@pytest.mark.parametrize(
    ("takes", "starts"),
    [
        pytest.param([0, 0, 0], [0, 10, 20], id="runs that take no time"),
        pytest.param([3, 9, 1], [0, 10, 20], id="from start to start, however long they take"),
        pytest.param([10, 10, 10], [0, 10, 20], id="as long as the interval"),
        pytest.param([14, 0, 0], [0, 14, 24], id="a longer one is followed at once"),
        pytest.param([35, 0, 0], [0, 35, 45], id="ticks that passed are not made up for"),
        pytest.param([12, 12, 12], [0, 12, 24], id="all of them longer"),
    ],
)
def test_when_runs_begin(takes: list[float], starts: list[float]) -> None:
    due, found = 0.0, []
    for each in takes:
        found.append(due)
        due = next_due(due, 10, due + each)
    assert found == starts


# --- signals

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)


@SIGNALS
def test_between_runs_a_signal_ends_it_at_once(project: Project, number: signal.Signals) -> None:
    project.runbook(note("a"))
    with watching(project, interval="1h") as process:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        process.send_signal(number)
        ran = finish(process).ended(0)
    assert LINE.match(first.rstrip("\n"))
    assert (ran.out, ran.err) == ("", "")
    project.verifies()


def test_during_a_run_ctrl_c_makes_it_the_last(project: Project) -> None:
    pid = waiting(project)
    with watching(project) as process:
        until(lambda: pid.exists() and pid.read_text().strip())
        process.send_signal(signal.SIGINT)
        said_last(process)
        (project.root / "go").touch()
        ran = finish(process).ended(0)
    ((_, text, _, why),) = lines(ran)
    assert (text, why) == ("resolved (done)", "interrupted")
    assert project.noted() == ["wait", "after"]
    project.verifies()


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGINT, signal.SIGINT], id="a second Ctrl-C"),
        pytest.param([signal.SIGINT, signal.SIGTERM], id="SIGTERM after Ctrl-C"),
        pytest.param([signal.SIGTERM], id="SIGTERM"),
        pytest.param([signal.SIGHUP], id="SIGHUP"),
        pytest.param([signal.SIGTERM, signal.SIGHUP, signal.SIGTERM], id="SIGTERM, repeated"),
        pytest.param([signal.SIGINT] * 4, id="a third SIGINT without a terminal"),
    ],
)
def test_a_signal_cancels_the_run_and_finishes_its_record(project: Project, numbers: list[signal.Signals]) -> None:
    pid = waiting(project)
    with watching(project) as process:
        until(lambda: pid.exists() and pid.read_text().strip())
        for number in numbers:
            process.send_signal(number)
            if number == signal.SIGINT and number is numbers[0]:
                time.sleep(0.1)  # two at once are one
        ran = finish(process).ended(130)
    ((icon, text, _, why),) = lines(ran)
    assert (icon, why) == ("✗", "interrupted")
    assert text.startswith("cancelled (")
    events = project.run().events()
    assert [event["data"]["reason"] for event in of_type(events, "run_cancelled")] == ["interrupted"]
    project.verifies()
    assert not is_alive(int(pid.read_text()))


def test_a_third_ctrl_c_at_a_terminal_ends_everything(project: Project) -> None:
    pid = project.root / "pid"
    told = project.root / "told"
    # It hears that it should stop, says so, and goes on.
    project.note_tool("waits", before=f"trap 'touch {told}' TERM INT; echo $$ > {pid}; while :; do sleep 0.02; done")
    project.runbook(note("wait", tool="waits"), tools=["waits"])
    with Terminal(project, "--interval", "10ms", command=("watch", project.root / "book.yaml")) as terminal:
        until(lambda: pid.exists() and pid.read_text().strip())
        terminal.type(INTERRUPT)
        terminal.expect("stopping after this run")
        terminal.type(INTERRUPT)
        until(told.exists)
        terminal.type(INTERRUPT)
        terminal.ended(130)
    until(lambda: not is_alive(int(pid.read_text())))
    assert project.run().events()[-1]["type"] != "run_complete"


def test_while_it_asks_for_an_input_a_second_signal_ends_it(project: Project) -> None:
    project.runbook(note("a", "{{ .word }}"), inputs={"word": {"type": "string", "required": True, "from": "prompt"}})
    with watching(project, stdin=subprocess.PIPE) as process:
        assert process.stderr is not None
        while process.stderr.readline() != b"word: \n":
            pass
        process.send_signal(signal.SIGINT)
        said_last(process)
        process.send_signal(signal.SIGINT)
        # Its standard input stays open until it has ended.
        process.wait(PATIENCE)
        finish(process).ended(130)
    assert project.runs() == []


def test_it_ends_when_its_reader_is_gone(project: Project) -> None:
    project.runbook(note("a"))
    with watching(project, interval="50ms") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        until(lambda: process.poll() is not None)
    assert process.returncode == 141


def test_a_watch_keeps_going_after_runs_that_fail_and_says_so_in_the_end(project: Project) -> None:
    project.script("count", f"printf x >> {project.root}/count; [ $(wc -c < {project.root}/count) != 2 ]")
    project.runbook(call("count", "count"), tools=["count"])
    stopped = watch(project, "--count", "3").ended(3)
    assert len(stopped.out.splitlines()) == 2
    (project.root / "count").unlink()
    ran = watch(project, "--count", "3", "--keep-going").ended(3)
    assert [line[10] for line in ran.out.splitlines()] == ["✓", "✗", "✓"]
    assert "stopping" not in ran.out
    (project.root / "count").write_text("xx")
    watch(project, "--count", "2", "--keep-going").ended(0)
