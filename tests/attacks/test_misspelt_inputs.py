"""A misspelt input in the command of a tool: the command that would run without it does not run at all."""

from pathlib import Path

import pytest
from tests.ecosystem.host.agent.places import in_loop
from tests.ecosystem.surfaces.cli.workbench import Project

from gert.agent import tool_pack
from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.catalogue import Catalogue
from gert.ecosystem.host.operations.runs import Exec, exec_
from gert.errors import GertError

SCENARIO = "apiVersion: scenario/v0\ninputs: { folder: sub }\ntools: { clean: { exit_code: 0 } }\n"


@pytest.fixture
def base(project: Project) -> Path:
    """A folder that the command would delete, and the tool whose author misspelt the folder in it."""
    (project.root / "base" / "sub").mkdir(parents=True)
    contract = {"effects": ["filesystem"], "writes": ["files"]}
    folder = {"folder": {"type": "string", "required": True}}
    argv = ["rm", "-r", "--", f"{project.root}/base/{{{{ .fodler }}}}"]
    project.tool("remove", argv, contract=contract, inputs=folder)
    step = {"id": "clean", "type": "tool", "tool": "remove", "inputs": {"folder": "{{ .folder }}"}}
    project.runbook(step, tools=["remove"], inputs=folder)
    project.write("scenarios/book/one/scenario.yaml", SCENARIO)
    return project.root / "base"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("validate book.yaml", id="validate"),
        pytest.param("exec book.yaml --var folder=sub", id="exec"),
        pytest.param("exec book.yaml --var folder=sub --mode dry-run", id="a dry run"),
        pytest.param("explain book.yaml", id="explain"),
        pytest.param("test book.yaml", id="test"),
        pytest.param("tool try remove --input folder=sub", id="tool try"),
        pytest.param("tool try remove --input folder=sub --dry-run", id="tool try in a dry run"),
        pytest.param("exec book.yaml --var folder=sub --detach", id="a run in the background"),
    ],
)
def test_no_command_runs_it(project: Project, base: Path, command: str) -> None:
    done = project.gert(*command.split())
    assert done.code != 0
    assert "no input `fodler`" in done.out + done.err
    assert (base / "sub").is_dir()


@in_loop
async def test_no_agent_gets_it_and_no_program_starts_it(project: Project, base: Path) -> None:
    with pytest.raises(GertError, match="no input `fodler`"):
        tool_pack(str(project.root / "tools" / "remove.tool.yaml"))
    root = str(project.root)
    access = Access(root=root, environ={}, catalogue=Catalogue(root), state_dir=str(project.root / "state"))
    with pytest.raises(Refused) as refused:
        await exec_(access, Exec(path="book", vars={"folder": "sub"}))
    assert "no input `fodler`" in str(refused.value.findings)
    assert (base / "sub").is_dir()
