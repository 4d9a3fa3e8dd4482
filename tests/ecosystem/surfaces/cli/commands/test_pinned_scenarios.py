"""Tests can fail: a changed command, rule or place of a failure is found by `gert test` and by `gert diff`."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ecosystem.surfaces.cli.workbench import Project, call, environment

PLACE = "scenarios/book/kept"
EXPIRE = ["echo", "EXPIRE", "{{ .key }}", "{{ .seconds }}", "NX"]
DELETE = ["echo", "DEL", "{{ .key }}"]
APPROVE: dict[str, Any] = {"rules": [{"writes": ["keys"], "action": "require-approval"}, {"default": "allow"}]}
ALLOW: dict[str, Any] = {"rules": [{"default": "allow"}]}
END = {"type": "end", "outcome": {"category": "resolved", "code": "ok", "meta": {"key": "{{ .key }}"}}}


def redis(project: Project, argv: list[str], *, writes: bool = True, **action: Any) -> None:
    project.tool(
        "redis",
        argv,
        inputs={"key": {"type": "string"}, "seconds": {"type": "int", "default": 60}},
        contract={"writes": ["keys"] if writes else []},
        action=action,
    )


def book(project: Project, governance: dict[str, Any] = APPROVE, **more: Any) -> None:
    step = call("extend", "redis", inputs={"key": "{{ .key }}"}, **more)
    inputs = {"key": {"type": "string", "default": "session"}}
    project.runbook(step, END, tools=["redis"], governance=governance, ends=False, inputs=inputs)


def record(project: Project, code: int = 0, **environ: str) -> dict[str, Any]:
    """Run for real, record, promote; what the test of the recording expects."""
    ran = project.exec("--as", "kim", "--record", PLACE, "--json", stdin="y\n", **environ).ended(code)
    assert ran.said["scenario"]["differs"] is None
    project.gert("scenario", "promote", PLACE).ended(0)
    project.gert("test", ".").ended(0)
    found: dict[str, Any] = yaml.safe_load((project.root / PLACE / "test.yaml").read_text())
    return found


def outcome_of(project: Project, code: int) -> dict[str, Any]:
    [found] = project.gert("test", ".", "--json").ended(code).said["tests"]
    assert isinstance(found, dict)
    return found


def expect(project: Project, **expectations: Any) -> None:
    (project.root / PLACE / "test.yaml").write_text(json.dumps(expectations))


def commit(project: Project) -> None:
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "a"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *who, *words], cwd=project.root, env=environment(), check=True)


def test_a_changed_command_fails_the_test_and_is_a_change(project: Project) -> None:
    redis(project, EXPIRE)
    book(project)
    assert record(project)["expected_commands"] == {"extend": ["echo", "EXPIRE", "session", "60", "NX"]}
    project.gert("diff", "book.yaml", "--exit-code").ended(0)
    redis(project, DELETE)
    assert outcome_of(project, 1)["differences"] == [
        {
            "name": "expected_commands.extend",
            "expected": "`echo EXPIRE session 60 NX`",
            "found": "`echo DEL session`",
            "hint": None,
        }
    ]
    changed = project.gert("diff", "book.yaml", "--exit-code").ended(1).out
    assert "commands changed!" in changed
    assert "extend: `echo EXPIRE session 60 NX` → `echo DEL session`" in changed
    [compared] = project.gert("diff", "book.yaml", "--json").ended(0).said["scenarios"]
    assert [each["name"] for each in compared["changes"]["commands"]] == ["extend"]
    assert "nothing uses it" in project.gert("validate", ".", "--strict").ended(1).out
    project.gert("test", ".", "--update").ended(0)
    project.gert("test", ".").ended(0)
    project.gert("diff", "book.yaml", "--exit-code").ended(0)


def test_the_trace_alone_shows_that_an_approved_command_changed(project: Project) -> None:
    redis(project, EXPIRE, stdin="now", env={"MODE": "a"})
    book(project)
    record(project)
    expect(project, golden=True, expected_code="ok")
    project.gert("diff", "book.yaml", "--exit-code").ended(0)
    redis(project, EXPIRE, stdin="later", env={"MODE": "b"})
    [compared] = project.gert("diff", "book.yaml", "--json").ended(0).said["scenarios"]
    assert compared["baseline"] == "trace"
    assert compared["changes"]["commands"] == [
        {"name": "extend.stdin", "before": "`now`", "after": "`later`"},
        {"name": "extend.env", "before": '`{"MODE":"a"}`', "after": '`{"MODE":"b"}`'},
    ]


def test_the_inputs_of_a_call_without_approval_are_compared_with_the_trace(project: Project) -> None:
    redis(project, EXPIRE, writes=False)
    book(project)
    record(project)
    expect(project, golden=True, expected_code="ok")
    project.gert("diff", "book.yaml", "--exit-code").ended(0)
    redis(project, EXPIRE, writes=False)
    step = call("extend", "redis", inputs={"key": "other"})
    project.runbook(step, END, tools=["redis"], ends=False, inputs={"key": {"type": "string", "default": "session"}})
    assert "extend.inputs" in project.gert("diff", "book.yaml", "--exit-code").ended(1).out


def test_two_revisions_are_compared_by_every_command(project: Project) -> None:
    redis(project, EXPIRE, writes=False)
    book(project)
    record(project)
    expect(project, golden=True, expected_code="ok")
    commit(project)
    project.gert("diff", "book.yaml", "--against", "main", "--exit-code").ended(0)
    redis(project, DELETE, writes=False)
    said = project.gert("diff", "book.yaml", "--against", "main", "--exit-code").ended(1).out
    assert "extend: `echo EXPIRE session 60 NX` → `echo DEL session`" in said


def test_a_recording_notices_that_the_rule_is_gone_and_that_the_meta_changed(project: Project) -> None:
    redis(project, EXPIRE)
    book(project)
    found = record(project)
    assert found["expected_decisions"] == {"extend": {"decision": "require-approval", "break_glass": False}}
    assert found["expected_meta"] == {"key": "session"}
    book(project, ALLOW)
    failed = outcome_of(project, 1)
    assert [each["name"] for each in failed["differences"]] == ["expected_decisions.extend"]
    assert failed["notes"] == ["unused answers: `approvals.extend`"]


STRICT: dict[str, Any] = {
    "writes": ["keys"],
    "action": "require-approval",
    "min_approvers": 2,
    "approvers": ["ann", "bob"],
    "separation_of_duties": True,
    "approval_timeout": "90m",
}


def strict(project: Project, **weaker: Any) -> None:
    rule = {name: value for name, value in {**STRICT, **weaker}.items() if value is not None}
    timeout = rule.pop("approval_timeout")
    book(project, {"approval_timeout": timeout, "rules": [rule, {"default": "allow"}]})


@pytest.fixture
def approved_by_two(project: Project) -> Project:
    """A recording of a step that two people approved."""
    redis(project, EXPIRE)
    strict(project)
    project.exec("--detach", "--as", "kim", "--record", PLACE).ended(0)
    for who in ("ann", "bob"):
        project.gert("approve", project.run().id, "--as", who).ended(0)
    project.gert("resume", project.run().id).ended(0)
    project.gert("scenario", "promote", PLACE).ended(0)
    return project


@pytest.mark.parametrize(
    ("weaker", "key", "expected", "found"),
    [
        pytest.param({"min_approvers": 1}, "min_approvers", "`2`", "`1`", id="one person is enough"),
        pytest.param({"approvers": None}, "approvers", "`ann`, `bob`", "no one", id="anyone may approve"),
        pytest.param({"approvers": ["ann", "bob", "kim"]}, "approvers", "`ann`, `bob`", "", id="more may approve"),
        pytest.param(
            {"separation_of_duties": None}, "separation_of_duties", "`true`", "`false`", id="the starter may approve"
        ),
        pytest.param({"break_glass": True}, "break_glass", "`false`", "`true`", id="an override is allowed"),
        pytest.param({"approval_timeout": "2h"}, "approval_timeout", "`1h30m`", "`2h`", id="open for longer"),
    ],
)
def test_a_weaker_rule_fails_the_test_of_a_recording_and_is_a_change(
    approved_by_two: Project, weaker: dict[str, Any], key: str, expected: str, found: str
) -> None:
    project = approved_by_two
    outcome_of(project, 0)
    project.gert("diff", "book.yaml", "--exit-code").ended(0)
    strict(project, **weaker)
    [differs] = outcome_of(project, 1)["differences"]
    assert (differs["name"], differs["expected"]) == (f"expected_decisions.extend.{key}", expected)
    assert found in differs["found"]
    assert "book rule 1" in differs["hint"]
    [compared] = project.gert("diff", "book.yaml", "--json").ended(0).said["scenarios"]
    [change] = compared["changes"]["decisions"]
    assert (change["name"], change["before"]) == (f"extend.{key}", expected)
    project.gert("test", ".", "--update").ended(0)
    assert outcome_of(project, 0)["verdict"] == "passed"


def test_a_recording_expects_what_differs_from_the_defaults_and_no_override(approved_by_two: Project) -> None:
    test = yaml.safe_load((approved_by_two.root / PLACE / "test.yaml").read_text())
    assert test["expected_decisions"]["extend"] == {
        "decision": "require-approval",
        "min_approvers": 2,
        "approvers": ["ann", "bob"],
        "separation_of_duties": True,
        "approval_timeout": "1h30m",
        "break_glass": False,
    }


def test_two_revisions_are_compared_by_what_their_rules_require(approved_by_two: Project) -> None:
    project = approved_by_two
    expect(project, golden=True, expected_code="ok")
    commit(project)
    strict(project, min_approvers=1, break_glass=True)
    said = project.gert("diff", "book.yaml", "--against", "main", "--json").ended(0).said
    found = said["scenarios"][0]["changes"]["decisions"]
    assert found == [
        {"name": "extend.min_approvers", "before": "`2`", "after": "`1`"},
        {"name": "extend.break_glass", "before": "`false`", "after": "`true`"},
    ]


def test_only_the_settings_that_a_test_names_are_compared(approved_by_two: Project) -> None:
    expect(approved_by_two, golden=True, expected_decisions={"extend": {"approvers": ["bob", "ann"]}})
    strict(approved_by_two, min_approvers=1)
    passed = outcome_of(approved_by_two, 0)
    assert passed["notes"] == ["unused answers: `approvals.extend: the response of bob`"]
    expect(approved_by_two, golden=True, expected_decisions={"extend": {}})
    assert "nothing is expected of the decision" in outcome_of(approved_by_two, 1)["message"]


def test_a_changed_preview_fails_the_test_and_is_a_change(project: Project) -> None:
    redis(project, EXPIRE, preview={"argv": ["echo", "ls", "{{ .key }}"]})
    book(project)
    command = {"argv": ["echo", "EXPIRE", "session", "60", "NX"], "preview": ["echo", "ls", "session"]}
    assert record(project)["expected_commands"] == {"extend": command}
    project.gert("diff", "book.yaml", "--exit-code").ended(0)
    commit(project)
    redis(project, EXPIRE, preview={"argv": ["echo", "rm", "{{ .key }}"]})
    [differs] = outcome_of(project, 1)["differences"]
    assert differs["name"] == "expected_commands.extend.preview"
    assert (differs["expected"], differs["found"]) == ("`echo ls session`", "`echo rm session`")
    for words in ((), ("--against", "main")):
        changed = project.gert("diff", "book.yaml", "--exit-code", *words).ended(1).out
        assert "extend.preview: `echo ls session` → `echo rm session`" in changed
    redis(project, EXPIRE)
    assert outcome_of(project, 1)["differences"][0]["found"] == "none"
    redis(project, EXPIRE, preview={"argv": ["echo", "rm", "{{ .key }}"]})
    project.gert("test", ".", "--update").ended(0)
    outcome_of(project, 0)


def test_a_preview_that_was_added_is_a_change(project: Project) -> None:
    redis(project, EXPIRE)
    book(project)
    record(project)
    redis(project, EXPIRE, preview={"argv": ["echo", "rm", "{{ .key }}"]})
    changed = project.gert("diff", "book.yaml", "--exit-code").ended(1).out
    assert "extend.preview: nothing → `echo rm session`" in changed


def test_an_input_that_is_no_longer_secret_fails_the_test_of_its_recording(project: Project) -> None:
    redis(project, ["sh", "-c", "cat"], stdin="{{ .key }}")
    inputs = {"key": {"type": "string", "secret": True, "from": "env/REDIS_KEY"}}
    project.runbook(call("extend", "redis", inputs={"key": "{{ .key }}"}), tools=["redis"], inputs=inputs)
    record(project, REDIS_KEY="hunter2-hunter2")
    del inputs["key"]["secret"]
    project.runbook(call("extend", "redis", inputs={"key": "{{ .key }}"}), tools=["redis"], inputs=inputs)
    failed = outcome_of(project, 1)
    assert "the input `key` is `[REDACTED]`, and the runbook does not declare it secret" in failed["message"]
    assert failed["hint"] == "mark it `secret: true`, or give the scenario a value"
    assert "D62" in project.gert("validate", ".").ended(1).out
    project.gert("diff", "book.yaml", "--exit-code").ended(1)
    (project.root / PLACE / "scenario.yaml").write_text(json.dumps({"inputs": {"key": "a"}, "tool_responses": {}}))
    project.gert("validate", PLACE).ended(0)


def test_a_secret_is_redacted_in_the_command_that_a_test_expects(project: Project) -> None:
    redis(project, ["sh", "-c", "cat"], stdin="{{ .key }}")
    inputs = {"key": {"type": "string", "secret": True, "from": "env/REDIS_KEY"}}
    project.runbook(call("extend", "redis", inputs={"key": "{{ .key }}"}), tools=["redis"], inputs=inputs)
    found = record(project, REDIS_KEY="hunter2-hunter2")
    assert found["expected_commands"] == {"extend": {"argv": ["sh", "-c", "cat"], "stdin": "[REDACTED]"}}
    assert not any("hunter2" in each.read_text() for each in (project.root / PLACE).iterdir())
    redis(project, ["sh", "-c", "cat"], stdin="now {{ .key }}")
    [different] = outcome_of(project, 1)["differences"]
    assert (different["expected"], different["found"]) == ("`[REDACTED]`", "`now [REDACTED]`")


def failing(project: Project) -> None:
    """Two steps, of which the second one fails."""
    project.script("fine", "exit 0")
    project.script("sick", "echo broken >&2; exit 2")
    project.runbook(call("fetch", "fine"), call("build", "sick"), tools=["fine", "sick"])


def test_a_recording_of_a_failed_run_says_where_and_why(project: Project) -> None:
    failing(project)
    found = record(project, code=3)
    assert found["expected_failure"] == {"step": "build", "kind": "exit_code"}
    answers = project.root / PLACE / "scenario.yaml"
    said = yaml.safe_load(answers.read_text())
    said["tool_responses"] = {"fetch": {"exit_code": 2}, "build": {"exit_code": 2}}
    answers.write_text(json.dumps(said))
    assert "expected_failure.step: expected `build`, found `fetch`" in project.gert("test", ".", "-v").ended(1).out


def asserting(project: Project, message: str | None) -> None:
    check = {"type": "greater_than", "value": "{{ .free }}", "expected": "5"}
    check |= {"message": message} if message is not None else {}
    step = {"id": "enough", "type": "assert", "assert": [check]}
    project.runbook(step, inputs={"free": {"type": "int", "default": 3}})


def test_a_recording_expects_the_message_of_an_assertion_that_the_runbook_has(project: Project) -> None:
    asserting(project, "only {{ .free }} GB are free")
    failure = {"step": "enough", "kind": "assertion", "message": "only 3 GB are free"}
    assert record(project, code=3)["expected_failure"] == failure
    asserting(project, "{{ .free }} GB are enough")
    [differs] = outcome_of(project, 1)["differences"]
    assert differs["name"] == "expected_failure.message"


def test_a_recording_does_not_expect_a_message_of_gert(project: Project) -> None:
    asserting(project, None)
    assert record(project, code=3)["expected_failure"] == {"step": "enough", "kind": "assertion"}


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ({"step": "build", "kind": "exit_code", "message": "broken"}, None),
        ({"message": "/with [0-9]:/"}, None),
        ({"step": "fetch"}, "expected_failure.step: expected `fetch`, found `build`"),
        ({"kind": "timeout"}, "expected_failure.kind: expected `timeout`, found `exit_code`"),
        ({"message": "no space left"}, "expected_failure.message: expected `no space left` in the message"),
    ],
    ids=str,
)
def test_a_test_says_where_and_why_a_run_fails(project: Project, failure: dict[str, str], told: str | None) -> None:
    failing(project)
    record(project, code=3)
    expect(project, golden=True, expected_status="failed", expected_failure=failure)
    said = project.gert("test", ".").ended(1 if told else 0).out
    assert told is None or told in said
    project.gert("diff", "book.yaml", "--exit-code").ended(1 if told else 0)


@pytest.mark.parametrize("failure", [{"kind": "timeout"}, {}, {"message": "/.*/"}])
def test_a_failure_that_does_not_happen_fails_the_test(project: Project, failure: dict[str, str]) -> None:
    redis(project, EXPIRE)
    book(project, ALLOW)
    record(project)
    expect(project, golden=True, expected_failure=failure)
    assert "expected_failure: expected that the run fails" in project.gert("test", ".").ended(1).out


def test_unused_answers_are_noted_although_the_test_passes(project: Project) -> None:
    redis(project, EXPIRE)
    book(project, when='{{ ne .key "session" }}')
    (project.root / PLACE).mkdir(parents=True)
    answers = {"tool_responses": {"extend": {"stdout": "1"}}, "approvals": {"extend": {"approved": True}}}
    (project.root / PLACE / "scenario.yaml").write_text(json.dumps(answers))
    expect(project, expected_code="ok")
    said = project.gert("test", ".").ended(0).out
    assert "note: unused answers: `tool_responses.extend`, `approvals.extend`" in said


def test_a_big_recording_stays_readable(project: Project, tmp_path: Path) -> None:
    redis(project, EXPIRE)
    items = [f"key-{number}" for number in range(200)]
    loop = {"as": "each", "over": items}
    project.tool("look", ["echo", "{{ .key }}"], inputs={"key": {"type": "string"}})
    project.runbook(
        call("look", "look", inputs={"key": "{{ .each }}"}, for_each=loop),
        call("extend", "redis", inputs={"key": "last"}),
        tools=["look", "redis"],
    )
    commands = record(project)["expected_commands"]
    assert commands["extend"] == ["echo", "EXPIRE", "last", "60", "NX"], "what writes comes first"
    assert len(commands) == 50
