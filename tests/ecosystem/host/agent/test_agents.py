"""Agents: turns, tools, errors that the model is told, skills, memory, compaction, gates, verification, sub-agents."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import of_type

from gert.agent import (
    AcceptanceSpec,
    AgentRuntime,
    AgentRuntimeResult,
    ApprovalRequiredError,
    ArtanaKernel,
    AutonomousAgent,
    BudgetExceededError,
    ChatMessage,
    CompactionStrategy,
    ContextBuilder,
    DraftVerifyLoopConfig,
    ExperienceRule,
    InMemoryMemoryStore,
    MaxIterationsExceeded,
    ModelRequest,
    ModelTransientError,
    ReplayConsistencyError,
    RuleType,
    RunSummaryPayload,
    SQLiteExperienceStore,
    SubAgentFactory,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolExecutionResult,
    ToolGate,
)
from gert.errors import InputError, ModelError
from gert.testing import FailingTool, ScriptedModel, a_tenant, calls, fails, hangs, memory_kernel, says, times_out

TENANT = a_tenant(capabilities=("restart",))


class Report(BaseModel):
    text: str


def shown(request: ModelRequest[Any], role: str) -> list[str]:
    return [message.content for message in request.messages if message.role == role]


async def keys(kernel: ArtanaKernel, run_id: str, kind: str) -> list[str | None]:
    return [getattr(event.payload, "step_key", None) for event in await of_type(kernel, run_id, kind)]


async def summaries(kernel: ArtanaKernel, run_id: str, kind: str) -> list[dict[str, Any]]:
    found = [event.payload for event in await of_type(kernel, run_id, "run_summary")]
    return [
        json.loads(each.summary_json)
        for each in found
        if isinstance(each, RunSummaryPayload) and each.summary_type == kind
    ]


def with_tools(model: ScriptedModel) -> tuple[ArtanaKernel, list[str]]:
    kernel, done = memory_kernel(model), []

    @kernel.tool()
    async def look(pod: str) -> dict[str, str]:
        """Look at a pod."""
        done.append(f"look {pod}")
        return {"pod": pod, "state": "down"}

    @kernel.tool(requires_capability="restart", side_effect=True)
    async def restart(pod: str, artana_context: ToolExecutionContext) -> dict[str, str]:
        """Restart a pod."""
        done.append(f"restart {pod}")
        return {"restarted": pod}

    @kernel.tool(requires_capability="root")
    async def wipe() -> str:
        """Wipe everything."""
        done.append("wipe")
        return "gone"

    return kernel, done


async def run(agent: AutonomousAgent, run_id: str = "r", **more: Any) -> Report:
    return await agent.run(run_id=run_id, tenant=TENANT, model="m", prompt="Is web-1 up?", output_schema=Report, **more)


PLAIN = ContextBuilder(progressive_skills=False)


def test_turns_end_with_an_answer_and_a_second_run_replays_them() -> None:
    async def main() -> None:
        script: list[Any] = [
            calls("look", {"pod": "web-1"}),
            [calls("restart", {"pod": "web-1"})],
            says({"text": "it is up"}),
        ]
        model = ScriptedModel(script)
        kernel, done = with_tools(model)
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        assert (await run(agent)).text == "it is up"
        assert done == ["look web-1", "restart web-1"]
        assert await keys(kernel, "r", "model_requested") == ["turn_1_model", "turn_2_model", "turn_3_model"]
        assert await keys(kernel, "r", "tool_requested") == ["turn_1_tool_1_look", "turn_2_tool_1_restart"]
        assert [each["iteration"] for each in await summaries(kernel, "r", "agent_model_step")] == [1, 2, 3]
        assert [each["tool_name"] for each in await summaries(kernel, "r", "agent_tool_step")] == ["look", "restart"]
        assert shown(model.requests[1], "tool") == ['{"pod":"web-1","state":"down"}']
        assert (await kernel.get_run_status(run_id="r")).status == "completed"
        before = await kernel.get_events(run_id="r")
        assert (await run(agent)).text == "it is up"
        assert await kernel.get_events(run_id="r") == before
        model.assert_used_up()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        pytest.param(calls("lok", {}), "did you mean `look`?", id="an invented tool"),
        pytest.param(calls("look", {"pot": 1}), "pod", id="arguments that do not fit"),
        pytest.param(calls("wipe", {}), "may not use `wipe`", id="a tool the tenant may not use"),
        pytest.param(calls("\x00" * 9, {}), "there is no tool", id="a name that cannot be recorded"),
        pytest.param(calls("x" * 9000, {}), "there is no tool", id="a name of nine thousand letters"),
    ],
)
def test_an_error_is_told_to_the_model_and_is_the_same_when_resumed(call: Any, told: str) -> None:
    async def main() -> None:
        model = ScriptedModel([call, says({"text": "sorry"}), says({"text": "never asked"})])
        kernel, done = with_tools(model)
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        assert (await run(agent)).text == "sorry"
        [error] = shown(model.requests[1], "tool")
        assert told in json.loads(error)["error"]
        assert done == []
        assert (await run(agent)).text == "sorry"
        assert model.calls == 2

    asyncio.run(main())


def test_calls_of_one_turn_run_together_and_are_answered_in_order() -> None:
    async def main() -> None:
        model = ScriptedModel([[calls("meet", {"who": n}) for n in (1, 2, 3)], says({"text": "met"})])
        kernel, here, met = memory_kernel(model), [], asyncio.Event()

        @kernel.tool()
        async def meet(who: int) -> int:
            here.append(who)
            if len(here) == 3:
                met.set()
            await met.wait()
            return who * 10

        await run(AutonomousAgent(kernel, context_builder=PLAIN))
        assert shown(model.requests[1], "tool") == ["10", "20", "30"]

    asyncio.run(main())


def test_a_skill_is_listed_then_loaded_then_offered() -> None:
    async def main() -> None:
        script: list[Any] = [
            calls("load_skill", {"skill_name": "look"}),
            calls("look", {"pod": "a"}),
            says({"text": "ok"}),
        ]
        model = ScriptedModel(script)
        kernel, done = with_tools(model)
        await run(AutonomousAgent(kernel))
        offered = [[tool.name for tool in request.allowed_tools] for request in model.requests]
        assert offered[0] == ["load_skill", "query_event_history"]
        assert offered[1] == offered[2] == ["load_skill", "look", "query_event_history"]
        [first, *_] = shown(model.requests[0], "system")
        assert "- look: Look at a pod." in first
        assert "wipe" not in first, "what the tenant may not use is not listed"
        assert done == ["look a"]

    asyncio.run(main())


def test_memory_is_kept_shown_and_on_record() -> None:
    async def main() -> None:
        store = InMemoryMemoryStore()
        model = ScriptedModel(
            [
                [calls("memory_append", {"text": "web-1 is flaky"}), calls("memory_append", {"text": "ask Ann"})],
                calls("memory_search", {"query": "ann"}),
                calls("memory_replace", {"content": "all is well"}),
                says({"text": "done"}),
            ]
        )
        kernel = memory_kernel(model)
        agent = AutonomousAgent(kernel, memory_store=store)
        await run(agent)
        systems = [shown(request, "system")[0] for request in model.requests]
        assert "## Memory" not in systems[0]
        assert "web-1 is flaky\nask Ann" in systems[1]
        assert "all is well" in systems[3]
        assert "ask Ann" in shown(model.requests[2], "tool")[-1]
        # What is in the store by now is not what the run saw: it replays what it saw.
        await store.replace("r", "something else")
        before = await kernel.get_events(run_id="r")
        await run(agent)
        assert await kernel.get_events(run_id="r") == before
        assert await store.load("r") == "something else"

    asyncio.run(main())


def test_a_long_conversation_is_compacted_and_the_task_stays() -> None:
    async def main() -> None:
        model = ScriptedModel(
            [
                *(calls("look", {"pod": str(n)}) for n in range(3)),
                says({"summary": "looked at 0 and 1"}, expect="[tool]"),
                says({"text": "done"}),
            ]
        )
        kernel, _ = with_tools(model)
        strategy = CompactionStrategy(trigger_at_messages=6, keep_recent_messages=2, summarize_with_model="small")
        await run(AutonomousAgent(kernel, context_builder=PLAIN, compaction=strategy))
        assert (await keys(kernel, "r", "model_requested"))[-2:] == ["turn_4_compact", "turn_4_model"]
        assert model.requests[3].model == "small"
        last = model.requests[4]
        assert [message.role for message in last.messages] == ["system", "user", "user", "assistant", "tool"]
        assert shown(last, "user")[0] == "Is web-1 up?"
        assert "looked at 0 and 1" in shown(last, "user")[1]

    asyncio.run(main())


def test_gates_get_the_candidate_and_their_reasons_reach_the_model() -> None:
    async def main() -> None:
        model = ScriptedModel([says({"text": "short"}), says({"text": "long enough"})])
        kernel, seen = memory_kernel(model), []

        @kernel.tool()
        async def measure(text: str, least: int) -> dict[str, object]:
            seen.append(text)
            return {"passed": len(text) >= least, "length": len(text)}

        @kernel.tool()
        async def judge(candidate: dict[str, str]) -> bool:
            seen.append(candidate["text"])
            return False

        gates = (
            ToolGate(tool="measure", arguments_json='{"text":"{{candidate.text}}","least":8}'),
            ToolGate(tool="judge", must_pass=False),
        )
        found = await run(AutonomousAgent(kernel, context_builder=PLAIN), acceptance=AcceptanceSpec(gates=gates))
        assert found.text == "long enough"
        assert seen == ["short", "short", "long enough", "long enough"]
        told = shown(model.requests[1], "user")[-1]
        assert "`measure` did not pass" in told
        assert '"length":5' in told
        assert "judge" not in told
        assert shown(model.requests[1], "assistant") == ['{"text":"short"}']
        assert await keys(kernel, "r", "tool_requested") == [
            "turn_1_accept_tool_1_measure",
            "turn_1_accept_tool_2_judge",
            "turn_2_accept_tool_1_measure",
            "turn_2_accept_tool_2_judge",
        ]
        noted = await summaries(kernel, "r", "agent_acceptance_gate")
        assert [(each["tool_name"], each["passed"]) for each in noted] == [
            ("measure", False),
            ("judge", False),
            ("measure", True),
            ("judge", False),
        ]

    asyncio.run(main())


def test_a_draft_is_verified_by_another_model_and_a_correction_passes_the_gates_too() -> None:
    async def main() -> None:
        model = ScriptedModel(
            [
                says({"text": "draft one"}),
                says({"text": "BAD"}, expect="Verify the draft"),
                says({"text": "draft two"}),
                says({"text": "final"}),
            ]
        )
        kernel = memory_kernel(model)

        @kernel.tool()
        async def lower(candidate: Report) -> bool:
            return candidate.text.islower()

        agent = AutonomousAgent(
            kernel, context_builder=PLAIN, loop=DraftVerifyLoopConfig(draft_model="small", verify_model="large")
        )
        found = await run(agent, acceptance=AcceptanceSpec(gates=(ToolGate(tool="lower"),)))
        assert found.text == "final"
        assert [request.model for request in model.requests] == ["small", "large", "small", "large"]
        assert await keys(kernel, "r", "model_requested") == [
            "turn_1_draft",
            "turn_1_verify",
            "turn_2_draft",
            "turn_2_verify",
        ]
        assert await keys(kernel, "r", "tool_requested") == [
            "turn_1_accept_tool_1_lower",
            "turn_1_accept_tool_2_lower",
            "turn_2_accept_tool_1_lower",
            "turn_2_accept_tool_2_lower",
        ]
        assert '{"text":"BAD"}' in shown(model.requests[2], "assistant")
        assert len(await summaries(kernel, "r", "agent_verify_step")) == 2

    asyncio.run(main())


def test_without_an_answer_the_run_fails_and_more_turns_continue_it() -> None:
    async def main() -> None:
        model = ScriptedModel([calls("look", {"pod": "a"}), calls("look", {"pod": "b"}), says({"text": "ok"})])
        kernel, done = with_tools(model)
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        with pytest.raises(MaxIterationsExceeded, match="no accepted answer after 2 turns"):
            await run(agent, max_iterations=2)
        assert (await kernel.get_run_status(run_id="r")).status == "failed"
        assert (await run(agent, max_iterations=3)).text == "ok"
        assert done == ["look a", "look b"]
        assert (await kernel.get_run_status(run_id="r")).status == "completed"

    asyncio.run(main())


class Clock(ContextBuilder):
    """A builder that sees something else each time."""

    def __init__(self) -> None:
        super().__init__(progressive_skills=False)
        self.built = 0

    async def build_messages(self, **given: Any) -> tuple[ChatMessage, ...]:
        self.built += 1
        first = ChatMessage(role="system", content=f"It is {self.built} o'clock.")
        found: Sequence[ChatMessage] = given["short_term_messages"]
        return (first, *found)


def test_what_a_builder_built_is_on_record() -> None:
    async def main() -> None:
        model = ScriptedModel([calls("look", {"pod": "a"}), says({"text": "ok"})])
        kernel, _ = with_tools(model)
        builder = Clock()
        await run(AutonomousAgent(kernel, context_builder=builder))
        await run(AutonomousAgent(kernel, context_builder=builder))
        assert builder.built == 2
        assert model.calls == 2

    asyncio.run(main())


class Refuses:
    """Middleware that lets a tool pass only when it is told to."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.open = False

    async def prepare_model(self, invocation: Any) -> Any:
        return invocation

    async def before_model(self, **call: Any) -> None: ...

    async def after_model(self, **call: Any) -> None: ...

    async def prepare_tool_request(self, *, tool_name: str, arguments_json: str, **call: Any) -> str:
        if tool_name == self.tool and not self.open:
            raise ApprovalRequiredError(tool_name=tool_name, approval_key="k", mode="human", message="ask Ann")
        return arguments_json

    async def prepare_tool_result(self, *, result_json: str, **call: Any) -> str:
        return result_json


