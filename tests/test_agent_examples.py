"""The agents of `examples/agents` run offline, twice: the second time nothing is done again."""

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gert.ecosystem.surfaces.cli.main import main

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "agents"
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an example in an empty folder, and return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def example(name: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *words, "--offline"])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return example


def gert(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def verified(capsys: pytest.CaptureFixture[str], db: str) -> None:
    document = json.loads(gert(capsys, "run", "verify-ledger", "--db", db, "--json"))
    assert document["runs"]
    assert all(each["valid"] for each in document["runs"])


def test_a_chat_asks_only_what_is_new(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = run("durable_chat", "What is a lease?", "And a fencing token?")
    assert first.count("scripted: ") == 2
    again = run("durable_chat", "What is a lease?", "And a fencing token?", "What did I ask?")
    assert again.count("replayed: ") == 2
    assert "scripted: I heard 5 messages so far." in again
    verified(capsys, "chat.db")


def test_a_tool_agent_waits_for_an_approval_and_continues(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert "waiting: `restart_pod` needs an approval" in run("tool_agent_with_approval")
    assert "waiting" in run("tool_agent_with_approval"), "running it again approves nothing"
    [ticket] = json.loads(gert(capsys, "approvals", "list", "--db", "pods.db", "--json"))
    assert f"gert approve {ticket['ticket_id']}" in gert(capsys, "run", "show", "pods", "--db", "pods.db")
    gert(capsys, "approve", ticket["ticket_id"], "--db", "pods.db", "--as", "ann")
    done = run("tool_agent_with_approval")
    assert done.count("restarting web-1") == 1
    assert "web-1 was crash looping and is restarted" in done
    assert "restarting" not in run("tool_agent_with_approval")
    shown = gert(capsys, "run", "show", "pods", "--db", "pods.db")
    assert "approval" in shown
    assert "decision restart_pod" in shown
    verified(capsys, "pods.db")


def test_an_incident_agent_acts_only_through_governed_runbooks(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = run("incident_triage")
    assert "waiting: `restart-service` waits for an approval in run" in waiting
    assert not (tmp_path / "restarts.log").exists()
    [ticket] = json.loads(gert(capsys, "approvals", "list", "--db", "incident.db", "--json"))
    assert ticket["step_id"] == "restart"
    assert ticket["description"] == "The agent says: it is crash looping: out of memory"
    gert(capsys, "approve", ticket["ticket_id"], "--db", "incident.db", "--as", "ann")
    for _ in range(2):
        assert "web was out of memory and is restarted (resolved: True)" in run("incident_triage")
    assert (tmp_path / "restarts.log").read_text() == "web\n"
    assert (tmp_path / "web.state").exists(), "the runbook that deletes was denied"
    shown = gert(capsys, "run", "show", "incident-42", "--db", "incident.db")
    assert "deny" in shown
    assert [line for line in shown.splitlines() if "of runbook" in line]
    assert not [line for line in shown.splitlines() if "of runbook" in line and "✗" in line], "a link is no failure"
    listed = json.loads(gert(capsys, "run", "list", "--db", "incident.db", "--json"))
    assert len(listed["runs"] if isinstance(listed, dict) else listed) == 3, "the agent, and two runs of runbooks"
    verified(capsys, "incident.db")


@pytest.mark.needs("git")
def test_a_harness_writes_code_until_its_tests_pass(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run("test_driven_coding")
    assert "add: tests pass at attempt 1" in done
    assert "mean: tests pass at attempt 2" in done
    assert "100 % done: add, mean" in done
    assert "if values else 0" in (tmp_path / "coding" / "calc.py").read_text()
    assert "attempt" not in run("test_driven_coding"), "its tasks are done"
    verified(capsys, "coding.db")


def test_three_agents_debate_under_one_budget(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Deploy? -> against" in run("three_agent_debate", "Deploy?")
    report = json.loads(gert(capsys, "run", "cost", "--by", "run", "--db", "debate.db", "--json"))
    assert [(row["name"], row["runs"], row["calls"]) for row in report["rows"]] == [("debate", 3, 4)]
    verified(capsys, "debate.db")


def test_every_example_is_run_and_described() -> None:
    named = {path.stem for path in EXAMPLES.glob("*.py")} - {"model"}
    tested = set(re.findall(r'run\("(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert named == tested
    assert all(f"{name}.py" in page for name in named)
