"""What must hold, 3: cancelling, heart-beating and listening do no harm."""

import asyncio
import logging
import random
from collections import Counter
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import SIZE, TENANT, Model, Place, ask, call, kinds, of_type, reconcile, soon

from gert.agent import (
    ArtanaKernel,
    EventType,
    KernelEvent,
    LeaseLost,
    RunSummaryPayload,
    ToolExecutionContext,
    ToolExecutionFailedError,
)
from gert.ecosystem.host.agent import event_listener

ROUNDS = 40 * SIZE


async def charged(kernel: ArtanaKernel, n: int, key: str) -> bool:
    """Whether a step of `charge` is known to have happened; otherwise it is in doubt, and nothing else."""
    try:
        found = await call(kernel, "r", "charge", {"n": n}, key)
    except ToolExecutionFailedError as error:
        if not error.in_doubt:
            raise
        return False
    return bool(found.result_json == str(n))


class TestPoint3Cancelling:
    """A cancelled coroutine never leaves a transaction open or the store unusable."""

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_steps_that_are_cancelled_anywhere_leave_a_run_that_goes_on(self, place: Place, seed: int) -> None:
        choice = random.Random(seed)

        async def scenario() -> None:
            async def slowly(request: Any) -> str:
                await asyncio.sleep(0.001)
                return str(request.messages[-1].content)

            model = Model(*[slowly] * 4 * ROUNDS)
            effects: Counter[int] = Counter()
            async with place.kernel(model) as kernel:

                @kernel.tool(side_effect=True)
                async def charge(n: int, artana_context: ToolExecutionContext) -> int:
                    effects[n] += 1
                    await asyncio.sleep(0.001)
                    return n

                await kernel.start_run(tenant=TENANT, run_id="r")
                for n in range(ROUNDS):
                    for step in (ask(kernel, "r", f"q{n}", f"m{n}"), call(kernel, "r", "charge", {"n": n}, f"t{n}")):
                        task = asyncio.create_task(step)
                        # Anywhere: before it begins, in the ledger, in the model or tool, and in between.
                        for _ in range(choice.randrange(6)):
                            await asyncio.sleep(choice.choice((0, 0, 0.0005)))
                        for _ in range(choice.randrange(3)):
                            task.cancel()
                            await asyncio.sleep(0)
                        await asyncio.gather(task, return_exceptions=True)
                        if choice.random() < 0.3:
                            await kernel.append_run_summary(
                                run_id="r", tenant=TENANT, summary_type="x", summary_json="{}"
                            )
                for n in range(ROUNDS):
                    assert (await ask(kernel, "r", f"q{n}", f"m{n}")).output.text == f"q{n}"
                    await charged(kernel, n, f"t{n}")
                assert max(effects.values()) == 1
                answered = Counter(
                    event.payload.request_seq  # type: ignore[union-attr]
                    for event in await of_type(kernel, "r", "model_completed")
                )
                assert set(answered.values()) == {1}
                failed = {
                    event.payload.request_seq  # type: ignore[union-attr]
                    for event in await of_type(kernel, "r", "model_failed")
                }
                assert not failed & set(answered), "an answer that was given is never called abandoned"
                # Each step has one answer: none was asked again after it was answered.
                assert len(answered) == ROUNDS
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    def test_a_call_whose_end_was_written_while_it_was_cancelled_is_known_to_have_ended(self, place: Place) -> None:
        async def scenario() -> None:
            made: list[int] = []
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def charge(n: int, artana_context: ToolExecutionContext) -> int:
                    made.append(n)
                    return n

                await kernel.start_run(tenant=TENANT, run_id="r")
                known = 0
                for n in range(ROUNDS):
                    task = asyncio.create_task(call(kernel, "r", "charge", {"n": n}, f"k{n}"))
                    await soon(lambda n=n: n in made)  # type: ignore[misc]
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    # Something that is written after it is also after it in the ledger.
                    await kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type="x", summary_json="{}")
                    known += await charged(kernel, n, f"k{n}")
                assert made == list(range(ROUNDS))
                outcomes = [event.payload.outcome for event in await of_type(kernel, "r", "tool_completed")]  # type: ignore[union-attr]
                assert outcomes.count("success") == known

        asyncio.run(scenario())

    def test_a_tool_that_is_cancelled_is_in_doubt_and_one_without_effects_is_called_again(self, place: Place) -> None:
        async def scenario() -> None:
            calls: Counter[str] = Counter()
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def pay(artana_context: ToolExecutionContext) -> str:
                    calls["pay"] += 1
                    await asyncio.sleep(0 if calls["pay"] > 1 else 60)
                    return "paid"

                @kernel.tool()
                async def look() -> str:
                    calls["look"] += 1
                    await asyncio.sleep(0 if calls["look"] > 1 else 60)
                    return "seen"

                await kernel.start_run(tenant=TENANT, run_id="r")
                for name in ("pay", "look"):
                    task = asyncio.create_task(call(kernel, "r", name, {}, name))
                    await soon(lambda name=name: calls[name] == 1)  # type: ignore[misc]
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                assert (await call(kernel, "r", "look", {}, "look")).result_json == '"seen"'
                with pytest.raises(ToolExecutionFailedError) as caught:
                    await call(kernel, "r", "pay", {}, "pay")
                assert caught.value.in_doubt
                assert calls == {"pay": 1, "look": 2}
                assert await reconcile(kernel, "r", "pay", {}, "pay", rerun=True) == '"paid"'

        asyncio.run(scenario())

    def test_many_cancelled_appends_do_not_stop_the_store(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                tasks = [
                    asyncio.create_task(
                        kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type=f"s{n}", summary_json="{}")
                    )
                    for n in range(ROUNDS)
                ]
                await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                noted = {event.payload.summary_type for event in await of_type(kernel, "r", "run_summary")}  # type: ignore[union-attr]
                assert noted >= {f"s{n}" for n in range(1, ROUNDS, 2)}
                assert (await ask(kernel, "r", "q", "k")).output.text == "q!"
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    def test_closing_waits_for_what_was_begun(self, durable: Place) -> None:
        async def scenario() -> None:
            kernel = durable.kernel()
            await kernel.start_run(tenant=TENANT, run_id="r")
            tasks = [
                asyncio.create_task(
                    kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type=f"s{n}", summary_json="{}")
                )
                for n in range(20)
            ]
            await asyncio.sleep(0)
            await asyncio.gather(kernel.close(), kernel.close())
            await kernel.close()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            async with durable.kernel() as again:
                written = len(await of_type(again, "r", "run_summary"))
                assert written >= sum(isinstance(each, int) for each in done)
                assert await again.store.verify_run_chain("r")

        asyncio.run(scenario())


