"""What must hold, 1, 3 and 9: who waits, listens or loses a run in the middle of a step waits for nothing in vain."""

import asyncio
import gc
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Model, Place, ask, call, reconcile, soon

from gert.agent import LeaseLost, ToolExecutionContext, ToolExecutionFailedError, WorkflowContext, json_step_serde
from gert.testing import FakeClock


async def never(*_: Any) -> Any:
    """Wait for what does not come, and is known to nobody."""
    await asyncio.get_running_loop().create_future()


class TestTasksWithoutAReference:
    """A task that is collected while it waits has given its step up."""

    @pytest.fixture(autouse=True)
    def quiet(self, caplog: pytest.LogCaptureFixture) -> None:
        """That a task was lost is said in the log, and is meant here."""
        caplog.set_level("CRITICAL", logger="asyncio")

    def test_its_model_step_is_taken_again(self, place: Place) -> None:
        async def scenario() -> None:
            model = Model(never)
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                task = asyncio.create_task(ask(kernel, "r", "a", "k"))
                await soon(lambda: bool(model.asked))
                del task
                gc.collect()
                async with asyncio.timeout(20):
                    assert (await ask(kernel, "r", "a", "k")).output.text == "a!"

        asyncio.run(scenario())

    def test_its_tool_step_is_in_doubt(self, place: Place) -> None:
        async def scenario() -> None:
            called: list[str] = []
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def pay(artana_context: ToolExecutionContext) -> None:
                    called.append(artana_context.idempotency_key)
                    await never()

                await kernel.start_run(tenant=TENANT, run_id="r")
                task = asyncio.create_task(call(kernel, "r", "pay", {}, "k"))
                await soon(lambda: bool(called))
                del task
                gc.collect()
                async with asyncio.timeout(20):
                    with pytest.raises(ToolExecutionFailedError) as refused:
                        await call(kernel, "r", "pay", {}, "k")
                assert refused.value.in_doubt
                assert len(called) == 1

        asyncio.run(scenario())

    def test_its_workflow_is_run_again(self, place: Place) -> None:
        async def scenario() -> None:
            taken: list[int] = []

            async def work() -> int:
                taken.append(1)
                if len(taken) == 1:
                    await never()
                return 1

            async def workflow(context: WorkflowContext) -> Any:
                return await context.step(name="work", action=work, serde=json_step_serde())

            async with place.kernel() as kernel:
                task = asyncio.create_task(kernel.run_workflow(run_id="r", tenant=TENANT, workflow=workflow))
                await soon(lambda: bool(taken))
                del task
                gc.collect()
                async with asyncio.timeout(20):
                    found = await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=workflow)
                assert found.output == 1

        asyncio.run(scenario())


