"""What must hold, 9: status, progress and explanations agree, and blocks, pauses and leases are enforced."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import TENANT, Clock, Place, ask, call, kinds, of_type

from gert.agent import (
    ArtanaKernel,
    EventType,
    HarnessFailedPayload,
    HarnessSleepPayload,
    HarnessStagePayload,
    HarnessWakePayload,
    LeaseLost,
    RunBlocked,
    RunError,
    ToolExecutionContext,
    canonical_json_dumps,
)
from gert.errors import InputError


async def tasks(kernel: ArtanaKernel, *states: str) -> None:
    units = [{"id": f"task{n}", "state": state} for n, state in enumerate(states, start=1)]
    await kernel.append_run_summary(
        run_id="r",
        tenant=TENANT,
        summary_type="task_progress",
        summary_json=canonical_json_dumps({"units": units}),
    )


async def harness(kernel: ArtanaKernel, payload: Any) -> None:
    await kernel.append_harness_event(run_id="r", tenant=TENANT, event_type=EventType(payload.kind), payload=payload)


async def stands(kernel: ArtanaKernel) -> tuple[str, str, int, str | None]:
    """How a run stands, by every way to ask, which agree."""
    status = await kernel.get_run_status(run_id="r")
    progress = await kernel.get_run_progress(run_id="r")
    explained = await kernel.explain_run("r")
    point = await kernel.resume_point(run_id="r")
    snapshot = await kernel.store.get_run_state_snapshot(run_id="r")  # type: ignore[attr-defined]
    assert explained["status"] == status.status == snapshot.status
    assert explained["blocked_on"] == status.blocked_on == point.blocked_on == snapshot.blocked_on
    assert explained["percent"] == progress.percent
    assert explained["current_stage"] == progress.current_stage
    assert explained["failure_reason"] == status.failure_reason == snapshot.failure_reason
    assert explained["last_event_seq"] == status.last_event_seq == point.last_event_seq == snapshot.last_event_seq
    assert explained["last_event_type"] == status.last_event_type
    assert explained["last_step_key"] == point.last_step_key
    assert (status.status == "completed") == (progress.status == "completed")
    assert (status.status == "failed") == (progress.status == "failed") == (snapshot.explain_status == "failed")
    assert 0 <= progress.percent <= 100
    assert progress.updated_at == status.updated_at
    listed = await kernel.list_active_runs(tenant_id="acme")
    assert ([each for each in listed if each.run_id == "r"] == [status]) == (status.status in ("active", "paused"))
    return status.status, progress.status, progress.percent, progress.current_stage


class TestPoint9Standing:
    """Status, progress and explain come from one fold and never disagree."""

    def test_a_run_from_its_beginning_to_its_end(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                assert await stands(kernel) == ("active", "running", 0, None)
                await harness(kernel, HarnessWakePayload(run_created=True))
                await harness(kernel, HarnessStagePayload(stage="plan"))
                assert await stands(kernel) == ("active", "running", 0, "plan")
                await tasks(kernel, "done", "in_progress", "pending")
                assert await stands(kernel) == ("active", "running", 33, "task2")
                await harness(kernel, HarnessSleepPayload(status="completed"))
                # 1 of 3 tasks is 33 %, and not completed.
                assert await stands(kernel) == ("active", "running", 33, "task2")
                await tasks(kernel, "done", "done", "pending")
                assert await stands(kernel) == ("active", "running", 66, "task3")
                await tasks(kernel, "done", "done", "done")
                assert await stands(kernel) == ("completed", "completed", 100, "task3")
                progress = await kernel.get_run_progress(run_id="r")
                assert progress.completed_stages == ("task1", "task2", "task3")
                await harness(kernel, HarnessWakePayload(run_created=False))
                assert await stands(kernel) == ("active", "running", 100, "task3")
                await harness(kernel, HarnessFailedPayload(error_type="ValueError", message="no", last_step_key="k"))
                assert (await stands(kernel))[:2] == ("failed", "failed")
                explained = await kernel.explain_run("r")
                assert (explained["failure_reason"], explained["failure_step"]) == ("ValueError: no", "k")
                await harness(kernel, HarnessSleepPayload(status="failed", execution_error_type="ValueError"))
                assert (await kernel.get_run_status(run_id="r")).failure_reason == "ValueError: no"

        asyncio.run(scenario())

    def test_without_tasks_it_is_all_or_nothing(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                assert (await stands(kernel))[2] == 0
                await harness(kernel, HarnessSleepPayload(status="completed"))
                assert await stands(kernel) == ("completed", "completed", 100, None)

        asyncio.run(scenario())

    def test_the_end_is_foreseen_from_the_tasks_before(self, place: Place) -> None:
        async def scenario() -> None:
            clock = Clock()
            async with place.kernel(store={"clock": clock}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                clock.go(10)
                await tasks(kernel, "in_progress", "pending", "pending")
                assert (await kernel.get_run_progress(run_id="r")).eta_seconds is None
                clock.go(10)
                await tasks(kernel, "done", "pending", "pending")
                progress = await kernel.get_run_progress(run_id="r")
                assert progress.eta_seconds == 40
                assert (progress.updated_at - progress.started_at).total_seconds() == 20
                await tasks(kernel, "done", "done", "done")
                assert (await kernel.get_run_progress(run_id="r")).eta_seconds is None

        asyncio.run(scenario())

    def test_progress_is_of_one_moment_while_it_moves(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                done = asyncio.Event()

                async def move() -> None:
                    for n in range(40):
                        await tasks(kernel, *["done"] * (n % 5), *["pending"] * (4 - n % 5))
                    done.set()

                async def watch() -> None:
                    while not done.is_set():
                        progress = await kernel.get_run_progress(run_id="r")
                        assert progress.percent in (0, 25 * len(progress.completed_stages))
                        assert len(progress.completed_stages) * 25 == progress.percent
                        await asyncio.sleep(0)

                await asyncio.gather(move(), watch(), watch())

        asyncio.run(scenario())

    def test_progress_is_told_until_the_run_has_ended(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                heard: list[tuple[str, int]] = []

                async def follow() -> None:
                    async for progress in kernel.stream_run_progress(run_id="r", follow=True):
                        heard.append((progress.status, progress.percent))

                following = asyncio.create_task(follow())
                for states in (("pending", "pending"), ("done", "pending"), ("done", "done")):
                    await tasks(kernel, *states)
                    await ask(kernel, "r", f"q{states}", f"k{states}")
                await harness(kernel, HarnessSleepPayload(status="completed"))
                async with asyncio.timeout(20):
                    await following
                assert heard[-1] == ("completed", 100)
                assert heard == sorted(heard, key=lambda each: each[1])
                seq = (await kernel.get_run_status(run_id="r")).last_event_seq
                # One who begins when all is over is told, and does not wait.
                async with asyncio.timeout(20):
                    late = [p async for p in kernel.stream_run_progress(run_id="r", since_seq=seq, follow=True)]
                assert [each.percent for each in late] == [100]

        asyncio.run(scenario())

    def test_events_are_streamed_from_a_number_and_as_they_come(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                assert [event.seq async for event in kernel.stream_events(run_id="r", since_seq=2)] == [3, 4]
                seen: list[int] = []

                async def follow() -> None:
                    async for event in kernel.stream_events(run_id="r", follow=True):
                        seen.append(event.seq)
                        if event.seq == 10:
                            return

                following = asyncio.create_task(follow())
                for n in range(2):
                    await ask(kernel, "r", f"q{n}", f"k{n}")
                async with asyncio.timeout(20):
                    await following
                assert seen == list(range(1, 11))
                async with asyncio.timeout(20):
                    quiet = [
                        event.seq
                        async for event in kernel.stream_events(
                            run_id="r", since_seq=9, follow=True, idle_timeout_seconds=0.05
                        )
                    ]
                assert quiet == [10]

        asyncio.run(scenario())

    def test_runs_are_listed_by_tenant_status_and_time(self, place: Place) -> None:
        async def scenario() -> None:
            clock = Clock()
            async with place.kernel(store={"clock": clock}) as kernel:
                for run_id in ("r", "s", "t"):
                    await kernel.start_run(tenant=TENANT, run_id=run_id)
                    clock.go(60)
                await kernel.pause(run_id="s", tenant=TENANT, reason="wait")
                await harness(kernel, HarnessSleepPayload(status="completed"))

                async def names(**more: Any) -> list[str]:
                    return [each.run_id for each in await kernel.list_active_runs(tenant_id="acme", **more)]

                assert sorted(await names()) == ["s", "t"]
                assert await names(status="paused") == ["s"]
                assert await names(status="completed") == ["r"]
                assert await names(status="failed") == []
                assert await names(since=clock.time + timedelta(seconds=1)) == []
                assert await kernel.list_active_runs(tenant_id="nobody") == ()
                assert set(await kernel.store.list_run_ids(tenant_id="acme")) == {"r", "s", "t"}  # type: ignore[attr-defined]

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "look",
        [
            lambda kernel: kernel.get_run_status(run_id="x"),
            lambda kernel: kernel.get_run_progress(run_id="x"),
            lambda kernel: kernel.explain_run("x"),
            lambda kernel: kernel.resume_point(run_id="x"),
            lambda kernel: kernel.load_run(run_id="x"),
            lambda kernel: kernel.get_events(run_id="x"),
            lambda kernel: kernel.get_artifact(run_id="x", key="a"),
            lambda kernel: kernel.list_artifacts(run_id="x"),
            lambda kernel: kernel.get_latest_summary(run_id="x", summary_type="a"),
            lambda kernel: kernel.pause(run_id="x", tenant=TENANT, reason="a"),
            lambda kernel: kernel.resume(run_id="x", tenant=TENANT),
            lambda kernel: kernel.unblock_run(run_id="x", tenant=TENANT),
            lambda kernel: kernel.checkpoint(run_id="x", tenant=TENANT, name="a", payload=1),
            lambda kernel: ask(kernel, "x", "q", "k"),
            lambda kernel: anext(kernel.stream_events(run_id="x")),
            lambda kernel: anext(kernel.stream_run_progress(run_id="x")),
        ],
    )
    def test_a_run_that_was_not_started_is_an_error(self, place: Place, look: Callable[[ArtanaKernel], Any]) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(RunError, match="no run `x`"):
                    await look(kernel)
                assert await kernel.store.list_run_ids() == []  # type: ignore[attr-defined]

        asyncio.run(scenario())


class Said(BaseModel):
    """What a person says."""

    yes: bool


class TestPoint9Blocks:
    """Stacked blocks clear. Block and pause are enforced."""

    def test_a_paused_run_takes_no_steps_and_still_replays(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def pay(artana_context: ToolExecutionContext) -> int:
                    return 1

                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                ticket = await kernel.pause(run_id="r", tenant=TENANT, reason="ask ann", context=Said(yes=False))
                assert (ticket.run_id, ticket.seq, ticket.reason) == ("r", 5, "ask ann")
                assert (await stands(kernel))[:2] == ("paused", "running")
                for step in (
                    lambda: ask(kernel, "r", "new", "new"),
                    lambda: ask(kernel, "r", "new"),
                    lambda: call(kernel, "r", "pay", {}, "p"),
                    lambda: kernel.read_context(
                        run_id="r", tenant=TENANT, source="x", step_key="x", look=lambda: _text("x")
                    ),
                ):
                    with pytest.raises(RunBlocked, match="is paused: ask ann"):
                        await step()
                assert len(await kinds(kernel, "r")) == 5
                assert (await ask(kernel, "r", "q", "k")).replayed
                await kernel.resume(run_id="r", tenant=TENANT, human_input=Said(yes=True))
                [resumed] = await of_type(kernel, "r", "resume_requested")
                assert resumed.payload.human_input_json == '{"yes":true}'  # type: ignore[union-attr]
                assert not (await ask(kernel, "r", "new", "new")).replayed
                with pytest.raises(RunError, match="not paused"):
                    await kernel.resume(run_id="r", tenant=TENANT)

        asyncio.run(scenario())

    def test_blocks_are_stacked_and_each_is_cleared_by_its_key(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                for key in ("a", None, "b", "a", "approval:x"):
                    await kernel.block_run(
                        run_id="r", tenant=TENANT, reason=f"block {key}", unblock_key=key, metadata={"n": 1}
                    )
                await kernel.pause(run_id="r", tenant=TENANT, reason="and a pause")

                async def refused(on: str | None) -> None:
                    with pytest.raises(RunBlocked) as caught:
                        await ask(kernel, "r", "q", "k")
                    assert caught.value.blocked_on == on
                    status = await kernel.get_run_status(run_id="r")
                    assert (status.status, status.blocked_on) == ("paused", on)
                    await stands(kernel)

                await refused("approval:x")
                with pytest.raises(RunError, match="not blocked by `c`") as caught:
                    await kernel.unblock_run(run_id="r", tenant=TENANT, unblock_key="c")
                assert "`a`" in str(caught.value.hint)
                # Resuming ends the pause and leaves the blocks.
                await kernel.resume(run_id="r", tenant=TENANT)
                await refused("approval:x")
                with pytest.raises(RunBlocked, match="blocked, not paused"):
                    await kernel.resume(run_id="r", tenant=TENANT)
                await kernel.unblock_run(run_id="r", tenant=TENANT, unblock_key="approval:x")
                await refused("unblock:a")
                await kernel.unblock_run(run_id="r", tenant=TENANT, unblock_key="a", metadata={"by": "ann"})
                await refused("unblock:b")
                await kernel.unblock_run(run_id="r", tenant=TENANT, unblock_key="b")
                await refused(None)
                await kernel.unblock_run(run_id="r", tenant=TENANT)
                assert (await ask(kernel, "r", "q", "k")).output.text == "q!"
                with pytest.raises(RunError, match="not blocked"):
                    await kernel.unblock_run(run_id="r", tenant=TENANT)
                types = [event.payload.summary_type for event in await of_type(kernel, "r", "run_summary")]  # type: ignore[union-attr]
                assert types[:-1] == [
                    "run_unblocked::approval:x",
                    "run_unblocked::a",
                    "run_unblocked::b",
                    "run_unblocked",
                ]

        asyncio.run(scenario())

    def test_a_step_that_races_a_block_is_before_it_or_refused(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                steps = [asyncio.create_task(ask(kernel, "r", f"q{n}", f"k{n}")) for n in range(20)]
                blocked = asyncio.create_task(
                    kernel.block_run(run_id="r", tenant=TENANT, reason="stop", unblock_key="x")
                )
                done = await asyncio.gather(*steps, blocked, return_exceptions=True)
                events = await kernel.get_events(run_id="r")
                [stop] = [event.seq for event in events if event.event_type is EventType.PAUSE_REQUESTED]
                asked = [event.seq for event in events if event.event_type is EventType.MODEL_REQUESTED]
                assert all(seq < stop for seq in asked)
                assert len(asked) == sum(not isinstance(each, Exception) for each in done[:-1])
                assert all(isinstance(each, RunBlocked) for each in done[:-1] if isinstance(each, Exception))

        asyncio.run(scenario())


class TestPoint9Leases:
    """A worker without the lease cannot append."""

    def test_only_who_has_the_lease_appends(self, shared: Place) -> None:
        async def scenario() -> None:
            async with shared.kernel() as one, shared.kernel() as two:
                await one.start_run(tenant=TENANT, run_id="r")
                assert await one.acquire_run_lease(run_id="r", worker_id="one", ttl_seconds=60)
                assert not await two.acquire_run_lease(run_id="r", worker_id="two", ttl_seconds=60)
                before = await kinds(one, "r")
                for write in _writes(two):
                    with pytest.raises(LeaseLost, match="worker `one` drives run `r`"):
                        await write()
                with pytest.raises(LeaseLost):
                    await two.store.append_event(
                        run_id="r",
                        tenant_id="acme",
                        event_type=EventType.HARNESS_STAGE,
                        payload=HarnessStagePayload(stage="x"),
                    )
                assert await kinds(one, "r") == before
                assert (await ask(one, "r", "q", "k")).output.text == "q!"
                # Reading needs no lease.
                assert (await ask(two, "r", "q", "k")).replayed
                assert not await two.renew_run_lease(run_id="r", worker_id="two", ttl_seconds=60)
                assert not await two.release_run_lease(run_id="r", worker_id="two")
                assert await one.release_run_lease(run_id="r", worker_id="one")
                assert await one.get_run_lease(run_id="r") is None
                assert not (await ask(two, "r", "q2", "k2")).replayed

        asyncio.run(scenario())

    def test_a_lease_taken_through_the_store_is_the_kernel_s_too(self, shared: Place) -> None:
        async def scenario() -> None:
            async with shared.kernel() as one, shared.kernel() as two:
                await one.start_run(tenant=TENANT, run_id="r")
                store: Any = one.store
                assert await store.acquire_run_lease(run_id="r", worker_id="one", ttl_seconds=60)
                assert not (await ask(one, "r", "q", "k")).replayed
                with pytest.raises(LeaseLost):
                    await ask(two, "r", "q2", "k2")
                assert await store.release_run_lease(run_id="r", worker_id="one")
                assert not (await ask(two, "r", "q2", "k2")).replayed

        asyncio.run(scenario())

    def test_a_stale_worker_is_refused_by_its_token(self, shared: Place) -> None:
        async def scenario() -> None:
            clock = Clock()
            settings: dict[str, Any] = {"store": {"clock": clock}}
            async with shared.kernel(**settings) as stale, shared.kernel(**settings) as fresh:
                await stale.start_run(tenant=TENANT, run_id="r")
                assert await stale.acquire_run_lease(run_id="r", worker_id="stale", ttl_seconds=10)
                clock.go(11)
                # A process that slept goes on: no other worker took the run meanwhile.
                assert not (await ask(stale, "r", "q", "k")).replayed
                assert not await fresh.acquire_run_lease(run_id="r", worker_id="fresh", ttl_seconds=10)
                clock.go(11)
                assert await fresh.acquire_run_lease(run_id="r", worker_id="fresh", ttl_seconds=10)
                for write in _writes(stale):
                    with pytest.raises(LeaseLost, match="another process has taken over"):
                        await write()
                assert not await stale.renew_run_lease(run_id="r", worker_id="stale", ttl_seconds=10)
                await ask(fresh, "r", "q2", "k2")
                # Also when the other has given it back, since it may know things the stale one does not.
                assert await fresh.release_run_lease(run_id="r", worker_id="fresh")
                with pytest.raises(LeaseLost):
                    await ask(stale, "r", "q3", "k3")
                assert await stale.acquire_run_lease(run_id="r", worker_id="stale", ttl_seconds=10)
                assert (await ask(stale, "r", "q2", "k2")).replayed
                assert not (await ask(stale, "r", "q3", "k3")).replayed

        asyncio.run(scenario())

    def test_two_workers_take_a_run_in_turn_and_no_step_twice(self, shared: Place) -> None:
        async def scenario() -> None:
            made: list[int] = []

            async def work(name: str) -> None:
                async with shared.kernel() as kernel:

                    @kernel.tool(side_effect=True)
                    async def charge(n: int, artana_context: ToolExecutionContext) -> int:
                        made.append(n)
                        return n

                    for n in range(6):
                        while not await kernel.acquire_run_lease(run_id="r", worker_id=name, ttl_seconds=60):
                            await asyncio.sleep(0.001)
                        await call(kernel, "r", "charge", {"n": n}, f"k{n}")
                        assert await kernel.release_run_lease(run_id="r", worker_id=name)

            async with shared.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await asyncio.gather(*(work(f"w{n}") for n in range(3)))
                assert made == list(range(6))
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    def test_of_many_who_want_a_lease_one_gets_it(self, shared: Place) -> None:
        async def scenario() -> None:
            async with shared.kernel() as one, shared.kernel() as two:
                await one.start_run(tenant=TENANT, run_id="r")
                got = await asyncio.gather(
                    *(
                        (one, two)[n % 2].acquire_run_lease(run_id="r", worker_id=f"w{n}", ttl_seconds=60)
                        for n in range(12)
                    )
                )
                assert sum(got) == 1
                lease = await one.get_run_lease(run_id="r")
                assert lease is not None
                assert lease.worker_id == f"w{got.index(True)}"

        asyncio.run(scenario())

    @pytest.mark.parametrize(("worker", "ttl"), [("", 10), ("w", 0), ("w", -1), ("w", float("nan"))])
    def test_a_lease_that_makes_no_sense_is_refused(self, place: Place, worker: str, ttl: Any) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(InputError):
                    await kernel.acquire_run_lease(run_id="r", worker_id=worker, ttl_seconds=ttl)
                assert await kernel.get_run_lease(run_id="r") is None

        asyncio.run(scenario())


def _writes(kernel: ArtanaKernel) -> list[Callable[[], Any]]:
    return [
        lambda: ask(kernel, "r", "new", "new"),
        lambda: kernel.pause(run_id="r", tenant=TENANT, reason="x"),
        lambda: kernel.checkpoint(run_id="r", tenant=TENANT, name="x", payload=1),
        lambda: kernel.set_artifact(run_id="r", tenant=TENANT, key="x", value=1),
        lambda: harness(kernel, HarnessStagePayload(stage="x")),
    ]


async def _text(text: str) -> str:
    return text
