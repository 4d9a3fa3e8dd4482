"""What must hold, 7: a model that does not answer is on record, and the step can be taken again."""

import asyncio
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Answer, Hooks, Model, Place, ask, kinds, of_type, soon

from gert.agent import (
    LeaseLost,
    ModelCallOptions,
    ModelCompletedPayload,
    ModelFailedPayload,
    ModelInput,
    ModelPermanentError,
    ModelRequestedPayload,
    ModelResult,
    ModelTimeoutError,
    ModelTransientError,
    ModelUsage,
    RunBlocked,
    ToolCall,
)
from gert.errors import InputError, UsageError
from gert.kernel.events.envelope import MAX_LINE_BYTES


class Wordless(Exception):
    """One that cannot say what it is about."""

    def __str__(self) -> str:
        raise ValueError("no words")


FAILURES = [
    pytest.param(Wordless(), ("failed", "", "Wordless", None), id="without words"),
    pytest.param(
        ModelTransientError("busy", status=503, category="overloaded"),
        ("failed", "overloaded", "ModelTransientError", 503),
        id="the server is busy",
    ),
    pytest.param(
        ModelPermanentError("bad request", status=400, category="invalid_request"),
        ("failed", "invalid_request", "ModelPermanentError", 400),
        id="the request is wrong",
    ),
    pytest.param(
        ModelTimeoutError("slow", category="timeout"), ("timeout", "timeout", "ModelTimeoutError", None), id="too slow"
    ),
    pytest.param(TimeoutError("slow"), ("timeout", "", "TimeoutError", None), id="too slow, in other words"),
    pytest.param(ValueError("bug\nin two lines"), ("failed", "", "ValueError", None), id="something else"),
    pytest.param(asyncio.CancelledError(), ("cancelled", "", "CancelledError", None), id="cancelled inside"),
    pytest.param(KeyError("x"), ("failed", "", "KeyError", None), id="a bug"),
]