def test_an_approval_stops_the_run_until_it_is_given_and_the_other_calls_of_the_turn_are_kept() -> None:
    async def main() -> None:
        gate = Refuses("restart")
        model = ScriptedModel([[calls("restart", {}), calls("look", {})], says({"text": "ok"})])
        kernel, done = memory_kernel(model, middleware=[gate]), []

        @kernel.tool()
        async def restart() -> str:
            done.append("restart")
            return "restarted"

        @kernel.tool()
        async def look() -> str:
            done.append("look")
            return "seen"

        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        with pytest.raises(ApprovalRequiredError):
            await run(agent)
        assert done == ["look"]
        assert (await kernel.get_run_status(run_id="r")).status == "active", "it waits, it has not failed"
        gate.open = True
        assert (await run(agent)).text == "ok"
        assert done == ["look", "restart"]
        assert model.calls == 2

    asyncio.run(main())


def sub_agent_kernel(model: ScriptedModel, *middleware: Any) -> tuple[ArtanaKernel, list[str]]:
    kernel, done = memory_kernel(model, middleware=list(middleware)), []

    @kernel.tool()
    async def look(pod: str) -> str:
        done.append(pod)
        return "seen"

    factory = SubAgentFactory(kernel=kernel, context_builder=PLAIN)
    factory.create(name="helper", output_schema=Report, model="small", system_prompt="You help.", max_iterations=2)
    return kernel, done


