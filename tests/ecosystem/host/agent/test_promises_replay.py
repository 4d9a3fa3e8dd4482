"""What must hold, 6 and 8: a replay changes nothing, and what has changed since is said, not passed over."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import TENANT, Answer, Hooks, Model, Place, ask, call, kinds, of_type

from gert.agent import (
    ArtanaKernel,
    ChatMessage,
    ContextVersion,
    KernelModelClient,
    ModelCallOptions,
    ModelInput,
    ModelRequestedPayload,
    ReplayConsistencyError,
    ReplayedWithDriftPayload,
    RunStartedPayload,
    TenantContext,
    ToolCall,
    ToolExecutionContext,
    compute_allowed_tools_hash,
    json_step_serde,
)
from gert.errors import InputError

ITEMS: tuple[dict[str, object], ...] = ({"type": "message", "role": "user", "content": "hi"},)


def with_tools(kernel: ArtanaKernel, *names: str, version: str = "1.0.0") -> ArtanaKernel:
    for name in names:

        async def tool(n: int = 0) -> int:
            return n

        kernel.tool(name=name, tool_version=version)(tool)
    return kernel


async def everything(kernel: ArtanaKernel) -> list[Any]:
    """A run with steps of every kind; what it gives."""

    @kernel.tool(side_effect=True)
    async def charge(n: int, artana_context: ToolExecutionContext) -> dict[str, int]:
        return {"charged": n}

    async def look() -> str:
        return "memory"

    async with kernel.run(tenant=TENANT, run_id="r") as run:
        client = KernelModelClient(kernel)
        found = [
            await run.model("mock", "keyed", Answer, step_key="m1"),
            await run.model("mock", "not keyed", Answer),
            await client.step(run_id="r", tenant=TENANT, model="mock", prompt="derived", output_schema=Answer),
            await run.tool("charge", {"n": 1}, step_key="t1"),
            await run.tool("charge", {"n": 2}),
            await run.read("memory", "read1", look),
        ]

        async def work(ctx: Any) -> list[Any]:
            async def three() -> Any:
                return {"three": 3}

            return [await ctx.step(name="a", action=three, serde=json_step_serde())]

        found.append(await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=work))
        return found


def same(live: list[Any], replayed: list[Any]) -> None:
    for one, two in zip(live, replayed, strict=True):
        if hasattr(one, "replayed"):
            assert not one.replayed
            assert two.replayed
            assert {**vars_of(one), "replayed": True} == vars_of(two)
        else:
            assert one == two


def vars_of(result: Any) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__dataclass_fields__}


class TestPoint6:
    """Replay is read-only."""

    def test_a_finished_run_is_replayed_without_an_event_or_a_hook(self, place: Place) -> None:
        async def scenario() -> None:
            hooks, model = Hooks(), Model()
            async with place.kernel(model, middleware=[hooks]) as kernel:
                live = await everything(kernel)
                before = await kernel.get_events(run_id="r")
                counts, asked = dict(hooks.called), list(model.asked)
                assert counts == {
                    "prepare_model": 3,
                    "before_model": 3,
                    "after_model": 3,
                    "prepare_tool_request": 2,
                    "prepare_tool_result": 2,
                }
                if place.kind == "memory":
                    registry = kernel
                    registry._tools.port._tools.clear()  # type: ignore[attr-defined]
                    same(live, await everything(registry))
                    assert model.asked == asked
                    assert await kernel.get_events(run_id="r") == before
                    return
            later, quiet = Hooks(), Model(*[ValueError("nobody asks")] * 9)
            async with place.kernel(quiet, middleware=[later]) as kernel:
                same(live, await everything(kernel))
                assert quiet.asked == []
                assert dict(later.called) == {"prepare_model": 3}
                assert await kernel.get_events(run_id="r") == before

        asyncio.run(scenario())

    def test_a_hook_that_refuses_now_does_not_refuse_what_was_done_then(self, durable: Place) -> None:
        def refuse(_: Any) -> Any:
            raise ValueError("expired")

        async def scenario() -> None:
            async with durable.kernel() as kernel:
                live = await everything(kernel)
            stale = Hooks(**dict.fromkeys(("before_model", "prepare_tool_request", "prepare_tool_result"), refuse))
            async with durable.kernel(middleware=[stale]) as kernel:
                same(live, await everything(kernel))
                with pytest.raises(ValueError, match="expired"):
                    await ask(kernel, "r", "new", "new")
                with pytest.raises(ValueError, match="expired"):
                    await call(kernel, "r", "charge", {"n": 9}, "new")
                assert (await kinds(kernel, "r")).count("model_requested") == 3

        asyncio.run(scenario())

    def test_an_answer_is_what_the_record_holds_also_when_it_is_live(self, place: Place) -> None:
        class Picky(BaseModel):
            text: str
            tags: frozenset[str] = frozenset()
            ratio: float = 0.1

        calls = (ToolCall("look", '{"b": 1, "a": [2,  3]}', "c1"), ToolCall("odd", "not json"))

        class Port:
            async def complete(self, request: Any) -> Any:
                from gert.agent import ModelResult, ModelUsage

                return ModelResult(
                    Picky(text="é", tags=frozenset({"x", "y"})),
                    ModelUsage(1, 2, 0.1 + 0.2),
                    calls,
                    "raw",
                    "responses",
                    "resp_1",
                    ({"type": "message", "n": 1.0},),
                )

        async def scenario() -> None:
            async with place.kernel(Port()) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                live = await ask(kernel, "r", "q", "k", output_schema=Picky)
                replayed = await ask(kernel, "r", "q", "k", output_schema=Picky)
                same([live], [replayed])
                assert live.tool_calls[0].arguments_json == '{"a":[2,3],"b":1}'
                assert live.tool_calls[1].arguments_json == "not json"
                assert (live.api_mode_used, live.response_id) == ("responses", "resp_1")
                assert live.usage.cost_usd == 0.1 + 0.2
                assert await kernel.store.get_model_cost_sum_for_run("r") == 0.1 + 0.2  # type: ignore[attr-defined]

        asyncio.run(scenario())

    def test_an_answer_that_does_not_fit_the_schema_any_more_is_refused(self, place: Place) -> None:
        class Other(BaseModel):
            number: int

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                with pytest.raises(ReplayConsistencyError, match="not a `Other`"):
                    await ask(kernel, "r", "q", "k", output_schema=Other)

        asyncio.run(scenario())


DRIFTS = [
    pytest.param("prompt", {"prompt": "another"}, ("prompt", "messages"), id="another prompt"),
    pytest.param(
        "messages", {"messages": (ChatMessage(role="user", content="other"),)}, ("messages",), id="other messages"
    ),
    pytest.param("options", {"options": ModelCallOptions(api_mode="chat")}, ("api_mode",), id="another api mode"),
    pytest.param("options", {"options": ModelCallOptions(reasoning_effort="low")}, ("reasoning_effort",), id="effort"),
    pytest.param("options", {"options": ModelCallOptions(verbosity="low")}, ("verbosity",), id="verbosity"),
    pytest.param(
        "options",
        {"options": ModelCallOptions(previous_response_id="x")},
        ("previous_response_id",),
        id="after another response",
    ),
    pytest.param(
        "options", {"options": ModelCallOptions(responses_input_items=ITEMS)}, ("responses_input_items",), id="items"
    ),
]


async def drifted(kernel: ArtanaKernel, change: dict[str, Any], policy: str = "strict", run_id: str = "r") -> Any:
    """The step `k` of `q`, with something changed."""
    prompt = change.get("prompt", "q")
    messages = change.get("messages")
    given = ModelInput.from_messages(messages, prompt=prompt) if messages else ModelInput.from_prompt(prompt)
    return await kernel.step_model(
        run_id=run_id,
        tenant=TENANT,
        model=change.get("model", "mock"),
        input=given,
        output_schema=Answer,
        step_key="k",
        model_options=change.get("options"),
        replay_policy=policy,  # type: ignore[arg-type]
    )


class TestReplayPolicies:
    """Replay policy: strict, allow_prompt_drift, fork_on_drift."""

    @pytest.mark.parametrize(("_kind", "change", "fields"), DRIFTS)
    def test_strict_refuses_and_names_what_differs(
        self, place: Place, _kind: str, change: dict[str, Any], fields: tuple[str, ...]
    ) -> None:
        async def scenario() -> None:
            model = Model()
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await drifted(kernel, {})
                before = await kernel.get_events(run_id="r")
                with pytest.raises(ReplayConsistencyError) as caught:
                    await drifted(kernel, change)
                assert caught.value.drift_fields == fields
                assert all(f"`{field}`" in str(caught.value) for field in fields)
                assert await kernel.get_events(run_id="r") == before
                assert len(model.asked) == 1

        asyncio.run(scenario())

    @pytest.mark.parametrize(("_kind", "change", "fields"), DRIFTS)
    def test_drift_that_is_allowed_is_replayed_and_noted_once(
        self, place: Place, _kind: str, change: dict[str, Any], fields: tuple[str, ...]
    ) -> None:
        async def scenario() -> None:
            model = Model()
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                first = await drifted(kernel, {})
                for _ in range(3):
                    again = await drifted(kernel, change, "allow_prompt_drift")
                    assert (again.output, again.seq) == (first.output, first.seq)
                    assert again.replayed
                    assert again.replayed_with_drift
                    assert again.drift_fields == fields
                [noted] = await of_type(kernel, "r", "replayed_with_drift")
                said = noted.payload
                assert isinstance(said, ReplayedWithDriftPayload)
                assert (said.replay_policy, said.step_key, said.model) == ("allow_prompt_drift", "k", "mock")
                assert said.source_model_requested_event_id == "r#2"
                assert said.source_model_completed_seq == first.seq
                assert tuple(said.drift_fields) == fields
                assert said.fork_run_id is None
                unchanged = await drifted(kernel, {}, "allow_prompt_drift")
                assert not unchanged.replayed_with_drift
                assert len(await of_type(kernel, "r", "replayed_with_drift")) == 1
                assert (await kernel.explain_run("r"))["drift_count"] == 1
                assert len(model.asked) == 1

        asyncio.run(scenario())

    @pytest.mark.parametrize(("_kind", "change", "fields"), DRIFTS)
    def test_drift_forks_into_a_run_that_replays(
        self, place: Place, _kind: str, change: dict[str, Any], fields: tuple[str, ...]
    ) -> None:
        async def scenario() -> None:
            model = Model("first", "second")
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await drifted(kernel, {})
                forks = [await drifted(kernel, change, "fork_on_drift") for _ in range(3)]
                assert [fork.output.text for fork in forks] == ["second"] * 3
                assert [fork.replayed for fork in forks] == [False, True, True]
                [fork_id] = {fork.run_id for fork in forks}
                assert fork_id.startswith("r::fork::")
                assert {fork.forked_from_run_id for fork in forks} == {"r"}
                assert {fork.drift_fields for fork in forks} == {fields}
                [noted] = await of_type(kernel, "r", "replayed_with_drift")
                assert noted.payload.fork_run_id == fork_id  # type: ignore[union-attr]
                assert noted.payload.replay_policy == "fork_on_drift"  # type: ignore[union-attr]
                assert await kinds(kernel, fork_id) == [
                    "run_started",
                    "model_requested",
                    "model_completed",
                    "run_summary",
                ]
                [started] = await of_type(kernel, fork_id, "run_started")
                assert isinstance(started.payload, RunStartedPayload)
                assert started.payload.forked_from == "r"
                assert (await drifted(kernel, {}, "fork_on_drift")).run_id == "r"
                assert (await drifted(kernel, change, "strict", run_id=fork_id)).output.text == "second"
                assert len(model.asked) == 2

        asyncio.run(scenario())

    def test_forks_and_notes_of_many_at_once_are_one(self, place: Place) -> None:
        async def scenario() -> None:
            model = Model()
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await drifted(kernel, {})
                change = {"prompt": "another"}
                forks = await asyncio.gather(*(drifted(kernel, change, "fork_on_drift") for _ in range(8)))
                assert len({fork.run_id for fork in forks}) == 1
                assert len({fork.seq for fork in forks}) == 1
                assert model.asked == ["q", "another"]
                change = {"prompt": "a third"}
                await asyncio.gather(*(drifted(kernel, change, "allow_prompt_drift") for _ in range(8)))
                noted = [event.payload for event in await of_type(kernel, "r", "replayed_with_drift")]
                policies = [each.replay_policy for each in noted]  # type: ignore[union-attr]
                assert sorted(policies) == ["allow_prompt_drift", "fork_on_drift"]

        asyncio.run(scenario())

    @pytest.mark.parametrize("policy", ["strict", "allow_prompt_drift", "fork_on_drift"])
    def test_another_model_is_never_drift(self, place: Place, policy: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await drifted(kernel, {})
                with pytest.raises(ReplayConsistencyError) as caught:
                    await drifted(kernel, {"model": "other"}, policy)
                assert caught.value.drift_fields == ("model",)

        asyncio.run(scenario())

    @pytest.mark.parametrize("policy", ["strict", "allow_prompt_drift", "fork_on_drift"])
    def test_without_a_step_key_only_the_very_same_is_a_replay(self, place: Place, policy: Any) -> None:
        async def scenario() -> None:
            model = Model()
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                for prompt, replayed in (("a", False), ("a", True), ("b", False), ("b", True), ("a", True)):
                    found = await ask(kernel, "r", prompt, replay_policy=policy)
                    assert (found.output.text, found.replayed) == (f"{prompt}!", replayed)
                assert model.asked == ["a", "b"]
                assert "replayed_with_drift" not in await kinds(kernel, "r")

        asyncio.run(scenario())

    def test_the_version_of_the_context_is_on_record_and_not_compared(self, place: Place) -> None:
        async def scenario() -> None:
            version = ContextVersion("hash", "context_builder.v1", "compaction.v1")
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k", context_version=version)
                assert (await ask(kernel, "r", "q", "k", context_version=ContextVersion())).replayed
                [asked] = await of_type(kernel, "r", "model_requested")
                assert isinstance(asked.payload, ModelRequestedPayload)
                assert asked.payload.context_version is not None
                assert asked.payload.context_version.model_dump() == {
                    "system_prompt_hash": "hash",
                    "context_builder_version": "context_builder.v1",
                    "compaction_version": "compaction.v1",
                }

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "settings", [{"replay_policy": "lenient"}, {"tool_drift": "ignore"}, {"replay_policy": "STRICT"}]
    )
    def test_an_unknown_policy_is_refused(self, place: Place, settings: dict[str, Any]) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(InputError):
                    await ask(kernel, "r", "q", "k", **settings)
                assert await kinds(kernel, "r") == ["run_started"]

        asyncio.run(scenario())


CHANGES = [
    pytest.param(("a", "b"), "1.0.0", ("a", "b", "c"), "1.0.0", ("c",), "`c` was added", id="one more"),
    pytest.param(("a", "b"), "1.0.0", ("a",), "1.0.0", ("b",), "`b` was removed", id="one less"),
    pytest.param(("a", "b"), "1.0.0", ("a", "b"), "2.0.0", ("a", "b"), "`a` changed", id="other versions"),
]


class TestPoint8:
    """Strict replay refuses changed tool signatures, and names them."""

    @pytest.mark.parametrize(("then", "old", "now", "new", "named", "phrase"), CHANGES)
    @pytest.mark.parametrize("policy", ["strict", "allow_prompt_drift", "fork_on_drift"])
    def test_the_error_names_the_tools(
        self,
        durable: Place,
        then: tuple[str, ...],
        old: str,
        now: tuple[str, ...],
        new: str,
        named: tuple[str, ...],
        phrase: str,
        policy: Any,
    ) -> None:
        async def scenario() -> None:
            async with with_tools(durable.kernel(), *then, version=old) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
            model = Model()
            async with with_tools(durable.kernel(model), *now, version=new) as kernel:
                before = await kernel.get_events(run_id="r")
                with pytest.raises(ReplayConsistencyError, match=phrase) as caught:
                    await ask(kernel, "r", "q", "k", replay_policy=policy)
                assert caught.value.tools == named
                assert caught.value.drift_fields == ("allowed_tool_signatures",)
                assert model.asked == []
                assert await kernel.get_events(run_id="r") == before

        asyncio.run(scenario())

    def test_a_run_is_pinned_to_the_tools_it_began_with(self, durable: Place) -> None:
        async def scenario() -> None:
            async with with_tools(durable.kernel(), "a", "b") as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                first = await ask(kernel, "r", "q", "k", tool_drift="pin")
            model = Model()
            async with with_tools(durable.kernel(model), "a", "b", "c") as kernel:
                again = await ask(kernel, "r", "q", "k", tool_drift="pin")
                assert (again.replayed, again.output) == (True, first.output)
                live = await ask(kernel, "r", "q2", "k2", tool_drift="pin")
                assert not live.replayed
                asked = [event.payload.allowed_tools for event in await of_type(kernel, "r", "model_requested")]  # type: ignore[union-attr]
                assert asked == [["a", "b"], ["a", "b"]]
                # Another run, begun now, has them all.
                await kernel.start_run(tenant=TENANT, run_id="s")
                await ask(kernel, "s", "q", "k", tool_drift="pin")
                [event] = await of_type(kernel, "s", "model_requested")
                assert event.payload.allowed_tools == ["a", "b", "c"]  # type: ignore[union-attr]

        asyncio.run(scenario())

    def test_a_step_that_was_taken_without_pinning_is_replayed_by_who_pins(self, durable: Place) -> None:
        async def scenario() -> None:
            async with with_tools(durable.kernel(), "a") as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
            async with with_tools(durable.kernel(), "a", "b") as kernel:
                await ask(kernel, "r", "q", "k")
            async with with_tools(durable.kernel(), "a", "b", "c") as kernel:
                assert (await ask(kernel, "r", "q", "k", tool_drift="pin")).replayed
                with pytest.raises(ReplayConsistencyError) as caught:
                    await ask(kernel, "r", "another", "k", tool_drift="pin")
                assert caught.value.drift_fields == ("prompt", "messages")
                drift = await ask(kernel, "r", "x", "k", tool_drift="pin", replay_policy="allow_prompt_drift")
                assert drift.replayed_with_drift

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("now", "version", "named"),
        [pytest.param((), "1.0.0", ("a",), id="gone"), pytest.param(("a",), "2.0.0", ("a",), id="changed")],
    )
    def test_what_is_gone_or_changed_cannot_be_pinned(
        self, durable: Place, now: tuple[str, ...], version: str, named: tuple[str, ...]
    ) -> None:
        async def scenario() -> None:
            async with with_tools(durable.kernel(), "a") as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
            async with with_tools(durable.kernel(), *now, version=version) as kernel:
                with pytest.raises(ReplayConsistencyError) as caught:
                    await ask(kernel, "r", "q", "k", tool_drift="pin")
                assert caught.value.tools == named

        asyncio.run(scenario())

    def test_tools_a_tenant_may_not_use_or_see_are_no_part_of_it(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool(requires_capability="money")
                async def pay() -> int:
                    return 1

                with_tools(kernel, "a", "b")
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k", visible_tool_names={"a"})
                [asked] = await of_type(kernel, "r", "model_requested")
                said = asked.payload
                assert isinstance(said, ModelRequestedPayload)
                assert said.allowed_tools == ["a"]
                [signature] = said.allowed_tool_signatures
                text = "|".join(
                    (signature.name, signature.tool_version, signature.schema_version, signature.schema_hash)
                )
                assert said.allowed_tools_hash == compute_allowed_tools_hash([text])
                assert signature.schema_hash == kernel.tool_fingerprint(tool_name="a").schema_hash
                able = TenantContext(tenant_id="acme", capabilities=frozenset({"money"}), budget_usd_limit=1)
                changes: list[dict[str, Any]] = [{"tenant": able}, {"visible_tool_names": {"a", "b"}}, {}]
                for more in changes:
                    with pytest.raises(ReplayConsistencyError):
                        await ask(kernel, "r", "q", "k", **more)
                assert (await ask(kernel, "r", "q", "k", visible_tool_names={"a", "nobody"})).replayed

        asyncio.run(scenario())
