"""The tool calls of an agent in the inbox of everybody: the same commands list, show and answer them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import Place
from tests.ecosystem.host.agent.policies import Mailer
from tests.ecosystem.surfaces.cli.workbench import Project

from gert.agent import AgentApprovals, ApprovalRequiredError, PolicyViolationError

DENIED = "`send` is denied: `bob` rejected it: not today"


def agent(path: Path, *, begin: bool = False) -> str:
    """Take the step of an agent, as its own process does; say what became of it."""

    async def work() -> str:
        approvals = AgentApprovals(actor="carol", environ={})
        async with Mailer(Place("sqlite", str(path)), approvals=approvals, approval={"mode": "human"}) as mailer:
            if begin:
                await mailer.begin()
            try:
                await mailer.send()
            except (ApprovalRequiredError, PolicyViolationError) as error:
                return str(error)
            return f"sent {len(mailer.sent)}"

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("command", "then"),
    [
        pytest.param(["approve", "--reason", "fine"], "sent 1", id="approved"),
        pytest.param(["reject", "--reason", "not today"], DENIED, id="rejected"),
    ],
)
def test_people_answer_the_calls_of_agents_with_the_same_commands(
    project: Project, command: list[str], then: str
) -> None:
    path = project.root / "agent.db"
    assert "needs an approval" in agent(path, begin=True)
    listed = project.gert("approvals", "list", "--db", str(path))
    assert listed.out.count("agent:acme") == 1
    [ticket] = json.loads(project.gert("approvals", "list", "--db", str(path), "--json").out)
    assert (ticket["run_kind"], ticket["target"], ticket["risk_level"]) == ("agent", "send", "high")
    assert (ticket["inputs"]["to"], ticket["requested_by"]) == ("ann@example.com", "carol")
    shown = project.gert("approvals", "show", ticket["ticket_id"], "--db", str(path)).out
    assert all(words in shown for words in ("agent:", "acme", "send", "approval:human", "to: ann@example.com"))
    name, *options = command
    answered = project.gert(name, ticket["ticket_id"], "--db", str(path), "--as", "bob", *options)
    assert answered.code == 0
    assert "the agent takes it when it runs the step again" in answered.out
    assert agent(path) == then
    again: Any = project.gert("approve", ticket["ticket_id"], "--db", str(path), "--as", "dan")
    assert (again.code, "closed" in again.out) == (1, True)
    assert project.gert("run", "verify-ledger", "r", "--db", str(path)).out.strip() == "valid"