async def child_of(kernel: ArtanaKernel, run_id: str) -> str:
    [request] = [e.payload for e in await of_type(kernel, run_id, "tool_requested") if e.payload.tool_name == "helper"]  # type: ignore[union-attr]
    return f"{run_id}::sub_agent::{request.idempotency_key}"  # type: ignore[union-attr]


def test_a_sub_agent_has_a_run_of_its_own_and_shares_the_budget() -> None:
    async def main() -> None:
        model = ScriptedModel(
            [
                calls("helper", {"prompt": "look at a"}),
                says(None, tool_calls=[calls("look", {"pod": "a"})], cost_usd=0.4),
                says({"text": "a is up"}, cost_usd=0.4),
                says({"text": "all is up"}),
            ]
        )
        kernel, done = sub_agent_kernel(model, *ArtanaKernel.default_middleware_stack(pii=False))
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        tenant = a_tenant(budget_usd_limit=0.9)
        found = await agent.run(run_id="r", tenant=tenant, model="m", prompt="?", output_schema=Report)
        assert found.text == "all is up"
        child = await child_of(kernel, "r")
        assert await keys(kernel, child, "model_requested") == ["turn_1_model", "turn_2_model"]
        assert (await kernel.get_run_status(run_id=child)).status == "completed"
        assert shown(model.requests[3], "tool") == ['{"text":"a is up"}']
        assert shown(model.requests[1], "user") == ["look at a"]
        assert done == ["a"]

    asyncio.run(main())


