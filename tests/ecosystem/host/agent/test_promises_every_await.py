"""What must hold, 3 and 4: a step that is cancelled at any await, one after the other, leaves a run that goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Hooks, Place, ask, call, of_type, reconcile

from gert.agent import (
    ArtanaKernel,
    ToolExecutionContext,
    ToolExecutionFailedError,
    WorkflowContext,
    WorkflowRunResult,
    json_step_serde,
)

MOST = 60
"""Awaits of one step; a step that has more is not looked at to its end."""


class CancelledAt:
    """Awaits something, and cancels its own task at the n-th time that has to wait."""

    def __init__(self, work: Awaitable[Any], place: int) -> None:
        self._work = work
        self._place = place
        self.waited = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        problem: BaseException | None = None
        while True:
            try:
                awaited = steps.throw(problem) if problem is not None else next(steps)
            except StopIteration as end:
                return end.value
            self.waited += 1
            if self.waited == self._place:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            problem = None
            try:
                yield awaited
            except BaseException as error:
                problem = error


class Bench:
    """A run, and how often its tools had an effect."""

    def __init__(self, kernel: ArtanaKernel) -> None:
        self.kernel = kernel
        self.keys: list[str] = []
        self.taken: list[str] = []

        @kernel.tool(side_effect=True)
        async def pay(artana_context: ToolExecutionContext) -> int:
            await asyncio.sleep(0)
            self.keys.append(artana_context.idempotency_key)
            await asyncio.sleep(0)
            return 1

        @kernel.tool()
        async def look() -> int:
            await asyncio.sleep(0)
            return 1

    async def workflow(self) -> WorkflowRunResult[int]:
        """Two steps, and a pause between them."""

        async def work(context: WorkflowContext) -> int:
            async def step(name: str) -> int:
                self.taken.append(name)
                await asyncio.sleep(0)
                return 1

            one: Any = await context.step(name="one", action=lambda: step("one"), serde=json_step_serde())
            await context.pause("go on?", step_key="p")
            two: Any = await context.step(name="two", action=lambda: step("two"), serde=json_step_serde())
            return int(one + two)

        return await self.kernel.run_workflow(run_id="r", tenant=TENANT, workflow=work)


Act = Callable[[Bench], Awaitable[Any]]


async def nothing(_: Bench) -> None:
    """Nothing is needed before."""


async def asked(bench: Bench) -> None:
    await ask(bench.kernel, "r", "a", "k")


async def reached_the_pause(bench: Bench) -> None:
    await bench.workflow()
    await bench.kernel.resume(run_id="r", tenant=TENANT)


async def model_is_asked(bench: Bench) -> None:
    first = await ask(bench.kernel, "r", "a", "k")
    again = await ask(bench.kernel, "r", "a", "k")
    assert again.replayed
    assert first.output == again.output


async def is_paid_once_or_in_doubt(bench: Bench) -> None:
    try:
        found = await call(bench.kernel, "r", "pay", {}, "k")
    except ToolExecutionFailedError as error:
        if not error.in_doubt:
            raise
        await reconcile(bench.kernel, "r", "pay", {}, "k", outcome="success", result=1)
        found = await call(bench.kernel, "r", "pay", {}, "k")
    else:
        assert len(bench.keys) == 1
    assert found.result_json == "1"
    assert len(bench.keys) <= 1


async def is_looked(bench: Bench) -> None:
    assert (await call(bench.kernel, "r", "look", {}, "k")).result_json == "1"


async def workflow_ends(bench: Bench) -> None:
    found = await bench.workflow()
    if found.status == "paused":
        await bench.kernel.resume(run_id="r", tenant=TENANT)
        found = await bench.workflow()
    assert found.output == 2
    taken = list(bench.taken)
    assert (await bench.workflow()).output == 2
    assert bench.taken == taken


async def drift_is_noted_once(bench: Bench) -> None:
    for _ in range(2):
        found = await ask(bench.kernel, "r", "b", "k", replay_policy="allow_prompt_drift")
        assert found.replayed_with_drift
    assert len(await of_type(bench.kernel, "r", "replayed_with_drift")) == 1


async def fork_is_one(bench: Bench) -> None:
    first = await ask(bench.kernel, "r", "b", "k", replay_policy="fork_on_drift")
    again = await ask(bench.kernel, "r", "b", "k", replay_policy="fork_on_drift")
    assert again.replayed
    assert first.output == again.output
    assert len(await of_type(bench.kernel, "r", "replayed_with_drift")) == 1
    assert await bench.kernel.store.verify_run_chain(first.run_id)


async def is_read_once(bench: Bench) -> None:
    first, again = await read(bench), await read(bench)
    assert first == again


async def read(bench: Bench) -> str:
    async def look() -> str:
        await asyncio.sleep(0)
        bench.taken.append("read")
        return str(len(bench.taken))

    return await bench.kernel.read_context(run_id="r", tenant=TENANT, source="s", step_key="k", look=look)


@pytest.mark.parametrize(
    ("before", "act", "after"),
    [
        pytest.param(nothing, lambda b: ask(b.kernel, "r", "a", "k"), model_is_asked, id="a model step"),
        pytest.param(nothing, lambda b: call(b.kernel, "r", "pay", {}, "k"), is_paid_once_or_in_doubt, id="an effect"),
        pytest.param(nothing, lambda b: call(b.kernel, "r", "look", {}, "k"), is_looked, id="a look"),
        pytest.param(nothing, lambda b: b.workflow(), workflow_ends, id="a workflow up to its pause"),
        pytest.param(reached_the_pause, lambda b: b.workflow(), workflow_ends, id="a workflow after its pause"),
        pytest.param(
            asked,
            lambda b: ask(b.kernel, "r", "b", "k", replay_policy="allow_prompt_drift"),
            drift_is_noted_once,
            id="drift",
        ),
        pytest.param(
            asked, lambda b: ask(b.kernel, "r", "b", "k", replay_policy="fork_on_drift"), fork_is_one, id="a fork"
        ),
        pytest.param(nothing, read, is_read_once, id="reading"),
    ],
)
def test_a_step_is_cancelled_at_each_of_its_awaits(shared: Place, before: Act, act: Act, after: Act) -> None:
    async def cancelled_at(n: int, place: Place) -> int:
        """How often a step waited that was cancelled at the n-th time."""
        async with place.kernel(middleware=[Hooks()]) as kernel:
            bench = Bench(kernel)
            await kernel.start_run(tenant=TENANT, run_id="r")
            await before(bench)
            step = CancelledAt(act(bench), n)

            async def take() -> Any:
                return await step

            async with asyncio.timeout(20):
                await asyncio.gather(asyncio.create_task(take()), return_exceptions=True)
                await after(bench)
            assert await kernel.store.verify_run_chain("r")
            assert (await kernel.explain_run("r"))["open_calls"] == []
        return step.waited

    missed = 0
    for n in range(1, MOST):
        # What is ready at once is not waited for, so that a step does not wait equally often each time.
        missed = missed + 1 if asyncio.run(cancelled_at(n, shared.anew())) < n else 0
        if missed > 1:
            return
    pytest.fail(f"a step has more than {MOST} awaits")
