"""`gert policy` and `GERT_POLICY`, as people use them: real processes on real files."""

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, completed, note, of_type

NO: dict[str, Any] = {"rules": [{"name": "never", "effects": ["files"], "action": "deny"}, {"default": "allow"}]}
ASK: dict[str, Any] = {
    "rules": [
        {"name": "no data", "effects": ["database"], "action": "deny", "break_glass": True},
        {"name": "ask", "writes": ["pods"], "action": "require-approval", "approvers": ["alice", "bob"]},
        {"default": "allow"},
    ]
}
PODS = {"effects": ["kubernetes"], "writes": ["pods"]}


def policy(project: Project, governance: dict[str, Any], name: str = "floor") -> Path:
    document = {"apiVersion": "policy/v0", "meta": {"name": name}, "governance": governance}
    return project.write(f"{name}.policy.yaml", document)


def cases(project: Project, *found: dict[str, Any], file: str = "floor.policy-test.yaml", **more: Any) -> Path:
    document = {"apiVersion": "policy-test/v0", "policies": ["floor.policy.yaml"], "cases": list(found), **more}
    return project.write(file, document)


GOOD = {"name": "pods need approval", "contract": PODS, "expect": {"decision": "require-approval", "rule": "ask"}}
BAD = {"name": "pods are free", "contract": PODS, "expect": {"decision": "allow", "rule": "no data"}}


# --- GERT_POLICY


def test_the_floor_of_the_environment_holds_in_a_run_and_is_recorded(project: Project) -> None:
    project.runbook(note("one"))
    project.exec(GERT_POLICY=str(policy(project, NO))).ended(3)
    assert project.noted() == []
    events = project.run().events()
    assert completed(events, "one")["reason"] == "governance_denied"
    assert list(of_type(events, "run_start")[0]["data"]["policy_hashes"]) == ["floor"]


@pytest.mark.parametrize("words", [("--policy", "kind.policy.yaml"), ("--config", "kind.yaml"), ()])
def test_no_flag_no_setting_and_no_runbook_loosens_it(project: Project, words: tuple[str, ...]) -> None:
    project.runbook(note("one"), governance={"rules": [{"default": "allow"}]})
    policy(project, {"rules": [{"default": "allow"}]}, "kind")
    project.write("kind.yaml", {"policies": ["kind.policy.yaml"]})
    policy(project, NO)
    project.exec(*words, GERT_POLICY="floor.policy.yaml").ended(3)
    assert project.noted() == []


def test_it_holds_in_explain_dry_run_probe_test_and_diff(project: Project) -> None:
    project.runbook(note("one"))
    floor = str(policy(project, NO))
    (step,) = project.gert("explain", "book.yaml", "--json", GERT_POLICY=floor).ended(0).said["steps"]
    assert step["decision"] == "deny"
    for mode in ("dry-run", "probe"):
        said = project.exec("--mode", mode, "--json", GERT_POLICY=floor)
        assert "governance_denied" in said.out or "denied" in said.out, said
    folder = "scenarios/book/plain"
    project.write(f"{folder}/scenario.yaml", {"tool_responses": {"one": {"stdout": "noted one"}}})
    project.write(f"{folder}/test.yaml", {"expected_status": "completed"})
    project.gert("test", "book.yaml").ended(0)
    project.gert("test", "book.yaml", GERT_POLICY=floor).ended(1)
    assert "1 unchanged" in project.gert("diff", "book.yaml").ended(0).out
    assert "is denied by floor rule 1" in project.gert("diff", "book.yaml", GERT_POLICY=floor).out


def test_it_holds_in_every_process_of_a_suite(project: Project) -> None:
    for name in ("one", "two"):
        project.runbook(note("x"), name=name)
        project.write(f"scenarios/{name}/plain/scenario.yaml", {"tool_responses": {"x": {"stdout": "noted x"}}})
    words = ("test", ".", "--jobs", "2", "--json")
    assert project.gert(*words).ended(0).said["passed"] == 2
    policy(project, NO)
    assert project.gert(*words, GERT_POLICY="floor.policy.yaml").ended(1).said["failed"] == 2