def test_a_spent_budget_stops_the_sub_agent_and_its_parent_and_a_larger_one_continues_both() -> None:
    async def main() -> None:
        model = ScriptedModel(
            [
                says(None, tool_calls=[calls("helper", {"prompt": "look"})], cost_usd=0.5),
                says(None, tool_calls=[calls("look", {"pod": "a"})], cost_usd=0.6),
                says({"text": "a is up"}),
                says({"text": "all is up"}),
            ]
        )
        kernel, done = sub_agent_kernel(model, *ArtanaKernel.default_middleware_stack(pii=False))
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        task: dict[str, Any] = {"run_id": "r", "model": "m", "prompt": "?", "output_schema": Report}
        with pytest.raises(BudgetExceededError):
            await agent.run(tenant=a_tenant(budget_usd_limit=1), **task)
        assert model.calls == 2
        found = await agent.run(tenant=a_tenant(budget_usd_limit=2), **task)
        assert found.text == "all is up"
        assert (done, model.calls) == (["a"], 4)

    asyncio.run(main())


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(ModelTransientError("busy"), id="a model that is busy"),
        pytest.param(times_out(), id="a model that times out"),
        pytest.param(fails(OSError("network down")), id="a network that is down"),
    ],
)
def test_a_model_failure_in_a_sub_agent_is_retried_in_the_same_run(failure: Any) -> None:
    async def main() -> None:
        script: list[Any] = [calls("helper", {"prompt": "look"}), calls("look", {"pod": "a"}), failure]
        model = ScriptedModel([*script, says({"text": "up"}), says({"text": "all up"})])
        kernel, done = sub_agent_kernel(model)
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        with pytest.raises((ModelError, OSError)):
            await run(agent)
        assert (await run(agent)).text == "all up"
        assert done == ["a"]
        assert len(await of_type(kernel, "r", "tool_requested")) == 1

    asyncio.run(main())


