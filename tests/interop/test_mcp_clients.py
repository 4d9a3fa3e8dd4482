"""Public clients drive gert-mcp: the inspector from npm, and agents of frameworks that a person approves."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, environment, note, of_type
from tests.interop.packages import npm_packages, python_packages

pytestmark = pytest.mark.interop

INSPECTOR = ("node@22.23.3", "@modelcontextprotocol/inspector@2.12.0")
PYDANTIC_AI = ("pydantic-ai-slim[mcp]==2.66.0", "fastmcp-slim==4.2.0", "mcp==2.3.0")
OPENAI_AGENTS = ("openai-agents==0.24.0", "openai==3.51.0", "mcp==2.3.0")
GERT_MCP = str(Path(sys.executable).parent / "gert-mcp")
APPROVED = {"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]}
PATIENCE = 180


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose one runbook writes a word down, once a person approves."""
    made = Project(tmp_path / "project")
    word = {"word": {"type": "string", "default": "hello"}}
    made.runbook(note("write", "{{ .word }}"), governance=APPROVED, description="Writes a word down.", inputs=word)
    made.runbook(note("write", "free"), name="free")
    return made


def inspect(project: Project, era: str, *words: str) -> dict[str, Any]:
    """What the inspector prints."""
    programs = npm_packages("npm-inspector-2.12.0", *INSPECTOR)
    given = environment({"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"})
    command = [str(programs / "mcp-inspector"), "--cli", GERT_MCP, "--root", str(project.root)]
    done = subprocess.run(
        [*command, "--protocol-era", era, *words],
        env=given,
        cwd=project.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.needs("npm", "node")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_lists_tools_without_a_finding_and_calls_one(project: Project, era: str) -> None:
    listed = inspect(project, era, "--method", "tools/list", "--strict")
    assert "gert_exec" in [tool["name"] for tool in listed["tools"]]
    words = ("--tool-arg", "path=free", "--tool-arg", "wait_seconds=20")
    called = inspect(project, era, "--method", "tools/call", "--tool-name", "gert_exec", *words)
    assert called["structuredContent"]["status"] == "completed"
    assert project.noted() == ["free"]
    project.verifies()


FRAMEWORKS = [
    pytest.param("pydantic-ai-2.66.0", PYDANTIC_AI, "agent.py", id="pydantic-ai"),
    pytest.param("openai-agents-0.24.0", OPENAI_AGENTS, "openai_agent.py", id="openai-agents"),
]


@pytest.mark.parametrize(("name", "packages", "file"), FRAMEWORKS)
def test_an_agent_of_a_framework_ends_in_an_approved_recorded_run(
    project: Project, name: str, packages: tuple[str, ...], file: str
) -> None:
    programs = python_packages(name, *packages)
    script = Path(__file__).with_name(file)
    process = subprocess.Popen(
        [str(programs / "python"), str(script), GERT_MCP, str(project.root)],
        env=environment(),
        cwd=project.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    results: list[dict[str, Any]] = []
    approved: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            results.append(json.loads(line))
            waiting = results[-1].get("result", {}).get("waiting")
            if waiting is not None and waiting["ticket_id"] not in approved:
                approved.append(waiting["ticket_id"])
                project.gert("approve", waiting["ticket_id"], "--as", "ann").ended(0)
    finally:
        process.stdout.close()
        code = process.wait(PATIENCE)
    assert code == 0
    tools = [each["tool"] for each in results[:-1]]
    assert tools[:3] == ["gert_list_runbooks", "gert_explain", "gert_exec"]
    assert set(tools[3:]) == {"gert_run_status"}
    assert results[-1] == {"said": "the run ended: completed"}
    assert project.noted() == ["日本"]
    project.verifies()
    events = project.run().events()
    assert events[0]["principal"]["kind"] == "agent"
    [answer] = of_type(events, "approval_resolved")
    assert "ann" in json.dumps(answer)
