"""Workflows: which step is which when several are taken at once, what failed, and whom a pause waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from pydantic import BaseModel, Field
from tests.ecosystem.host.agent.places import TENANT, Place

from gert.agent import (
    ArtanaKernel,
    EventType,
    StepSerde,
    WorkflowContext,
    WorkflowStepFailedPayload,
    json_step_serde,
    pydantic_step_serde,
)
from gert.errors import InputError, ReplayConsistencyError

Work = Callable[[WorkflowContext], Awaitable[Any]]


async def take(ctx: WorkflowContext, name: str, result: Any, seconds: float = 0.0, step_key: str | None = None) -> Any:
    async def act() -> Any:
        await asyncio.sleep(seconds)
        return result

    return await ctx.step(name=name, action=act, serde=json_step_serde(), step_key=step_key)


async def run(kernel: ArtanaKernel, work: Work) -> Any:
    return await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)


def branches(**keys: Callable[[str, int], str | None]) -> Work:
    """Two branches of two steps, of which the second is faster."""

    async def branch(ctx: WorkflowContext, who: str, seconds: float) -> list[Any]:
        return [
            await take(ctx, keys["name"](who, n) or "", f"{who}{n}", seconds, keys["key"](who, n)) for n in range(2)
        ]

    async def work(ctx: WorkflowContext) -> Any:
        return await asyncio.gather(branch(ctx, "A", 0.01), branch(ctx, "B", 0.0))

    return work


class TestBranches:
    @pytest.mark.parametrize(
        "work",
        [
            pytest.param(branches(name=lambda who, n: f"{who}{n}", key=lambda *_: None), id="names of their own"),
            pytest.param(branches(name=lambda who, _: who, key=lambda *_: None), id="a name for each branch"),
            pytest.param(branches(name=lambda *_: "fetch", key=lambda who, n: f"{who}{n}"), id="keys of their own"),
            pytest.param(branches(name=lambda *_: "fetch", key=lambda who, _: who), id="a key for each branch"),
        ],
    )
    def test_each_branch_gets_its_own_results_again(self, place: Place, work: Work) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                live = await run(kernel, work)
                assert live.output == [["A0", "A1"], ["B0", "B1"]]
                assert (await run(kernel, work)).output == live.output

        asyncio.run(scenario())

    def test_two_steps_of_one_name_at_once_are_refused(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(InputError, match="another step `fetch` of the workflow is running") as caught:
                    await run(kernel, branches(name=lambda *_: "fetch", key=lambda *_: None))
                assert "step_key" in (caught.value.hint or "")

        asyncio.run(scenario())

    def test_a_name_in_two_branches_is_refused_also_where_the_steps_do_not_meet(self, place: Place) -> None:
        async def quick(ctx: WorkflowContext, ended: asyncio.Event) -> None:
            await take(ctx, "quick", "quick")
            await take(ctx, "fetch", "for quick")
            ended.set()

        async def slow(ctx: WorkflowContext, ended: asyncio.Event) -> None:
            await ctx.step(name="slow", action=ended.wait, serde=json_step_serde())
            await take(ctx, "fetch", "for slow")

        async def work(ctx: WorkflowContext) -> Any:
            ended = asyncio.Event()
            return await asyncio.gather(slow(ctx, ended), quick(ctx, ended))

        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(InputError, match="`fetch` is in two branches"):
                    await run(kernel, work)

        asyncio.run(scenario())

    def test_one_after_the_other_a_name_is_used_as_often_as_one_likes(self, place: Place) -> None:
        async def both(ctx: WorkflowContext, n: int) -> list[Any]:
            return list(await asyncio.gather(take(ctx, "a", f"a{n}"), take(ctx, "b", f"b{n}")))

        async def nested(ctx: WorkflowContext, n: int) -> Any:
            async def act() -> Any:
                return await take(ctx, "inner", n)

            return await ctx.step(name="outer", action=act, serde=json_step_serde())

        async def work(ctx: WorkflowContext) -> Any:
            loop = [await take(ctx, "fetch", n) for n in range(3)]
            waited = [await asyncio.wait_for(take(ctx, "wait", n), 5) for n in range(2)]
            groups = [await both(ctx, n) for n in range(2)]
            return [loop, waited, groups, await take(ctx, "a", "last"), [await nested(ctx, n) for n in range(2)]]

        async def scenario() -> None:
            async with place.kernel() as kernel:
                live = await run(kernel, work)
                assert live.output == [[0, 1, 2], [0, 1], [["a0", "b0"], ["a1", "b1"]], "last", [0, 1]]
                assert await run(kernel, work) == live

        asyncio.run(scenario())

    def test_a_key_two_places_would_share_is_refused(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> None:
            for name in ("a#2", "a", "a"):
                await take(ctx, name, 1)

        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(InputError, match="`a#2`"):
                    await run(kernel, work)

        asyncio.run(scenario())


class TestChangedCode:
    @pytest.mark.parametrize(
        ("then", "now", "what"),
        [
            pytest.param("abc", "axc", "step 1 of the workflow was `b`, and is `x` now", id="another step"),
            pytest.param("abc", "ac", "step 1 of the workflow was `b`, and is `c` now", id="a step is gone"),
            pytest.param("abc", "xabc", "step 0 of the workflow was `a`, and is `x` now", id="a step before"),
            pytest.param("ab", "ba", "step 0 of the workflow was `a`, and is `b` now", id="another order"),
            pytest.param("aab", "ab", "step 1 of the workflow was `a`, and is `b` now", id="a loop that is shorter"),
            pytest.param("ab", "abc", None, id="more at the end"),
            pytest.param("abc", "ab", None, id="less at the end"),
        ],
    )
    def test_steps_one_after_the_other_keep_their_order(
        self, place: Place, then: str, now: str, what: str | None
    ) -> None:
        def work(names: str) -> Work:
            async def flow(ctx: WorkflowContext) -> list[Any]:
                return [await take(ctx, name, name) for name in names]

            return flow

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await run(kernel, work(then))
                if what is None:
                    assert (await run(kernel, work(now))).output == list(now)
                    return
                with pytest.raises(ReplayConsistencyError, match=what) as caught:
                    await run(kernel, work(now))
                assert caught.value.drift_fields == ("step_name",)

        asyncio.run(scenario())

    def test_after_a_failure_that_was_caught_another_way_may_be_taken(self, place: Place) -> None:
        """What the failed step comes to now is not what it came to then, and nobody can know what follows."""
        fails = [True]

        async def work(ctx: WorkflowContext) -> Any:
            async def first() -> Any:
                if fails:
                    raise OSError("down")
                return "first"

            try:
                got = await ctx.step(name="first", action=first, serde=json_step_serde())
            except OSError:
                got = await take(ctx, "instead", "instead")
            return [got, await take(ctx, "last", "last")]

        async def scenario() -> None:
            async with place.kernel() as kernel:
                assert (await run(kernel, work)).output == ["instead", "last"]
                fails.clear()
                assert (await run(kernel, work)).output == ["first", "last"]

        asyncio.run(scenario())

    def test_a_key_that_has_another_name_is_refused_always(self, place: Place) -> None:
        def work(name: str) -> Work:
            async def flow(ctx: WorkflowContext) -> Any:
                return await asyncio.gather(take(ctx, name, 1, step_key="k"), take(ctx, "other", 2))

            return flow

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await run(kernel, work("a"))
                with pytest.raises(ReplayConsistencyError, match="was `a`, and is `b` now"):
                    await run(kernel, work("b"))

        asyncio.run(scenario())


class TestTwins:
    def test_a_workflow_twice_at_once_takes_each_step_once(self, place: Place) -> None:
        taken: list[str] = []

        async def work(ctx: WorkflowContext) -> list[Any]:
            async def act(name: str) -> Any:
                taken.append(name)
                await asyncio.sleep(0.01)
                return len(taken)

            return [
                await ctx.step(name=name, action=lambda name=name: act(name), serde=json_step_serde())  # type: ignore[misc]
                for name in ("a", "b")
            ]

        async def scenario() -> None:
            async with place.kernel() as kernel:
                found = await asyncio.gather(*(run(kernel, work) for _ in range(3)))
                assert [each.output for each in found] == [[1, 2]] * 3
                assert (await run(kernel, work)).output == [1, 2]
            assert taken == ["a", "b"]

        asyncio.run(scenario())

    def test_where_the_first_fails_its_twin_takes_the_step(self, place: Place) -> None:
        taken: list[int] = []

        async def work(ctx: WorkflowContext) -> Any:
            async def act() -> Any:
                taken.append(1)
                await asyncio.sleep(0.01)
                if len(taken) == 1:
                    raise OSError("down")
                return len(taken)

            return await ctx.step(name="a", action=act, serde=json_step_serde())

        async def scenario() -> None:
            async with place.kernel() as kernel:
                found = await asyncio.gather(run(kernel, work), run(kernel, work), return_exceptions=True)
                # Which of them is the first is nobody's promise.
                assert [each.output for each in found if not isinstance(each, BaseException)] == [2]
                assert [type(each) for each in found if isinstance(each, BaseException)] == [OSError]

        asyncio.run(scenario())

    def test_of_two_processes_that_take_a_step_both_return_what_a_replay_does(self, durable: Place) -> None:
        async def scenario() -> None:
            gate = asyncio.Event()

            async def slow(ctx: WorkflowContext) -> Any:
                async def act() -> Any:
                    await gate.wait()
                    return "slow"

                return await ctx.step(name="a", action=act, serde=json_step_serde())

            async with durable.kernel() as one, durable.kernel() as two, durable.kernel() as three:
                await one.start_run(tenant=TENANT, run_id="w")
                first = asyncio.create_task(run(one, slow))
                while len(await one.get_events(run_id="w")) < 2:
                    await asyncio.sleep(0.005)
                second = await run(two, lambda ctx: take(ctx, "a", "quick"))
                gate.set()
                assert (await first).output == second.output == "quick"
                assert (await run(three, slow)).output == "quick"

        asyncio.run(scenario())


class TestFailures:
    def test_an_action_that_raised_leaves_nothing_open(self, place: Place) -> None:
        fails = [1, 1, 1]

        async def work(ctx: WorkflowContext) -> Any:
            async def act() -> Any:
                if fails:
                    fails.pop()
                    raise OSError("connect postgres://app:hunter2@db failed")
                return "done"

            return await ctx.step(name="a", action=act, serde=json_step_serde())

        async def scenario() -> None:
            async with place.kernel() as kernel:
                for _ in range(3):
                    with pytest.raises(OSError, match="connect"):
                        await run(kernel, work)
                    assert await kernel.ledger.open_calls("w") == []
                assert (await run(kernel, work)).output == "done"
                ends = [
                    event.payload
                    for event in await kernel.get_events(run_id="w")
                    if event.event_type == EventType.WORKFLOW_STEP_FAILED
                ]
                assert len(ends) == 3
                for said in ends:
                    assert isinstance(said, WorkflowStepFailedPayload)
                    assert (said.reason, said.error_type, said.step_name) == ("failed", "OSError", "a")
                    assert "hunter2" not in said.message

        asyncio.run(scenario())

    def test_a_step_of_a_dead_worker_is_abandoned_when_it_runs_again(self, durable: Place) -> None:
        async def scenario() -> None:
            async def never(ctx: WorkflowContext) -> Any:
                return await ctx.step(name="a", action=asyncio.Event().wait, serde=json_step_serde())

            async with durable.kernel() as one, durable.kernel() as two:
                await one.start_run(tenant=TENANT, run_id="w")
                gone = asyncio.create_task(run(one, never))
                while len(await two.get_events(run_id="w")) < 2:
                    await asyncio.sleep(0.005)
                assert (await run(two, lambda ctx: take(ctx, "a", 1))).output == 1
                assert await two.ledger.open_calls("w") == []
                reasons = [
                    event.payload.reason
                    for event in await two.get_events(run_id="w")
                    if isinstance(event.payload, WorkflowStepFailedPayload)
                ]
                assert reasons == ["abandoned"]
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)

        asyncio.run(scenario())

    def test_a_cancelled_step_is_on_record_as_that(self, place: Place) -> None:
        async def scenario() -> None:
            begun = asyncio.Event()

            async def act() -> Any:
                begun.set()
                await asyncio.Event().wait()

            async with place.kernel() as kernel:
                task = asyncio.create_task(
                    run(kernel, lambda ctx: ctx.step(name="a", action=act, serde=json_step_serde()))
                )
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                last = (await kernel.get_events(run_id="w"))[-1].payload
                assert isinstance(last, WorkflowStepFailedPayload)
                assert last.reason == "cancelled"

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("serde", "result", "kind"),
        [
            pytest.param(StepSerde(dump=str, load=int), "x", ValueError, id="a text that cannot be loaded"),
            pytest.param(StepSerde[Any](dump=cast("Any", len), load=str), "x", Exception, id="a text that is none"),
            pytest.param(StepSerde(dump=lambda _: "\ud800", load=str), 1, Exception, id="half a character"),
        ],
    )
    def test_what_could_not_be_read_again_is_not_recorded(
        self, place: Place, serde: StepSerde[Any], result: Any, kind: type[Exception]
    ) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(kind):
                    await run(
                        kernel, lambda ctx: ctx.step(name="a", action=lambda: asyncio.sleep(0, result), serde=serde)
                    )
                types = [event.event_type.value for event in await kernel.get_events(run_id="w")]
                assert types == ["run_started", "workflow_step_requested", "workflow_step_failed", "run_ended"]
                assert (await run(kernel, lambda ctx: take(ctx, "a", 1))).output == 1

        asyncio.run(scenario())

    def test_a_model_with_other_names_in_its_json_comes_back(self, place: Place) -> None:
        class Said(BaseModel):
            fine: bool = Field(alias="isFine")

        async def work(ctx: WorkflowContext) -> Any:
            said = Said(isFine=True)
            return await ctx.step(name="a", action=lambda: asyncio.sleep(0, said), serde=pydantic_step_serde(Said))

        async def scenario() -> None:
            async with place.kernel() as kernel:
                for _ in range(2):
                    assert (await run(kernel, work)).output.fine is True

        asyncio.run(scenario())


class TestPauses:
    def test_each_pause_of_a_key_waits_for_itself(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> list[int]:
            return [(await ctx.pause(f"approve {n}", step_key="approve")).seq for n in range(3)]

        async def scenario() -> None:
            async with place.kernel() as kernel:
                for n in range(3):
                    found = await run(kernel, work)
                    assert found.status == "paused"
                    assert found.pause_ticket.reason == f"approve {n}"
                    await kernel.resume(run_id="w", tenant=TENANT)
                found = await run(kernel, work)
                assert found.status == "complete"
                assert len(set(found.output)) == 3

        asyncio.run(scenario())

    def test_who_agreed_to_one_thing_has_not_agreed_to_what_stands_in_its_place(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await run(kernel, lambda ctx: ctx.pause("may it be tried?"))
                await kernel.resume(run_id="w", tenant=TENANT)
                with pytest.raises(ReplayConsistencyError, match="was `may it be tried\\?`, and is `may all") as caught:
                    await run(kernel, lambda ctx: ctx.pause("may all be deleted?"))
                assert "step_key" in (caught.value.hint or "")
                found = await run(kernel, lambda ctx: ctx.pause("may all be deleted?", step_key="delete"))
                assert found.status == "paused"

        asyncio.run(scenario())

    def test_a_pause_with_a_key_may_change_its_words(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await run(kernel, lambda ctx: ctx.pause("at 10:00", step_key="k"))
                await kernel.resume(run_id="w", tenant=TENANT)
                assert (await run(kernel, lambda ctx: ctx.pause("at 11:00", step_key="k"))).status == "complete"

        asyncio.run(scenario())

    def test_one_resume_ends_the_pauses_that_were_reached_and_no_other(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> str:
            await asyncio.gather(ctx.pause("legal"), ctx.pause("finance"))
            await ctx.pause("the board")
            return "done"

        async def reached(kernel: ArtanaKernel, count: int) -> None:
            while [event.event_type.value for event in await kernel.get_events(run_id="w")].count(
                "pause_requested"
            ) < count:
                await asyncio.sleep(0.005)

        async def scenario() -> None:
            async with place.kernel() as kernel:
                assert (await run(kernel, work)).status == "paused"
                await reached(kernel, 2)
                await kernel.resume(run_id="w", tenant=TENANT)
                found = await run(kernel, work)
                assert (found.status, found.pause_ticket.reason) == ("paused", "the board")

        asyncio.run(scenario())
