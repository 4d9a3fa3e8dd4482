"""Attempts to make a preview do harm, run unseen, or ask for an approval of its own."""

from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project, call, of_type

GUARDED = {"rules": [{"writes": ["things"], "action": "require-approval"}, {"default": "allow"}]}
WRITES = {"effects": ["files"], "writes": ["things"], "idempotent": False}
ALLOWED = ("--probe-allow-effects", "files")


def removing(project: Project, preview: list[str], *, rules: Any = GUARDED, **tool: Any) -> None:
    """A tool that removes the file `kept`, with a preview."""
    (project.root / "kept").write_text("precious")
    contract = {**WRITES, **tool.pop("contract", {})}
    project.tool(
        "rm",
        ["rm", "{{ .file }}"],
        contract=contract,
        inputs={"file": {"type": "string", "required": True}},
        action={"preview": {"argv": preview}, **tool.pop("action", {})},
        meta={"name": "rm", "binary": "rm"},
        **tool,
    )
    project.runbook(call("clean", "rm", inputs={"file": "kept"}), tools=["rm"], governance=rules)


def is_kept(project: Project) -> bool:
    return (project.root / "kept").exists()


def in_a_dry_run(project: Project) -> str:
    removing(project, ["stat", "{{ .file }}"])
    said = project.exec("--mode", "dry-run", *ALLOWED).ended(0).out
    assert is_kept(project)
    return said


def before_the_approval(project: Project) -> str:
    removing(project, ["stat", "{{ .file }}"])
    waiting = project.exec("--detach", "--json").ended(0).said
    assert is_kept(project)
    return project.gert("approvals", "show", waiting["pending"][0]["ticket_id"]).ended(0).out


def with_a_template_for_a_program(project: Project) -> str:
    removing(project, ["{{ .file }}", "x"])
    said = project.exec("--mode", "dry-run", *ALLOWED).ended(0).out
    assert is_kept(project)
    return said


def with_a_dash_first(project: Project) -> str:
    removing(project, ["-f", "{{ .file }}"])
    said = project.exec("--mode", "dry-run", *ALLOWED).ended(0).out
    assert is_kept(project)
    return said


def touching(project: Project, *words: str, **more: Any) -> str:
    removing(project, ["touch", "looked"], **more)
    said = project.exec(*words).out
    assert not (project.root / "looked").exists()
    assert is_kept(project)
    return said


def not_in_the_allow_list(project: Project) -> str:
    return touching(project, "--mode", "dry-run")


def of_undeclared_effects(project: Project) -> str:
    return touching(project, "--mode", "dry-run", *ALLOWED, contract={"effects": ["unknown"]})


def denied_by_policy(project: Project) -> str:
    rules = {"rules": [{"writes": ["things"], "action": "require-approval"}, {"default": "deny"}]}
    removing(project, ["touch", "looked"], rules=rules)
    waiting = project.exec("--detach", "--json").ended(0).said
    assert not (project.root / "looked").exists()
    return project.gert("approvals", "show", waiting["pending"][0]["ticket_id"]).ended(0).out


def asking_for_its_own_approval(project: Project) -> str:
    rules = {"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]}
    removing(project, ["touch", "looked"], rules=rules)
    waiting = project.exec("--detach", "--json").ended(0).said
    assert len(waiting["pending"]) == 1
    assert not (project.root / "looked").exists()
    return project.gert("approvals", "show", waiting["pending"][0]["ticket_id"]).ended(0).out


def denied_in_a_dry_run(project: Project) -> str:
    rules = {"rules": [{"writes": ["things"], "action": "require-approval"}, {"default": "deny"}]}
    return touching(project, "--mode", "dry-run", *ALLOWED, rules=rules)


def run_again_by_resume(project: Project) -> str:
    removing(project, ["sh", "-c", "echo x >> looked; echo shown"])
    waiting = project.exec("--detach", "--json").ended(0).said
    project.gert("approve", waiting["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    said = project.gert("resume", "--run", waiting["run_id"]).ended(0).out
    assert (project.root / "looked").read_text() == "x\n"
    assert not is_kept(project)
    assert len(of_type(project.run().events(), "preview_captured")) == 1
    return said


def hiding_the_command(project: Project) -> str:
    removing(project, ["sh", "-c", "echo harmless", "{{ .file }}"])
    return project.exec("--mode", "dry-run", *ALLOWED).ended(0).out


def with_another_word_than_binary(project: Project) -> str:
    removing(project, ["stat", "{{ .file }}"])
    project.tool("sh", ["find", ".", "-delete"], contract=WRITES, meta={"name": "sh", "binary": "sh"})
    return project.gert("validate", project.root / "tools/sh.tool.yaml").out


def not_listed_by_explain(project: Project) -> str:
    removing(project, ["stat", "{{ .file }}"])
    return " ".join(project.gert("explain", "book.yaml").ended(0).out.split())


def not_listed_for_a_step(project: Project) -> str:
    removing(project, ["stat", "{{ .file }}"])
    return " ".join(project.gert("explain", "book.yaml", "clean").ended(0).out.split())


OWN = "a preview is a command of its own (DECISIONS 64)"
ATTACKS = [
    Attack("a preview under `binary: rm` removes the file in a dry run", OWN, in_a_dry_run, "stat kept"),
    Attack(
        "a preview under `binary: rm` removes the file before it is approved", OWN, before_the_approval, "stat kept"
    ),
    Attack(
        "a preview whose program is a template gets `rm`", OWN, with_a_template_for_a_program, "`kept` was not found"
    ),
    Attack("a preview that begins with `-f` gets `rm`", OWN, with_a_dash_first, "`-f` was not found"),
    Attack(
        "a dry run runs a preview whose effects are not allowed",
        "a dry run has only the effects that a probe may have",
        not_in_the_allow_list,
        "--probe-allow-effects network,files",
    ),
    Attack(
        "a dry run runs a preview with unknown effects",
        "a preview inherits the effects of its action",
        of_undeclared_effects,
        "its contract does not say what it touches",
    ),
    Attack(
        "a preview runs although policy denies what it touches",
        "any verdict but allow keeps a preview from running",
        denied_by_policy,
        "policy says `deny`",
    ),
    Attack(
        "a preview asks for an approval of its own",
        "any verdict but allow keeps a preview from running",
        asking_for_its_own_approval,
        "policy says `require-approval`",
    ),
    Attack(
        "a dry run runs a preview that policy denies",
        "policy holds for previews in every mode",
        denied_in_a_dry_run,
        "policy says `deny`",
    ),
    Attack(
        "a resume runs the preview a second time", "a resume uses the recorded preview", run_again_by_resume, "resolved"
    ),
    Attack(
        "a preview says something harmless and hides what it runs",
        "a preview is shown with its full command line",
        hiding_the_command,
        "sh -c 'echo harmless' kept",
    ),
    Attack(
        "an action begins with another program than `binary`",
        "the first word is dropped, so another program would run",
        with_another_word_than_binary,
        "begin with `sh`, or remove `binary`",
    ),
    Attack("`gert explain` leaves a preview out", "previews are run, too", not_listed_by_explain, "stat {{ .file }}"),
    Attack(
        "`gert explain STEP` leaves the contract of a preview out",
        "previews are run, too",
        not_listed_for_a_step,
        "effects files, writes nothing",
    ),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)
