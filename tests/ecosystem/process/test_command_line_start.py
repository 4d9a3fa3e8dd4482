"""The command itself: whatever a shell starts it with, tools find three descriptors and the trace is whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import decode

# What it lists last is the descriptor it lists with.
FOUND = "import os, sys; sys.stdin.read(); print(*sorted(os.listdir('/proc/self/fd'))[:-1], os.getcwd())"
TOOL = f"""
apiVersion: tool/v0
meta: {{name: t}}
contract: {{effects: [], writes: [], outputs: {{it: {{type: string}}}}}}
actions:
  go: {{argv: {json.dumps([sys.executable, "-c", FOUND])}, extract: {{it: {{from: stdout, trim: false}}}}}}
"""
RUNBOOK = """
apiVersion: kernel/v0
meta: {name: b}
tools: [t]
steps:
  - {id: a, type: tool, tool: t, action: go}
  - {type: end, outcome: {category: resolved, code: x}}
"""


@pytest.fixture
def way() -> str:
    """How processes are started is the command's own choice here."""
    return "its own"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/t.tool.yaml").write_text(TOOL)
    (tmp_path / "b.yaml").write_text(RUNBOOK)
    (tmp_path / "link").symlink_to(tmp_path)
    return tmp_path


def execute(folder: Path, redirections: str = "", **environment: str) -> str:
    """Run it, where redirections are wanted with a shell; what its tool found."""
    words = [sys.executable, "-m", "gert", "exec", "b.yaml", "--trace", "t.jsonl", "--quiet"]
    if redirections:
        words = ["bash", "-c", f'exec "$@" {redirections}', "bash", *words]
    variables = {"PATH": os.environ["PATH"], "GERT_STATE_DIR": str(folder / "state"), **environment}
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = (folder / "t.jsonl").read_bytes().splitlines()
    assert read_chain(lines).break_count == 0
    [found] = [
        event.data["outputs"]["it"]
        for event in map(decode, lines)
        if event.type == "step_complete" and event.path == "a"
    ]
    return str(found)


@pytest.mark.parametrize(
    "redirections",
    [
        pytest.param("3>{0}/x 4</dev/null 9<>{0}/y", id="a shell's own descriptors"),
        pytest.param("3< <(sleep 0.2) 8> >(cat >/dev/null)", id="what a jobserver would hold open"),
        pytest.param("<&-", id="no input"),
        pytest.param(">&-", id="no output"),
        pytest.param("2>&-", id="no errors"),
        pytest.param("<&- >&- 2>&- 5</dev/null", id="nothing but another"),
    ],
)
def test_a_tool_has_its_three_descriptors_whatever_the_shell_did(folder: Path, redirections: str) -> None:
    assert execute(folder, redirections.format(folder)) == f"0 1 2 {folder}\n"


def test_a_folder_behind_a_link(folder: Path) -> None:
    assert execute(folder / "link") == f"0 1 2 {folder}\n"


def test_a_variable_without_a_name_does_not_keep_tools_from_running(folder: Path) -> None:
    assert execute(folder, **{"": "nameless"}) == f"0 1 2 {folder}\n"