@pytest.mark.parametrize("command", [("exec", "book.yaml"), ("explain", "book.yaml"), ("diff", "book.yaml")])
@pytest.mark.parametrize("value", ["", "gone.yaml", f"floor.policy.yaml{os.pathsep}"], ids=["empty", "gone", "half"])
def test_a_floor_that_is_missing_is_called_wrongly(project: Project, command: tuple[str, ...], value: str) -> None:
    project.runbook(note("one"))
    project.write("scenarios/book/plain/scenario.yaml", {"tool_responses": {"one": {"stdout": "noted one"}}})
    policy(project, ASK)
    assert "GERT_POLICY" in project.gert(*command, GERT_POLICY=value).ended(2).err
    assert project.noted() == []


def test_tools_do_not_see_it(project: Project) -> None:
    project.script("look", f'printf "%s" "$GERT_POLICY" > {project.root}/seen')
    project.runbook({"id": "look", "type": "tool", "tool": "look"}, tools=["look"])
    project.exec(GERT_POLICY=str(policy(project, ASK))).ended(0)
    assert (project.root / "seen").read_text() == ""


# --- gert policy test


def test_a_test_that_passes(project: Project) -> None:
    policy(project, ASK)
    cases(project, GOOD)
    ran = project.gert("policy", "test").ended(0)
    assert "✓ pods need approval" in ran.out
    assert "1 passed in" in ran.out


def test_a_test_that_fails_shows_the_first_difference_and_the_rule_that_decided(project: Project) -> None:
    policy(project, ASK)
    cases(project, GOOD, BAD)
    ran = project.gert("policy", "test", "floor.policy-test.yaml").ended(1)
    assert "✗ pods are free" in ran.out
    assert "decision: expected `allow`, found `require-approval`" in ran.out
    assert "hint: decided by floor rule 2 `ask` (writes: [pods])" in ran.out
    assert "and 1 difference more" in ran.out
    assert "1 passed, 1 failed" in ran.out
    everything = project.gert("policy", "test", "-v").ended(1).out
    assert "floor rule 1 `no data` (effects: [database]) does not match" in everything


def test_the_report_for_machines(project: Project) -> None:
    policy(project, ASK)
    cases(project, GOOD, BAD, {"name": "broken", "tool": "gone.tool.yaml"})
    said = project.gert("policy", "test", "--json", "--coverage").ended(1).said
    assert (said["passed"], said["failed"], said["errors"]) == (1, 1, 1)
    assert not said.keys() & {"skipped", "updated"}
    good, bad, broken = said["tests"]
    assert good["case"] == "pods need approval"
    assert good["found"]["rules"] == ["floor rule 2 `ask` (writes: [pods])"]
    assert [each["name"] for each in bad["differences"]] == ["decision", "rule"]
    assert "found" not in broken
    assert all(each["line"] > 1 and each["file"] == "floor.policy-test.yaml" for each in said["tests"])
    (covered,) = said["coverage"]
    assert covered["complete"] is False
    assert covered["rules"] == {
        "reached": 1,
        "total": 3,
        "missed": ["1 `no data` (effects: [database])", "3 (default)"],
    }


def test_coverage_names_the_rules_no_case_reaches(project: Project) -> None:
    policy(project, ASK)
    cases(project, GOOD)
    out = project.gert("policy", "test", "--coverage").ended(0).out
    assert "rules 1/3 (33 %)" in out
    assert "no case reaches rule 1 `no data` (effects: [database])" in out