def test_a_sub_agent_without_an_answer_is_an_error_that_its_parent_is_told() -> None:
    async def main() -> None:
        looks = [calls("look", {"pod": str(n)}) for n in range(2)]
        model = ScriptedModel([calls("helper", {"prompt": "look"}), *looks, says({"text": "gave up"})])
        kernel, _ = sub_agent_kernel(model)
        assert (await run(AutonomousAgent(kernel, context_builder=PLAIN))).text == "gave up"
        assert "no accepted answer after 2 turns" in shown(model.requests[3], "tool")[0]

    asyncio.run(main())


def test_a_cancelled_run_continues_its_sub_agent() -> None:
    async def main() -> None:
        script: list[Any] = [calls("helper", {"prompt": "look"}), calls("look", {"pod": "a"}), hangs()]
        model = ScriptedModel([*script, says({"text": "up"}), says({"text": "all up"})])
        kernel, done = sub_agent_kernel(model)
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        working = asyncio.ensure_future(run(agent))
        await model.asked(3)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert (await run(agent)).text == "all up"
        assert (done, model.calls) == (["a"], 5)

    asyncio.run(main())


def test_sub_agents_are_nested_only_so_deep() -> None:
    async def main() -> None:
        model = ScriptedModel(lambda request: calls("helper", {"prompt": "go on"}))
        kernel, _ = sub_agent_kernel(model)
        with pytest.raises(MaxIterationsExceeded):
            await run(AutonomousAgent(kernel, context_builder=PLAIN), max_iterations=1)
        assert model.calls < 40
        assert any("nested" in text for request in model.requests for text in shown(request, "tool"))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reconcile", "effects"),
    [
        pytest.param("success", 1, id="it happened: it is not called again"),
        pytest.param("transient_error", 2, id="it did not happen: it is called again"),
        pytest.param(None, 1, id="nothing can tell: an operator must"),
    ],
)
def test_a_call_of_unknown_outcome_is_never_told_to_the_model_as_an_error(reconcile: Any, effects: int) -> None:
    async def main() -> None:
        model = ScriptedModel([calls("charge", {}), says({"text": "ok"})])
        kernel = memory_kernel(model)

        async def charge(artana_context: ToolExecutionContext) -> str:
            if tool.effects == 1:
                return "charged"
            raise AssertionError

        tool = FailingTool(charge, {1: fails(ConnectionError("lost"), after_effect=True)})
        tool._function = lambda artana_context: "charged"

        async def look(context: ToolExecutionContext, given: dict[str, Any]) -> ToolExecutionResult | None:
            return None if reconcile is None else ToolExecutionResult(reconcile, '"charged"')

        kernel.tool(side_effect=True, reconcile=look)(tool)
        agent = AutonomousAgent(kernel, context_builder=PLAIN)
        if reconcile is None:
            with pytest.raises(ToolExecutionFailedError, match="unknown"):
                await run(agent)
            assert model.calls == 1
            await kernel.reconcile_tool(
                run_id="r",
                tenant=TENANT,
                tool_name="charge",
                arguments={},
                step_key="turn_1_tool_1_charge",
                outcome="success",
                result="charged",
                by="ann",
            )
        assert (await run(agent)).text == "ok"
        assert tool.effects == effects
        assert shown(model.requests[1], "tool") == ['"charged"']

    asyncio.run(main())


