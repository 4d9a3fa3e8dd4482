"""Approvals are bound to what runs; what is not bound, and how requests are named and shown."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, note, of_type

GUARDED = {"rules": [{"writes": ["things"], "action": "require-approval"}, {"default": "allow"}]}
WRITES = {"writes": ["things"], "idempotent": False}


def guarded(project: Project, *steps: dict[str, Any], tool: dict[str, Any] | None = None, **meta: Any) -> None:
    project.note_tool("guarded", contract=WRITES, **(tool or {}))
    chosen = steps or (note("fix", "good", tool="guarded"),)
    project.runbook(*chosen, tools=["guarded", "note"], governance=GUARDED, **meta)


def approved(project: Project, *words: str | Path, **environ: str) -> str:
    waiting = project.exec("--detach", "--json", *words, **environ).ended(0).said
    for each in waiting["pending"]:
        place = words[words.index("--db") :][:2] if "--db" in words else ()
        project.gert("approve", each["ticket_id"], "--as", "bob", *place).ended(0)
    run_id: str = waiting["run_id"]
    return run_id


def test_a_declared_secret_may_rotate(project: Project) -> None:
    guarded(project, tool={"secrets": [{"env": "TOKEN"}]})
    run_id = approved(project, TOKEN="first-token-1")
    project.gert("resume", "--run", run_id, TOKEN="second-token-2").ended(0)
    assert project.noted() == ["good"]


def test_the_same_secret_input_needs_no_other_approval(project: Project) -> None:
    inputs = {"text": {"type": "string", "secret": True, "from": "env/TEXT"}}
    guarded(project, note("fix", "{{ .text }}", tool="guarded"), inputs=inputs)
    run_id = approved(project, TEXT="good-secret-1")
    project.gert("resume", "--run", run_id, TEXT="good-secret-1").ended(0)
    assert project.noted() == ["good-secret-1"]


def test_a_run_in_a_database_binds_secrets_and_exports_no_key(project: Project) -> None:
    inputs = {"text": {"type": "string", "secret": True, "from": "env/TEXT"}}
    guarded(project, note("fix", "{{ .text }}", tool="guarded"), inputs=inputs)
    run_id = approved(project, "--db", "runs.db", TEXT="good-secret-1")
    said = project.gert("resume", "--run", run_id, "--db", "runs.db", "--detach", "--json", TEXT="evil-secret-2").ended(
        0
    )
    assert said.said["status"] == "waiting"
    assert project.noted() == []
    project.gert("trace", "export", "--db", "runs.db", "--run", run_id, "-o", "out.jsonl").ended(0)
    exported = (project.root / "out.jsonl").read_text()
    assert "approval_outdated" in exported
    with closing(sqlite3.connect(project.root / "runs.db")) as database:
        ((key,),) = database.execute("SELECT private FROM runs").fetchall()
    assert key
    assert key.decode() not in exported


def test_steps_that_are_done_are_not_asked_for_again(project: Project) -> None:
    guarded(project, note("first", tool="guarded"), note("second", tool="guarded"))
    run_id = approved(project)
    waiting = project.gert("resume", "--run", run_id, "--detach", "--json").ended(0).said
    assert [each["step_id"] for each in waiting["pending"]] == ["second"]
    project.note_tool("guarded", contract=WRITES, before=":")
    again = project.gert("resume", "--run", run_id, "--allow-changed", "--detach", "--json").ended(0).said
    assert [each["step_id"] for each in again["pending"]] == ["second"]
    assert [each["data"]["step_id"] for each in of_type(project.run().events(), "approval_outdated")] == ["second"]
    project.gert("approve", again["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    project.gert("resume", "--run", run_id, "--allow-changed").ended(0)
    assert project.noted() == ["first", "second"]
    project.verifies()


def test_what_is_asked_again_can_be_approved(project: Project) -> None:
    inputs = {"text": {"type": "string", "secret": True, "from": "env/TEXT"}}
    guarded(project, note("fix", "{{ .text }}", tool="guarded"), inputs=inputs)
    run_id = approved(project, TEXT="good-secret-1")
    again = project.gert("resume", "--run", run_id, "--detach", "--json", TEXT="other-secret-2").ended(0).said
    project.gert("approve", again["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    project.gert("resume", "--run", run_id, TEXT="other-secret-2").ended(0)
    assert project.noted() == ["other-secret-2"]
    project.verifies()


def test_the_place_of_the_program_is_on_record(project: Project) -> None:
    guarded(project)
    waiting = project.exec("--detach", "--json").ended(0).said
    [submitted] = of_type(project.run().events(), "approval_submitted")
    assert submitted["data"]["program"] == str(Path("/bin/sh").resolve())
    assert waiting["pending"][0]["program"] == submitted["data"]["program"]


@pytest.mark.parametrize("answer", ["approve", "reject", None])
def test_a_resolved_approval_has_a_principal(project: Project, answer: str | None) -> None:
    project.note_tool("guarded", contract=WRITES)
    rules = {**GUARDED, "approval_timeout": "1s"} if answer is None else GUARDED
    project.runbook(note("fix", "good", tool="guarded"), tools=["guarded"], governance=rules)
    if answer is None:
        project.exec("--wait").ended(3)
    else:
        waiting = project.exec("--detach", "--json").ended(0).said
        project.gert(answer, waiting["pending"][0]["ticket_id"], "--as", "bob").ended(0)
        project.gert("resume", "--run", waiting["run_id"])
    [resolved] = of_type(project.run().events(), "approval_resolved")
    person = {"kind": "human", "id": "bob"}
    assert resolved["principal"] == ({"kind": "system", "id": "kernel"} if answer is None else person)


def test_a_floor_without_a_timeout_leaves_that_of_the_runbook(project: Project) -> None:
    project.write(
        "policies/floor.policy.yaml",
        {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": GUARDED},
    )
    project.write("gert-project.yaml", {"name": "bench", "policies": ["policies"]})
    project.note_tool("guarded", contract=WRITES)
    rules = {"rules": [{"default": "allow"}], "approval_timeout": "2h"}
    project.runbook(note("fix", "good", tool="guarded"), tools=["guarded"], governance=rules)
    waiting = project.exec("--detach", "--json").ended(0).said
    assert waiting["pending"][0]["timeout"] == "2h"


LOOP = {"over": ["z1", "z2"], "as": "item", "key": "{{ .item }}", "parallel": True}


def items_of_a_loop(step: dict[str, Any]) -> dict[str, Any]:
    return {"id": "each", "type": "group", "for_each": LOOP, "steps": [step]}


def lanes(step: dict[str, Any]) -> dict[str, Any]:
    branches = [
        {"label": label, "steps": [{**step, "id": f"del-{label}", "scope": label}]} for label in ("left", "right")
    ]
    return {"id": "both", "type": "parallel", "branches": branches}


@pytest.mark.parametrize(
    ("block", "paths"),
    [
        pytest.param(items_of_a_loop, ["each[z1]/del", "each[z2]/del"], id="items"),
        pytest.param(lanes, ["both/left/del-left"], id="lanes that write the same, one at a time"),
    ],
)
def test_tickets_of_items_and_lanes_are_told_apart(project: Project, block: Any, paths: list[str]) -> None:
    guarded(project, block(note("del", "good", tool="guarded", title="Delete it")))
    out = project.exec("--detach").ended(0).out
    run_id = project.run().folder.name
    again = project.gert("resume", "--run", run_id, "--detach").ended(0).out
    said = project.gert("resume", "--run", run_id, "--detach", "--json").ended(0).said
    assert sorted(each["path"] for each in said["pending"]) == paths
    documents = json.loads(project.gert("approvals", "list", "--json").ended(0).out)
    assert sorted(each["path"] for each in documents) == paths
    texts = [project.gert(*words).ended(0).out for words in (("approvals", "list"), ("run", "show", run_id))]
    for path in paths:
        assert all(f"`{path}`" in each for each in (out, again, texts[1]))
        assert path in texts[0]
    for each in documents:
        shown = project.gert("approvals", "show", each["ticket_id"]).ended(0).out
        assert f"approval needed for step `{each['path']}`: Delete it" in shown


SPECIFIED = {
    "ticket_id", "status", "created", "run_id", "step_id", "runbook_name", "step_type", "description", "risk_level",
    "contract", "inputs", "min_approvers", "requested_by", "timeout", "extensions",
}  # fmt: skip


def test_json_has_the_names_of_the_specification(project: Project) -> None:
    project.note_tool("guarded", contract=WRITES)
    project.runbook(
        note("fix", "good", tool="guarded", title="Fix it", description="Fixes the {{ .what }}"),
        tools=["guarded"],
        governance=GUARDED,
        inputs={"what": {"type": "string", "default": "door"}},
    )
    said = project.exec("--detach", "--json").ended(0).said
    [pending] = said["pending"]
    [listed] = json.loads(project.gert("approvals", "list", "--json").ended(0).out)
    shown = project.gert("approvals", "show", pending["ticket_id"], "--json").ended(0).said
    resumed = project.gert("resume", "--run", said["run_id"], "--detach", "--json").ended(0).said
    for document in (pending, listed, shown, resumed["pending"][0]):
        assert document.keys() >= SPECIFIED
        assert {name: document[name] for name in SPECIFIED} == {name: pending[name] for name in SPECIFIED}
    assert said["runbook_name"] == resumed["runbook_name"] == "book"
    assert (pending["title"], pending["description"]) == ("Fix it", "Fixes the door")
    assert (pending["step_type"], pending["status"], pending["timeout"]) == ("tool", "pending", "30m")
    assert "Fixes the door" in project.gert("approvals", "show", pending["ticket_id"]).ended(0).out


def test_explain_says_which_judgment_is_about_what(project: Project) -> None:
    guarded(
        project, note("fix", "good", tool="guarded", description="Fixes it", contract={"effects": ["files", "net"]})
    )
    out = project.gert("explain", "book.yaml", "fix").ended(0).out
    assert "for the step: runbook rule 1" in out
    assert "for its tool alone: runbook rule 1" in out
    assert "Fixes it" in out
    said = project.gert("explain", "book.yaml", "fix", "--json").ended(0).said
    assert [each["contract_of"] for each in said["steps"][0]["considered"]] == ["step", "tool"]


def test_a_step_that_adds_nothing_is_judged_once(project: Project) -> None:
    guarded(project)
    out = project.gert("explain", "book.yaml", "fix").ended(0).out
    assert "for the step" not in out
