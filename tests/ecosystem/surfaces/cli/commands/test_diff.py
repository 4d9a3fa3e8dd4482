"""`gert diff`: what happened before is replayed on the runbook of today, and what changed is named."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ecosystem.surfaces.cli.workbench import PATIENCE, Project, call, environment, note

ESCALATE = {"type": "end", "outcome": {"category": "escalated", "code": "unknown_failure"}}
KIM = ("--as", "kim")


def book(project: Project, condition: str, *, risk: str = "allow", ends: bool = True, **more: Any) -> None:
    """A runbook that looks at a service, and investigates or repairs."""
    project.runbook(
        call("check", "health"),
        {
            "id": "which",
            "type": "branch",
            "branches": [
                {"condition": condition, "label": "sick", "steps": [note("investigate"), ESCALATE]},
                {"condition": "default", "label": "dns", "steps": [note("dns_repair")]},
            ],
        },
        name=more.pop("name", "book"),
        tools=["health", "note"],
        governance={"rules": [{"default": risk}]},
        ends=ends,
        **more,
    )  # fmt: skip


IS_SICK = '{{ eq .state "sick" }}'
NEVER = '{{ eq .state "on fire" }}'


@pytest.fixture
def recorded(project: Project) -> Project:
    """A project with one golden scenario of a run that escalated."""
    project.tool("health", ["echo", "sick"], extract={"state": {"from": "stdout", "pattern": r"(\w+)"}})
    book(project, IS_SICK)
    project.exec(*KIM, "--record", "recorded/friday").ended(0)
    project.gert("scenario", "promote", "recorded/friday", "--name", "srv2-incident").ended(0)
    return project


def scenario(project: Project, name: str = "srv2-incident") -> Path:
    return project.root / "scenarios" / "book" / name


def answer(project: Project, **answers: Any) -> None:
    """Add answers of tools to the scenario."""
    file = scenario(project) / "scenario.yaml"
    data = yaml.safe_load(file.read_text())
    data["tool_responses"].update(answers)
    file.write_text(json.dumps(data))


# --- the story


def test_recorded_promoted_changed_and_the_difference_is_named(project: Project) -> None:
    project.tool("health", ["cat", "state"], extract={"state": {"from": "stdout", "pattern": r"(\w+)"}})
    (project.root / "state").write_text("sick")
    book(project, IS_SICK)
    # Two incidents are recorded; what was recorded is not yet compared.
    project.exec(*KIM, "--record", "scenarios/book/srv2-incident").ended(0)
    (project.root / "state").write_text("fine")
    project.exec(*KIM, "--record", "scenarios/book/srv1-incident").ended(0)
    assert "No golden scenarios" in project.gert("diff", "book.yaml").ended(0).out
    for name in ("srv1-incident", "srv2-incident"):
        project.gert("scenario", "promote", name).ended(0)
    assert "2 unchanged, 0 changed" in project.gert("diff", "book.yaml", "--exit-code").ended(0).out
    # The runbook learns to repair what it could only report.
    effects = project.noted()
    book(project, NEVER)
    answer(project, dns_repair={"stdout": "noted dns_repair"})
    assert project.gert("diff", "book.yaml").ended(0).out == (
        "\n"
        "  book\n"
        "\n"
        "  Scenario: srv1-incident\n"
        "    Before: resolved (done)\n"
        "    After:  resolved (done)     ✓ same\n"
        "\n"
        "  Scenario: srv2-incident\n"
        "    Before: escalated (unknown_failure)\n"
        "    After:  resolved (done)     ⚠ outcome changed!\n"
        "    Steps changed:\n"
        "      + dns_repair (newly reached)\n"
        "      - investigate (no longer reached)\n"
        "\n"
        "  1 unchanged, 1 changed\n"
    )
    project.gert("diff", "book.yaml", "--exit-code").ended(1)
    assert project.noted() == effects, "a comparison started a tool"
    assert len(project.runs()) == 2, "a comparison recorded a run"
    # Whoever accepts the change says so, and from then on it is no change.
    project.gert("scenario", "demote", "srv2-incident").ended(0)
    assert "1 unchanged, 0 changed" in project.gert("diff", "book.yaml").ended(0).out


# --- what counts as a change


@pytest.mark.parametrize(
    ("edit", "lines"),
    [
        pytest.param("risk", ["governance changed!", "check: allow → require-approval"], id="a decision"),
        pytest.param("output", ["outputs changed!", "check.state: `sick` → `sic`"], id="an output"),
        pytest.param("missing", ["outcome changed!", "Answers missing:", "dns_repair` or `note:go`"], id="no answer"),
        pytest.param("gone", ["- investigate (no longer reached)", "note: the runbook has no step"], id="no such step"),
        pytest.param(
            "input", ["cannot be compared!", "no value for required input `host`"], id="an input that is not given"
        ),
        pytest.param("broken", ["cannot be compared!", "scenario.yaml:1:"], id="a scenario that is no YAML"),
    ],
)
def test_every_change_is_named(recorded: Project, edit: str, lines: list[str]) -> None:
    if edit == "risk":
        book(recorded, IS_SICK, risk="require-approval")
    elif edit == "output":
        recorded.tool("health", ["echo", "sick"], extract={"state": {"from": "stdout", "pattern": r"(\w\w\w)"}})
        book(recorded, '{{ eq .state "sic" }}')
    elif edit == "missing":
        book(recorded, NEVER)
    elif edit == "gone":
        recorded.runbook(call("check", "health"), tools=["health"])
    elif edit == "input":
        book(recorded, IS_SICK, inputs={"host": {"type": "string", "required": True}})
    else:
        (scenario(recorded) / "scenario.yaml").write_text("{")
    ran = recorded.gert("diff", "book.yaml", "--exit-code").ended(1)
    for line in lines:
        assert line in ran.out, ran.out
    assert "0 unchanged, 1 changed" in ran.out
    assert ran.err == ""
    said = recorded.gert("diff", "book.yaml", "--json").ended(0).said
    assert (said["changed"], said["scenarios"][0]["same"]) == (1, False)


def test_a_tool_that_prints_to_a_terminal_prints_to_none(recorded: Project) -> None:
    answer(recorded, check={"stdout": "sick\x1b[31m", "outputs": {"state": "\x1b[2J\u202esick|<b>@team"}})
    out = recorded.gert("diff", "book.yaml").ended(0).out
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.parametrize(("approver", "status"), [("ann", "completed"), ("kim", "failed")])
def test_approvals_are_judged_for_the_person_who_ran_it_not_for_the_one_who_compares(
    recorded: Project, approver: str, status: str
) -> None:
    rules = [{"default": "require-approval"}]
    book(recorded, IS_SICK)
    text = json.loads((recorded.root / "book.yaml").read_text())
    text["meta"]["governance"] = {"rules": rules, "separation_of_duties": True}
    recorded.write("book.yaml", text)
    file = scenario(recorded) / "scenario.yaml"
    said = {"responses": [{"approver": approver, "approved": True, "timestamp": "2026-02-28T12:00:00Z"}]}
    file.write_text(json.dumps({**yaml.safe_load(file.read_text()), "approvals": {"check": said, "investigate": said}}))
    seen = [
        recorded.gert("diff", "book.yaml", "--json", USER=user, LOGNAME=user).ended(0).said for user in ("ann", "x")
    ]
    assert seen[0] == seen[1]
    assert seen[0]["scenarios"][0]["after"]["status"] == status


# --- baselines


def test_without_a_trace_the_test_is_held_against(recorded: Project) -> None:
    (scenario(recorded) / "trace.jsonl").unlink()
    out = recorded.gert("diff", "book.yaml").ended(0).out
    assert "✓ same" in out
    assert "compared with `test.yaml`" in out
    book(recorded, NEVER)
    answer(recorded, dns_repair={"stdout": "noted x"})
    out = recorded.gert("diff", "book.yaml").ended(0).out
    assert "outcome changed!" in out
    assert "- investigate (no longer reached)" in out
    assert "dns_repair" not in out, "a test does not say what was not reached"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        pytest.param(lambda lines: [*lines[:3], b"{", *lines[4:]], "line 4 of `trace.jsonl`", id="a line is no event"),
        pytest.param(lambda lines: lines[:4], "does not say how the run ended", id="an end that is missing"),
        pytest.param(lambda lines: [], "does not say how the run ended", id="nothing"),
        pytest.param(lambda lines: [b"\x00" * 100], "line 1 of `trace.jsonl`", id="no text"),
    ],
)  # fmt: skip
def test_a_broken_trace_is_said_and_the_test_takes_its_place(recorded: Project, damage: Any, why: str) -> None:
    trace = scenario(recorded) / "trace.jsonl"
    trace.write_bytes(b"".join(line + b"\n" for line in damage(trace.read_bytes().splitlines())))
    out = recorded.gert("diff", "book.yaml").ended(0).out
    assert why in out
    assert "✓ same" in out
    assert recorded.gert("diff", "book.yaml", "--json").said["scenarios"][0]["baseline"] == "test"


def test_a_test_that_was_updated_is_the_later_word(recorded: Project) -> None:
    book(recorded, NEVER)
    answer(recorded, dns_repair={"stdout": "noted x"})
    test = scenario(recorded) / "test.yaml"
    test.write_text("golden: true\nexpected_outcome: resolved\nexpected_code: done\nmust_reach: [dns_repair]\n")
    out = recorded.gert("diff", "book.yaml").ended(0).out
    assert "✓ same" in out
    assert "its test no longer expects what its trace recorded" in out


def test_without_anything_it_has_to_complete(recorded: Project) -> None:
    (scenario(recorded) / "trace.jsonl").unlink()
    (scenario(recorded) / "test.yaml").unlink()
    out = recorded.gert("diff", "book.yaml").ended(0).out
    assert "Before: completed" in out
    assert "✓ same" in out
    assert "only seen to complete" in out


def test_scenarios_can_be_chosen(recorded: Project) -> None:
    shutil.copytree(scenario(recorded), scenario(recorded, "other"))
    recorded.gert("scenario", "demote", "other").ended(0)

    def names(*words: str) -> list[str]:
        said = recorded.gert("diff", "book.yaml", "--json", *words).ended(0).said
        return [each["scenario"] for each in said["scenarios"]]

    assert names() == ["srv2-incident"]
    assert names("--all") == ["other", "srv2-incident"]
    assert names("--scenario", "other") == ["other"]
    assert names("--scenario", "recorded/friday") == ["friday"]
    # An archived one that no longer loads is nobody's business.
    (scenario(recorded, "other") / "scenario.yaml").write_text("inputs: {nobody: 1}\n")
    assert names() == ["srv2-incident"]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        pytest.param(["book.yaml", "--scenario", "srv1-incident"], 2, "did you mean `srv2-incident`", id="no scenario"),
        pytest.param(["nobody.yaml"], 2, "there is no file", id="a runbook that is not there"),
        pytest.param(["tools/note.tool.yaml"], 1, "tool/v0", id="no runbook"),
        pytest.param(["book.yaml", "--json", "--markdown"], 2, "found both", id="two formats"),
        pytest.param(["book.yaml", "--against", "main"], 2, "not in a readable git repository", id="no repository"),
        pytest.param([], 2, "RUNBOOK", id="nothing named"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told(recorded: Project, words: list[str], code: int, why: str) -> None:
    ran = recorded.gert("diff", *words, GIT_CEILING_DIRECTORIES=str(recorded.root.parent)).ended(code)
    assert why in ran.err
    assert "Traceback" not in ran.err


# --- for machines and pull requests


def test_json_says_everything(recorded: Project) -> None:
    book(recorded, NEVER)
    answer(recorded, dns_repair={"stdout": "noted x"})
    assert recorded.gert("diff", "book.yaml", "--json").ended(0).said == {
        "runbook": "book",
        "file": "book.yaml",
        "against": None,
        "commit": None,
        "scenarios": [
            {
                "scenario": "srv2-incident",
                "folder": "scenarios/book/srv2-incident",
                "same": False,
                "baseline": "trace",
                "before": {"status": "completed", "category": "escalated", "code": "unknown_failure"},
                "after": {"status": "completed", "category": "resolved", "code": "done"},
                "changes": {"outcome_changed": True, "reached": ["dns_repair"], "unreached": ["investigate"]},
                "missing": [],
                "problem": None,
                "notes": [],
            }
        ],
        "unchanged": 0,
        "changed": 1,
    }


def test_markdown_is_a_line_a_table_and_what_is_folded_away(recorded: Project) -> None:
    shutil.copytree(scenario(recorded), scenario(recorded, "a-same"))
    answer(recorded, check={"stdout": "fine"}, dns_repair={"stdout": "noted x"})
    out = recorded.gert("diff", "book.yaml", "--markdown").ended(0).out
    assert out.splitlines()[:6] == [
        "**<code>book</code>**: 1 unchanged, 1 changed",
        "",
        "| Scenario | Before | After | |",
        "| --- | --- | --- | --- |",
        "| <code>a-same</code> | <code>escalated (unknown&#95;failure)</code> |"
        " <code>escalated (unknown&#95;failure)</code> | ✓ same |",
        "| <code>srv2-incident</code> | <code>escalated (unknown&#95;failure)</code> | <code>resolved (done)</code> |"
        " ⚠ outcome changed! |",
    ]
    assert out.count("<details>") == out.count("</details>") == 1
    assert "- <code>- investigate (no longer reached)</code>" in out


EVIL = "x|y</code></details><img src=x> @team #1 [a](http://evil) `b` **c** https://evil.example \\| ![d](e)\n\n# h"


def test_nothing_in_the_data_is_taken_for_markdown(recorded: Project) -> None:
    answer(recorded, check={"stdout": "sick", "outputs": {"state": EVIL}}, dns_repair={"stdout": "noted x"})
    out = recorded.gert("diff", "book.yaml", "--markdown").ended(0).out
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {5}
    assert out.count("<details>") == out.count("</details>") == 1
    for word in ("<img", "@team", " #1", "](", "`", "https:", "![", "\n# h"):
        assert word not in out, word
    assert "&#64;team" in out


# --- another revision


def git(folder: Path, *words: str) -> str:
    who = {f"GIT_{role}_{what}": "kim@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    config = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-C", folder, *words],
        env=environment({**who, **config}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout.strip()


def commit(project: Project, *words: str) -> str:
    if not (project.root / ".git").exists():
        git(project.root, "init", "-q", "-b", "main")
    git(project.root, "add", "-A")
    git(project.root, "commit", "-q", "-m", "as it is", *words)
    return git(project.root, "rev-parse", "HEAD")


def test_two_revisions_of_a_runbook_are_compared_on_the_scenarios_of_today(recorded: Project) -> None:
    first = commit(recorded)
    book(recorded, NEVER)
    answer(recorded, dns_repair={"stdout": "noted x"})
    (scenario(recorded) / "trace.jsonl").unlink()
    said = recorded.gert("diff", "book.yaml", "--against", "HEAD", "--json", "--exit-code").ended(1).said
    assert (said["against"], said["commit"]) == ("HEAD", first)
    assert said["scenarios"][0]["baseline"] == "revision"
    assert said["scenarios"][0]["changes"] == {
        "outcome_changed": True,
        "reached": ["dns_repair"],
        "unreached": ["investigate"],
    }
    assert "book (against HEAD)" in recorded.gert("diff", "book.yaml", "--against", "HEAD").out
    commit(recorded)
    assert "1 unchanged" in recorded.gert("diff", "book.yaml", "--against", "main").ended(0).out
    assert "0 unchanged" in recorded.gert("diff", "book.yaml", "--against", "HEAD~1").ended(0).out


@pytest.mark.parametrize("what", ["tool", "policy", "project"])
def test_tools_policies_and_the_project_are_those_of_the_revision(recorded: Project, what: str) -> None:
    policy = {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": {"rules": [{"default": "allow"}]}}
    recorded.write("policies/floor.policy.yaml", policy)
    recorded.write("gert-project.yaml", {"name": "bench", "policies": ["policies"]})
    commit(recorded)
    if what == "tool":
        recorded.tool("health", ["echo", "sick"], extract={"state": {"from": "stdout", "pattern": "(s)"}})
        expected = "check.state: `sick` → `s`"
    elif what == "policy":
        policy["governance"] = {"rules": [{"default": "deny"}]}
        recorded.write("policies/floor.policy.yaml", policy)
        expected = "check: allow → deny"
    else:
        recorded.write("strict/deny.policy.yaml", {**policy, "governance": {"rules": [{"default": "deny"}]}})
        recorded.write("gert-project.yaml", {"name": "bench", "policies": ["policies", "strict"]})
        expected = "check: allow → deny"
    assert expected in recorded.gert("diff", "book.yaml", "--against", "HEAD").ended(0).out


def test_nothing_is_left_behind_and_nothing_is_written(recorded: Project, tmp_path: Path) -> None:
    commit(recorded)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    before = git(recorded.root, "status", "--porcelain")
    recorded.gert("diff", "book.yaml", "--against", "HEAD", TMPDIR=str(temporary)).ended(0)
    recorded.gert("diff", "book.yaml", "--against", "nobody", TMPDIR=str(temporary)).ended(2)
    assert list(temporary.iterdir()) == []
    assert git(recorded.root, "status", "--porcelain") == before


@pytest.mark.parametrize(
    ("revision", "why"),
    [
        pytest.param("nobody", "there is no revision `nobody`", id="an unknown name"),
        pytest.param("--output=x", "is not a revision", id="an option"),
        pytest.param("-x", "is not a revision", id="a short option"),
        pytest.param("", "is not a revision", id="nothing"),
        pytest.param("HEAD:book.yaml", "there is no revision", id="a file"),
        pytest.param("HEAD..HEAD", "there is no revision", id="a range"),
        pytest.param("$(touch x)", "there is no revision", id="a command"),
        pytest.param("HEAD~1", "there is no revision", id="before the first"),
        pytest.param("HEAD\nHEAD", "is not a revision", id="two lines"),
    ],
)
def test_what_is_no_revision_is_refused(recorded: Project, revision: str, why: str) -> None:
    commit(recorded)
    ran = recorded.gert("diff", "book.yaml", f"--against={revision}").ended(2)
    assert why in ran.err
    assert not (recorded.root / "x").exists()


def test_a_revision_without_the_runbook_or_with_a_broken_one_is_told(recorded: Project) -> None:
    good = (recorded.root / "book.yaml").read_text()
    (recorded.root / "book.yaml").unlink()
    commit(recorded)
    (recorded.root / "book.yaml").write_text("{")
    commit(recorded)
    (recorded.root / "book.yaml").write_text(good)
    assert (
        "there is no `book.yaml` at `HEAD~1`" in recorded.gert("diff", "book.yaml", "--against", "HEAD~1").ended(2).err
    )
    broken = recorded.gert("diff", "book.yaml", "--against", "HEAD").ended(2)
    assert "cannot be run as it was at `HEAD`: book.yaml:1:" in broken.err


def test_a_scenario_for_steps_the_revision_does_not_have(recorded: Project) -> None:
    recorded.runbook(call("check", "health"), tools=["health"])
    commit(recorded)
    book(recorded, IS_SICK)
    out = recorded.gert("diff", "book.yaml", "--against", "HEAD").ended(0).out
    assert "Before: resolved (done)" in out
    assert "+ investigate (newly reached)" in out


def test_git_that_is_not_there_is_told(recorded: Project) -> None:
    commit(recorded)
    ran = recorded.gert("diff", "book.yaml", "--against", "HEAD", PATH="/nonexistent").ended(2)
    assert "git is not installed" in ran.err
