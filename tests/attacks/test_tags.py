"""Attacks on names: tags, people and reasons that look like others, or like nothing, to whoever reads them."""

import json
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project, note, of_type

NOBODY_WRITES_PODS: dict[str, Any] = {"rules": [{"writes": ["pods"], "action": "deny"}, {"default": "allow"}]}


def writing(tag: str, rule: str = "pods") -> Any:
    """A tool that writes `tag`, under a rule that denies writing `rule`."""

    def attempt(project: Project) -> str:
        project.note_tool("note", contract={"effects": ["kubernetes"], "writes": [tag]})
        project.runbook(note("delete"), governance={"rules": [{"writes": [rule], "action": "deny"}]})
        ran = project.exec()
        assert ran.code != 0
        assert project.noted() == []
        return ran.out + ran.err

    return attempt


def adding(tag: str) -> Any:
    """A step that adds a tag of its own to its tool's contract."""

    def attempt(project: Project) -> str:
        step = note("delete", contract={"writes": [tag]})
        project.runbook(step, governance=NOBODY_WRITES_PODS)
        ran = project.exec()
        assert ran.code != 0
        assert project.noted() == []
        return ran.out + ran.err

    return attempt


def contending(project: Project) -> str:
    """Two lanes write one resource in two spellings: they may not run at once."""
    for name, tag in (("one", "Ledger"), ("two", "lEDGER")):
        project.note_tool(name, before="sleep 0.2", after="", contract={"effects": ["files"], "writes": [tag]})
    lanes = [{"label": name, "steps": [note(name, tool=name, scope=name)]} for name in ("one", "two")]
    project.runbook({"id": "both", "type": "parallel", "branches": lanes}, tools=["one", "two"])
    project.exec().ended(0)
    (fork,) = of_type(project.run().events(), "parallel_fork")
    return json.dumps(fork["data"]["serialized"])


def probing(project: Project) -> str:
    """An effect in capitals does not slip through the list of effects that a probe may have."""
    project.note_tool("note", contract={"effects": ["PRODUCTION"], "writes": []})
    project.runbook(note("look"))
    ran = project.exec("--mode", "probe", "--probe-allow-effects", "network")
    assert project.noted() == []
    return ran.out


def limited(project: Project) -> str:
    """A limit on `restart` holds for `Restart`."""
    project.note_tool("note", contract={"effects": ["Restart"], "writes": []})
    rules = [{"effects": ["restart"], "action": "allow", "limits": {"max_targets": 1}}]
    each = note("again", "{{ .each }}", for_each={"as": "each", "over": ["a", "b"]})
    project.runbook(each, governance={"rules": rules})
    ran = project.exec().ended(3)
    assert project.noted() == []
    return ran.out


def starter(name: str) -> Any:
    """Start a run under a name that looks like another person's, so that this person may approve it."""

    def attempt(project: Project) -> str:
        project.runbook(note("go"))
        ran = project.exec("--as", name)
        assert ran.code == 2
        assert project.noted() == []
        return ran.err

    return attempt


def listed(name: str) -> Any:
    """List an approver whose name looks like another person's."""

    def attempt(project: Project) -> str:
        rule = {"default": "require-approval", "approvers": [name]}
        ran = project.gert("validate", project.runbook(note("go"), governance={"rules": [rule]}))
        assert ran.code == 1
        return ran.out

    return attempt


def breaking(reason: str) -> Any:
    """Break the glass for a reason that says nothing."""

    def attempt(project: Project) -> str:
        rule = {"default": "deny", "break_glass": True}
        project.runbook(note("go"), governance={"rules": [rule]})
        ran = project.exec("--break-glass", reason)
        assert ran.code == 2
        assert project.noted() == []
        return ran.err

    return attempt


def signing(key_id: str) -> Any:
    """Sign a trace with a key whose id looks like that of another."""

    def attempt(project: Project) -> str:
        project.runbook(note("go"))
        ran = project.exec(GERT_TRACE_SIGNING_KEY="k" * 40, GERT_TRACE_SIGNING_KEY_ID=key_id)
        assert ran.code != 0
        assert project.noted() == []
        return ran.err

    return attempt


ONE_SPELLING = "tags are ASCII without white space and compare case-insensitively (DECISIONS 82)"
A_PERSON = "a name with something invisible in it is another person's to everyone who reads it"

ATTACKS = [
    Attack("a tool writes `Pods`", ONE_SPELLING, writing("Pods"), "is denied by runbook rule 1"),
    Attack("a tool writes `PODS`", ONE_SPELLING, writing("PODS"), "is denied by runbook rule 1"),
    Attack("the rule says `Pods`, the tool `pods`", ONE_SPELLING, writing("pods", "Pods"), "is denied by"),
    Attack("a space after a tag", ONE_SPELLING, writing("pods "), "ASCII characters without white space"),
    Attack("a newline after a tag", ONE_SPELLING, writing("pods\n"), "ASCII characters without white space"),
    Attack("a no-break space in a tag", ONE_SPELLING, writing("\u00a0pods"), "without white space"),
    Attack("a zero-width space in a tag", ONE_SPELLING, writing("pods\u200b"), "without white space"),
    Attack("a Cyrillic letter in a tag", ONE_SPELLING, writing("p\u043eds"), "ASCII characters"),
    Attack("a full-width tag", ONE_SPELLING, writing("\uff50\uff4f\uff44\uff53"), "ASCII characters"),
    Attack("a capital I with a dot", ONE_SPELLING, writing("p\u0130ds"), "ASCII characters"),
    Attack("a rule with a Cyrillic letter matches nothing", ONE_SPELLING, writing("pods", "p\u043eds"), "ASCII"),
    Attack("a step adds `PoDs`", ONE_SPELLING, adding("PoDs"), "is denied by runbook rule 1"),
    Attack("a step adds `pods` and a tab", ONE_SPELLING, adding("pods\t"), "without white space"),
    Attack("two lanes write one resource in two spellings", ONE_SPELLING, contending, "[[0, 1]]"),
    Attack("a probe of an effect in capitals", ONE_SPELLING, probing, "may not have the effect production"),
    Attack("a limit on an effect in another spelling", ONE_SPELLING, limited, "expected at most 1 targets"),
    Attack("a starter with a zero-width space", A_PERSON, starter("alice\u200b"), "cannot be seen"),
    Attack("a starter with a variation selector", A_PERSON, starter("alice\ufe00"), "cannot be seen"),
    Attack("a starter that is a Hangul filler", A_PERSON, starter("\u3164"), "cannot be seen"),
    Attack("an approver with a soft hyphen", A_PERSON, listed("ali\u00adce"), "without invisible characters"),
    Attack("an approver with a grapheme joiner", A_PERSON, listed("alice\u034f"), "without invisible characters"),
    Attack("a reason of spaces", "a reason is read", breaking("   "), "needs a reason"),
    Attack("a reason of zero-width spaces", "a reason is read", breaking("\u200b\u2060"), "needs a reason"),
    Attack("a reason of Hangul fillers", "a reason is read", breaking("\u3164\u3164"), "needs a reason"),
    Attack("a key id with a Cyrillic letter", ONE_SPELLING, signing("pr\u043ed"), "ASCII characters"),
    Attack("a key id with a space", ONE_SPELLING, signing("prod "), "ASCII characters"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)
