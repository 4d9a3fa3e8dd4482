"""Attacks on rules about outcomes and order: ways to end a run, or to run at once, past a rule that says otherwise."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project, note, of_type

ASKED = "an outcome that a rule names is recorded only as the rule says (DECISIONS 79)"
IN_TURN = "a rule that serializes steps holds whatever their tags (DECISIONS 79)"
DENIED: dict[str, Any] = {"rules": [{"outcome": ["resolved"], "action": "deny"}, {"default": "allow"}]}


def end(category: str = "resolved") -> dict[str, Any]:
    return {"type": "end", "outcome": {"category": category, "code": "done"}}


def ending(*steps: dict[str, Any]) -> Callable[[Project], str]:
    """Reach an end that is denied, around a corner."""

    def attempt(project: Project) -> str:
        project.runbook(*steps, ends=False, governance=DENIED)
        ran = project.exec("--json").ended(3)
        assert of_type(project.run().events(), "outcome_resolved") == []
        return str(ran.said["failure"]["message"])

    return attempt


def floor(project: Project) -> str:
    """A runbook allows itself what the floor denies."""
    project.write("floor.yaml", {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": DENIED})
    project.runbook(governance={"rules": [{"outcome": ["resolved"], "action": "allow"}]})
    ran = project.exec("--policy", "floor.yaml", "--json").ended(3)
    return str(ran.said["failure"]["message"])


def waiting(project: Project) -> str:
    """An outcome that needs approval: nobody is told of it before somebody has agreed."""
    project.runbook(governance={"rules": [{"outcome": ["resolved"], "action": "require-approval"}]})
    project.exec("--detach").ended(0)
    events = project.run().events()
    assert of_type(events, "outcome_resolved", "run_complete") == []
    assert len(of_type(events, "approval_submitted")) == 1
    ticket = of_type(events, "approval_submitted")[0]["data"]["ticket_id"]
    project.gert("reject", ticket, "--as", "bob", "--reason", "look again").ended(0)
    ran = project.gert("resume", "--run", project.run().folder.name, "--json").ended(3)
    return str(ran.said["failure"]["message"])


def rehearsed(project: Project) -> str:
    """A dry run of an end that is denied reaches nothing."""
    project.runbook(governance=DENIED)
    ran = project.exec("--mode", "dry-run", "--json")
    assert not ran.said.get("reachable_outcomes")
    return json.dumps(ran.said)


def at_once(*, loop: bool, nested: bool = False) -> Callable[[Project], str]:
    """Run steps at once that a rule serializes: each notes when it begins and when it ends."""

    def attempt(project: Project) -> str:
        began, ended = (f'printf "%s\\n" "{word}" >> "{project.effects}"' for word in ("began", "ended"))
        for name in ("one", "two"):
            contract = {"effects": ["files"], "writes": [name]}
            project.script(name, f"{began}; sleep 0.1; {ended}", contract=contract)
        lanes: list[dict[str, Any]] = [
            {"label": name, "steps": [{"id": name, "type": "tool", "tool": name}]} for name in ("one", "two")
        ]
        block: dict[str, Any] = {"id": "both", "type": "parallel", "branches": lanes}
        if loop:
            block = {"id": "each", "type": "tool", "tool": "one"}
            block["for_each"] = {"as": "x", "over": ["a", "b", "c"], "parallel": True}
        if nested:
            inner = {"id": "again", "type": "repeat", "repeat": {"max": 1}, "steps": [lanes[1]["steps"][0]]}
            lanes[1]["steps"] = [inner]
        rules = [{"effects": ["FILES"], "serialize": True}, {"default": "allow"}]
        project.runbook(block, tools=["one", "two"], governance={"rules": rules})
        project.exec().ended(0)
        return " ".join(project.noted())

    return attempt


BRANCH = {
    "id": "way",
    "type": "branch",
    "continue_on_fail": True,
    "branches": [{"condition": "true", "steps": [end()]}, {"condition": "default", "steps": [end("escalated")]}],
}
LOOP = {**BRANCH, "for_each": {"as": "x", "over": ["a"], "parallel": True}}

ATTACKS = [
    Attack("an end that is denied", ASKED, ending(end()), "denied by runbook rule 1"),
    Attack("an end in an arm that may fail", ASKED, ending(BRANCH, end("escalated")), "denied by runbook rule 1"),
    Attack("an end in a loop", ASKED, ending(LOOP, end("escalated")), "denied by runbook rule 1"),
    Attack("a runbook that allows what the floor denies", ASKED, floor, "denied by floor rule 1"),
    Attack("an outcome that waits for approval", ASKED, waiting, "look again"),
    Attack("a dry run of an end that is denied", ASKED, rehearsed, "denied by runbook rule 1"),
    Attack("lanes with different tags", IN_TURN, at_once(loop=False), "began ended began ended"),
    Attack("a step deep inside a lane", IN_TURN, at_once(loop=False, nested=True), "began ended began ended"),
    Attack("a parallel loop", IN_TURN, at_once(loop=True), "began ended began ended began ended"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


def test_policies_are_tested_and_explained_on_outcomes(project: Project) -> None:
    rules = [
        {"name": "say so", "outcome": ["no_action"], "action": "require-approval", "notify": ["ann"]},
        {"name": "in turn", "writes": ["pods"], "serialize": True},
        {"default": "allow"},
    ]
    policy = {"apiVersion": "policy/v0", "meta": {"name": "p"}, "governance": {"rules": rules}}
    project.write("p.yaml", policy)
    cases = [
        {"name": "asked", "outcome": "no_action", "expect": {"decision": "require-approval", "rule": "say so"}},
        {"name": "free", "outcome": "resolved", "expect": {"decision": "allow", "rule": "none"}},
        {"name": "turn", "contract": {"writes": ["pods"]}, "expect": {"serialize": True, "rule": "3"}},
    ]
    test = {"apiVersion": "policy-test/v0", "policies": ["p.yaml"], "cases": cases}
    project.gert("policy", "test", project.write("t.policy-test.yaml", test)).ended(0)
    words = project.gert("policy", "explain", "p.yaml").ended(0).out
    assert "when a run ends with an outcome of category no_action" in words
    assert "one at a time" in words
    project.runbook(end("no_action"), ends=False)
    explained = project.gert("explain", "book.yaml", "--policy", "p.yaml", "--json").ended(0).said["steps"]
    assert [(each["step_type"], each["decision"], each["notify"]) for each in explained] == [
        ("end", "require-approval", ["ann"])
    ]


def test_people_whom_a_rule_names_are_told_of_the_outcome(project: Project) -> None:
    project.runbook(note("go"), governance={"rules": [{"outcome": ["resolved"], "action": "allow", "notify": ["ann"]}]})
    assert "for ann" in project.exec().ended(0).out
    (resolved,) = of_type(project.run().events(), "outcome_resolved")
    assert resolved["data"]["notify"] == ["ann"]