class TestPoint7:
    """A cancelled, timed-out or failed model step can be retried, and the failure is recorded."""

    @pytest.mark.parametrize("keyed", [True, False], ids=["by step key", "by what is asked"])
    @pytest.mark.parametrize(("problem", "expected"), FAILURES)
    def test_a_failure_is_recorded_and_the_step_taken_again(
        self, place: Place, problem: BaseException, expected: tuple[Any, ...], keyed: bool
    ) -> None:
        key = "k" if keyed else None

        async def scenario() -> None:
            model = Model(problem, problem)
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                for _ in range(2):
                    with pytest.raises(type(problem)):
                        await ask(kernel, "r", "q", key)
                assert (await ask(kernel, "r", "q", key)).output.text == "q!"
                assert (await ask(kernel, "r", "q", key)).replayed
                assert await kinds(kernel, "r") == [
                    "run_started",
                    *("model_requested", "model_failed") * 2,
                    "model_requested",
                    "model_completed",
                    "run_summary",
                ]
                failed = [event.payload for event in await of_type(kernel, "r", "model_failed")]
                for seq, said in zip((2, 4), failed, strict=True):
                    assert isinstance(said, ModelFailedPayload)
                    assert (said.reason, said.category, said.error_type, said.status) == expected
                    assert said.request_seq == seq
                    assert said.elapsed_seconds >= 0
                    assert "\n" not in said.message
                status = await kernel.get_run_status(run_id="r")
                assert status.status == "active"

        asyncio.run(scenario())

    def test_how_long_it_was_waited_for_is_on_record(self, place: Place) -> None:
        async def scenario() -> None:
            async def slowly(_: Any) -> str:
                await asyncio.sleep(0.02)
                raise ModelTimeoutError("slow")

            async with place.kernel(Model(slowly)) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ModelTimeoutError):
                    await ask(kernel, "r", "q", "k")
                [failed] = await of_type(kernel, "r", "model_failed")
                assert failed.payload.elapsed_seconds >= 0.02  # type: ignore[union-attr]

        asyncio.run(scenario())

    def test_a_step_that_was_cancelled_is_taken_again(self, place: Place) -> None:
        async def scenario() -> None:
            patience = asyncio.timeout(None)

            async def never(_: Any) -> str:
                # It ends only now: a step that is cancelled before it asks leaves this to the next one, for ever.
                patience.reschedule(asyncio.get_running_loop().time())
                await asyncio.Event().wait()
                return ""

            model = Model(never)
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(TimeoutError):
                    async with patience:
                        await ask(kernel, "r", "q", "k")
                assert (await ask(kernel, "r", "q", "k")).output.text == "q!"
                [failed] = await of_type(kernel, "r", "model_failed")
                assert failed.payload.reason == "cancelled"  # type: ignore[union-attr]

        asyncio.run(scenario())

    def test_an_answer_that_fits_no_line_is_a_failure_and_the_step_taken_again(self, place: Place) -> None:
        async def endless(_: Any) -> str:
            return "x" * MAX_LINE_BYTES

        async def scenario() -> None:
            async with place.kernel(Model(endless)) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ModelPermanentError, match="is too large"):
                    await ask(kernel, "r", "q", "k")
                [failed] = await of_type(kernel, "r", "model_failed")
                assert failed.payload.category == "invalid_output"  # type: ignore[union-attr]
                assert (await ask(kernel, "r", "q", "k")).output.text == "q!"

        asyncio.run(scenario())

    def test_a_caller_that_waits_for_a_failed_step_retries_it(self, place: Place) -> None:
        async def scenario() -> None:
            gate = asyncio.Event()

            async def fail(_: Any) -> str:
                await gate.wait()
                raise ModelTransientError("busy")

            model = Model(fail)
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                first = asyncio.create_task(ask(kernel, "r", "q", "k"))
                await soon(lambda: len(model.asked) == 1)
                second = asyncio.create_task(ask(kernel, "r", "q", "k"))
                await asyncio.sleep(0.01)
                gate.set()
                with pytest.raises(ModelTransientError):
                    await first
                assert (await second).output.text == "q!"
                assert len(model.asked) == 2

        asyncio.run(scenario())

    @pytest.mark.parametrize("keyed", [True, False], ids=["by step key", "by what is asked"])
    def test_a_request_without_a_waiting_caller_is_abandoned(self, shared: Place, keyed: bool) -> None:
        key = "k" if keyed else None

        async def scenario() -> None:
            async def never(_: Any) -> str:
                await asyncio.Event().wait()
                return ""

            model = Model(never)
            dead = shared.kernel(model)
            await dead.start_run(tenant=TENANT, run_id="r")
            step = asyncio.create_task(ask(dead, "r", "q", key))
            await soon(lambda: len(model.asked) == 1)
            async with shared.kernel() as alive:
                # As if the process had died: it says nothing more.
                assert (await ask(alive, "r", "q", key)).output.text == "q!"
                [failed] = await of_type(alive, "r", "model_failed")
                assert failed.payload.reason == "abandoned"  # type: ignore[union-attr]
                assert failed.payload.request_seq == 2  # type: ignore[union-attr]
                assert await kinds(alive, "r") == [
                    "run_started",
                    "model_requested",
                    "model_failed",
                    "model_requested",
                    "model_completed",
                    "run_summary",
                ]
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
            await dead.close()

        asyncio.run(scenario())

    def test_an_answer_that_came_meanwhile_is_not_called_abandoned(self, shared: Place) -> None:
        """A request is looked up, answered by its own process, and only then given up by another."""

        async def scenario() -> None:
            gate = asyncio.Event()

            async def wait(_: Any) -> str:
                await gate.wait()
                return "mine"

            model, other = Model(wait), Model()
            async with shared.kernel(model) as one:
                await one.start_run(tenant=TENANT, run_id="r")
                step = asyncio.create_task(ask(one, "r", "q", "k"))
                await soon(lambda: len(model.asked) == 1)

                class Late(Hooks):
                    async def before_model(self, **_: Any) -> None:
                        if not gate.is_set():
                            gate.set()
                            await step

                async with shared.kernel(other, middleware=[Late()]) as two:
                    assert (await ask(two, "r", "q", "k")).output.text == "mine"
                    assert other.asked == []
                    assert "model_failed" not in await kinds(two, "r")
                assert (await step).output.text == "mine"

        asyncio.run(scenario())

    def test_a_failure_that_cannot_be_recorded_is_raised_with_a_note(self, shared: Place) -> None:
        async def scenario() -> None:
            async with shared.kernel() as thief:

                async def fail(_: Any) -> str:
                    assert await thief.acquire_run_lease(run_id="r", worker_id="thief", ttl_seconds=60)
                    raise ModelTransientError("busy")

                async with shared.kernel(Model(fail)) as kernel:
                    await kernel.start_run(tenant=TENANT, run_id="r")
                    with pytest.raises(ModelTransientError, match="busy") as caught:
                        await ask(kernel, "r", "q", "k")
                    assert any("could not be recorded" in note for note in caught.value.__notes__)
                    with pytest.raises(LeaseLost):
                        await ask(kernel, "r", "q", "k")

        asyncio.run(scenario())

    def test_a_paid_answer_is_kept_though_a_hook_refuses_it(self, place: Place) -> None:
        def refuse(_: Any) -> None:
            raise RunBlocked("over budget")

        async def scenario() -> None:
            model = Model()
            async with place.kernel(model, middleware=[Hooks(after_model=refuse)]) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(RunBlocked):
                    await ask(kernel, "r", "q", "k")
                assert (await ask(kernel, "r", "q", "k")).replayed
                assert len(model.asked) == 1
                assert (await kernel.explain_run("r"))["model_cost_total"] == 0.25

        asyncio.run(scenario())

    def test_a_hook_that_refuses_before_leaves_no_trace(self, place: Place) -> None:
        def refuse(_: Any) -> None:
            raise RunBlocked("over budget")

        async def scenario() -> None:
            model = Model()
            async with place.kernel(model, middleware=[Hooks(before_model=refuse)]) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(RunBlocked):
                    await ask(kernel, "r", "q", "k")
                assert await kinds(kernel, "r") == ["run_started"]
                assert model.asked == []

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(ModelResult(Answer(text="x"), ModelUsage(1, 1, float("nan"))), id="a cost that is no number"),
            pytest.param(ModelResult(Answer(text="x"), ModelUsage(1, 1, float("inf"))), id="a cost without end"),
            pytest.param(ModelResult(Answer(text="x"), ModelUsage("1", 1, 0.0)), id="tokens in words"),  # type: ignore[arg-type]
            pytest.param(ModelResult(Answer(text="\ud800"), ModelUsage(1, 1, 0.0)), id="half a character"),
            pytest.param(ModelResult(Answer(text="x"), None), id="no usage"),  # type: ignore[arg-type]
            pytest.param(None, id="no answer at all"),
            pytest.param(
                ModelResult(Answer(text="x"), ModelUsage(1, 1, 0.0), response_output_items=({"a": object()},)),
                id="items that are no data",
            ),
            pytest.param(
                ModelResult(Answer(text="x"), ModelUsage(1, 1, 0.0), api_mode_used="telepathy"),  # type: ignore[arg-type]
                id="an unknown mode",
            ),
            pytest.param(
                ModelResult(Answer(text="x"), ModelUsage(1, 1, 0.0), (ToolCall("a", None),)),  # type: ignore[arg-type]
                id="a tool call without arguments",
            ),
        ],
    )
    def test_an_answer_that_cannot_be_read_back_is_a_failure_and_not_a_broken_record(
        self, place: Place, answer: Any
    ) -> None:
        class Port(Model):
            async def complete(self, request: Any) -> Any:
                return answer if not self.asked else await super().complete(request)

        async def scenario() -> None:
            port = Port()
            async with place.kernel(port) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ModelPermanentError, match="cannot be recorded"):
                    await ask(kernel, "r", "q", "k")
                assert await kinds(kernel, "r") == ["run_started", "model_requested", "model_failed"]
                port.asked.append("from now on it behaves")
                assert (await ask(kernel, "r", "q", "k")).output.text == "q!"
                assert (await kernel.explain_run("r"))["model_cost_total"] == 0.25

        asyncio.run(scenario())

    @pytest.mark.parametrize(("prompt", "key"), [("\ud800", "k"), ("q", "\ud800")], ids=["in the prompt", "in the key"])
    def test_half_a_character_is_refused_before_anything_is_asked(self, place: Place, prompt: str, key: str) -> None:
        async def scenario() -> None:
            model = Model()
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(InputError, match="has no JSON form"):
                    await ask(kernel, "r", prompt, key)
                assert await kinds(kernel, "r") == ["run_started"]
                assert model.asked == []

        asyncio.run(scenario())

    def test_a_model_that_does_not_stream_says_so(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel(Model()) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(UsageError, match="does not stream"):
                    await ask(kernel, "r", "q", "k", on_token=lambda _: None)
                assert (await ask(kernel, "r", "q", "k")).output.text == "q!"

        asyncio.run(scenario())


class TestModelEvents:
    """Model request invariants and completion metadata."""

    def test_a_live_step_writes_three_events_that_say_all_of_it(self, place: Place) -> None:
        items = ({"b": 1, "a": {"d": [1.0], "c": None}},)
        options = ModelCallOptions("responses", "high", "low", "resp_0", items)

        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool()
                async def zeta() -> int:
                    return 1

                @kernel.tool(requires_capability="money")
                async def alpha() -> int:
                    return 1

                @kernel.tool()
                async def beta() -> int:
                    return 1

                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k", model_options=options, parent_step_key="parent")
                started, asked, answered, decided = await kernel.get_events(run_id="r")
                assert [event.parent_step_key for event in (started, asked, answered, decided)] == [
                    None,
                    "parent",
                    "parent",
                    "parent",
                ]
                said = asked.payload
                assert isinstance(said, ModelRequestedPayload)
                assert (said.api_mode, said.reasoning_effort, said.verbosity) == ("responses", "high", "low")
                assert said.previous_response_id == "resp_0"
                assert said.responses_input_items == [{"a": {"c": None, "d": [1.0]}, "b": 1}]
                assert said.allowed_tools == ["beta", "zeta"]
                assert [each.name for each in said.allowed_tool_signatures] == ["beta", "zeta"]
                assert said.step_key == "k"
                found = answered.payload
                assert isinstance(found, ModelCompletedPayload)
                assert (found.prompt_tokens, found.completion_tokens, found.cost_usd) == (3, 2, 0.25)
                assert found.api_mode_used == "chat"
                assert found.request_seq == asked.seq
                assert decided.payload.summary_type == "capability_decision"  # type: ignore[union-attr]
                text = decided.payload.summary_json  # type: ignore[union-attr]
                for phrase in ('"missing_capability:money"', '"filtered"', '"allowed"', said.allowed_tools_hash):
                    assert phrase in text

        asyncio.run(scenario())

    def test_the_default_mode_is_auto(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await kernel.step_model_with_visible_tools(
                    run_id="r",
                    tenant=TENANT,
                    model="mock",
                    input=ModelInput.from_prompt("q"),
                    output_schema=Answer,
                    visible_tool_names=None,
                    step_key="k",
                )
                [asked] = await of_type(kernel, "r", "model_requested")
                assert asked.payload.api_mode == "auto"  # type: ignore[union-attr]

        asyncio.run(scenario())
