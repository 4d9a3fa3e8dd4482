"""Suites within this process: which scenarios run, what becomes of each, and nothing that one does to another."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest
from tests.ecosystem.host.scenarios.test_replay import book, call

from gert.ecosystem.host.scenarios import suite, worker
from gert.ecosystem.host.scenarios.folders import Folder, find_scenarios
from gert.ecosystem.host.scenarios.suite import Covered, Group, SuiteOptions, broken, groups_of, run_groups
from gert.ecosystem.host.scenarios.worker import RunbookResult, _command, _lost

GOOD = {"a": {"stdout": "x=1"}}


def run(folder: Path, **options: Any) -> tuple[dict[str, suite.Tested], list[Covered]]:
    found = list(run_groups(groups_of(find_scenarios([str(folder)])), SuiteOptions(**options), {}))
    tests = {each.scenario: each for each in found if isinstance(each, suite.Tested)}
    return tests, [each for each in found if isinstance(each, Covered)]


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        pytest.param(None, "passed", id="no test"),
        pytest.param({"expected_code": "done"}, "passed", id="met"),
        pytest.param({"expected_code": "other"}, "failed", id="not met"),
        pytest.param({"golden": False, "expected_code": "done"}, "skipped", id="archived"),
        pytest.param({"golden": False, "expected_code": "other"}, "skipped", id="archived and not met"),
        pytest.param({"odd": 1}, "error", id="not sound"),
        pytest.param({"expected_outputs": {"x": "/(/"}}, "error", id="a pattern that is none"),
        pytest.param({"expected_outputs": {"x": {"a": "/(/"}}}, "error", id="one that is never tried"),
        pytest.param({}, "passed", id="nothing is expected"),
    ],
)
def test_what_becomes_of_a_scenario(tmp_path: Path, test: Any, verdict: str) -> None:
    book(tmp_path, call("a"), tool_responses=GOOD, test=test)
    tests, _ = run(tmp_path)
    assert tests["case"].verdict == verdict


@pytest.mark.parametrize("test", [None, {}, {"golden": True}, {"description": "d", "tags": ["t"]}], ids=str)
def test_where_nothing_is_expected_a_run_has_to_complete(tmp_path: Path, test: Any) -> None:
    book(tmp_path, call("a"), tool_responses={"a": {"exit_code": 1}}, test=test)
    tests, _ = run(tmp_path)
    assert tests["case"].verdict == "failed"
    assert "expected_status" in str(tests["case"].differences[0])


def test_a_scenario_that_cannot_run_reaches_nothing(tmp_path: Path) -> None:
    book(tmp_path, call("a"), tool_responses={"gone": {}})
    tests, covered = run(tmp_path)
    assert tests["case"].verdict == "error"
    assert covered[0].report.steps.reached == 0


def test_a_test_is_run_by_the_same_person_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book(tmp_path, call("a"), tool_responses=GOOD, test={"expected_status": "completed"})
    for user in ("ann", "bob"):
        monkeypatch.setenv("LOGNAME", user)
        monkeypatch.setenv("USER", user)
        tests, _ = run(tmp_path)
        assert tests["case"].verdict == "passed"


def test_updates_are_only_worked_out_where_they_are_wanted(tmp_path: Path) -> None:
    book(tmp_path, call("a"), tool_responses=GOOD, test={"expected_code": "other", "description": "d"})
    assert run(tmp_path)[0]["case"].updates == {}
    assert run(tmp_path, wants_updates=True)[0]["case"].updates == {"expected_code": "done"}


def test_a_scenario_that_lacks_answers_is_not_brought_up_to_date(tmp_path: Path) -> None:
    book(tmp_path, call("a"), test={"expected_code": "other"})
    assert run(tmp_path, wants_updates=True)[0]["case"].updates == {}


def test_a_policy_counts_in_tests(tmp_path: Path) -> None:
    book(tmp_path, call("a"), tool_responses=GOOD)
    deny = tmp_path / "deny.policy.yaml"
    deny.write_text("{apiVersion: policy/v0, meta: {name: no}, governance: {rules: [{default: deny}]}}")
    assert run(tmp_path, policies=(str(deny),))[0]["case"].verdict == "failed"
    gone = run(tmp_path, policies=(str(tmp_path / "gone.yaml"),))[0]["case"]
    assert (gone.verdict, "gone.yaml" in (gone.message or "")) == ("error", True)


def test_nothing_chosen_tests_nothing(tmp_path: Path) -> None:
    book(tmp_path, call("a"), tool_responses=GOOD)
    assert run(tmp_path, scenarios=("gone",)) == ({}, [])
    assert run(tmp_path, tags=("gone",))[0] == {}


def test_scenarios_are_grouped_by_runbook_in_order() -> None:
    folders = [Folder("1", "a"), Folder("2", "b"), Folder("3", "a"), Folder("4", None)]
    groups = groups_of(folders)
    assert [(group.runbook, [each.path for each in group.folders]) for group in groups] == [
        ("a", ["1", "3"]),
        ("b", ["2"]),
        (None, ["4"]),
    ]


def test_what_a_lost_worker_had_to_do_is_told() -> None:
    lost = _lost(Group("a", (Folder("x/1", "a"), Folder("x/2", "a"))))
    assert [(each.scenario, each.verdict) for each in lost.tested] == [("1", "error"), ("2", "error")]
    assert lost.covered is None
    assert broken(Folder("x", None), "m", None).runbook == ""


def work(monkeypatch: pytest.MonkeyPatch, script: str) -> list[RunbookResult]:
    """What comes of two runbooks, each in a worker that is this shell script."""
    monkeypatch.setattr(worker, "_command", lambda: ["sh", "-c", script])
    groups = [Group(name, (Folder(f"x/{name}", name),)) for name in ("a", "b")]

    async def all_of_them() -> list[RunbookResult]:
        return [book async for book in worker.run_parallel(groups, SuiteOptions(), 2)]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("read -r task; kill -9 $$", id="before a word"),
        pytest.param('read -r task; printf \'{"tested": [{"run\'; kill -9 $$', id="in the middle of a line"),
        pytest.param("exit 3", id="before it has heard what to do"),
    ],
)
def test_a_worker_that_is_killed_leaves_no_half_truths(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tested = [each for book in work(monkeypatch, script) for each in book.tested]
    assert sorted((each.scenario, each.verdict) for each in tested) == [("a", "error"), ("b", "error")]


@contextmanager
def worker_process() -> Iterator["subprocess.Popen[bytes]"]:
    """A worker that has begun, and was not told yet what to do."""
    with subprocess.Popen(_command(), stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        status = Path(f"/proc/{process.pid}/status")
        deadline = time.monotonic() + 20
        while not _ignores_interrupts(status.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield process


def told(process: "subprocess.Popen[bytes]", *groups: Group) -> None:
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(worker.Task(groups, SuiteOptions(timeout=30.0))) + b"\n")
    process.stdin.flush()


def test_a_worker_does_not_hear_the_terminal() -> None:
    """Ctrl-C reaches all processes of a terminal; one says that it was interrupted, and workers are ended by it."""
    with worker_process() as process:
        process.send_signal(signal.SIGINT)
        told(process)
        assert process.wait(30) == 0
        assert process.communicate() == (b"", b"")


def test_a_worker_ends_with_its_suite_however_that_ended(tmp_path: Path) -> None:
    """Killed, a suite can end nobody; its end of the pipe is closed all the same."""
    loop = {"max": 10000, "until": "{{ false }}"}
    inner = {"id": "i", "type": "repeat", "repeat": loop, "steps": [call("a")]}
    file = book(tmp_path, {"id": "o", "type": "repeat", "repeat": loop, "steps": [inner]}, tool_responses=GOOD)
    with worker_process() as process:
        told(process, Group(file, tuple(find_scenarios([file]))))
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        assert process.wait(20) == 1
        assert process.communicate() == (b"", b"")


def _ignores_interrupts(status: str) -> bool:
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) & 1 << (signal.SIGINT - 1))


def test_a_worker_never_looks_in_the_working_folder() -> None:
    assert "-P" in _command()
    assert "-m" not in _command()


@pytest.mark.parametrize(
    ("test", "options", "verdict"),
    [
        pytest.param({"golden": False}, {}, "skipped", id="a recording that was not promoted"),
        pytest.param({"golden": False}, {"include_archived": True}, "error", id="one that is asked for"),
        pytest.param({"golden": False}, {"scenarios": ("case",)}, "error", id="one that is named"),
        pytest.param({"golden": True}, {}, "error", id="a golden one"),
        pytest.param(None, {}, "error", id="one by hand"),
    ],
)
def test_only_a_recording_may_lie_beside_no_runbook(
    tmp_path: Path, test: Any, options: dict[str, Any], verdict: str
) -> None:
    book(tmp_path, call("a"), tool_responses=GOOD, test=test)
    [folder] = tmp_path.glob("**/case")
    (tmp_path / "recorded").mkdir()
    folder.rename(tmp_path / "recorded" / "case")
    tests, _ = run(tmp_path / "recorded", **options)
    assert tests["case"].verdict == verdict
