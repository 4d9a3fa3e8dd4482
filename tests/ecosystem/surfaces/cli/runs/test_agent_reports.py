"""`gert run show`, `cost` and `diff` of real agent runs, on SQLite and Postgres."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.surfaces.cli.runs.ledgers import ACME, OTHER, Place
from tests.ecosystem.surfaces.cli.runs.test_run_ledger import Out

from gert.agent import (
    AgentApprovals,
    ApprovalRequiredError,
    ArtanaKernel,
    AutonomousAgent,
    ContextBuilder,
    KernelPolicy,
    SafetyPolicyConfig,
    SafetyPolicyMiddleware,
    ToolExecutionContext,
)
from gert.testing import ScriptedModel, calls, says


class Report(BaseModel):
    """What the agents of these tests answer."""

    text: str


POLICY = {
    "restart": {"approval": {"mode": "human"}},
    "look": {"limits": {"max_calls_per_run": 1}},
}


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A ledger with agent runs of two tenants: one waits for an approval and has drifted, another has a sub-run."""
    place = Place(str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("dsn"))
    asyncio.run(_fill(place))
    return place


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Out:
    return Out(capsys)


def _kernel(place: Place, model: ScriptedModel) -> ArtanaKernel:
    safety = SafetyPolicyMiddleware(config=SafetyPolicyConfig.model_validate({"tools": POLICY}))
    kernel = ArtanaKernel(
        store=place.store(),
        model_port=model,
        middleware=ArtanaKernel.default_middleware_stack(safety=safety),
        policy=KernelPolicy.enforced_v2(),
        approvals=AgentApprovals(actor="carol", environ={}),
    )

    @kernel.tool()
    async def look(pod: str) -> str:
        """Look."""
        return f"{pod} is down"

    @kernel.tool(side_effect=True)
    async def restart(pod: str, artana_context: ToolExecutionContext) -> str:
        """Restart."""
        return f"{pod} restarted"

    return kernel


async def _run(
    place: Place, run_id: str, tenant: Any, script: list[Any], prompt: str = "is web up?", **more: Any
) -> None:
    async with _kernel(place, ScriptedModel(script)) as kernel:
        agent = AutonomousAgent(kernel, context_builder=ContextBuilder(progressive_skills=False), **more)
        with suppress(ApprovalRequiredError):
            await agent.run(run_id=run_id, tenant=tenant, model="gpt-5", prompt=prompt, output_schema=Report)


def paid(reply: Any, cost: float) -> Any:
    return says({"text": reply}, cost_usd=cost, prompt_tokens=3, completion_tokens=4)


async def _fill(place: Place) -> None:
    look, again = calls("look", {"pod": "web"}), calls("look", {"pod": "db"})
    await _run(place, "one", ACME, [look, again, paid("up", 0.5)])
    await _run(place, "two", ACME, [look, calls("look", {"pod": "cache"}), paid("down", 0.25)])
    await _run(place, "asks", OTHER, [calls("restart", {"pod": "web"}), paid("x", 1.0)])
    await _run(place, "one", ACME, [], prompt="is web up now?", replay_policy="allow_prompt_drift")


def test_show_is_a_timeline_of_turns_calls_decisions_and_drift(ledger: Place, out: Out) -> None:
    said = out.json("show", "one", *ledger.words)
    items = [(item["kind"], item["name"], item.get("status", ""), item.get("turn")) for item in said["timeline"]]
    assert ("model", "gpt-5", "completed", 1) in items
    assert ("tool", "look", "success", 1) in items
    assert ("decision", "look", "allow") in [item[:3] for item in items]
    assert ("decision", "look", "deny") in [item[:3] for item in items]
    assert any(item[0] == "drift" for item in items)
    totals = said["totals"]
    assert (totals["turns"], totals["model_calls"], totals["tool_calls"], totals["denied"]) == (3, 3, 1, 1)
    assert totals["cost_usd"] == pytest.approx(0.5)
    assert totals["drifts"] >= 1
    shown = out.of("show", "one", *ledger.words)
    for words in ("turn 1", "turn 3", "decision look", "limit:max_calls_per_run", "drift", "0.500000 USD", "1 denied"):
        assert words in shown, words


def test_show_says_what_an_agent_waits_for(ledger: Place, out: Out) -> None:
    said = out.json("show", "asks", *ledger.words)
    assert ("approval", "requested") in [(item["kind"], item["status"]) for item in said["timeline"]]
    assert (said["totals"]["approvals"], said["totals"]["denied"]) == (1, 0), "a call that waits is not denied"
    shown = out.of("show", "asks", *ledger.words)
    assert "waits" in shown
    assert "1 approval" in shown


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("tenant", [("acme", 0.75), ("other", 0.0)]),
        ("run", [("one", 0.5), ("two", 0.25), ("asks", 0.0)]),
        ("model", [("gpt-5", 0.75)]),
    ],
)
def test_costs_are_summed(ledger: Place, out: Out, by: str, rows: list[tuple[str, float]]) -> None:
    said = out.json("cost", "--by", by, *ledger.words)
    assert [(row["name"], row["cost_usd"]) for row in said["rows"]] == rows
    assert said["cost_usd"] == 0.75
    text = out.of("cost", "--by", by, *ledger.words)
    assert "total 0.750000 USD" in text
    only = out.json("cost", "--by", by, "--tenant", "other", *ledger.words)
    assert only["cost_usd"] == 0


def test_a_report_by_model_counts_tokens_and_calls(ledger: Place, out: Out) -> None:
    (row,) = out.json("cost", "--by", "model", *ledger.words)["rows"]
    assert (row["runs"], row["calls"], row["prompt_tokens"], row["completion_tokens"]) == (3, 7, 6, 8)


def test_two_runs_are_compared_step_by_step(ledger: Place, out: Out) -> None:
    said = out.json("diff", "one", "two", *ledger.words)
    changed = {each["step"]: each for each in said["differences"]}
    assert changed["model turn_2_model"]["fields"].keys() >= {"calls"}
    assert changed["model turn_3_model"]["fields"]["output"] == ['{"text":"up"}', '{"text":"down"}']
    assert said["same_steps"] >= 2
    text = out.of("diff", "one", "two", *ledger.words)
    assert "~ model turn_3_model" in text
    assert out.of("diff", "one", "two", "--exit-code", *ledger.words, code=1)
    assert "no differences" in out.of("diff", "one", "one", "--exit-code", *ledger.words)
    for pair, change in ((("one", "asks"), "only_in_a"), (("asks", "one"), "only_in_b")):
        found = out.json("diff", *pair, *ledger.words)["differences"]
        assert {each["change"] for each in found} == {change, "changed"}


@pytest.mark.parametrize("words", [("diff", "one", "nothing"), ("show", "nothing"), ("cost", "--by", "colour")])
def test_what_is_not_there_is_a_usage_error(ledger: Place, out: Out, words: tuple[str, ...]) -> None:
    out.of(*words, *ledger.words, code=2)
    assert "nothing" in out.err or "colour" in out.err
