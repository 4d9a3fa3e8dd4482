"""What Python callers expect of the agent kernel: exceptions, warnings, messages and shapes."""

from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Answer, Place, ask, call, in_loop, of_type

from gert.agent import (
    ChatMessage,
    EventType,
    KernelModelClient,
    ModelCompletedPayload,
    ModelFailedPayload,
    ModelInput,
    ModelRequestedPayload,
    RunExists,
    RunNotFound,
    RunStartedPayload,
    StepKey,
    TenantContext,
    ToolCompletedPayload,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolRequestedPayload,
    ToolUnknownOutcomeError,
    resolve_tool_resolutions,
)
from gert.errors import GertError


@pytest.mark.parametrize(
    ("wrong", "kinds"),
    [
        pytest.param(lambda kernel: kernel.start_run(tenant="acme"), (TypeError, ValueError), id="a wrong type"),
        pytest.param(lambda kernel: kernel.start_run(tenant=TENANT, run_id="a b"), (ValueError,), id="a wrong value"),
        pytest.param(
            lambda kernel: ask(kernel, "r", "q", replay_policy="lenient"),
            (ValueError,),
            id="an unknown word",
        ),
        pytest.param(lambda kernel: kernel.load_run(run_id="nobody"), (KeyError, ValueError), id="a missing run"),
        pytest.param(lambda kernel: call(kernel, "r", "nothing", {}), (KeyError,), id="a missing tool"),
        pytest.param(lambda kernel: call(kernel, "r", "add", {"a": "x"}), (ValueError,), id="wrong arguments"),
        pytest.param(
            lambda kernel: kernel.checkpoint(run_id="r", tenant=TENANT, name="", payload={}),
            (ValueError,),
            id="no name",
        ),
    ],
)
@in_loop
async def test_errors_of_callers_are_those_that_python_callers_catch(place: Place, wrong: Any, kinds: Any) -> None:
    async with place.kernel() as kernel:

        @kernel.tool()
        async def add(a: int) -> int:
            """Add."""
            return a

        await kernel.start_run(tenant=TENANT, run_id="r")
        for kind in (*kinds, GertError):
            with pytest.raises(kind):
                await wrong(kernel)


def test_wrong_arguments_of_plain_functions_are_type_errors() -> None:
    with pytest.raises(TypeError):
        StepKey(namespace=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="budget_usd_limit"):
        TenantContext(tenant_id="acme", budget_usd_limit="much")  # type: ignore[arg-type]


@in_loop
async def test_messages_say_it_in_the_words_that_people_search_for(place: Place) -> None:
    async with place.kernel() as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        with pytest.raises(RunExists, match="already exists"):
            await kernel.start_run(tenant=TENANT, run_id="r")
        with pytest.raises(RunExists, match="already exists"):
            await kernel.store.append_event(
                run_id="r", tenant_id="acme", event_type=EventType.RUN_STARTED, payload=RunStartedPayload()
            )
        with pytest.raises(ValueError, match="side_effect=True"):

            @kernel.tool(side_effect=True)
            async def pay() -> None:
                """Pay."""

        @kernel.tool(side_effect=True)
        async def charge(artana_context: ToolExecutionContext) -> None:
            """Charge."""
            raise ToolUnknownOutcomeError("the line broke")

        with pytest.raises(ValueError, match="already exists"):
            kernel.tool(side_effect=True)(charge)
        for _ in range(2):
            with pytest.raises(ToolExecutionFailedError, match="unknown outcome"):
                await call(kernel, "r", "charge", {}, "one")


@in_loop
async def test_a_keyword_that_an_older_kernel_does_not_know_is_left_out_with_a_user_warning(place: Place) -> None:
    async with place.kernel() as kernel:

        class Older:
            async def step_model(self, **request: Any) -> Any:
                if "replay_policy" in request:
                    raise TypeError("step_model() got an unexpected keyword argument 'replay_policy'")
                return await kernel.step_model(**request)

            async def start_run(self, **run: Any) -> Any:
                return await kernel.start_run(**run)

        client = KernelModelClient(Older())
        with pytest.warns(UserWarning, match="does not accept `replay_policy`"):
            await client.step(run_id="r", tenant=TENANT, model="m", prompt="q", output_schema=Answer)


@in_loop
async def test_a_store_is_not_appended_to_before_its_run_has_started(place: Place) -> None:
    async with place.kernel() as kernel:
        with pytest.raises(RunNotFound):
            await kernel.store.append_event(
                run_id="r", tenant_id="acme", event_type=EventType.MODEL_COMPLETED, payload=completed()
            )


def completed(**more: Any) -> ModelCompletedPayload:
    """An answer as it is documented: without the number of its request."""
    fields = {"model": "m", "output_json": "{}", "prompt_tokens": 1, "completion_tokens": 1, "cost_usd": 0.5, **more}
    return ModelCompletedPayload(**fields)


@in_loop
async def test_an_end_without_the_number_of_its_request_ends_the_newest_that_is_open(place: Place) -> None:
    async with place.kernel() as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")

        async def append(payload: Any) -> Any:
            kind = EventType(payload.kind)
            return await kernel.store.append_event(run_id="r", tenant_id="acme", event_type=kind, payload=payload)

        await append(completed())  # an answer on its own
        for model in ("m", "other", "m"):
            await append(ModelRequestedPayload(model=model, prompt="q", messages=[]))
        await append(completed())
        await append(ModelFailedPayload(model="other", reason="failed"))
        await append(ToolRequestedPayload(tool_name="t", arguments_json="{}", idempotency_key="k"))
        await append(ToolCompletedPayload(tool_name="t", result_json="1"))
        ends = [event.payload.request_seq for event in await of_type(kernel, "r", "model_completed")]  # type: ignore[union-attr]
        assert ends == [0, 5]
        assert [call.seq for call in await kernel.ledger.open_calls("r")] == [3]
        assert await kernel.store.get_model_cost_sum_for_run("r") == 1.0  # type: ignore[attr-defined]
        [found] = resolve_tool_resolutions(await kernel.get_events(run_id="r"))
        assert found.outcome == "success"


def test_messages_keep_the_last_prompt_of_the_user() -> None:
    words = [("system", "be brief"), ("user", "first"), ("assistant", "yes?"), ("user", "second"), ("assistant", "…")]
    messages = [ChatMessage(role=role, content=text) for role, text in words]  # type: ignore[arg-type]
    assert ModelInput.from_messages(messages).prompt == "second"
    assert ModelInput.from_messages(messages, prompt="mine").prompt == "mine"
    assert ModelInput.from_messages(messages[:1]).prompt is None


@in_loop
async def test_canonical_arguments_come_with_the_hash_of_the_schema(place: Place) -> None:
    async with place.kernel() as kernel:

        @kernel.tool()
        async def add(b: int, a: int = 1) -> int:
            """Add."""
            return a + b

        text, schema_hash = kernel.canonicalize_tool_args(tool_name="add", arguments={"b": 2})
        assert text == '{"a":1,"b":2}'
        assert schema_hash == kernel.tool_fingerprint(tool_name="add").schema_hash


@in_loop
async def test_a_completed_run_has_no_time_left(place: Place) -> None:
    async with place.kernel() as kernel:
        async with kernel.run(tenant=TENANT, run_id="r") as run:
            assert (await run.progress()).eta_seconds is None
        assert (await kernel.get_run_progress(run_id="r")).eta_seconds == 0