def test_the_report_for_ci(project: Project) -> None:
    policy(project, ASK)
    cases(project, GOOD, {**BAD, "name": 'a "quoted" <name>'}, {"name": "broken", "tool": "gone.tool.yaml"})
    project.gert("policy", "test", "--junit", "report.xml").ended(1)
    (suite,) = ET.parse(project.root / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [each.get("name") for each in suite] == ["pods need approval", 'a "quoted" <name>', "broken"]


def test_fail_fast_stops_at_the_first_failure(project: Project) -> None:
    policy(project, ASK)
    cases(project, BAD, GOOD)
    said = project.gert("policy", "test", "--fail-fast", "--json").ended(1).said
    assert (len(said["tests"]), said["stopped"]) == (1, True)


def test_policies_of_the_call_are_tested_too(project: Project) -> None:
    policy(project, NO, "other")
    cases(project, {"name": "x", "contract": {"effects": ["files"]}, "expect": {"decision": "deny"}}, policies=[])
    project.gert("policy", "test", "--policy", "other.policy.yaml").ended(0)
    assert "names no policies to test" in project.gert("policy", "test").ended(1).out


def test_a_folder_without_policy_tests_is_a_note_so_that_a_pipeline_can_always_test(project: Project) -> None:
    (project.root / "empty").mkdir()
    ran = project.gert("policy", "test", "empty", "--coverage", "--junit", "report.xml").ended(0)
    assert ran.err == "note: no policy tests found in `empty`: name them `*.policy-test.yaml`\n"
    assert ran.out.startswith("0 passed")
    assert (project.root / "report.xml").exists()
    assert project.gert("policy", "test", "--json").ended(0).said["tests"] == []


def test_hostile_names_do_not_steer_the_terminal(project: Project) -> None:
    policy(project, ASK)
    cases(project, {**BAD, "name": "a\x1b[2Jb", "may_approve": {"\x1b]0;x\x07": True}, "expect": {"rule": "\x1b[1m"}})
    ran = project.gert("policy", "test", "-v").ended(1)
    assert "\x1b" not in ran.out + ran.err
    assert "\x07" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(("test", "gone.policy-test.yaml"), 2, "there is no file or folder", id="no such file"),
        pytest.param(("test", "--policy", "gone.yaml"), 2, "there is no file", id="no such policy"),
        pytest.param(("test", "--policy", "empty"), 2, "there are no policies", id="a folder without policies"),
        pytest.param(("test", "--policy", "book.yaml"), 1, "expected `policy/v0`", id="a runbook for a policy"),
        pytest.param(
            ("test", "--junit", "gone/x.xml"), 2, "cannot write the report", id="a report that cannot be written"
        ),
        pytest.param(("test", "--nope"), 2, "--nope", id="no such option"),
        pytest.param(("tset",), 2, "tset", id="no such command"),
        pytest.param(("explain",), 2, "missing argument", id="nothing to explain"),
        pytest.param(("explain", "gone.yaml"), 2, "there is no file", id="no such policy to explain"),
        pytest.param(("explain", "empty"), 2, "there are no policies", id="no policies to explain"),
        pytest.param(("explain", "book.yaml"), 1, "expected `policy/v0`", id="a runbook to explain"),
        pytest.param(
            ("explain", "floor.policy.yaml", "--tool", "a", "--runbook", "b"), 2, "found several", id="two things"
        ),
        pytest.param(("explain", "floor.policy.yaml", "--tool", "gone"), 2, "there is no file", id="no such tool"),
        pytest.param(("explain", "floor.policy.yaml", "--tool", "book.yaml"), 1, "expected `tool/v0`", id="no tool"),
        pytest.param(("explain", "floor.policy.yaml", "--runbook", "gone"), 2, "there is no file", id="no such book"),
        pytest.param(
            ("explain", "floor.policy.yaml", "--contract", "{efects: []}"),
            2,
            "--contract:1:2: unknown key",
            id="a typo",
        ),
        pytest.param(("explain", "floor.policy.yaml", "--contract", "["), 2, "--contract:1:", id="no YAML"),
        pytest.param(("explain", "floor.policy.yaml", "--contract", ""), 2, "--contract:1:", id="an empty contract"),
        pytest.param(("explain", "floor.policy.yaml", "--contract", "[]"), 2, "expected a map", id="a list"),
        pytest.param(
            ("explain", "floor.policy.yaml", "--contract", "{writes: x}"), 2, "expected a list", id="a word for a list"
        ),
        pytest.param(
            ("explain", "floor.policy.yaml", "--contract", "{writes: [x, x]}"),
            2,
            "--contract:1:10: the list contains the text `x` twice",
            id="a tag that is named twice",
        ),
        pytest.param(
            ("explain", "floor.policy.yaml", "--contract", "{effects: [], inputs: {n: {type: int, min: 2, max: 1}}}"),
            2,
            "--contract:1:",
            id="limits that nothing is within",
        ),
    ],
)
def test_called_wrongly(project: Project, words: tuple[str, ...], code: int, message: str) -> None:
    project.runbook(note("one"))
    policy(project, ASK)
    cases(project, GOOD)
    (project.root / "empty").mkdir()
    ran = project.gert("policy", *words).ended(code)
    assert message in ran.err.lower() or message in ran.err
    assert "Traceback" not in ran.err


