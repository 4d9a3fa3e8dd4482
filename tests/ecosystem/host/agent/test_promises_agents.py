"""What must hold, 12 to 14, for agents on every ledger: one budget, errors told to the model, what was read."""

import json
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import TENANT, Place, in_loop, kinds, of_type

from gert.agent import (
    AcceptanceSpec,
    AutonomousAgent,
    BudgetExceededError,
    ContextBuilder,
    InMemoryMemoryStore,
    ModelTransientError,
    QuotaMiddleware,
    SubAgentFactory,
    ToolGate,
)
from gert.testing import ScriptedModel, calls, fails, says


class Report(BaseModel):
    text: str


PLAIN = ContextBuilder(progressive_skills=False)
TASK: dict[str, Any] = {"run_id": "r", "tenant": TENANT, "model": "m", "prompt": "?", "output_schema": Report}


@in_loop
async def test_12_sub_agents_share_the_budget_and_a_paid_answer_is_kept(shared: Place) -> None:
    model = ScriptedModel(
        [
            says(None, tool_calls=[calls("helper", {"prompt": "go"})], cost_usd=0.5),
            says({"text": "expensive"}, cost_usd=0.7),
            says({"text": "done"}),
        ]
    )
    async with shared.kernel(model, middleware=[QuotaMiddleware()]) as kernel:
        SubAgentFactory(kernel=kernel, context_builder=PLAIN).create(
            name="helper", output_schema=Report, model="m", system_prompt="You help."
        )
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        small = TENANT.model_copy(update={"budget_usd_limit": 1.0})
        with pytest.raises(BudgetExceededError):
            await agent.run(**{**TASK, "tenant": small})
        found = await agent.run(**{**TASK, "tenant": small.model_copy(update={"budget_usd_limit": 2.0})})
        assert found.text == "done"
        assert model.calls == 3, "the answer that exceeded the budget was not asked for again"


@in_loop
async def test_13_errors_rejected_drafts_and_reasons_reach_the_model(shared: Place) -> None:
    script: list[Any] = [
        [calls("look", {"wrong": 1}), calls("invented", {}), calls("breaks", {})],
        says({"text": "short"}),
        says({"text": "long enough"}),
    ]
    model = ScriptedModel(script)
    async with shared.kernel(model) as kernel:

        @kernel.tool()
        async def look(pod: str) -> str:
            return pod

        @kernel.tool()
        async def breaks() -> str:
            raise ValueError("disk full")

        @kernel.tool()
        async def is_long(candidate: Report) -> dict[str, Any]:
            return {"passed": len(candidate.text) > 8, "seen": candidate.text}

        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        gates = AcceptanceSpec(gates=(ToolGate(tool="is_long"),))
        assert (await agent.run(**TASK, acceptance=gates)).text == "long enough"
        told = [json.loads(each.content)["error"] for each in model.requests[1].messages if each.role == "tool"]
        assert ["pod" in told[0], "no tool `invented`" in told[1], "disk full" in told[2]] == [True] * 3
        assert '"seen":"short"' in model.requests[2].messages[-1].content
        before = await kinds(kernel, "r")
        assert (await agent.run(**TASK, acceptance=gates)).text == "long enough"
        assert await kinds(kernel, "r") == before


@in_loop
async def test_14_a_run_that_used_its_own_memory_resumes(shared: Place) -> None:
    memory = InMemoryMemoryStore()
    await memory.append("r", "web-1 is flaky")
    script: list[Any] = [calls("memory_append", {"text": "ask Ann"}), fails(ModelTransientError("busy"))]
    model = ScriptedModel([*script, says({"text": "done"})])
    async with shared.kernel(model) as kernel:
        agent = AutonomousAgent(kernel, memory_store=memory)
        with pytest.raises(ModelTransientError):
            await agent.run(**TASK)
        await memory.replace("r", "changed by another program")
        assert (await agent.run(**TASK)).text == "done"
        assert "web-1 is flaky\nask Ann" in model.requests[2].messages[0].content
        read = [event.payload.source for event in await of_type(kernel, "r", "context_read")]  # type: ignore[union-attr]
        assert read == ["memory", "skills", "memory"]