class TestPoint3Leases:
    """Heart-beating a lease while appending never fails."""

    def test_a_lease_is_renewed_all_the_while(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                assert await kernel.acquire_run_lease(run_id="r", worker_id="w", ttl_seconds=30)
                done = asyncio.Event()
                beats = 0

                async def beat() -> None:
                    nonlocal beats
                    while not done.is_set():
                        assert await kernel.renew_run_lease(run_id="r", worker_id="w", ttl_seconds=30)
                        assert await kernel.acquire_run_lease(run_id="r", worker_id="w", ttl_seconds=30)
                        beats += 1
                        await asyncio.sleep(0)

                beating = asyncio.gather(*(beat() for _ in range(3)))
                texts = await asyncio.gather(*(ask(kernel, "r", f"q{n}", f"k{n}") for n in range(ROUNDS)))
                done.set()
                await beating
                assert [each.output.text for each in texts] == [f"q{n}!" for n in range(ROUNDS)]
                assert beats
                assert len(await kinds(kernel, "r")) == 1 + 3 * ROUNDS

        asyncio.run(scenario())

    def test_a_cancelled_heartbeat_does_not_block_appends(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                assert await kernel.acquire_run_lease(run_id="r", worker_id="w", ttl_seconds=30)
                for n in range(20):
                    beat = asyncio.create_task(kernel.renew_run_lease(run_id="r", worker_id="w", ttl_seconds=30))
                    for _ in range(n % 3):
                        await asyncio.sleep(0)
                    beat.cancel()
                    await asyncio.gather(beat, return_exceptions=True)
                    await ask(kernel, "r", f"q{n}", f"k{n}")
                lease = await kernel.get_run_lease(run_id="r")
                assert lease is not None
                assert lease.worker_id == "w"

        asyncio.run(scenario())


class TestPoint3Listening:
    """A callback on events can append, raise or block without harm."""

    def test_it_hears_every_event_in_order_after_it_is_durable(self, place: Place) -> None:
        async def scenario() -> None:
            heard: list[int] = []
            kernel: ArtanaKernel

            async def hear(event: KernelEvent) -> None:
                assert (await kernel.get_run_status(run_id="r")).last_event_seq >= event.seq
                heard.append(event.seq)

            async with place.kernel(store={"on_event": hear}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await asyncio.gather(*(ask(kernel, "r", f"q{n}", f"k{n}") for n in range(10)))
                await soon(lambda: len(heard) == 31)
            assert heard == list(range(1, 32))

        asyncio.run(scenario())

    def test_it_appends_to_the_run_it_hears_of(self, place: Place) -> None:
        async def scenario() -> None:
            kernel: ArtanaKernel

            async def hear(event: KernelEvent) -> None:
                if event.event_type is EventType.MODEL_COMPLETED:
                    await kernel.append_run_summary(
                        run_id="r", tenant=TENANT, summary_type="heard", summary_json=str(event.seq)
                    )

            async with place.kernel(store={"on_event": hear}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await asyncio.gather(*(ask(kernel, "r", f"q{n}", f"k{n}") for n in range(8)))
                async with asyncio.timeout(20):
                    while len(await kinds(kernel, "r")) < 1 + 8 * 4:
                        await asyncio.sleep(0.001)
                noted = [
                    event.payload.summary_json
                    for event in await of_type(kernel, "r", "run_summary")
                    if isinstance(event.payload, RunSummaryPayload) and event.payload.summary_type == "heard"
                ]
                assert len(noted) == len(set(noted)) == 8
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "problem", [ValueError("no"), LeaseLost("gone"), asyncio.CancelledError(), TimeoutError()], ids=repr
    )
    def test_an_exception_of_a_callback_does_not_reach_writers(
        self, place: Place, problem: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario() -> None:
            heard = 0

            async def hear(event: KernelEvent) -> None:
                nonlocal heard
                heard += 1
                raise problem

            with caplog.at_level(logging.CRITICAL, "gert.agent"):
                async with place.kernel(store={"on_event": hear}) as kernel:
                    await kernel.start_run(tenant=TENANT, run_id="r")
                    for n in range(5):
                        assert (await ask(kernel, "r", f"q{n}", f"k{n}")).output.text == f"q{n}!"
                    assert len(await kinds(kernel, "r")) == 16
                    await soon(lambda: heard == 16)

        asyncio.run(scenario())

    def test_a_blocking_callback_does_not_block_writing_or_closing(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(event_listener, "CLOSE_SECONDS", 0.05)

        async def scenario() -> None:
            async def hear(event: KernelEvent) -> None:
                await asyncio.Event().wait()

            async with place.kernel(store={"on_event": hear}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                for n in range(5):
                    await ask(kernel, "r", f"q{n}", f"k{n}")
                assert len(await kinds(kernel, "r")) == 16
            assert "did not finish" in caplog.text

        asyncio.run(scenario())

    def test_one_that_is_too_slow_is_told_so_and_costs_no_memory(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(event_listener, "MAX_WAITING", 3)

        async def scenario() -> None:
            gate = asyncio.Event()
            heard: list[int] = []

            async def hear(event: KernelEvent) -> None:
                await gate.wait()
                heard.append(event.seq)

            async with place.kernel(store={"on_event": hear}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                for n in range(5):
                    await ask(kernel, "r", f"q{n}", f"k{n}")
                gate.set()
            assert heard[-3:] == [14, 15, 16]
            assert "were dropped" in caplog.text

        asyncio.run(scenario())

    def test_a_callback_gets_events_whose_caller_was_cancelled(self, place: Place) -> None:
        async def scenario() -> None:
            heard: list[int] = []

            async def hear(event: KernelEvent) -> None:
                heard.append(event.seq)

            async with place.kernel(store={"on_event": hear}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                for n in range(20):
                    task = asyncio.create_task(
                        kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type="s", summary_json="{}")
                    )
                    for _ in range(n % 4):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type="s", summary_json="{}")
                total = len(await kinds(kernel, "r"))
                await soon(lambda: len(heard) >= total)
                assert heard == list(range(1, total + 1))

        asyncio.run(scenario())