# --- gert policy explain


def test_a_policy_in_words(project: Project) -> None:
    policy(project, {**ASK, "approval_timeout": "5m", "require_signed_approvals": True})
    out = project.gert("policy", "explain", "floor.policy.yaml").ended(0).out
    for words in (
        "requests for approval stay open for 5m, and count only if they are signed",
        "1. no data",
        "when a step has the effect database",
        "break-glass can override it, with a reason",
        "require approval by one person among alice and bob",
        "for every remaining step",
    ):
        assert words in out


def test_what_no_rule_matches_is_said(project: Project) -> None:
    policy(project, {"rules": [{"effects": ["a"], "action": "deny"}]})
    assert (
        "a step that no rule matches is allowed" in project.gert("policy", "explain", "floor.policy.yaml").ended(0).out
    )


def test_a_rule_that_is_never_reached_is_warned_of(project: Project) -> None:
    rules = [{"writes": ["a", "b"], "action": "allow"}, {"name": "lost", "writes": ["a"], "action": "deny"}]
    policy(project, {"rules": [*rules, {"risk": "critical", "action": "deny"}]})
    out = project.gert("policy", "explain", "floor.policy.yaml").ended(0).out
    assert "warning: this rule is never reached: rule 1 (writes: [a, b]) matches first" in out
    said = project.gert("policy", "explain", "floor.policy.yaml", "--json").ended(0).said
    assert [bool(rule["never_reached"]) for rule in said["policies"][0]["rules"]] == [False, True, False]


@pytest.mark.parametrize(
    ("contract", "decision", "failed"),
    [
        ("{effects: [database]}", "deny", []),
        ("{effects: [k8s], writes: [pods]}", "require-approval", ["effects: [database]"]),
        ("{effects: []}", "allow", ["effects: [database]", "writes: [pods]"]),
        ("{}", "allow", ["effects: [database]", "writes: [pods]"]),
    ],
)
def test_what_is_decided_about_a_contract_with_every_rule_that_was_considered(
    project: Project, contract: str, decision: str, failed: list[str]
) -> None:
    policy(project, ASK)
    words = ("policy", "explain", "floor.policy.yaml", "--contract", contract)
    (said,) = project.gert(*words, "--json").ended(0).said["decisions"]
    assert (said["decision"], said["won_by"]) == (decision, ["floor"])
    assert [rule["failed"] for rule in said["considered"][0]["rules"]] == [*failed, None]
    out = project.gert(*words).ended(0).out
    assert all(f"`{each}` does not hold" in out for each in failed)


def test_what_is_decided_about_each_action_of_a_tool(project: Project) -> None:
    policy(project, NO)
    words = ("policy", "explain", "floor.policy.yaml", "--tool", "tools/note.tool.yaml")
    (said,) = project.gert(*words, "--json").ended(0).said["decisions"]
    assert (said["subject"], said["decision"]) == ("note:go", "deny")
    assert "decision  deny, by floor" in project.gert(*words).ended(0).out


