"""What is signed is what was approved, also where a file changes between the approval and the signature."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import KEYS, PING, Bench, bench

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.runner.approve import approval_of
from gert.ecosystem.host.runner.create import create_plan, new_order
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.transport import RunnerRun, RunnerTransport
from gert.kernel.engine.requests import CallTool, ToolAnswer
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.governance.contract import resolve
from gert.kernel.runner.plan import plan_data

PATH = os.environ["PATH"]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "project") as (made, _):
        yield made


def approved(plan: dict[str, Any]) -> ApprovalRequest:
    return ApprovalRequest(
        run_id="r", runbook="b", step_id="s", title=None, risk_level="high", rule="a rule", contract={}, target="t",
        inputs={}, request_hash="sha256:0", min_approvers=1, approvers=(), admitted=(), separation_of_duties=False,
        require_signed_approvals=False, requested_by="ann", approval_timeout=60.0, plan=plan,
    )  # fmt: skip


def authorized(made: Bench, **changed: Any) -> tuple[ToolAnswer, Path]:
    """Ask for the authorization of a plan, with an approval of the plan as it is, or changed."""
    project = RunnerProject(
        str(made.root), environ={**KEYS, "PATH": PATH}, state=str(made.root), workspace=Workspace(str(made.root))
    )
    file = made.root / "p.plan.json"
    order = new_order(PING, inputs={"word": "hi"}, secret_ref=made.ref)
    plan = create_plan(project, order, str(file)).plan

    async def ask() -> ToolAnswer:
        runbook = (await approval_of(project, plan, str(file))).runbook
        program = project.workspace.program(runbook).program
        assert program is not None
        tool = program.tool_names["plan"].tool
        assert tool is not None
        run = RunnerRun(run_id="r", actor="ann", program=program, policies=())
        call = CallTool(
            key="k", path="authorize", step_id="authorize", timeout=None, tool="plan", action="authorize",
            inputs=plan.inputs, contract=resolve(), approval=approved({**plan_data(plan), **changed}),
        )  # fmt: skip
        return await RunnerTransport(project, run).call(tool, "authorize", tool.actions["authorize"], call)

    return asyncio.run(ask()), made.root / "p.plan.auth.json"


def test_a_plan_that_was_approved_is_signed(made: Bench) -> None:
    answer, file = authorized(made)
    assert answer.failure is None
    assert file.exists()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"secret_ref": "file:///etc/shadow"}, id="another secret"),
        pytest.param({"ttl_seconds": 1}, id="another time"),
        pytest.param({"unsandboxed": True}, id="another isolation"),
    ],
)
def test_a_file_that_was_exchanged_after_its_approval_is_not_signed(made: Bench, changed: dict[str, Any]) -> None:
    answer, file = authorized(made, **changed)
    assert answer.failure is not None
    assert answer.failure.kind == "approval_outdated"
    assert not file.exists()
