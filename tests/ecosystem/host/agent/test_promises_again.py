"""What must hold, 6, 8 and 16, when a question is put again, or beside others: one answer, few notes, no starving."""

import asyncio
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Hooks, Model, Place, ask, call, kinds, of_type
from tests.ecosystem.host.agent.test_promises_cost import Counting

from gert.agent import (
    ArtanaKernel,
    LeaseLost,
    ModelFailedPayload,
    ModelPermanentError,
    ModelTransientError,
    ModelUsage,
    RunBlocked,
    RunError,
    ToolExecutionContext,
)
from gert.kernel.agent.replay import call_cache, step_lookup
from gert.kernel.ledger.record import Overtaken


class TestOneAnswer:
    """What is given live is what every replay gives, and what came late is on record."""

    @pytest.mark.parametrize("key", ["k", None], ids=["with a step key", "without"])
    def test_of_two_answers_the_first_on_record_stands(self, shared: Place, key: str | None) -> None:
        async def scenario() -> None:
            gate, begun = asyncio.Event(), asyncio.Event()

            async def slowly(request: Any) -> str:
                begun.set()
                await gate.wait()
                return "slow"

            async with shared.kernel(Model(slowly)) as slow, shared.kernel(Model("fast")) as fast:
                await slow.start_run(tenant=TENANT, run_id="r")
                step = asyncio.create_task(ask(slow, "r", "q", key))
                await begun.wait()
                live = await ask(fast, "r", "q", key)
                gate.set()
                given = [await step, await ask(slow, "r", "q", key), await ask(fast, "r", "q", key)]
                assert [each.output.text for each in (live, *given)] == ["fast"] * 4
                assert {each.seq for each in (live, *given)} == {live.seq}
                assert (await kinds(slow, "r")).count("model_completed") == 2
                assert await slow.store.get_model_cost_sum_for_run("r") == 0.5  # type: ignore[attr-defined]

        asyncio.run(scenario())