def test_what_is_decided_about_each_step_of_a_runbook_and_which_policy_won(project: Project) -> None:
    project.runbook(note("one"), note("two", contract={"writes": ["pods"]}))
    policy(project, ASK)
    policy(project, {"rules": [{"writes": ["pods"], "action": "deny"}, {"default": "allow"}]}, "strict")
    words = ("policy", "explain", "floor.policy.yaml", "strict.policy.yaml", "--runbook", "book.yaml")
    one, two = project.gert(*words, "--json").ended(0).said["decisions"]
    assert (one["decision"], one["won_by"]) == ("allow", ["floor", "runbook", "strict"])
    assert (two["decision"], two["won_by"]) == ("deny", ["strict"])
    assert [(each["policy"], each["decides"]) for each in two["considered"]] == [
        ("runbook", False),
        ("floor", False),
        ("strict", True),
    ]
    assert [each["decision"] for each in two["considered_of_tool"]] == ["allow"] * 3
    out = project.gert(*words).ended(0).out
    assert "strict: deny (this decides)" in out
    assert "strict, for the tool behind it: allow" in out
    assert "2 decisions: 1 allow, 1 deny" in out


def test_the_floor_of_the_environment_counts_for_a_runbook(project: Project) -> None:
    project.runbook(note("one"))
    policy(project, ASK)
    policy(project, NO, "org")
    words = ("policy", "explain", "floor.policy.yaml", "--runbook", "book.yaml", "--json")
    (said,) = project.gert(*words, GERT_POLICY="org.policy.yaml").ended(0).said["decisions"]
    assert (said["decision"], said["won_by"]) == ("deny", ["org"])


# --- what a case says is what a run does


@pytest.mark.parametrize(("targets", "decision"), [(2, "allow"), (3, "deny")])
def test_a_limit_on_targets_denies_a_case_as_it_denies_a_run(project: Project, targets: int, decision: str) -> None:
    limited = {"effects": ["files"], "action": "allow", "limits": {"max_targets": 2}}
    policy(project, {"rules": [limited, {"default": "allow"}]})
    case = {"name": "x", "tool": "tools/note.tool.yaml", "targets": targets, "expect": {"decision": decision}}
    cases(project, case)
    (tested,) = project.gert("policy", "test", "--json").ended(0).said["tests"]
    loop = {"over": [str(number) for number in range(targets)], "as": "each"}
    project.runbook(note("one", for_each=loop))
    project.exec("--policy", "floor.policy.yaml").ended(3 if decision == "deny" else 0)
    (said, *_) = of_type(project.run().events(), "governance_decision")
    assert said["data"]["decision"] == decision
    for reason in said["data"].get("reasons", []):
        assert reason in tested["found"]["reasons"]


# --- validate and schema


def test_validate_knows_policy_tests(project: Project) -> None:
    cases(project, GOOD)
    project.write("bad.policy-test.yaml", "apiVersion: policy-test/v0\ncases: [{name: x, contarct: {}}]\n")
    said = project.gert("validate", ".", "--json").ended(1).said
    found = {Path(each["file"]).name: each for each in said["files"]}
    assert found["floor.policy-test.yaml"]["kind"] == "policy-test"
    assert found["floor.policy-test.yaml"]["valid"]
    assert [(each["rule"], each["line"], each["column"]) for each in found["bad.policy-test.yaml"]["findings"]][:1] == [
        ("S02", 2, 19)
    ]


def test_a_policy_test_that_cannot_be_read_is_no_strangers_file(project: Project) -> None:
    project.write("floor.policy-test.yaml", "{")
    project.gert("validate", ".").ended(1)


def test_its_schema_is_printed(project: Project) -> None:
    schema = project.gert("schema", "policy-test").ended(0).said
    jsonschema_rs.meta.validate(schema)
    document = json.loads(cases(project, GOOD).read_text())
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(document)
    assert not jsonschema_rs.Draft202012Validator(schema).is_valid({**document, "case": []})


def test_effects_without_writes_are_shown_as_undeclared(project: Project) -> None:
    tool = {"apiVersion": "tool/v0", "meta": {"name": "vague"}, "contract": {"effects": ["filesystem"]}}
    project.write("tools/vague.tool.yaml", {**tool, "actions": {"go": {"argv": ["true"]}}})
    project.runbook({"id": "go", "type": "tool", "tool": "vague", "action": "go"}, tools=["vague"])
    assert "undeclared" in project.gert("explain", "book.yaml").ended(0).out