class TestCircles:
    """Steps that wait for each other are told so."""

    @pytest.mark.parametrize("steps", [2, 3])
    def test_one_of_them_is_refused_and_all_of_them_end(self, place: Place, steps: int) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                begun: set[int] = set()
                everyone = asyncio.Event()

                @kernel.tool()
                async def needs(n: int) -> str:
                    begun.add(n)
                    if len(begun) == steps:
                        everyone.set()
                    await everyone.wait()
                    following = (n + 1) % steps
                    return str((await call(kernel, "r", "needs", {"n": following}, f"k{following}")).result_json)

                await kernel.start_run(tenant=TENANT, run_id="r")
                async with asyncio.timeout(20):
                    ends = await asyncio.gather(
                        *(call(kernel, "r", "needs", {"n": n}, f"k{n}") for n in range(steps)), return_exceptions=True
                    )
                assert all(isinstance(end, ToolExecutionFailedError) for end in ends)
                assert any("wait for each other" in str(end) for end in ends)
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    def test_who_waits_for_the_same_step_from_several_others_is_not_refused(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                made: list[int] = []

                @kernel.tool()
                async def base() -> int:
                    made.append(1)
                    await asyncio.sleep(0.02)
                    return 7

                @kernel.tool()
                async def on_it(n: int) -> str:
                    return str((await call(kernel, "r", "base", {}, "base")).result_json)

                await kernel.start_run(tenant=TENANT, run_id="r")
                async with asyncio.timeout(20):
                    ends = await asyncio.gather(*(call(kernel, "r", "on_it", {"n": n}, f"k{n}") for n in range(5)))
                assert {end.result_json for end in ends} == {"7"}
                assert made == [1]

        asyncio.run(scenario())


class TestListening:
    """Each who follows a run hears all of it, whatever becomes of the others."""

    def test_one_that_is_cancelled_takes_nothing_from_the_others(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                heard: list[list[int]] = [[], [], []]

                async def listen(events: list[int]) -> None:
                    async for event in kernel.stream_events(run_id="r", follow=True):
                        events.append(event.seq)

                listeners = [asyncio.create_task(listen(each)) for each in heard]
                await ask(kernel, "r", "a", "k")
                await soon(lambda: all(each[-1:] == [4] for each in heard))
                listeners[1].cancel()
                await ask(kernel, "r", "b", "l")
                await soon(lambda: heard[0][-1:] == heard[2][-1:] == [7])
                for listener in listeners:
                    listener.cancel()
                await asyncio.gather(*listeners, return_exceptions=True)
                assert heard[0] == heard[2] == list(range(1, 8))
                assert heard[1] == list(range(1, 5))

        asyncio.run(scenario())


class TestToolsThatDoNotStop:
    """A tool that goes on when its step is cancelled has done what it did."""

    @pytest.mark.parametrize("limit", [None, 0.05], ids=["cancelled", "timed out"])
    def test_its_result_counts_and_it_is_called_once(self, place: Place, limit: float | None) -> None:
        async def scenario() -> None:
            called: list[str] = []
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True, timeout_seconds=limit)
                async def pay(artana_context: ToolExecutionContext) -> str:
                    called.append(artana_context.idempotency_key)
                    try:
                        await asyncio.sleep(20)
                    except asyncio.CancelledError:
                        await asyncio.sleep(0)
                    return "paid"

                await kernel.start_run(tenant=TENANT, run_id="r")
                task = asyncio.create_task(call(kernel, "r", "pay", {}, "k"))
                await soon(lambda: bool(called))
                if limit is None:
                    task.cancel()
                assert (await task).result_json == '"paid"'
                again = await call(kernel, "r", "pay", {}, "k")
                assert (again.result_json, again.replayed) == ('"paid"', True)
                assert len(called) == 1

        asyncio.run(scenario())


class TestLeasesThatRunOut:
    """Who loses a run in the middle of a step says nothing about it any more."""

    def test_a_call_that_outlives_its_lease_is_recorded_where_no_other_worker_took_the_run(self, shared: Place) -> None:
        clock = FakeClock()

        async def scenario() -> None:
            first, second = (shared.kernel(store={"clock": clock}) for _ in range(2))
            async with first, second:

                @first.tool(side_effect=True)
                async def pay(artana_context: ToolExecutionContext) -> int:
                    clock.advance(60)
                    return 1

                await first.start_run(tenant=TENANT, run_id="r")
                assert await first.acquire_run_lease(run_id="r", worker_id="one", ttl_seconds=30)
                assert (await call(first, "r", "pay", {}, "k")).result_json == "1"
                assert not await second.acquire_run_lease(run_id="r", worker_id="two", ttl_seconds=30)

        asyncio.run(scenario())

    def test_the_call_is_in_doubt_and_not_made_again(self, shared: Place) -> None:
        clock = FakeClock()

        async def scenario() -> None:
            called: list[str] = []
            first, second = (shared.kernel(store={"clock": clock}) for _ in range(2))
            async with first, second:

                async def pay(artana_context: ToolExecutionContext) -> int:
                    called.append(artana_context.idempotency_key)
                    clock.advance(60)
                    assert await second.acquire_run_lease(run_id="r", worker_id="two", ttl_seconds=30)
                    return 1

                for kernel in (first, second):
                    kernel.tool(side_effect=True)(pay)
                await first.start_run(tenant=TENANT, run_id="r")
                assert await first.acquire_run_lease(run_id="r", worker_id="one", ttl_seconds=30)
                with pytest.raises(LeaseLost):
                    await call(first, "r", "pay", {}, "k")
                with pytest.raises(ToolExecutionFailedError) as refused:
                    await call(second, "r", "pay", {}, "k")
                assert refused.value.in_doubt
                await reconcile(second, "r", "pay", {}, "k", outcome="success", result=1)
                assert (await call(first, "r", "pay", {}, "k")).replayed
                with pytest.raises(LeaseLost):
                    await call(first, "r", "pay", {}, "another")
                assert len(called) == 1
                assert await second.store.verify_run_chain("r")

        asyncio.run(scenario())
