"""The one function through which a skill is called by anything that has no run of its own, such as an agent's tool."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import KEYS, PING, Bench, bench, holds_canary
from tests.ecosystem.runners.vendors import Vendor

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.skill_call import SkillResult, perform_skill_call
from gert.errors import InDoubt, Refused
from gert.kernel.governance.rules import Policy, Rule
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runner.authorization import Grant
from gert.kernel.runner.plan import Order, plan_id_of


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Bench, Vendor]]:
    with bench(tmp_path / "project") as (made, served):
        yield made, served


def call(made: Bench, run_id: str = "agent-1", *, verdict: Verdict | None = None, **more: Any) -> SkillResult:
    environ = {**KEYS, "PATH": os.environ["PATH"]}
    project = RunnerProject(str(made.root), environ=environ, workspace=Workspace(str(made.root)))
    asked = Order(
        plan_id=plan_id_of(run_id, "step-1"), skill_id=PING, inputs={"word": "hi"}, day="2026-02-28",
        secret_ref=made.ref, requested_by="agent:triage", run_id=run_id,
    )  # fmt: skip
    policies = [Policy(name="house", rules=(Rule(default=verdict),))] if verdict is not None else []
    return asyncio.run(perform_skill_call(project, asked, policies=policies, **more))


def test_a_call_is_made_once_however_often_it_is_asked_for(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    first = call(made)
    assert first.record is not None
    assert (first.record.outputs, first.replayed) == ({"path": "/ping/hi"}, False)
    again = call(made)
    assert (again.record, again.replayed) == (first.record, True)
    assert len(served.asked) == 1
    other = call(made, "agent-2")
    assert other.plan_id != first.plan_id
    assert len(served.asked) == 2
    assert holds_canary(made.root, but=[made.secret]) == []


@pytest.mark.parametrize(
    ("verdict", "rule"),
    [
        pytest.param(Verdict.DENY, "governance/denied", id="denied"),
        pytest.param(Verdict.REQUIRE_APPROVAL, "governance/approval", id="an approval that no run can ask for"),
    ],
)
def test_policies_decide_where_no_run_has_asked(place: tuple[Bench, Vendor], verdict: Verdict, rule: str) -> None:
    made, served = place
    with pytest.raises(Refused) as refusal:
        call(made, verdict=verdict)
    assert refusal.value.rule == rule
    assert served.asked == []


def test_the_floor_of_the_project_applies_to_every_caller(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    deny = {"rules": [{"writes": ["vendor"], "action": "deny"}]}
    made.write("p.policy.yaml", {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": deny})
    made.settle(policies=["p.policy.yaml"])
    with pytest.raises(Refused, match="denied by floor rule 1"):
        call(made, verdict=Verdict.ALLOW)
    assert served.asked == []


def test_a_grant_of_a_run_is_in_the_record(place: tuple[Bench, Vendor]) -> None:
    made, _ = place
    result = call(made, grant=Grant(verdict="approved", tickets=("t-1",), approvers=("bob",)))
    out = made.gert("run", "tail", result.plan_id).ended(0).out
    assert "authorized: approved  approved by bob" in out


def test_an_execution_without_a_record_is_in_doubt_and_is_not_repeated(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    result = call(made)
    record = next(made.root.glob(f"_state/runs/*/{result.plan_id}/record.json"))
    record.unlink()
    import sqlite3

    with sqlite3.connect(made.root / "runs" / "ledger.db") as db:
        # As if the runner had died before it reported: its last event and its snapshot are gone.
        db.execute("DELETE FROM events WHERE run_id = ?1 AND seq = 4", (result.plan_id,))
        (line,) = db.execute("SELECT line FROM events WHERE run_id = ?1 AND seq = 3", (result.plan_id,)).fetchone()
        import hashlib
        import json

        (snapshot,) = db.execute("SELECT snapshot FROM runs WHERE run_id = ?1", (result.plan_id,)).fetchone()
        before = {key: value for key, value in json.loads(snapshot).items() if key != "exit_code"}
        db.execute(
            "UPDATE runs SET count = 3, hash = ?2, snapshot = ?3, status = 'running' WHERE run_id = ?1",
            (result.plan_id, hashlib.sha256(line).hexdigest(), json.dumps(before).encode()),
        )
    with pytest.raises(InDoubt, match="is unknown"):
        call(made)
    assert len(served.asked) == 1


def test_a_refusal_of_the_runner_is_a_result_without_a_record(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    result = call(made, grant=Grant(verdict="deny"))
    assert result.record is None
    assert result.refused is not None
    assert (result.refused.exit_code, result.refused.rule) == (11, "authorization/verdict")
    assert served.asked == []
