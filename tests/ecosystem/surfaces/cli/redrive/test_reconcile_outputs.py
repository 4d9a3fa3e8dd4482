"""A call that is reconciled as a success: its outputs, and its contract (DECISIONS 70)."""

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.terminal import Terminal
from tests.ecosystem.surfaces.cli.workbench import NOTE, Project, Ran, completed, note, of_type

DENY = {"rules": [{"contract_violations": "deny"}, {"default": "allow"}]}
COUNT = {"type": "int", "required": True}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def killed(project: Project, count: dict[str, Any], loop: dict[str, Any] | None = None, **contract: Any) -> None:
    """A run under `contract_violations: deny` that was killed while it called `charge`, which may not be repeated."""
    printed = {"from": "stdout", "pattern": "noted (.*)"}
    project.tool(
        "once",
        ["sh", "-c", f"{NOTE}; kill -9 $PPID", "sh", "{{ .word }}", str(project.effects)],
        inputs={"word": {"type": "string", "required": True}},
        extract={"said": printed, "count": printed},
        outputs={"said": {"type": "string"}, "count": count},
        contract={"idempotent": False, **contract},
    )
    after = note("after", word="{{ default 0 .step.charge.count }} {{ default 0 .step.charge.said }}")
    steps = [{**note("charge", tool="once"), **loop}] if loop else [note("charge", tool="once"), after]
    project.runbook(*steps, tools=["note", "once"], governance=DENY)
    project.exec().ended(-signal.SIGKILL)


def resumed(project: Project, *words: str) -> Ran:
    return project.gert("resume", "--run", project.run().folder.name, *words)


def test_a_reconciled_success_breaks_no_contract(project: Project) -> None:
    killed(project, {"type": "int"}, deterministic=True)
    resumed(project, "--reconcile", "charge=success").ended(0)
    events = project.run().events()
    assert of_type(events, "contract_violation") == []
    assert completed(events, "charge")["status"] == "success"
    assert project.noted() == ["charge", "0 0"]
    project.verifies()


@pytest.mark.parametrize("name", ["charge[logs/a.log]", "charge[logs%2Fa.log]", "charge"])
def test_an_item_is_reconciled_by_the_name_that_is_shown(project: Project, name: str) -> None:
    killed(project, COUNT, loop={"for_each": {"over": ["logs/a.log"], "as": "file", "key": "{{ .file }}"}})
    shown = project.gert("run", "show", "last").ended(0).out
    assert "in doubt:    charge[logs/a.log] " in shown
    refused = resumed(project, "--reconcile", "chrge=success").ended(2).err
    assert "there is `charge[logs/a.log]`" in refused
    resumed(project, "--reconcile", f"{name}=success", "--reconcile-output", f"{name}.count=3").ended(0)
    assert completed(project.run().events(), "charge[logs%2Fa.log]")["outputs"] == {"count": 3}
    project.verifies()


def test_outputs_that_are_given_are_outputs_of_the_step(project: Project) -> None:
    killed(project, COUNT)
    words = ["--reconcile", "success", "--reconcile-output", "charge.count=3", "--reconcile-output", "charge.said=yes"]
    resumed(project, *words).ended(0)
    assert completed(project.run().events(), "charge")["outputs"] == {"count": 3, "said": "yes"}
    assert project.noted() == ["charge", "3 yes"]
    project.verifies()


def test_a_required_output_that_is_missing_is_named_and_nothing_runs(project: Project) -> None:
    killed(project, COUNT)
    said = resumed(project, "--reconcile", "success").ended(3).err
    assert "`count` of `charge`" in said
    assert "--reconcile-output charge.count=VALUE" in said
    assert (project.noted(), of_type(project.run().events(), "run_resumed")) == (["charge"], [])


def test_at_a_terminal_a_required_output_is_asked_for_until_it_fits(project: Project) -> None:
    killed(project, COUNT)
    command = ("resume", "--run", project.run().folder.name, "--reconcile", "success")
    with Terminal(project, command=command) as terminal:
        terminal.answer("charge.count: ", "many")
        terminal.expect("expected an int")
        terminal.answer("charge.count: ", "4")
        terminal.expect("run completed")
        assert terminal.process.wait() == 0
    assert project.noted() == ["charge", "4 0"]


def test_at_a_terminal_no_answer_changes_nothing(project: Project) -> None:
    killed(project, COUNT)
    command = ("resume", "--run", project.run().folder.name, "--reconcile", "success")
    with Terminal(project, command=command) as terminal:
        for _ in range(3):
            terminal.answer("charge.count: ", "")
        terminal.expect("--reconcile-output charge.count=VALUE")
        assert terminal.process.wait() == 3
    assert of_type(project.run().events(), "run_resumed") == []


def test_a_declared_output_that_is_neither_required_nor_extracted_is_optional(project: Project) -> None:
    project.note_tool("plain", outputs={"said": {"type": "string"}, "extra": {"type": "int"}})
    project.runbook(note("one", tool="plain"), tools=["plain"], governance=DENY)
    project.exec().ended(0)
    assert of_type(project.run().events(), "contract_violation") == []
