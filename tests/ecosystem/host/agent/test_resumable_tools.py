"""Tools that are durable themselves: a call that has not ended is continued by the same step, under the same key."""

import asyncio
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Place, call, in_loop, kinds

from gert.agent import (
    CapabilityDeniedError,
    RunBlocked,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolSuspended,
)


class Waiters(Exception):
    """The tool waits for something."""


async def begun(place: Place, *problems: BaseException, **settings: Any) -> tuple[Any, list[str]]:
    """A kernel with a tool that fails so, then returns; and the keys it was called with."""
    kernel, left, keys = place.kernel(), list(problems), []

    async def work(artana_context: ToolExecutionContext) -> str:
        keys.append(artana_context.idempotency_key)
        if left:
            problem = left.pop(0)
            if isinstance(problem, asyncio.CancelledError):
                await asyncio.Event().wait()
            raise problem
        return "worked"

    kernel.tool(**{"resumable": True, **settings})(work)
    await kernel.start_run(tenant=TENANT, run_id="r")
    return kernel, keys


@in_loop
async def test_a_suspended_call_raises_its_reason_and_continues(place: Place) -> None:
    kernel, keys = await begun(place, ToolSuspended(Waiters("for Ann")), ToolSuspended(Waiters("still")))
    async with kernel:
        for why in ("for Ann", "still"):
            with pytest.raises(Waiters, match=why):
                await call(kernel, "r", "work", {}, "step")
        assert (await call(kernel, "r", "work", {}, "step")).result_json == '"worked"'
        assert (await call(kernel, "r", "work", {}, "step")).replayed
        assert len(keys) == 3
        assert len(set(keys)) == 1
        assert await kinds(kernel, "r") == ["run_started", "tool_requested", "tool_completed"]


@in_loop
async def test_a_cancelled_call_continues_and_an_error_ends_it(place: Place) -> None:
    kernel, keys = await begun(place, asyncio.CancelledError(), ValueError("broken"))
    async with kernel:
        working = asyncio.ensure_future(call(kernel, "r", "work", {}, "step"))
        while not keys:
            await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        for _ in range(2):
            with pytest.raises(ToolExecutionFailedError, match="broken"):
                await call(kernel, "r", "work", {}, "step")
        assert len(keys) == 2
        assert len(set(keys)) == 1


@in_loop
async def test_a_call_is_not_continued_in_a_blocked_run_or_without_the_capability(place: Place) -> None:
    kernel, keys = await begun(place, ToolSuspended(Waiters()), requires_capability="work")
    able = TENANT.model_copy(update={"capabilities": frozenset({"work"})})
    async with kernel:
        with pytest.raises(Waiters):
            await call(kernel, "r", "work", {}, "step", tenant=able)
        with pytest.raises(CapabilityDeniedError):
            await call(kernel, "r", "work", {}, "step")
        await kernel.block_run(run_id="r", tenant=TENANT, reason="stop", unblock_key="k")
        with pytest.raises(RunBlocked):
            await call(kernel, "r", "work", {}, "step", tenant=able)
        await kernel.unblock_run(run_id="r", tenant=TENANT, unblock_key="k")
        await call(kernel, "r", "work", {}, "step", tenant=able)
        assert len(keys) == 2


@pytest.mark.parametrize(
    ("side_effect", "outcome"),
    [
        pytest.param(True, "unknown_outcome", id="with side effects it may have happened"),
        pytest.param(False, "permanent_error", id="without them it failed"),
    ],
)
def test_a_tool_that_is_not_resumable_cannot_suspend(side_effect: bool, outcome: str, tmp_path: Any) -> None:
    async def main() -> None:
        place = Place("memory", str(tmp_path))
        kernel, _ = await begun(place, ToolSuspended(Waiters()), resumable=False, side_effect=side_effect)
        async with kernel:
            with pytest.raises(ToolExecutionFailedError) as found:
                await call(kernel, "r", "work", {}, "step")
            assert found.value.outcome == outcome

    asyncio.run(main())
