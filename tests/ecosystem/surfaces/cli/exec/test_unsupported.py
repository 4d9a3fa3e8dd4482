"""What this installation cannot run is said by `validate`, and refused before the first step (DECISIONS 73)."""

from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import END, Project, call, note

from gert.ecosystem.host.config.supported import SUPPORTED, TRANSPORTS
from gert.kernel.runbook.documents.tool import TRANSPORTS as KNOWN

CONTRACT = {"effects": ["network"], "writes": []}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project")
    for transport, meta, action in (("mcp", {"connect": "http://mcp.internal/mcp"}, {"mcp_tool": "look"}),):
        project.write(
            f"tools/{transport}.tool.yaml",
            {
                "apiVersion": "tool/v0",
                "meta": {"name": transport, "transport": transport, **meta},
                "contract": CONTRACT,
                "actions": {"go": action},
            },
        )
    return project


EXTENSION: dict[str, Any] = {"id": "x", "type": "extension", "extension": "acme/plan", "contract": CONTRACT}
LATER = {
    "id": "which",
    "type": "branch",
    "branches": [
        {"condition": "{{ eq .step.first.said `no` }}", "steps": [call("x", "mcp")]},
        {"condition": "default", "steps": [note("other")]},
    ],
}
CASES = [
    pytest.param([call("x", "mcp")], "by plain http", id="mcp"),
    pytest.param([EXTENSION], "extension `acme/plan`", id="an extension"),
    pytest.param([LATER], "by plain http", id="in an arm that may not be taken"),
]


@pytest.mark.parametrize(("steps", "why"), CASES)
def test_validate_warns(project: Project, steps: list[dict[str, Any]], why: str) -> None:
    project.runbook(note("first"), *steps, tools=["note", "mcp"])
    said = project.gert("validate", "book.yaml").ended(0)
    assert why in said.out + said.err
    assert "D50" in said.out + said.err


@pytest.mark.parametrize("mode", ["real", "dry-run", "probe"])
@pytest.mark.parametrize(("steps", "why"), CASES)
def test_nothing_runs(project: Project, steps: list[dict[str, Any]], why: str, mode: str) -> None:
    project.runbook(note("first"), *steps, tools=["note", "mcp"])
    said = project.exec("--mode", mode).ended(1)
    assert why in said.err
    assert "`x` cannot run here" in said.err
    assert (project.noted(), project.runs()) == ([], [])


def test_what_stands_in_finally_counts_too(project: Project) -> None:
    project.runbook(note("first"), tools=["note", "mcp"], after=[call("x", "mcp")])
    assert "cannot run here" in project.exec().ended(1).err
    assert project.noted() == []


def test_a_tool_that_no_step_uses_keeps_nothing_from_running(project: Project) -> None:
    project.runbook(note("first"), tools=["note", "mcp"])
    project.exec().ended(0)


def test_a_replay_needs_no_transport(project: Project) -> None:
    project.runbook(call("x", "mcp"), tools=["mcp"])
    scenario: dict[str, Any] = {"tool_responses": {"x": {"outputs": {}}}}
    project.write("scenarios/book/one/scenario.yaml", scenario)
    project.exec("--mode", "replay", "--scenario", "one").ended(0)


def test_a_tool_file_by_itself_is_warned_about(project: Project) -> None:
    said = project.gert("validate", "tools/mcp.tool.yaml").ended(0)
    assert "the tool `mcp` would reach `mcp.internal` by plain http" in said.out + said.err


def test_a_provider_is_a_warning_and_an_error_unless_the_input_is_given(project: Project) -> None:
    project.write("gert-project.yaml", {"name": "bench", "providers": {"cmdb": {"binary": "cmdb"}}})
    inputs = {"host": {"type": "string", "from": "provider/cmdb.server.host"}}
    project.runbook(note("first", word="{{ .host }}"), inputs=inputs)
    said = project.gert("validate", "book.yaml").ended(0)
    assert "cannot ask the provider `cmdb`" in said.out + said.err
    for mode in ("real", "dry-run", "probe"):
        assert "the provider `cmdb` cannot be started" in project.exec("--mode", mode).ended(2).err
    assert (project.noted(), project.runs()) == ([], [])
    project.exec("--var", "host=srv1").ended(0)
    assert project.noted() == ["srv1"]


def test_a_resume_is_refused_before_anything_is_called(project: Project) -> None:
    asks = {"rules": [{"default": "require-approval"}]}
    project.runbook(note("first"), governance=asks)
    project.exec("--detach").ended(0)
    runbook = {"apiVersion": "kernel/v0", "meta": {"name": "book", "governance": asks}, "tools": ["note", "mcp"]}
    project.write("book.yaml", {**runbook, "steps": [note("first"), call("x", "mcp"), END]})
    said = project.gert("resume", "--run", project.run().folder.name, "--allow-changed").ended(1)
    assert "cannot run here" in said.err


def test_the_table_names_transports_that_tool_files_know() -> None:
    assert all(name in SUPPORTED.transports for name in TRANSPORTS)
    assert set(TRANSPORTS) <= set(KNOWN)
