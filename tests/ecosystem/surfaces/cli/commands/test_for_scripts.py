"""What scripts rely on: results with steps, completion."""

from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project


def test_the_result_of_a_run_has_its_steps_and_outputs(project: Project) -> None:
    project.tool(
        "say",
        ["sh", "-c", "echo hello"],
        outputs={"said": {"type": "string"}},
        extract={"said": {"from": "stdout", "pattern": "(.*)"}},
    )
    steps: list[dict[str, Any]] = [
        {"id": "greet", "type": "tool", "tool": "say"},
        {"id": "never", "type": "tool", "tool": "say", "when": '{{ eq .greet.said "bye" }}'},
        {"id": "done", "type": "end", "outcome": {"category": "resolved", "code": "ok"}},
    ]
    project.write("book.yaml", {"apiVersion": "kernel/v0", "meta": {"name": "b"}, "tools": ["say"], "steps": steps})
    said = project.gert("exec", "book.yaml", "--json", "--state-dir", "state").ended(0).said
    assert [(step["path"], step["status"]) for step in said["steps"]] == [
        ("greet", "success"),
        ("never", "skipped"),
        ("done", "success"),
    ]
    assert said["steps"][0]["exit_code"] == 0
    assert said["outputs"] == {"greet": {"said": "hello"}}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(project: Project, shell: str) -> None:
    assert "_GERT_COMPLETE" in project.gert("completion", shell).ended(0).out
