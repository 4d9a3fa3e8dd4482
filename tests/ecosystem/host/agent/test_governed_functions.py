"""Tools of a kernel as plain functions: what other libraries read of them, and what their calls come to."""

import asyncio
import inspect
import json
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel, TypeAdapter
from tests.ecosystem.host.agent.places import TENANT, Place, in_loop, kinds
from tests.ecosystem.host.agent.policies import Mailer
from tests.ecosystem.host.agent.test_agent_approvals import ANN_PUBLIC, answer, gate, people

from gert.agent import (
    ApprovalRequiredError,
    ArtanaKernel,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolUnknownOutcomeError,
    governed_functions,
)
from gert.errors import ToolNotFound


class Window(BaseModel):
    """When something happens."""

    start: int
    inner: "Window | None" = None


def tools(kernel: ArtanaKernel, done: list[str]) -> None:
    @kernel.tool()
    async def look(pod: str, depth: int = 2, windows: list[Window] | None = None) -> dict[str, Any]:
        """Look at a pod."""
        done.append(f"look {pod} {depth}")
        return {"pod": pod, "windows": len(windows or ())}

    @kernel.tool()
    async def breaks() -> str:
        """Break."""
        raise ValueError("disk full")

    @kernel.tool(side_effect=True)
    async def charge(artana_context: ToolExecutionContext) -> str:
        """Charge."""
        raise ToolUnknownOutcomeError("the line broke")


def named(functions: list[Any], name: str) -> Any:
    return {each.__name__: each for each in functions}[name]


@in_loop
async def test_a_function_has_the_name_types_and_schema_of_its_tool(shared: Place) -> None:
    async with shared.kernel() as kernel:
        tools(kernel, [])
        async with kernel.run(tenant=TENANT, run_id="r") as run:
            functions = governed_functions(run)
            assert [each.__name__ for each in functions] == ["breaks", "charge", "look"]
            look = named(functions, "look")
            assert inspect.iscoroutinefunction(look)
            assert look.__doc__ == "Look at a pod."
            signature = inspect.signature(look)
            assert {each.kind for each in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
            assert [each.default for each in signature.parameters.values()] == [inspect.Parameter.empty, 2, None]
            hints = get_type_hints(look, include_extras=True)
            assert hints["return"] is str
            schema = TypeAdapter(hints["windows"]).json_schema()
            assert "$ref" not in json.dumps(schema), "a schema of one parameter refers to nothing else"
            assert "start" in json.dumps(schema)
            assert [each.__name__ for each in governed_functions(run, tools=["look"])] == ["look"]
            with pytest.raises(ToolNotFound, match="`drop`"):
                governed_functions(run, tools=["drop"])


@in_loop
async def test_results_errors_and_refusals_are_told_and_the_same_in_a_resumed_run(shared: Place) -> None:
    done: list[str] = []

    async def talk(kernel: ArtanaKernel) -> list[str]:
        tools(kernel, done)
        async with kernel.run(tenant=TENANT, run_id="r") as run:
            functions = governed_functions(run)
            look, breaks = named(functions, "look"), named(functions, "breaks")
            said = [await look(pod="a"), await look(pod="a"), await look(pod="b", depth=None), await breaks()]
            said += await asyncio.gather(look(pod="c"), look(pod="c"))
            return [*said, await look(pod="a", windows=[Window(start=1)]), await look(pod=5)]

    async with shared.kernel() as kernel:
        first = await talk(kernel)
        events = await kinds(kernel, "r")
    assert json.loads(first[0]) == {"pod": "a", "windows": 0}
    assert json.loads(first[6]) == {"pod": "a", "windows": 1}
    assert "disk full" in json.loads(first[3])["error"]
    assert "do not fit" in json.loads(first[7])["error"]
    assert sorted(done) == ["look a 2"] * 3 + ["look b 2"] + ["look c 2"] * 2, "each call of the model is made"
    async with shared.kernel() as kernel:
        assert await talk(kernel) == first
        assert await kinds(kernel, "r") == events
    assert len(done) == 6, "and none of them again"


@in_loop
async def test_an_unknown_outcome_raises(shared: Place) -> None:
    async with shared.kernel() as kernel:
        tools(kernel, [])
        await kernel.start_run(tenant=TENANT, run_id="r")
        for _ in range(2):
            # A new function each time: as in a process that resumes the run.
            with pytest.raises(ToolExecutionFailedError, match="unknown outcome"):
                await named(governed_functions(kernel.bind(run_id="r", tenant=TENANT)), "charge")()


@in_loop
async def test_an_equal_call_after_a_cancelled_one_does_not_repeat_it(shared: Place) -> None:
    """A library that limits the time of a call cancels it, and the model asks again: the first may have happened."""
    done: list[str] = []
    async with shared.kernel() as kernel:

        @kernel.tool(side_effect=True)
        async def pay(to: str, artana_context: ToolExecutionContext) -> str:
            """Pay."""
            done.append(to)
            if len(done) == 1:
                await asyncio.Event().wait()
            return "paid"

        await kernel.start_run(tenant=TENANT, run_id="r")
        (pays,) = governed_functions(kernel.bind(run_id="r", tenant=TENANT))
        first = asyncio.ensure_future(pays(to="bob"))
        while not done:
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        for _ in range(2):
            with pytest.raises(ToolExecutionFailedError, match="unknown outcome"):
                await pays(to="bob")
        assert done == ["bob"]
        assert await pays(to="eve") == '"paid"', "another call is another step"


@pytest.mark.parametrize("approved", [True, False], ids=["approved", "rejected"])
@in_loop
async def test_a_call_waits_for_people_and_goes_on(place: Place, approved: bool) -> None:
    async with Mailer(place, approvals=people(ANN_PUBLIC), **gate()) as mailer:
        await mailer.begin()
        run = mailer.kernel.bind(run_id="r", tenant=TENANT)
        (send,) = governed_functions(run, tools=["send"], wait_seconds=60)
        calling = asyncio.ensure_future(send(to="ann@example.com"))
        while not await mailer.kernel.list_pending_approvals(tenant=TENANT):
            await asyncio.sleep(0.02)
        assert mailer.sent == []
        if approved:
            await answer(mailer, "bob")
        else:
            [pending] = await mailer.kernel.list_pending_approvals(tenant=TENANT)
            await mailer.kernel.approve_tool_call(
                run_id="r", tenant=TENANT, approval_key=pending.approval_key, by="bob", mode="human",
                approved=False, reason="no",
            )  # fmt: skip
        told = await calling
        assert len(mailer.sent) == approved
        assert approved or "rejected" in json.loads(told)["error"]


@in_loop
async def test_a_call_that_waited_long_enough_raises_and_continues_in_the_next_process(place: Place) -> None:
    async with Mailer(place, approvals=people(ANN_PUBLIC), **gate()) as mailer:
        await mailer.begin()
        for _ in range(2):
            (send,) = governed_functions(mailer.kernel.bind(run_id="r", tenant=TENANT), tools=["send"])
            with pytest.raises(ApprovalRequiredError):
                await send()
        await answer(mailer, "bob")
        (send,) = governed_functions(mailer.kernel.bind(run_id="r", tenant=TENANT), tools=["send"])
        await send()
        assert len(mailer.sent) == 1
