"""`gert test`: what is expected is held against what happens, and whatever is wrong is said, once, and by its name."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.commands.test_replay_mode import noted, scenario
from tests.ecosystem.surfaces.cli.workbench import (
    END,
    PATIENCE,
    Project,
    Ran,
    environment,
    finish,
    note,
    snapshot,
    until,
)

from gert.ecosystem.surfaces.cli.commands.authoring.test import command

KEYS = ["passed", "failed", "errors", "skipped", "updated", "seconds", "stopped", "tests"]
TEST_KEYS = {
    "runbook",
    "scenario",
    "folder",
    "verdict",
    "seconds",
    "description",
    "status",
    "outcome",
    "differences",
    "message",
    "hint",
    "notes",
    "updates",
}


def report_of(project: Project, *words: str | Path, code: int = 0, **environ: str) -> dict[str, Any]:
    """The report of `gert test` on everything."""
    return project.gert("test", ".", "--json", *words, **environ).ended(code).said


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {each["scenario"]: each["verdict"] for each in report["tests"]}


def fork(project: Project) -> None:
    """Steps, arms, outcomes with details, a decision, and outputs of several types."""
    project.tool(
        "look",
        ["true"],
        extract={"code": {"from": "json", "path": "code"}, "all": {"from": "json", "path": "all"}},
        outputs={"code": {"type": "any"}, "all": {"type": "any"}},
    )
    project.runbook(
        {"id": "see", "type": "tool", "tool": "look"},
        {
            "id": "which",
            "type": "branch",
            "branches": [
                {
                    "condition": "{{ eq .step.see.code 200 }}",
                    "label": "good",
                    "steps": [{"type": "end", "outcome": {"category": "no_action", "code": "fine"}}],
                },
                {
                    "condition": "default",
                    "label": "bad",
                    "steps": [
                        note("mend"),
                        {
                            "type": "end",
                            "outcome": {
                                "category": "resolved",
                                "code": "mended",
                                "meta": {"code": "{{ .step.see.code }}", "who": "me"},
                            },
                        },
                    ],
                },
            ],
        },
        ends=False,
        tools=["note", "look"],
        governance={"rules": [{"default": "allow"}]},
    )


BAD = {
    "see": {"stdout": json.dumps({"code": 503, "all": {"a": ["x", 1, None], "t": "503"}})},
    "mend": {"stdout": "noted mended\n"},
}


# --- expectations


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param({"expected_status": "completed"}, id="status"),
        pytest.param({"expected_outcome": "resolved"}, id="outcome"),
        pytest.param({"expected_code": "mended"}, id="code"),
        pytest.param({"must_reach": ["see", "which", "mend"]}, id="reached"),
        pytest.param({"must_reach": ["which/bad/mend"]}, id="reached by path"),
        pytest.param({"expected_outputs": {"code": 503}}, id="a number"),
        pytest.param({"expected_outputs": {"see.code": 503}}, id="by step"),
        pytest.param({"expected_outputs": {"all": {"a": ["x", 1, None], "t": "503"}}}, id="nested"),
        pytest.param({"expected_outputs": {"see.all.a.1": 1, "all.t": "503"}}, id="a path into it"),
        pytest.param({"expected_outputs": {"code": "/^5\\d\\d$/"}}, id="a pattern for a number"),
        pytest.param({"expected_outputs": {"all": {"a": ["/x|y/", 1, None], "t": "/^503$/"}}}, id="deep patterns"),
        pytest.param({"expected_outputs": {"said": "mended"}}, id="text"),
        pytest.param({"expected_meta": {"code": 503, "who": "me"}}, id="details"),
        pytest.param({"expected_risk": {"mend": "low"}}, id="risk"),
        pytest.param({"expected_decisions": {"see": "allow", "mend": "allow"}}, id="decisions"),
        pytest.param({"expected_events": ["run_start", "step_complete mend", "run_complete"]}, id="events"),
    ],
)
def test_what_is_as_expected_passes(project: Project, expected: dict[str, Any]) -> None:
    fork(project)
    scenario(project, tool_responses=BAD, test=expected)
    assert report_of(project)["passed"] == 1


@pytest.mark.parametrize(
    ("expected", "name", "shown", "hint"),
    [
        pytest.param({"expected_status": "failed"}, "expected_status", "`completed`", "", id="status"),
        pytest.param({"expected_outcome": "no_action"}, "expected_outcome", "`resolved`", "which/bad", id="outcome"),
        pytest.param({"expected_code": "fine"}, "expected_code", "`mended`", "which/bad", id="code"),
        pytest.param({"expected_code": "MENDED"}, "expected_code", "`mended`", "", id="in other letters"),
        pytest.param({"must_not_reach": ["mend"]}, "must_not_reach", "that it was", "see → which", id="reached"),
        pytest.param({"expected_outputs": {"code": 500}}, "expected_outputs.code", "`503`", "", id="another number"),
        pytest.param({"expected_outputs": {"code": "503"}}, "expected_outputs.code", "`503`", "types", id="text"),
        pytest.param({"expected_outputs": {"all.t": 503}}, "expected_outputs.all.t", "`503`", "types", id="a number"),
        pytest.param({"expected_outputs": {"code": True}}, "expected_outputs.code", "`503`", "", id="a truth"),
        pytest.param({"expected_outputs": {"code": "/^4/"}}, "expected_outputs.code", "`503`", "", id="no match"),
        pytest.param({"expected_outputs": {"all": {}}}, "expected_outputs.all", "t", "", id="less than there is"),
        pytest.param({"expected_outputs": {"all.a": ["x", 1]}}, "expected_outputs.all.a", "x", "", id="shorter"),
        pytest.param({"expected_outputs": {"all.a": ["x", True, None]}}, "expected_outputs.all.a", "x", "", id="1"),
        pytest.param({"expected_outputs": {"cod": 503}}, "expected_outputs.cod", "no such", "`code`", id="misspelt"),
        pytest.param({"expected_outputs": {"see.a.9": 1}}, "expected_outputs.see.a.9", "no such", "", id="no path"),
        pytest.param({"expected_meta": {"code": "503"}}, "expected_meta.code", "`503`", "types", id="details"),
        pytest.param({"expected_meta": {"why": 1}}, "expected_meta.why", "nothing", "`who`", id="no such detail"),
        pytest.param({"expected_risk": {"see": "critical"}}, "expected_risk.see", "`", "", id="risk"),
        pytest.param({"expected_decisions": {"mend": "deny"}}, "expected_decisions.mend", "`allow`", "", id="verdict"),
        pytest.param(
            {"expected_events": ["run_complete", "run_start"]}, "expected_events", "none after", "", id="wrong order"
        ),
        pytest.param({"expected_events": ["step_complete gone"]}, "expected_events", "in the run", "", id="no event"),
    ],
)
def test_what_is_not_as_expected_is_named_first(
    project: Project, expected: dict[str, Any], name: str, shown: str, hint: str
) -> None:
    fork(project)
    scenario(project, tool_responses=BAD, test={"expected_status": "completed", **expected})
    (test,) = report_of(project, code=1)["tests"]
    first = test["differences"][0]
    assert (test["verdict"], first["name"]) == ("failed", name)
    assert shown in first["found"]
    assert hint in (first["hint"] or "")
    ran = project.gert("test", ".").ended(1)
    assert name in ran.out


def test_a_step_that_is_not_reached_says_the_way_that_was_taken(project: Project) -> None:
    fork(project)
    scenario(project, tool_responses={"see": {"stdout": '{"code": 200, "all": 1}'}}, test={"must_reach": ["mend"]})
    (test,) = report_of(project, code=1)["tests"]
    assert "see → which" in test["differences"][0]["hint"]


def test_without_a_test_a_run_has_to_complete(project: Project) -> None:
    fork(project)
    scenario(project, "good", tool_responses=BAD)
    scenario(project, "bad", tool_responses={"see": {"exit_code": 3, "stderr": "boom"}})
    report = report_of(project, code=1)
    assert verdicts(report) == {"bad": "failed", "good": "passed"}
    assert "boom" in report["tests"][0]["differences"][0]["hint"]
    assert "test.yaml" in report["tests"][1]["notes"][0]


def test_a_run_that_fails_as_expected_passes(project: Project) -> None:
    fork(project)
    failing = {"see": {"exit_code": 3}}
    scenario(project, tool_responses=failing, test={"expected_status": "failed", "must_not_reach": ["mend"]})
    assert report_of(project)["passed"] == 1


@pytest.mark.parametrize("depth", ["/(/", {"a": "/(/"}, [["/(/"]]], ids=["at the top", "in a map", "in lists"])
def test_a_pattern_that_is_none_is_one_tests_error_and_not_the_suites(project: Project, depth: Any) -> None:
    fork(project)
    found = {"a": "x"} if isinstance(depth, dict) else [["x"]]
    answer = {**BAD, "see": {"stdout": json.dumps({"code": 1, "all": found})}}
    scenario(project, "a", tool_responses=answer, test={"expected_outputs": {"all": depth}})
    scenario(project, "b", tool_responses=BAD)
    ran = project.gert("test", ".", "--json").ended(1)
    assert ran.err == ""
    assert verdicts(ran.said) == {"a": "error", "b": "passed"}


# --- documents


@pytest.mark.parametrize(
    ("test", "why"),
    [
        pytest.param("expected_status: [", "test.yaml:1:", id="broken YAML"),
        pytest.param({"expected_state": "completed"}, "expected_state", id="an unknown key"),
        pytest.param({"expected_status": "done"}, "done", id="no status"),
        pytest.param({"expected_outcome": "fixed"}, "fixed", id="no category"),
        pytest.param({"must_reach": ["gone"]}, "gone", id="no step"),
        pytest.param({"must_reach": "see"}, "test.yaml:", id="a word for a list"),
        pytest.param({"must_reach": ["see"], "must_not_reach": ["see"]}, "see", id="a contradiction"),
        pytest.param({"expected_decisions": {"see": "maybe"}}, "maybe", id="no verdict"),
        pytest.param({"expected_risk": {"see": "huge"}}, "huge", id="no risk"),
        pytest.param({"golden": "yes"}, "test.yaml:", id="no truth"),
        pytest.param("- a\n- b\n", "test.yaml:", id="a list"),
        pytest.param("a: 1\na: 2\n", "test.yaml:", id="twice the same key"),
        pytest.param("\x00", "test.yaml", id="no text"),
    ],
)
def test_a_test_that_is_not_sound_is_an_error_and_others_still_run(project: Project, test: Any, why: str) -> None:
    fork(project)
    scenario(project, "broken", tool_responses=BAD, test=test)
    scenario(project, "sound", tool_responses=BAD, test={"expected_code": "mended"})
    report = report_of(project, code=1)
    assert verdicts(report) == {"broken": "error", "sound": "passed"}
    assert why in report["tests"][0]["message"]
    assert (report["errors"], report["failed"], report["passed"]) == (1, 0, 1)


def test_a_scenario_for_another_runbook_says_what_is_not_there(project: Project) -> None:
    fork(project)
    scenario(project, tool_responses={"elsewhere": {"stdout": "x"}})
    assert "`elsewhere`" in report_of(project, code=1)["tests"][0]["message"]


@pytest.mark.parametrize("place", ["scenarios/gone/case", "elsewhere/case", "scenarios/book.yaml/case"])
def test_a_scenario_without_a_runbook_is_not_passed_over(project: Project, place: str) -> None:
    fork(project)
    project.write(f"{place}/scenario.yaml", {"description": "stray"})
    (test,) = report_of(project, code=1)["tests"]
    assert test["verdict"] == "error"
    assert "no runbook" in test["message"]
    ran = project.gert("test", ".").ended(1)
    assert "without a runbook" in ran.out


def test_a_runbook_that_is_not_valid_fails_each_of_its_scenarios(project: Project) -> None:
    project.write("book.yaml", "apiVersion: kernel/v0\nmeta: {name: book}\nsteps: [{type: odd}]\n")
    scenario(project, "a", description="x")
    scenario(project, "b", description="x")
    assert verdicts(report_of(project, code=1)) == {"a": "error", "b": "error"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nowhere"], "nowhere"),
        (["book.yaml"], "no scenarios"),
        (["tools"], "no scenarios"),
        ([".", "--jobs", "0"], "jobs"),
        ([".", "--timeout", "soon"], "soon"),
        ([".", "--timeout", "-1s"], "-1s"),
        (["--tap"], "--tap"),
    ],
)
def test_called_wrongly_it_says_so(project: Project, words: list[str], why: str) -> None:
    fork(project)
    if "--timeout" in words:
        scenario(project, tool_responses=BAD)
    assert why in project.gert("test", *words).ended(2).err


# --- which scenarios


def chosen(project: Project) -> None:
    fork(project)
    tests: dict[str, dict[str, Any]] = {
        "absent": {"tags": ["a"]},
        "golden": {"golden": True, "tags": ["a", "b"]},
        "archived": {"golden": False, "tags": ["b"]},
    }
    for name, test in tests.items():
        scenario(project, name, tool_responses=BAD, test={**test, "expected_code": "mended"})
    scenario(project, "bare", tool_responses=BAD)


@pytest.mark.parametrize(
    ("words", "run", "skipped"),
    [
        pytest.param([], {"absent", "golden", "bare"}, {"archived"}, id="archived ones are passed over"),
        pytest.param(["--all"], {"absent", "golden", "bare", "archived"}, set(), id="unless all are wanted"),
        pytest.param(["--scenario", "archived"], {"archived"}, set(), id="or it is named"),
        pytest.param(["--scenario", "a*"], {"absent", "archived"}, set(), id="by a pattern"),
        pytest.param(["--scenario", "b?re", "--scenario", "golden"], {"bare", "golden"}, set(), id="by several"),
        pytest.param(["--tag", "a"], {"absent", "golden"}, set(), id="by tag"),
        pytest.param(["--tag", "b"], {"golden"}, {"archived"}, id="a tag does not bring archived ones back"),
        pytest.param(["--tag", "a", "--tag", "b", "--all"], {"absent", "golden", "archived"}, set(), id="any tag"),
    ],
)
def test_which_scenarios_are_run(project: Project, words: list[str], run: set[str], skipped: set[str]) -> None:
    chosen(project)
    found = verdicts(report_of(project, *words))
    assert {name for name, verdict in found.items() if verdict == "passed"} == run
    assert {name for name, verdict in found.items() if verdict == "skipped"} == skipped


@pytest.mark.parametrize("words", [["--scenario", "gone"], ["--tag", "gone"], ["--scenario", ""], ["--scenario", "[a"]])
def test_choosing_nothing_is_a_mistake_and_no_success(project: Project, words: list[str]) -> None:
    chosen(project)
    project.gert("test", ".", *words).ended(2)


def test_a_scenario_is_tested_once_however_often_it_is_named(project: Project) -> None:
    chosen(project)
    one = "scenarios/book/golden"
    names: list[str | Path] = [
        one,
        f"./{one}/",
        f"{one}/scenario.yaml",
        f"{one}/test.yaml",
        project.root / one,
        "book.yaml",
    ]
    report = project.gert("test", *names, "--json").ended(0).said
    assert sorted(verdicts(report)) == ["absent", "archived", "bare", "golden"]
    assert len(report["tests"]) == 4


def test_the_first_failure_is_the_last_scenario_if_one_is_enough(project: Project) -> None:
    fork(project)
    for name in ("a", "b", "c"):
        scenario(project, name, tool_responses=BAD, test={"expected_code": "mended" if name == "a" else "other"})
    report = report_of(project, "--fail-fast", code=1)
    assert (verdicts(report), report["stopped"]) == ({"a": "passed", "b": "failed"}, True)
    assert "stopped at the first failure" in project.gert("test", ".", "--fail-fast").ended(1).out


# --- time


def endless(project: Project, name: str = "book") -> None:
    """A hundred million calls."""

    def around(step: str, inner: dict[str, Any]) -> dict[str, Any]:
        return {"id": step, "type": "repeat", "repeat": {"max": 10000, "until": "{{ false }}"}, "steps": [inner]}

    project.runbook(around("outer", around("inner", note("one"))), name=name)
    scenario(project, book=name, tool_responses={"one": noted("1")[0]}, test={"expected_status": "completed"})


@pytest.mark.parametrize("timeout", ["50ms", "0s"])
def test_a_scenario_that_takes_too_long_is_stopped_and_said_to_have_been(project: Project, timeout: str) -> None:
    endless(project)
    project.runbook(note("one"), name="z")
    scenario(project, book="z", tool_responses={"one": noted("1")[0]})
    report = report_of(project, "--timeout", timeout, code=1)
    first = next(each for each in report["tests"] if each["runbook"] == "book.yaml")
    assert (first["verdict"], first["status"]) == ("failed", "cancelled")
    assert "timeout" in json.dumps(first["differences"])


def test_loops_without_questions_are_stopped_too(project: Project) -> None:
    check = {"id": "c", "type": "assert", "assert": [{"type": "equals", "value": "1", "expected": "1"}]}
    loop = {"max": 10000, "until": "{{ false }}"}
    inner = {"id": "i", "type": "repeat", "repeat": loop, "steps": [check]}
    project.runbook({"id": "o", "type": "repeat", "repeat": loop, "steps": [inner]})
    scenario(project, description="no answers needed")
    (test,) = report_of(project, "--timeout", "50ms", code=1)["tests"]
    assert test["status"] == "cancelled"


@pytest.mark.parametrize("words", [[], ["--update"]], ids=["tested", "brought up to date"])
@pytest.mark.parametrize("status", ["completed", "cancelled", "none"])
def test_a_run_that_is_cut_short_is_none_to_judge_or_to_expect(project: Project, status: str, words: list[str]) -> None:
    """How fast a machine is must neither pass a test nor get into one."""
    endless(project)
    test = {"expected_status": status} if status != "none" else None
    folder = scenario(project, tool_responses={"one": noted("1")[0]}, test=test)
    if test is None:
        (folder / "test.yaml").unlink()
    before = snapshot(folder)
    (found,) = report_of(project, "--timeout", "50ms", *words, code=1)["tests"]
    assert found["verdict"] == "failed"
    assert "longer than the timeout" in found["differences"][0]["found"]
    assert snapshot(folder) == before


def test_time_that_is_over_in_the_last_steps_counts_as_well(project: Project) -> None:
    check = {"id": "c", "type": "assert", "assert": [{"type": "equals", "value": "1", "expected": "1"}]}
    loop = {"max": 10000, "until": "{{ false }}"}
    inner = {"id": "i", "type": "repeat", "repeat": loop, "steps": [check]}
    project.runbook(note("one"), after=[{"id": "o", "type": "repeat", "repeat": loop, "steps": [inner]}])
    scenario(project, tool_responses={"one": noted("1")[0]}, test={"expected_status": "completed"})
    (found,) = report_of(project, "--timeout", "50ms", code=1)["tests"]
    assert (found["verdict"], found["status"]) == ("failed", "completed")


# --- several processes


def many(project: Project, count: int = 4) -> None:
    for number in range(count):
        project.runbook(note("one"), name=f"b{number}")
        scenario(project, "good", book=f"b{number}", tool_responses={"one": noted("1")[0]})
        bad = {"expected_code": "other"}
        scenario(project, "bad", book=f"b{number}", tool_responses={"one": noted("1")[0]}, test=bad)


def comparable(report: dict[str, Any]) -> Any:
    tests = sorted(({**each, "seconds": 0} for each in report["tests"]), key=lambda each: str(each["folder"]))
    covered = sorted(report.get("coverage", []), key=lambda each: str(each["runbook"]))
    return [report[key] for key in ("passed", "failed", "errors", "skipped", "stopped")], tests, covered


@pytest.mark.parametrize("jobs", ["2", "3", "64"])
def test_several_processes_find_the_same(project: Project, jobs: str) -> None:
    many(project)
    project.write("scenarios/gone/stray/scenario.yaml", {"description": "stray"})
    alone = report_of(project, "--jobs", "1", "--coverage", code=1)
    together = report_of(project, "--jobs", jobs, "--coverage", code=1)
    assert comparable(together) == comparable(alone)


def test_one_failure_is_enough_with_several_processes_too(project: Project) -> None:
    many(project)
    report = report_of(project, "--jobs", "2", "--fail-fast", code=1)
    assert report["stopped"]
    assert report["failed"] == 1


def test_options_reach_every_process(project: Project) -> None:
    many(project)
    assert report_of(project, "--jobs", "2", "--scenario", "good")["passed"] == 4
    project.write("deny.yaml", {"apiVersion": "policy/v0", "meta": {"name": "no"}, "governance": {"rules": [DENY]}})
    report = report_of(project, "--jobs", "2", "--scenario", "good", "--policy", "deny.yaml", code=1)
    assert report["failed"] == 4


DENY = {"default": "deny"}


def test_a_process_that_dies_leaves_nothing_untold(project: Project) -> None:
    many(project, 2)
    endless(project, "slow1")
    endless(project, "slow2")
    running = subprocess.Popen(
        [sys.executable, "-m", "gert", "test", ".", "--jobs", "2", "--json", "--timeout", "20s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project.root,
        env=environment(),
    )
    workers = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    until(lambda: len(workers.read_text().split()) == 2)
    time.sleep(0.3)  # they are at work
    for worker in workers.read_text().split():
        os.kill(int(worker), signal.SIGKILL)
    report = finish(running).ended(1).said
    folders = {each["folder"]: each["verdict"] for each in report["tests"]}
    assert len(folders) == 6
    slow = {verdict for folder, verdict in folders.items() if "slow" in folder}
    assert slow == {"error"}


def test_stopping_the_suite_stops_its_processes(project: Project) -> None:
    for name in ("slow1", "slow2"):
        endless(project, name)
    running = subprocess.Popen(
        [sys.executable, "-m", "gert", "test", ".", "--jobs", "2", "--timeout", "25s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project.root,
        env=environment(),
    )
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    until(lambda: len(children.read_text().split()) == 2)
    workers = [int(each) for each in children.read_text().split()]
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    assert finish(running).code == 130
    until(lambda: not any(Path(f"/proc/{each}").exists() for each in workers))


# --- reports


def test_the_report_for_machines_always_has_the_same_keys(project: Project) -> None:
    chosen(project)
    scenario(project, "broken", tool_responses={"gone": {}})
    scenario(project, "failing", tool_responses=BAD, test={"expected_code": "other"})
    report = report_of(project, code=1)
    assert list(report) == KEYS
    assert {frozenset(each) for each in report["tests"]} == {frozenset(TEST_KEYS)}
    covered = report_of(project, "--coverage", code=1)
    assert list(covered) == [*KEYS, "coverage"]
    assert set(covered["coverage"][0]) == {"runbook", "complete", "steps", "arms", "outcomes"}
    assert set(covered["coverage"][0]["steps"]) == {"reached", "total", "missed"}


NASTY = "\x1b[2J\x07 ]]> <b>&\"' \u202e ☃"


def test_junit_is_xml_whatever_was_found(project: Project) -> None:
    chosen(project)
    scenario(project, "failing", tool_responses=BAD, test={"expected_outputs": {"said": NASTY}, "description": NASTY})
    scenario(project, "also", tool_responses={**BAD, "mend": {"exit_code": 1, "stderr": NASTY}})
    scenario(project, "broken", tool_responses={NASTY: {}})
    project.gert("test", ".", "--junit", "report.xml").ended(1)
    root = ElementTree.parse(project.root / "report.xml").getroot()
    (suite,) = root.findall("testsuite")
    cases = {case.get("name"): [each.tag for each in case] for case in suite.findall("testcase")}
    assert cases == {
        "absent": [],
        "golden": [],
        "bare": [],
        "archived": ["skipped"],
        "failing": ["failure"],
        "also": ["failure"],
        "broken": ["error"],
    }
    totals = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert totals == {"tests": "7", "failures": "2", "errors": "1", "skipped": "1"}
    failure = suite.find("testcase[@name='failing']/failure")
    assert failure is not None
    assert "]]>" in (failure.text or "")
    assert "\u202e" not in (project.root / "report.xml").read_text(encoding="utf-8")


def test_a_name_cannot_be_turned_around_in_junit(project: Project) -> None:
    chosen(project)
    scenario(project, "a\u202eb", tool_responses=BAD)
    project.gert("test", ".", "--junit", "report.xml").ended(0)
    cases = ElementTree.parse(project.root / "report.xml").getroot().findall("testsuite/testcase")
    assert "a\ufffdb" in [case.get("name") for case in cases]


@pytest.mark.parametrize("path", ["gone/report.xml", "tools"])
def test_a_junit_report_that_cannot_be_written_is_a_complaint(project: Project, path: str) -> None:
    chosen(project)
    ran = project.gert("test", ".", "--junit", path).ended(2)
    assert ran.err.count("error:") == 1
    assert "cannot write the report" in ran.err
    assert " passed" in ran.out.splitlines()[-1]
    assert project.gert("test", ".", "--json", "--junit", path).ended(2).said["tests"]


def test_nothing_that_is_shown_steers_the_terminal(project: Project) -> None:
    fork(project)
    name = "esc\x1b[31m\x07\u202e"
    scenario(project, name, tool_responses=BAD, test={"expected_outputs": {"said": NASTY}, "description": NASTY})
    scenario(project, "b", tool_responses={NASTY: {}})
    scenario(project, "c", tool_responses={**BAD, "mend": {"exit_code": 1, "stderr": NASTY}})
    for words in ([], ["-v"], ["--coverage"], ["--fail-fast"]):
        ran = project.gert("test", ".", *words).ended(1)
        assert not {"\x1b", "\x07", "\u202e"} & set(ran.out + ran.err)


@pytest.mark.parametrize("words", [[], ["--json"], ["--jobs", "2"], ["--jobs", "2", "--json"], ["--junit", "r.xml"]])
def test_a_folder_whose_name_is_no_text_is_refused_in_words(project: Project, words: list[str]) -> None:
    many(project, 2)
    odd = os.fsencode(project.root / "scenarios/b0") + b"/\xff\xfe"
    os.mkdir(odd)
    with open(odd + b"/scenario.yaml", "w") as file:
        json.dump({"tool_responses": {"one": noted("1")[0]}}, file)
    ran = project.gert("test", ".", *words).ended(2)
    assert "is not UTF-8 text" in ran.err
    assert (json.loads(ran.out)["error"]["code"] == "usage") if "--json" in words else ran.out == ""


def test_coverage_says_what_no_scenario_reaches(project: Project) -> None:
    fork(project)
    scenario(project, "bad", tool_responses=BAD)
    report = report_of(project, "--coverage")["coverage"][0]
    assert report["complete"] is False
    assert report["arms"]["missed"] == ["which: good"]
    assert len(report["outcomes"]["missed"]) == 1
    assert report["steps"]["missed"] == []
    assert "no scenario reaches arm which: good" in project.gert("test", ".", "--coverage").ended(0).out
    good = {"see": {"stdout": '{"code": 200, "all": 1}'}}
    scenario(project, "good", tool_responses=good)
    assert report_of(project, "--coverage")["coverage"][0]["complete"] is True


@pytest.mark.parametrize("kind", ["a link to nowhere", "a pipe", "a folder", "no text"])
def test_coverage_is_told_whatever_else_lies_around(project: Project, kind: str) -> None:
    fork(project)
    scenario(project, "bad", tool_responses=BAD)
    odd = project.root / "odd.yaml"
    if kind == "a link to nowhere":
        odd.symlink_to("gone")
    elif kind == "a pipe":
        os.mkfifo(odd)
    elif kind == "a folder":
        odd.mkdir()
    else:
        odd.write_bytes(b"kernel/v0 \xff\xfe")
    report = report_of(project, "--coverage", "--junit", "report.xml")
    assert [each["runbook"] for each in report["coverage"]] == ["book.yaml"]
    assert (project.root / "report.xml").exists()


def test_testing_leaves_no_trace(project: Project) -> None:
    chosen(project)
    before = snapshot(project.root)
    report_of(project, "--all", "--coverage")
    assert snapshot(project.root) == before


# --- bringing up to date


def test_an_update_makes_the_next_test_pass_and_is_irrelevant_new(project: Project) -> None:
    fork(project)
    test = {"description": "kept", "expected_code": "old", "expected_outputs": {"code": 1, "said": "/mend/"}}
    folder = scenario(project, tool_responses=BAD, test=test)
    report_of(project, code=1)
    ran = project.gert("test", ".", "--update").ended(0)
    assert "0 passed, 1 updated in" in ran.out
    report = report_of(project)
    assert report["passed"] == 1
    text = (folder / "test.yaml").read_text()
    assert "kept" in text
    assert "/mend/" in text
    assert "must_reach" not in text


def test_an_update_does_not_hide_a_missing_answer(project: Project) -> None:
    fork(project)
    folder = scenario(project, tool_responses={"see": BAD["see"]}, test={"expected_code": "mended"})
    before = snapshot(folder)
    project.gert("test", ".", "--update").ended(1)
    assert snapshot(folder) == before


def test_what_is_brought_up_to_date_is_no_failure_in_any_report(project: Project) -> None:
    fork(project)
    for name in ("a", "b"):
        scenario(project, name, tool_responses=BAD, test={"expected_code": "other"})
    report = report_of(project, "--update", "--junit", "report.xml")
    assert verdicts(report) == {"a": "updated", "b": "updated"}
    assert (report["passed"], report["failed"], report["errors"], report["updated"]) == (0, 0, 0, 2)
    root = ElementTree.parse(project.root / "report.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "0", "0")
    assert not list(root.iter("failure"))


def test_what_is_brought_up_to_date_is_marked_as_that(project: Project) -> None:
    fork(project)
    scenario(project, "a", tool_responses=BAD, test={"expected_code": "other"})
    ran = project.gert("test", ".", "--update").ended(0)
    assert "✗" not in ran.out
    assert "✓ a " in ran.out
    assert ran.out.index("✓ a ") < ran.out.index("other", ran.out.index("@@")) < ran.out.index("1 updated")


def test_an_update_is_no_failure_to_stop_at(project: Project) -> None:
    fork(project)
    for name in ("a", "b"):
        scenario(project, name, tool_responses=BAD, test={"expected_code": "other"})
    report = report_of(project, "--update", "--fail-fast")
    assert (report["stopped"], report["updated"]) == (False, 2)
    report_of(project)


def test_a_test_that_cannot_be_written_keeps_no_other_from_being_told(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fork(project)
    for name in ("a", "b", "c"):
        scenario(project, name, tool_responses=BAD, test={"expected_code": "other"})
    replace = os.replace

    def refused(source: str, target: str) -> None:
        if target.endswith("/b/test.yaml"):
            raise PermissionError(13, "Permission denied")
        replace(source, target)

    # Within this process: whoever runs the tests may be somebody to whom nothing is refused.
    monkeypatch.setattr(os, "replace", refused)
    monkeypatch.chdir(project.root)
    code = command.main([".", "--update", "--json", "--junit", "report.xml"], standalone_mode=False)
    report = json.loads(capsys.readouterr().out)
    assert (code, verdicts(report)) == (1, {"a": "updated", "b": "error", "c": "updated"})
    assert "permission denied" in next(each["message"] for each in report["tests"] if each["scenario"] == "b")
    assert len(ElementTree.parse(project.root / "report.xml").findall("*/testcase")) == 3


# --- sizes


def test_ten_thousand_steps(project: Project) -> None:
    steps = [note(f"s{number}", "x") for number in range(10_000)]
    project.runbook(*steps)
    scenario(project, tool_responses={"note": noted("1")[0]}, test={"must_reach": ["s0", "s9999"]})
    ended = big(project)
    assert ended.said["passed"] == 1
    assert ended.said["coverage"][0]["steps"]["reached"] == 10_000


def test_ten_thousand_answers(project: Project) -> None:
    loop = {"as": "i", "over": "{{ .all }}"}
    project.runbook(
        note("s", "x", for_each=loop),
        END,
        ends=False,
        inputs={"all": {"type": "list", "required": True}},
    )
    numbers = list(range(10_000))
    scenario(
        project,
        inputs={"all": numbers},
        tool_responses={"s": noted(*map(str, numbers))},
        test={"expected_status": "completed", "must_reach": ["s"], "expected_outputs": {"s[9999].said": "9999"}},
    )
    assert big(project).said["passed"] == 1


def big(project: Project) -> Ran:
    ended = subprocess.run(
        [sys.executable, "-m", "gert", "test", ".", "--json", "--coverage"],
        capture_output=True,
        cwd=project.root,
        env=environment(),
        timeout=PATIENCE * 2,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode()).ended(0)


@pytest.mark.parametrize("name", ["test.yml", "scenario.yml"])
def test_a_file_that_is_not_read_is_an_error(project: Project, name: str) -> None:
    """Otherwise a test with a wrong name passes, whatever it expects."""
    project.runbook(note("one"))
    folder = scenario(project, tool_responses={"note": {"stdout": "noted x"}}, test={"expected_status": "completed"})
    (folder / name).write_text("expected_code: bogus\n")
    for words in (["test", folder], ["test", "."], ["scenario", "list"], ["validate", "."]):
        ran = project.gert(*words).ended(1)
        assert f"{name}` is not read" in ran.out + ran.err
    (folder / "scenario.yaml").unlink()
    assert "is not read" in project.gert("test", "book.yaml").ended(1).err


def test_files_of_other_programs_may_have_any_name(project: Project) -> None:
    project.runbook(note("one"))
    scenario(project, tool_responses={"note": {"stdout": "noted x"}}, test={"expected_status": "completed"})
    project.write("ci/test.yml", "jobs: {}\n")
    project.gert("test", ".").ended(0)
    project.gert("validate", ".").ended(0)
