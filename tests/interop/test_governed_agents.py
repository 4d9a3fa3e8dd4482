"""Agents of other libraries with tools of gert: the code of `docs/govern-your-agent.md`, with the real libraries."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import environment
from tests.interop.packages import ROOT, python_packages

pytestmark = pytest.mark.interop

PAGE = ROOT / "docs" / "govern-your-agent.md"
LIBRARIES = {
    "langgraph": ("langgraph==1.2.22", "langchain-core==1.7.2"),
    "openai_agents": ("openai-agents==0.24.0", "openai==3.51.0"),
    "pydantic_ai": ("pydantic-ai-slim==2.66.0",),
}
PATIENCE = 180.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the page shows."""
    for language, name, text in re.findall(r"^```(yaml|python)\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        assert name.endswith("yaml" if language == "yaml" else "py")
        (tmp_path / name).write_text(text)
    return tmp_path


def gert(folder: Path, *words: str) -> Any:
    """What `gert … --json` prints about the ledger of the agent."""
    done = subprocess.run(
        [sys.executable, "-m", "gert", *words, "--db", "runs.db", "--json"],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def start(folder: Path, library: str) -> "subprocess.Popen[str]":
    programs = python_packages(f"governed-{library}", *LIBRARIES[library], "-e", str(ROOT))
    script = Path(__file__).with_name("governed_agent.py")
    return subprocess.Popen(
        [str(programs / "python"), str(script), library, "triage-1"],
        cwd=folder, env=environment({"PYTHONDONTWRITEBYTECODE": "1"}), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: "subprocess.Popen[str]") -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    said: dict[str, Any] = json.loads(out)
    return said


def waiting_ticket(folder: Path, process: "subprocess.Popen[str]") -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        if (folder / "runs.db").exists():
            found = gert(folder, "approvals", "list")
            if found:
                ticket: str = found[0]["ticket_id"]
                return ticket
        time.sleep(0.3)
    raise AssertionError("no ticket was opened")


@pytest.mark.parametrize("library", LIBRARIES)
def test_calls_are_decided_approved_recorded_and_replayed(folder: Path, library: str) -> None:
    process = start(folder, library)
    try:
        ticket = waiting_ticket(folder, process)
        assert not (folder / "restarted").exists(), "nothing happens before the approval"
        gert(folder, "approve", ticket, "--as", "bob")
        said = ended(process)
    finally:
        process.kill()
    looked, restarted, deleted, odd = said["told"]
    assert (json.loads(looked), json.loads(restarted)) == ({"said": "web-1 is down"}, {"said": "web-1 is up"})
    assert "denied by ops rule 1" in json.loads(deleted)["error"]
    assert "do not fit" in json.loads(odd)["error"]
    assert said["answer"] == "web-1 is up again"
    assert (folder / "restarted").read_text() == "web-1\n"
    assert not (folder / "deleted").exists()
    parameters = said["schemas"]["pods_look"]["parameters"]
    assert parameters["properties"]["pod"]["pattern"] == "^[a-z0-9-]+$"
    assert parameters["required"] == ["pod"]

    # It is on record, and whole.
    shown = gert(folder, "run", "show", "triage-1")
    decisions = [(item["name"], item["status"]) for item in shown["timeline"] if item["kind"] == "decision"]
    assert ("pods_delete", "deny") in decisions
    assert ("pods_restart", "allow") in decisions
    approved = [item for item in shown["timeline"] if item["kind"] == "approval" and item["status"] == "approved"]
    assert any(item.get("detail", "").startswith("by bob") for item in approved)
    assert gert(folder, "run", "verify", "triage-1")["valid"]
    events = gert(folder, "run", "status", "triage-1")["last_event_seq"]

    # The same run again: every call returns what is on record.
    again = ended(start(folder, library))
    assert (again["answer"], again["told"]) == (said["answer"], said["told"])
    assert (folder / "restarted").read_text() == "web-1\n"
    assert gert(folder, "run", "status", "triage-1")["last_event_seq"] == events
