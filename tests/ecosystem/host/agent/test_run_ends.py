"""Agent runs end: a block that is left completes the run, an exception fails it, and a new step reopens it."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Answer, Hooks, Model, ask, call, ends, kinds

from gert.agent import (
    ArtanaKernel,
    KernelModelClient,
    LeaseLost,
    RunBlocked,
    SQLiteStore,
    WorkflowContext,
    json_step_serde,
)


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


def kernel_on(db: str, **more: Any) -> ArtanaKernel:
    return ArtanaKernel(store=SQLiteStore(db), model_port=more.pop("model", None) or Model(), **more)


async def status(kernel: ArtanaKernel) -> str:
    return (await kernel.get_run_status(run_id="r")).status


async def active(kernel: ArtanaKernel) -> list[str]:
    return [run.run_id for run in await kernel.list_active_runs(tenant_id="acme")]


class Boom(Exception):
    pass


def test_leaving_completes_replaying_adds_nothing_and_a_new_step_reopens(db: str) -> None:
    async def scenario() -> None:
        async with kernel_on(db) as kernel:
            for _ in range(2):
                async with kernel.run(tenant=TENANT, run_id="r") as run:
                    await run.model("mock", "one", Answer, step_key="one")
                assert (await status(kernel), await active(kernel)) == ("completed", [])
                assert (await kinds(kernel, "r"))[-1] == "run_ended"
            before = await kinds(kernel, "r")
            assert before.count("run_ended") == 1
            async with kernel.run(tenant=TENANT, run_id="r") as run:
                await run.model("mock", "two", Answer, step_key="two")
                assert await active(kernel) == ["r"]
            added = (await kinds(kernel, "r"))[len(before) :]
            assert added == ["run_reopened", "model_requested", "model_completed", "run_summary", "run_ended"]
            assert await kernel.store.verify_run_chain("r")

    asyncio.run(scenario())


def test_a_tool_call_that_reopens_a_run_has_the_key_of_its_own_number(db: str) -> None:
    async def scenario() -> None:
        from gert.kernel.ledger.projection import idempotency_key

        async with kernel_on(db) as kernel:

            @kernel.tool()
            async def look() -> int:
                return 1

            async with kernel.run(tenant=TENANT, run_id="r"):
                pass
            found = await call(kernel, "r", "look", {})
            [request] = [
                event for event in await kernel.get_events(run_id="r") if event.payload.kind == "tool_requested"
            ]
            assert request.seq == found.seq
            assert request.payload.idempotency_key == idempotency_key("r", "look", found.seq)  # type: ignore[union-attr]

    asyncio.run(scenario())


async def work_and_raise(kernel: ArtanaKernel) -> None:
    async with kernel.run(tenant=TENANT, run_id="r") as run:
        await run.model("mock", "one", Answer, step_key="one")
        raise Boom("no")


def test_an_exception_fails_the_run_and_coming_through_completes_it(db: str) -> None:
    async def scenario() -> None:
        async with kernel_on(db) as kernel:
            for _ in range(2):
                with pytest.raises(Boom):
                    await work_and_raise(kernel)
                found = await kernel.get_run_status(run_id="r")
                assert (found.status, found.failure_reason) == ("failed", "Boom: no")
            assert (await kinds(kernel, "r")).count("run_ended") == 1
            assert await active(kernel) == []
            async with kernel.run(tenant=TENANT, run_id="r") as run:
                await run.model("mock", "one", Answer, step_key="one")
            assert await status(kernel) == "completed"
            # A replay of a completed run that fails leaves it completed.
            with pytest.raises(Boom):
                async with kernel.run(tenant=TENANT, run_id="r"):
                    raise Boom
            assert await status(kernel) == "completed"

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [None, Boom, RunBlocked], ids=["left", "left by an exception", "a step was refused"])
@pytest.mark.parametrize("way", ["pause", "block"])
def test_a_run_that_waits_goes_on_waiting(db: str, way: str, error: type[Exception] | None) -> None:
    async def scenario() -> None:
        async with kernel_on(db) as kernel:

            async def work() -> None:
                async with kernel.run(tenant=TENANT, run_id="r") as run:
                    await getattr(run, way)("approve?")
                    if error is RunBlocked:
                        await run.model("mock", "one", Answer)
                    elif error is not None:
                        raise error

            with pytest.raises(error) if error is not None else nullcontext():
                await work()
            assert (await status(kernel), await active(kernel)) == ("paused", ["r"])

    asyncio.run(scenario())


def test_a_cancelled_run_stays_active_and_resumes(db: str) -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def work(kernel: ArtanaKernel) -> None:
            async with kernel.run(tenant=TENANT, run_id="r"):
                started.set()
                await asyncio.Event().wait()

        async with kernel_on(db) as kernel:
            task = asyncio.create_task(work(kernel))
            await started.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (await status(kernel), await kinds(kernel, "r")) == ("active", ["run_started"])
            async with kernel.run(tenant=TENANT, run_id="r"):
                pass
            assert await status(kernel) == "completed"

    asyncio.run(scenario())


def test_only_the_last_who_leaves_ends_the_run(db: str) -> None:
    async def scenario() -> None:
        async with kernel_on(db) as kernel, kernel.run(tenant=TENANT, run_id="r"):
            async with kernel.run(tenant=TENANT, run_id="r"):
                pass
            assert await status(kernel) == "active"

    asyncio.run(scenario())


def test_who_does_not_hold_the_lease_does_not_end_the_run(db: str) -> None:
    async def scenario() -> None:
        async with kernel_on(db) as holder, kernel_on(db) as other:
            await holder.start_run(tenant=TENANT, run_id="r")
            assert await holder.acquire_run_lease(run_id="r", worker_id="w", ttl_seconds=60)
            async with other.run(tenant=TENANT, run_id="r"):
                pass
            with pytest.raises(LeaseLost):
                async with other.run(tenant=TENANT, run_id="r") as run:
                    await run.model("mock", "one", Answer)
            assert await status(holder) == "active"

    asyncio.run(scenario())


def test_a_workflow_that_finishes_completes_its_run_and_one_that_pauses_does_not(db: str) -> None:
    async def one() -> int:
        return 1

    async def work(context: WorkflowContext) -> int:
        await context.step(name="one", action=one, serde=json_step_serde())
        await context.pause("approve?")
        return 1

    async def scenario() -> None:
        async with kernel_on(db) as kernel:
            assert (await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=work)).status == "paused"
            assert await status(kernel) == "paused"
            await kernel.resume(run_id="r", tenant=TENANT)
            assert (await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=work)).status == "complete"
            assert await status(kernel) == "completed"

            async def fails(_: WorkflowContext) -> int:
                raise Boom

            with pytest.raises(Boom):
                await kernel.run_workflow(run_id="q", tenant=TENANT, workflow=fails)
            assert (await kernel.get_run_status(run_id="q")).status == "failed"

    asyncio.run(scenario())


class TestClosing:
    """Closing waits for calls under way, and lets no others begin."""

    def test_a_call_under_way_is_recorded(self, db: str) -> None:
        async def scenario() -> None:
            asked, gate = asyncio.Event(), asyncio.Event()

            async def slowly(_: Any) -> str:
                asked.set()
                await gate.wait()
                return "late"

            kernel = kernel_on(db, model=Model(slowly))
            await kernel.start_run(tenant=TENANT, run_id="r")
            steps = [asyncio.create_task(ask(kernel, "r", "q")) for _ in range(2)]
            await asked.wait()
            closing = asyncio.create_task(kernel.close())
            await asyncio.sleep(0.01)
            assert not closing.done()
            with pytest.raises(ValueError, match="the kernel is closed"):
                await ask(kernel, "r", "another")
            gate.set()
            assert [(await step).output.text for step in steps] == ["late"] * 2
            await closing
            await kernel.close()
            async with kernel_on(db) as again:
                assert (await ask(again, "r", "q")).replayed

        asyncio.run(scenario())

    def test_a_step_cannot_close_the_kernel_that_takes_it(self, db: str) -> None:
        async def scenario() -> None:
            async with kernel_on(db) as kernel:

                @kernel.tool()
                async def close() -> str:
                    with pytest.raises(ValueError, match="cannot close the kernel"):
                        await kernel.close()
                    return "open"

                await kernel.start_run(tenant=TENANT, run_id="r")
                async with asyncio.timeout(20):
                    assert (await call(kernel, "r", "close", {})).result_json == '"open"'

        asyncio.run(scenario())


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after waiting"])
@pytest.mark.parametrize("shown", ["1", "2"], ids=["unchanged", "changed"])
def test_a_result_hook_that_changes_nothing_writes_nothing(db: str, shown: str, waits: bool) -> None:
    async def scenario() -> None:
        hooks = Hooks()

        async def show(**_: Any) -> str:
            if waits:
                await asyncio.sleep(0.005)
            return shown

        hooks.prepare_tool_result = show  # type: ignore[method-assign]
        async with kernel_on(db, middleware=[hooks]) as kernel:

            @kernel.tool()
            async def look() -> int:
                return 1

            await kernel.start_run(tenant=TENANT, run_id="r")
            live, again = await call(kernel, "r", "look", {}), await call(kernel, "r", "look", {})
            assert live.result_json == again.result_json == shown
            found = ends(await kernel.get_events(run_id="r"))
            # A hook that waits leaves a mark that it let the result pass.
            assert len(found) == (1 if shown == "1" and not waits else 2)
            assert not found[-1].withheld

    asyncio.run(scenario())


class TestClient:
    def test_it_starts_a_run_that_is_not_there(self, db: str) -> None:
        async def scenario() -> None:
            model = Model()
            async with kernel_on(db, model=model, middleware=ArtanaKernel.default_middleware_stack()) as kernel:
                client = KernelModelClient(kernel)
                asked = [
                    client.step(run_id="r", tenant=TENANT, model="m", prompt="q", output_schema=Answer)
                    for _ in range(5)
                ]
                assert {(await each).output.text for each in asyncio.as_completed(asked)} == {"q!"}
                assert len(model.asked) == (await kinds(kernel, "r")).count("run_started") == 1
                with pytest.raises(ValueError, match="is not a run id"):
                    await client.step(run_id="a b", tenant=TENANT, model="m", prompt="q", output_schema=Answer)

        asyncio.run(scenario())
