"""A misspelt input in the command of a tool: the command that would run without it does not run at all."""

from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import in_loop
from tests.ecosystem.surfaces.cli.workbench import Project

from gert.agent import tool_pack
from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.catalogue import Catalogue
from gert.ecosystem.host.operations.runs import Exec, exec_
from gert.errors import GertError

SCENARIO = "inputs: { folder: sub }\ntool_responses: { clean: { exit_code: 0 } }\n"


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


GIVEN: dict[str, Any] = {"config": {"folder": "sub"}, "items": [{"folder": "sub"}], "none": []}
ABSENT = [
    pytest.param("base/{{ .config.fodler }}", id="a key"),
    pytest.param("base/{{ index . `config` `fodler` }}", id="a key by index of the inputs"),
    pytest.param("{{ with $c := . }}base/{{ index $c `config` `fodler` }}{{ end }}", id="a key by a variable"),
    pytest.param("{{ range pluck `fodler` .items }}base/{{ . }}{{ end }}", id="a loop over a key of items"),
    pytest.param("base/{{ join ` ` (pluck `fodler` .items) }}", id="a key of items, joined"),
    pytest.param("base/{{ ternary .config.fodler `x` true }}", id="a chosen key"),
    pytest.param("base/{{ and .config.fodler `x` }}", id="and"),
    pytest.param("{{ default `x` (print `base/` .config.fodler) }}", id="a part of a text with a default"),
    pytest.param("base/{{ first .none }}", id="the first of an empty list"),
]


def absent(project: Project, action: dict[str, Any]) -> Path:
    """A folder that a command would delete, whose author misspelt a key of an input."""
    (project.root / "base" / "sub").mkdir(parents=True)
    contract = {"effects": ["filesystem"], "writes": ["files"]}
    inputs = {name: {"type": "any", "required": True} for name in GIVEN}
    project.tool("remove", action["argv"], contract=contract, inputs=inputs, action=action)
    project.runbook({"id": "clean", "type": "tool", "tool": "remove", "inputs": GIVEN}, tools=["remove"])
    project.write("scenarios/book/one/scenario.yaml", SCENARIO.replace("{ folder: sub }", "{}"))
    return project.root / "base"


@pytest.mark.parametrize("word", ABSENT)
def test_a_key_that_is_not_there_fails_the_call_its_dry_run_and_its_test(project: Project, word: str) -> None:
    base = absent(project, {"argv": ["rm", "-r", "--", word]})
    modes = ("exec book.yaml", "exec book.yaml --mode dry-run", "exec book.yaml --mode probe", "test book.yaml")
    for command in modes:
        done = project.gert(*command.split())
        assert done.code != 0, command
        assert "`argv[3]`: " in done.out + done.err, command
    assert (base / "sub").is_dir()


def test_a_key_that_is_not_there_fails_the_call_in_its_folder(project: Project) -> None:
    base = absent(project, {"argv": ["rm", "-r", "sub"], "cwd": "base/{{ index . `config` `fodler` }}"})
    done = project.gert("exec", "book.yaml")
    assert done.code != 0
    assert "`cwd`: `index` finds nothing in a map" in done.out + done.err
    assert (base / "sub").is_dir()


def test_a_test_keeps_the_failure_that_its_scenario_gives(project: Project) -> None:
    absent(project, {"argv": ["rm", "-r", "--", "base/{{ .config.fodler }}"]})
    failure = "failure: { kind: transport, message: it is away }"
    project.write("scenarios/book/one/scenario.yaml", f"tool_responses: {{ clean: {{ {failure} }} }}\n")
    said = project.gert("test", "book.yaml")
    assert "it is away" in said.out
    assert "argv[3]" not in said.out
