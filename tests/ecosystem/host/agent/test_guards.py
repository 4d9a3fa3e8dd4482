"""Middleware that guards: it decides inside the append, records what it decided, and takes steps through its kernel."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Answer, Place, ask, call, in_loop, kinds, of_type

from gert.agent import (
    ArtanaKernel,
    Conditions,
    GertError,
    KernelMiddleware,
    LeaseLost,
    ModelInput,
    PolicyViolationError,
    PreparedToolRequest,
    Refusal,
    RunBlocked,
    RunSummaryPayload,
)
from gert.kernel.agent.middleware.base import PassThroughMiddleware
from gert.kernel.events.agent import RunSummary
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.record import CallLimit, Exceeded, Head, Held

MANY = 5


def note(outcome: str, step_key: str | None) -> Entry:
    return Entry(RunSummary(summary_type="decision", summary_json=json.dumps(outcome), step_key=step_key))


def refused(tool_name: str) -> PolicyViolationError:
    return PolicyViolationError(code="tool_limit_exceeded", message="too often", tool_name=tool_name)


class Guard(PassThroughMiddleware):
    """Lets a tool be called so often: in a run by the head, or by a tenant by the count of the ledger."""

    def __init__(self, most: int = 1, *, across_runs: bool = False) -> None:
        self.most = most
        self.across_runs = across_runs
        self.keys: list[str | None] = []

    async def prepare_tool_request(  # type: ignore[override]
        self, *, run_id: str, tenant: Any, tool_name: str, arguments_json: str, step_key: str | None
    ) -> PreparedToolRequest:
        """Allow what the limit allows."""
        self.keys.append(step_key)
        no = Refusal(refused(tool_name), (note("deny", step_key),))

        def guard(head: Head) -> Refusal | None:
            counts = head.agent.calls_by_tool if head.agent is not None else {}
            return no if counts.get(tool_name, 0) >= self.most else None

        def on_refused(found: Held | Exceeded) -> Refusal | None:
            return no if isinstance(found, Exceeded) else None

        entries = (note("allow", step_key),)
        if self.across_runs:
            limit = CallLimit(tenant.tenant_id, tool_name, self.most, 60)
            return PreparedToolRequest(
                arguments_json, conditions=Conditions(entries, limits=(limit,), on_refused=(on_refused,))
            )
        return PreparedToolRequest(arguments_json, conditions=Conditions(entries, (guard,)))


def paying(kernel: ArtanaKernel) -> list[int]:
    paid: list[int] = []

    @kernel.tool()
    async def pay(amount: int) -> int:
        """Pay."""
        paid.append(amount)
        return amount

    return paid


async def decisions(kernel: ArtanaKernel, run_id: str) -> list[tuple[str, str | None]]:
    """What was decided about which step."""
    found = [event.payload for event in await of_type(kernel, run_id, "run_summary")]
    return [(json.loads(p.summary_json), p.step_key) for p in found if isinstance(p, RunSummaryPayload)]


@pytest.mark.parametrize("across_runs", [False, True], ids=["by the head", "by the ledger's count"])
@in_loop
async def test_a_limit_of_one_admits_one_of_many_calls_at_once(shared: Place, across_runs: bool) -> None:
    guards = [Guard(across_runs=across_runs) for _ in range(MANY)]
    kernels = [shared.kernel(middleware=[guard]) for guard in guards]
    paid = [paying(kernel) for kernel in kernels]
    await kernels[0].start_run(tenant=TENANT, run_id="r")
    answers = await asyncio.gather(
        *(call(kernel, "r", "pay", {"amount": n}, f"pay_{n}") for n, kernel in enumerate(kernels)),
        return_exceptions=True,
    )
    denied = [each for each in answers if isinstance(each, PolicyViolationError)]
    assert len(denied) == MANY - 1
    assert sum(map(len, paid)) == 1
    assert sorted(outcome for outcome, _ in await decisions(kernels[0], "r")) == ["allow", *["deny"] * (MANY - 1)]
    assert {key for _, key in await decisions(kernels[0], "r")} == {f"pay_{n}" for n in range(MANY)}
    assert [guard.keys for guard in guards] == [[f"pay_{n}"] for n in range(MANY)]
    for kernel in kernels:
        await kernel.close()


@in_loop
async def test_a_limit_of_a_tenant_counts_its_other_runs(shared: Place) -> None:
    async with shared.kernel(middleware=[Guard(across_runs=True)]) as kernel:
        paying(kernel)
        for run_id in ("a", "b"):
            await kernel.start_run(tenant=TENANT, run_id=run_id)
        await call(kernel, "a", "pay", {"amount": 1}, "first")
        with pytest.raises(PolicyViolationError):
            await call(kernel, "b", "pay", {"amount": 2}, "second")
        assert await kinds(kernel, "b") == ["run_started", "run_summary"]


@in_loop
async def test_a_decision_stands_before_the_request_it_concerns(place: Place) -> None:
    async with place.kernel(middleware=[Guard()]) as kernel:
        paying(kernel)
        async with kernel.run(tenant=TENANT, run_id="r") as run:
            await run.tool("pay", {"amount": 1}, step_key="one")
            before = await kinds(kernel, "r")
            assert before == ["run_started", "run_summary", "tool_requested", "tool_completed"]
            assert (await run.tool("pay", {"amount": 1}, step_key="one")).replayed
            assert await kinds(kernel, "r") == before


@in_loop
async def test_a_refused_step_does_not_reopen_a_run_that_has_ended(place: Place) -> None:
    async with place.kernel(middleware=[Guard()]) as kernel:
        paying(kernel)
        async with kernel.run(tenant=TENANT, run_id="r") as run:
            await run.tool("pay", {"amount": 1}, step_key="one")
        with pytest.raises(PolicyViolationError):
            await call(kernel, "r", "pay", {"amount": 2}, "two")
        assert (await kinds(kernel, "r"))[-2:] == ["run_ended", "run_summary"]
        assert (await kernel.get_run_status(run_id="r")).status == "completed"


async def block(kernel: ArtanaKernel) -> None:
    await kernel.block_run(run_id="r", tenant=TENANT, reason="maintenance", unblock_key="go")


async def pause(kernel: ArtanaKernel) -> None:
    await kernel.pause(run_id="r", tenant=TENANT, reason="lunch")


async def lose_lease(kernel: ArtanaKernel) -> None:
    assert await kernel.acquire_run_lease(run_id="r", worker_id="one", ttl_seconds=60)
    kernel.ledger._fences.clear()  # type: ignore[attr-defined]  # as another process has it


class Noted(PassThroughMiddleware):
    """Notes that a hook ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def before_model(self, **_: Any) -> None:
        """Note it."""
        self.ran.append("before_model")

    async def admit_model(self, **_: Any) -> None:
        """Note it."""
        self.ran.append("admit_model")

    async def prepare_tool_request(self, *, arguments_json: str, **_: Any) -> str:
        """Note it."""
        self.ran.append("prepare_tool_request")
        return arguments_json