class TestAgain:
    """Whoever asks again gets through beside others, and policy is asked once."""

    @pytest.mark.parametrize("beside", ["notes", "steps"])
    def test_a_step_is_retried_however_fast_the_run_grows(self, place: Place, beside: str) -> None:
        async def scenario() -> None:
            done = asyncio.Event()
            hooks = Hooks()

            async def before(**call: Any) -> None:
                hooks.called["before"] += 1
                await asyncio.sleep(0.005)

            model = Model(ModelTransientError("busy"))
            async with place.kernel(model) as noisy:
                kernel = ArtanaKernel(store=noisy.store, model_port=model, middleware=[hooks])
                hooks.before_model = before  # type: ignore[method-assign]
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ModelTransientError):
                    await ask(kernel, "r", "q", "k")
                hooks.called.clear()

                async def grow(worker: int) -> None:
                    n = 0
                    while not done.is_set():
                        n += 1
                        if beside == "steps":
                            await ask(kernel, "r", "other", f"{worker} {n}", tool_drift="refuse")
                        else:
                            await kernel.append_run_summary(
                                run_id="r", tenant=TENANT, summary_type="n", summary_json="{}"
                            )
                        await asyncio.sleep(0)

                growing = [asyncio.create_task(grow(worker)) for worker in range(4)]
                await asyncio.sleep(0.02)
                before_this = hooks.called["before"]
                async with asyncio.timeout(20):
                    assert (await ask(kernel, "r", "q", "k")).output.text == "q!"
                done.set()
                await asyncio.gather(*growing)
                if beside == "notes":
                    assert hooks.called["before"] == before_this + 1

        asyncio.run(scenario())

    def test_a_step_that_is_overtaken_for_ever_gives_up(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(step_lookup, "MAX_ATTEMPTS", 3)

        async def scenario() -> None:
            model = Model()
            async with place.kernel(model) as kernel:

                @kernel.tool(side_effect=True)
                async def pay(artana_context: ToolExecutionContext) -> int:
                    raise AssertionError

                await kernel.start_run(tenant=TENANT, run_id="r")

                async def overtaken(*_: Any, expect: Any, **__: Any) -> Any:
                    return Overtaken(expect.key)

                monkeypatch.setattr(kernel._log, "write", overtaken)
                with pytest.raises(RunError, match="3 times before this step could"):
                    await ask(kernel, "r", "q", "k")
                with pytest.raises(RunError, match="3 times before this step could"):
                    await call(kernel, "r", "pay", {}, "k")
                assert model.asked == []

        asyncio.run(scenario())

    def test_a_step_that_is_refused_reads_nothing_again(self, shared: Place) -> None:
        async def scenario() -> None:
            store = shared.store()
            store.ledger = counting = Counting(store.ledger)
            async with ArtanaKernel(store=store, model_port=Model()) as kernel:

                @kernel.tool(side_effect=True)
                async def pay(n: int, artana_context: ToolExecutionContext) -> int:
                    return n

                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                await kernel.block_run(run_id="r", tenant=TENANT, reason="audit", unblock_key="a")
                counting.count()
                for n in range(3):
                    with pytest.raises(RunBlocked):
                        await ask(kernel, "r", "q", f"k{n}")
                    with pytest.raises(RunBlocked):
                        await call(kernel, "r", "pay", {"n": n}, f"k{n}")
                asked, _ = counting.count()
                assert asked == {"append": 6}

        asyncio.run(scenario())

    def test_a_live_step_is_two_appends_and_no_reads(self, shared: Place) -> None:
        async def scenario() -> None:
            store = shared.store()
            store.ledger = counting = Counting(store.ledger)
            async with ArtanaKernel(store=store, model_port=Model()) as kernel:

                @kernel.tool(side_effect=True)
                async def pay(n: int, artana_context: ToolExecutionContext) -> int:
                    return n

                await kernel.start_run(tenant=TENANT, run_id="r")
                for key in ("k", None):
                    for step in (ask(kernel, "r", "q", key), call(kernel, "r", "pay", {"n": 1}, key)):
                        counting.count()
                        await step
                        assert counting.count() == ({"append": 2}, 0)

        asyncio.run(scenario())

    def test_what_is_remembered_of_all_runs_is_bounded(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(call_cache, "MAX_CALLS", 3)
        monkeypatch.setattr(call_cache, "CHECK_EVERY", 1)

        async def scenario() -> None:
            async with place.kernel() as kernel:
                for n in range(8):
                    await kernel.start_run(tenant=TENANT, run_id=f"r{n}")
                    await ask(kernel, f"r{n}", "q", "k")
                assert len(kernel._log.cache) <= 4
                assert all([(await ask(kernel, f"r{n}", "q", "k")).replayed for n in range(8)])

        asyncio.run(scenario())


class TestForks:
    """A run that takes no steps takes none elsewhere either."""

    @pytest.mark.parametrize("standing", ["blocked", "paused", "leased"])
    def test_nothing_is_asked_in_a_fork(self, shared: Place, standing: str) -> None:
        async def scenario() -> None:
            model = Model()
            async with shared.kernel(model) as kernel, shared.kernel() as other:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                if standing == "blocked":
                    await kernel.block_run(run_id="r", tenant=TENANT, reason="audit", unblock_key="a")
                elif standing == "paused":
                    await kernel.pause(run_id="r", tenant=TENANT, reason="lunch")
                else:
                    assert await other.acquire_run_lease(run_id="r", worker_id="w", ttl_seconds=60)
                before = await kinds(kernel, "r")
                with pytest.raises((RunBlocked, LeaseLost)):
                    await ask(kernel, "r", "another", "k", replay_policy="fork_on_drift")
                assert model.asked == ["q"]
                assert await kinds(kernel, "r") == before
                assert await kernel.store.list_run_ids() == ["r"]  # type: ignore[attr-defined]

        asyncio.run(scenario())

    def test_a_fork_that_has_its_answer_is_replayed_all_the_same(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                await ask(kernel, "r", "another", "k", replay_policy="fork_on_drift")
                await kernel.block_run(run_id="r", tenant=TENANT, reason="audit", unblock_key="a")
                assert (await ask(kernel, "r", "another", "k", replay_policy="fork_on_drift")).replayed

        asyncio.run(scenario())


class TestDrift:
    """Drift is noted once for each question, and a run is pinned to the tools its questions were put with."""

    def test_questions_that_take_turns_are_noted_once_each(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                for kernel_now in (kernel, ArtanaKernel(store=kernel.store, model_port=Model())):
                    for _ in range(3):
                        for prompt in ("a", "b", "c"):
                            await ask(kernel_now, "r", prompt, "k", replay_policy="allow_prompt_drift")
                assert (await kinds(kernel, "r")).count("replayed_with_drift") == 3

        asyncio.run(scenario())

    def test_a_run_that_began_without_tools_is_pinned_to_those_of_its_first_question(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")

                async def late() -> str:
                    return "1"

                kernel.tool(name="late")(late)
                await ask(kernel, "r", "q", "a", tool_drift="pin")
                kernel.tool(name="later")(late)
                await ask(kernel, "r", "q", "b", tool_drift="pin")
                asked = [event.payload.allowed_tools for event in await of_type(kernel, "r", "model_requested")]  # type: ignore[union-attr]
                assert asked == [["late"], ["late"]]

        asyncio.run(scenario())


class TestPaid:
    """What was paid for an answer nobody can use is on record."""

    @pytest.mark.parametrize(
        ("usage", "recorded"),
        [
            pytest.param(ModelUsage(7, 3, 0.5), (7, 3, 0.5), id="as the vendor told it"),
            pytest.param(None, (0, 0, 0.0), id="not told"),
            pytest.param("much", (0, 0, 0.0), id="not in numbers"),
            pytest.param(ModelUsage(-1, 0, 0.5), (0, 0, 0.0), id="less than nothing"),
            pytest.param(ModelUsage(1, 0, float("nan")), (0, 0, 0.0), id="not a number"),
        ],
    )
    def test_a_failure_says_what_it_cost(self, place: Place, usage: Any, recorded: tuple[int, int, float]) -> None:
        async def scenario() -> None:
            async with place.kernel(Model(ModelPermanentError("no", usage=usage))) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ModelPermanentError):
                    await ask(kernel, "r", "q", "k")
                [event] = await of_type(kernel, "r", "model_failed")
                said = event.payload
                assert isinstance(said, ModelFailedPayload)
                assert (said.prompt_tokens, said.completion_tokens, said.cost_usd) == recorded

        asyncio.run(scenario())