def test_a_changed_prompt_is_refused_replayed_or_forked_by_policy() -> None:
    async def main() -> None:
        async def ask(policy: Any, prompt: str) -> str:
            agent = AutonomousAgent(kernel, context_builder=PLAIN, replay_policy=policy)
            task: dict[str, Any] = {"run_id": "r", "tenant": TENANT, "model": "m", "output_schema": Report}
            return str((await agent.run(prompt=prompt, **task)).text)

        script: list[Any] = [
            calls("look", {"pod": "a"}),
            says({"text": "one"}),
            calls("look", {"pod": "b"}),
            says({"text": "two"}),
        ]
        model = ScriptedModel(script)
        kernel, done = with_tools(model)
        assert await ask("strict", "is a up?") == "one"
        with pytest.raises(ReplayConsistencyError):
            await ask("strict", "is b up?")
        assert await ask("allow_prompt_drift", "is b up?") == "one"
        assert await ask("fork_on_drift", "is b up?") == "two"
        assert await ask("fork_on_drift", "is b up?") == "two"
        assert done == ["look a", "look b"]
        assert model.calls == 4
        ended = await kernel.list_active_runs(tenant_id=TENANT.tenant_id, status="completed")
        assert [each.run_id.split("::")[:2] for each in ended if each.run_id != "r"] == [["r", "fork"]]

    asyncio.run(main())


def test_a_tool_registered_later_does_not_strand_a_run() -> None:
    async def main() -> None:
        model = ScriptedModel([calls("look", {"pod": "a"}), fails(ModelTransientError("busy")), says({"text": "ok"})])
        kernel, _ = with_tools(model)
        with pytest.raises(ModelTransientError):
            await run(AutonomousAgent(kernel, context_builder=PLAIN, tool_drift="pin"))

        @kernel.tool()
        async def newer() -> str:
            return "new"

        with pytest.raises(ReplayConsistencyError, match="`newer` was added"):
            await run(AutonomousAgent(kernel, context_builder=PLAIN))
        assert (await run(AutonomousAgent(kernel, context_builder=PLAIN, tool_drift="pin"))).text == "ok"

    asyncio.run(main())


def test_what_was_learned_belongs_to_the_tenant_whatever_the_model_says() -> None:
    async def main() -> None:
        store = SQLiteExperienceStore(":memory:")
        theirs = ExperienceRule(
            rule_id="theirs", tenant_id="other", task_category="ops", rule_type=RuleType.FACT, content="original"
        )
        await store.save_rules([theirs])
        stolen = theirs.model_copy(update={"content": "obey me", "success_count": 1000})
        model = ScriptedModel([says({"text": "ok"}), says({"extracted_rules": [stolen.model_dump(mode="json")]})])
        kernel = memory_kernel(model)
        builder = ContextBuilder(experience_store=store, task_category="ops")
        agent = AutonomousAgent(kernel, context_builder=builder, auto_reflect=True)
        await run(agent)
        assert (await store.get_rules("other", "ops")) == [theirs]
        [learned] = await store.get_rules(TENANT.tenant_id, "ops")
        assert (learned.content, learned.success_count) == ("obey me", 0)
        with pytest.raises(InputError, match="belongs to another tenant"):
            await store.save_rules([stolen.model_copy(update={"tenant_id": "acme"})])
        model.then(says({"text": "again"}), says({"extracted_rules": []}))
        await run(agent, "next")
        assert "obey me" in shown(model.requests[2], "system")[0]
        await store.close()

    asyncio.run(main())


def test_a_runtime_takes_turns_with_tools_and_replays_them() -> None:
    async def main() -> None:
        model = ScriptedModel([calls("look", {"pod": "a"}), calls("nothing", {}), says({"text": "ok"})])
        kernel, done = with_tools(model)
        await kernel.start_run(tenant=TENANT, run_id="r")
        runtime = AgentRuntime(kernel)

        async def until(turns: int) -> AgentRuntimeResult[Report]:
            return await runtime.run_until(
                run_id="r",
                tenant=TENANT,
                model="m",
                output_schema=Report,
                initial_messages=[ChatMessage(role="user", content="is a up?")],
                should_continue=lambda result: bool(result.last_step.tool_calls),
                max_turns=turns,
            )

        assert (await until(2)).state.turn_index == 2
        found = await until(5)
        assert found.last_step.output.text == "ok"
        roles = [message.role for message in found.state.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
        assert (done, model.calls) == (["look a"], 3)
        assert await keys(kernel, "r", "model_requested") == ["agent_turn_1", "agent_turn_2", "agent_turn_3"]

    asyncio.run(main())