@pytest.mark.parametrize(
    ("stop", "error"),
    [
        pytest.param(block, RunBlocked, id="blocked"),
        pytest.param(pause, RunBlocked, id="paused"),
        pytest.param(lose_lease, LeaseLost, id="leased by another worker"),
    ],
)
@in_loop
async def test_hooks_do_not_run_for_a_run_that_takes_no_steps(
    place: Place, stop: Callable[[ArtanaKernel], Any], error: type[GertError]
) -> None:
    hooks = Noted()
    async with place.kernel(middleware=[hooks]) as kernel:
        paying(kernel)
        await kernel.start_run(tenant=TENANT, run_id="r")
        await stop(kernel)
        with pytest.raises(error):
            await call(kernel, "r", "pay", {"amount": 1}, "one")
        with pytest.raises(error):
            await ask(kernel, "r", "hello?", "two")
        assert hooks.ran == []


class Critic(PassThroughMiddleware):
    """Asks a model about every call, through the kernel it is bound to."""

    kernel: ArtanaKernel

    def bind_kernel(self, kernel: ArtanaKernel) -> None:
        """Learn the kernel."""
        self.kernel = kernel

    async def prepare_tool_request(self, *, run_id: str, tenant: Any, arguments_json: str, **_: Any) -> str:
        """Ask."""
        await self.kernel.step_model(
            run_id=run_id,
            tenant=tenant,
            model="mock",
            input=ModelInput.from_prompt(arguments_json),
            output_schema=Answer,
            step_key="critic",
        )
        return arguments_json


@in_loop
async def test_middleware_takes_model_steps_and_appends_under_the_lease_of_its_kernel(shared: Place) -> None:
    async with shared.kernel(middleware=[Critic()]) as kernel, shared.kernel(middleware=[Critic()]) as other:
        for each in (kernel, other):
            paying(each)
        await kernel.start_run(tenant=TENANT, run_id="r")
        assert await kernel.acquire_run_lease(run_id="r", worker_id="one", ttl_seconds=60)
        await call(kernel, "r", "pay", {"amount": 1}, "one")
        found = await kinds(kernel, "r")
        assert found.index("model_completed") < found.index("tool_requested")
        with pytest.raises(LeaseLost):
            await call(other, "r", "pay", {"amount": 2}, "two")
        assert await kinds(kernel, "r") == found


class Documented:
    """Hooks with exactly the documented parameters."""

    async def prepare_model(self, invocation: Any) -> Any:
        """Change nothing."""
        return invocation

    async def before_model(self, *, run_id: str, tenant: Any) -> None:
        """Refuse nothing."""

    async def after_model(self, *, run_id: str, tenant: Any, usage: Any) -> None:
        """Count nothing."""

    async def prepare_tool_request(self, *, run_id: str, tenant: Any, tool_name: str, arguments_json: str) -> str:
        """Change nothing."""
        return arguments_json

    async def prepare_tool_result(self, *, run_id: str, tenant: Any, tool_name: str, result_json: str) -> str:
        """Change nothing."""
        return result_json


@in_loop
async def test_hooks_with_the_documented_parameters_are_enough(place: Place) -> None:
    documented: KernelMiddleware = Documented()
    async with place.kernel(middleware=[documented]) as kernel:
        paid = paying(kernel)
        async with kernel.run(tenant=TENANT, run_id="r") as run:
            await run.tool("pay", {"amount": 1}, step_key="one")
            await run.model("mock", "hello?", Answer, step_key="two")
        assert paid == [1]
