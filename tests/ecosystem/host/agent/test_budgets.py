"""Budgets: what a model call may cost is reserved before it is made and settled afterwards, by run tree and tenant."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import Model, Place, ask, in_loop, kinds, of_type

from gert.agent import (
    ArtanaKernel,
    BudgetExceededError,
    KernelPolicy,
    MockModelPort,
    ModelPermanentError,
    ModelRequest,
    ModelResult,
    ModelUsage,
    OpenAIAdapter,
    OpenAICompatibleAdapter,
    OutputT,
    Price,
    RoutingModelPort,
    TenantContext,
)
from gert.ecosystem.ledger.verify_run import verify_run
from gert.ecosystem.models.price_table import price_table
from gert.ecosystem.models.prices import find_price
from gert.kernel.ledger.spending import NANO

CALL = 0.25
"""What a call reserves and costs here, in US dollars."""


class Priced(Model):
    """A model that reserves and costs the same, unless it is told otherwise; it waits for a word before it answers."""

    def __init__(self, *does: Any, cost: float = CALL, reserves: float | None = CALL, waits: bool = False) -> None:
        super().__init__(*does)
        self.cost, self.reserves = cost, reserves
        self.go = asyncio.Event() if waits else None

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float | None:
        """The price of a call."""
        assert prompt_tokens > 0
        return self.reserves

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Answer."""
        if self.go is not None:
            await self.go.wait()
        found = await super().complete(request)
        return ModelResult(found.output, ModelUsage(3, 2, self.cost))


def tenant(budget: float = 1.0, **more: Any) -> TenantContext:
    """A tenant with a budget."""
    return TenantContext(tenant_id="acme", budget_usd_limit=budget, **more)


def kernel_of(place: Place, model: Any, mode: str = "enforced", **more: Any) -> ArtanaKernel:
    """A kernel with a quota."""
    policy = KernelPolicy(mode)  # type: ignore[arg-type]
    return place.kernel(model, middleware=ArtanaKernel.default_middleware_stack(), policy=policy, **more)


async def spent(kernel: ArtanaKernel, run_id: str = "r") -> float:
    """What a run tree has spent and reserved."""
    return await kernel.ledger.spent("run", "acme", run_id) / NANO


@in_loop
async def test_parallel_calls_cannot_spend_the_same_money(shared: Place) -> None:
    model = Priced(waits=True)
    kernels = [kernel_of(shared, model) for _ in range(3)]
    for run_id in ("r", "r::sub_agent::a", "r::sub_agent::b"):
        await kernels[0].start_run(tenant=tenant(), run_id=run_id)
    runs = ["r", "r::sub_agent::a", "r::sub_agent::b"] * 3
    steps = [ask(kernels[n % 3], run_id, f"q{n}", f"s{n}", tenant=tenant(), model="m") for n, run_id in enumerate(runs)]
    waiting = asyncio.gather(*steps, return_exceptions=True)
    async with asyncio.timeout(20):
        while await spent(kernels[0]) < 1.0:
            await asyncio.sleep(0.005)
    assert model.go is not None
    model.go.set()
    answers = await waiting
    refused = [each for each in answers if isinstance(each, BaseException)]
    assert all(isinstance(each, BudgetExceededError) for each in refused), refused
    assert (len(model.asked), len(refused)) == (4, 5)
    assert await spent(kernels[0]) == 1.0
    for kernel in kernels:
        await kernel.close()


@in_loop
async def test_a_reservation_is_replaced_by_what_the_call_cost(place: Place) -> None:
    async with kernel_of(place, Priced(cost=0.01)) as kernel:
        await kernel.start_run(tenant=tenant(), run_id="r")
        await ask(kernel, "r", "q", "s", tenant=tenant(), model="m")
        [event] = await of_type(kernel, "r", "model_requested")
        assert event.payload.reserved_usd == CALL  # type: ignore[union-attr]
        assert await spent(kernel) == 0.01
        assert (await ask(kernel, "r", "q", "s", tenant=tenant(0.0), model="m")).replayed
        assert (await verify_run(kernel.ledger, "r")).holds


@in_loop
async def test_an_answer_that_costs_more_than_was_reserved_is_kept(place: Place) -> None:
    async with kernel_of(place, Priced(cost=5.0)) as kernel:
        await kernel.start_run(tenant=tenant(), run_id="r")
        assert (await ask(kernel, "r", "q", "s", tenant=tenant(), model="m")).output.text == "q!"
        with pytest.raises(BudgetExceededError, match=r"5\.000000 of 1\.000000"):
            await ask(kernel, "r", "q2", "s2", tenant=tenant(), model="m")


@in_loop
async def test_a_call_that_could_exceed_the_budget_is_refused_before_it_is_recorded(place: Place) -> None:
    model = Priced()
    async with kernel_of(place, model) as kernel:
        await kernel.start_run(tenant=tenant(), run_id="r")
        with pytest.raises(BudgetExceededError, match=r"the call may cost 0\.250000"):
            await ask(kernel, "r", "q", "s", tenant=tenant(0.2), model="m")
        assert await kinds(kernel, "r") == ["run_started"]
        assert model.asked == []


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(ModelPermanentError("no"), 0.0, id="a call that failed costs nothing"),
        pytest.param(ModelPermanentError("no", usage=ModelUsage(1, 1, 0.1)), 0.1, id="an unusable answer costs"),
        pytest.param(TimeoutError(), CALL, id="a call that timed out counts as reserved"),
        pytest.param(asyncio.CancelledError(), CALL, id="a cancelled call counts as reserved"),
    ],
)
@in_loop
async def test_what_a_call_without_an_answer_counts_as(place: Place, error: BaseException, left: float) -> None:
    async with kernel_of(place, Priced(error)) as kernel:
        await kernel.start_run(tenant=tenant(), run_id="r")
        with pytest.raises(type(error)):
            await ask(kernel, "r", "q", "s", tenant=tenant(), model="m")
        assert await spent(kernel) == left
        assert (await verify_run(kernel.ledger, "r")).holds
        await ask(kernel, "r", "q", "s", tenant=tenant(), model="m")
        assert await spent(kernel) == left + CALL


@pytest.mark.parametrize("cost", [float("nan"), -1.0, float("inf"), None, "1"], ids=str)
@in_loop
async def test_an_answer_whose_cost_is_no_amount_counts_as_reserved(place: Place, cost: Any) -> None:
    """A port that reports nonsense would otherwise be called without end: nothing would ever be spent."""
    model = Priced(cost=cost)
    async with kernel_of(place, model) as kernel:
        await kernel.start_run(tenant=tenant(), run_id="r")
        for number in range(4):
            with pytest.raises(ModelPermanentError, match="cannot be recorded"):
                await ask(kernel, "r", f"q{number}", f"s{number}", tenant=tenant(), model="m")
        assert await spent(kernel) == 4 * CALL
        with pytest.raises(BudgetExceededError):
            await ask(kernel, "r", "q", "s", tenant=tenant(), model="m")
        assert len(model.asked) == 4
        assert (await verify_run(kernel.ledger, "r")).holds


@in_loop
async def test_a_call_of_a_process_that_died_counts_as_reserved(durable: Place) -> None:
    dying = Priced(waits=True)
    kernel = kernel_of(durable, dying)
    await kernel.start_run(tenant=tenant(), run_id="r")
    step = asyncio.create_task(ask(kernel, "r", "q", "s", tenant=tenant(), model="m"))
    while await spent(kernel) < CALL:
        await asyncio.sleep(0.001)
    async with kernel_of(durable, Priced()) as heir:
        # As after a crash: the request has no end, and no task of this process waits for it.
        await ask(heir, "r", "q", "s", tenant=tenant(), model="m")
        assert await spent(heir) == 2 * CALL
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    await kernel.close()


@in_loop
async def test_a_tenant_has_a_budget_for_a_window_over_all_its_runs(shared: Place) -> None:
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    shared.clock = lambda: moment[0]
    who = tenant(100, tenant_budget_usd_limit=0.5, tenant_budget_window_seconds=3600)
    async with kernel_of(shared, Priced()) as kernel:
        for n in range(4):
            await kernel.start_run(tenant=who, run_id=f"r{n}")
        for n in range(2):
            await ask(kernel, f"r{n}", "q", "s", tenant=who, model="m")
        with pytest.raises(BudgetExceededError, match="in 1h in all its runs"):
            await ask(kernel, "r2", "q", "s", tenant=who, model="m")
        other = TenantContext(tenant_id="other", budget_usd_limit=1, tenant_budget_usd_limit=0.5)
        await kernel.start_run(tenant=other, run_id="o")
        await ask(kernel, "o", "q", "s", tenant=other, model="m")
        moment[0] += timedelta(seconds=3660)
        await ask(kernel, "r3", "q", "s", tenant=who, model="m")


@in_loop
async def test_a_window_admits_one_of_many_runs_at_once(shared: Place) -> None:
    who = tenant(100, tenant_budget_usd_limit=CALL, tenant_budget_window_seconds=3600)
    kernels = [kernel_of(shared, Priced()) for _ in range(4)]
    for n, kernel in enumerate(kernels):
        await kernel.start_run(tenant=who, run_id=f"r{n}")
    steps = (ask(kernel, f"r{n}", "q", "s", tenant=who, model="m") for n, kernel in enumerate(kernels))
    answers = await asyncio.gather(*steps, return_exceptions=True)
    assert sum(isinstance(each, BudgetExceededError) for each in answers) == 3, answers
    for kernel in kernels:
        await kernel.close()


class Bare(Model):
    """A model port that knows no price."""


@pytest.mark.parametrize(
    ("model", "name", "mode", "more", "allowed"),
    [
        pytest.param(Bare, "gpt-5-mini", "enforced", {}, True, id="a listed model"),
        pytest.param(Bare, "gpt-5-mini-2025-08-07", "enforced", {}, True, id="a dated version of it"),
        pytest.param(Bare, "openai/gpt-5-mini", "enforced", {}, True, id="with the name of its vendor"),
        pytest.param(Bare, "made-up", "enforced", {}, False, id="an unknown model"),
        pytest.param(Bare, "made-up", "permissive", {}, True, id="permissive: an unknown model"),
        pytest.param(
            Bare, "made-up", "enforced", {"prices": {"made-up": Price(prompt=1, completion=1)}}, True, id="its price"
        ),
        pytest.param(Bare, "made-up", "enforced", {"allow": True}, True, id="a tenant that allows unknown cost"),
        pytest.param(lambda: Priced(reserves=None), "gpt-5", "enforced", {}, False, id="a port that says unknown"),
        pytest.param(lambda: Priced(reserves=float("nan")), "gpt-5", "enforced", {}, False, id="a price that is none"),
        pytest.param(lambda: Priced(reserves=-1.0), "gpt-5", "enforced", {}, False, id="a negative price"),
        pytest.param(
            lambda: MockModelPort(output={"text": ""}), "anything", "enforced", {}, True, id="a mock prices itself"
        ),
    ],
)
@in_loop
async def test_a_model_without_a_known_price_is_refused_under_enforced(
    place: Place, model: Any, name: str, mode: str, more: dict[str, Any], allowed: bool
) -> None:
    settings = {key: value for key, value in more.items() if key != "allow"}
    who = tenant(allow_unknown_cost=more.get("allow", False))
    async with kernel_of(place, model(), mode, **settings) as kernel:
        await kernel.start_run(tenant=who, run_id="r")
        if allowed:
            await ask(kernel, "r", "q", "s", tenant=who, model=name)
            return
        with pytest.raises(ModelPermanentError) as caught:
            await ask(kernel, "r", "q", "s", tenant=who, model=name)
        assert caught.value.category == "unknown_cost"
        assert await kinds(kernel, "r") == ["run_started"]


@pytest.mark.parametrize(
    ("port", "model", "cost"),
    [
        pytest.param(OpenAIAdapter(api_key="k"), "gpt-4o-mini", 0.000150 + 4096 * 0.6e-6, id="4,096 tokens by default"),
        pytest.param(
            OpenAIAdapter(api_key="k", max_output_tokens=100), "gpt-4o-mini", 0.00015 + 100 * 0.6e-6, id="its own limit"
        ),
        pytest.param(
            OpenAIAdapter(api_key="k", prices={"gpt-4o-mini": Price(prompt=1, completion=0)}), "gpt-4o-mini", 0.001,
            id="prices of the caller",
        ),
        pytest.param(OpenAICompatibleAdapter("http://localhost:1/v1"), "gpt-4o-mini", None, id="another server"),
        pytest.param(RoutingModelPort(), "gpt-4o-mini", 0.000150 + 4096 * 0.6e-6, id="routed"),
        pytest.param(RoutingModelPort(), "ollama/llama", None, id="routed elsewhere"),
    ],
)  # fmt: skip
def test_what_a_call_may_cost(port: Any, model: str, cost: float | None) -> None:
    found = port.max_cost_usd(model, 1000)
    assert found == cost if cost is None else abs(found - cost) < 1e-12


def test_the_shipped_prices_are_dated_data() -> None:
    table = price_table()
    datetime.fromisoformat(table.date)
    assert (table.currency, table.per) == ("USD", "million tokens")
    assert len(table.models) > 40
    for name, price in table.models.items():
        assert 0 < price.prompt <= price.completion, name
        assert price.cached is None or price.cached < price.prompt, name
    assert find_price(table.models, "gpt-4o-2024-05-13") != find_price(table.models, "gpt-4o-2024-08-06")


@pytest.mark.parametrize(
    "settings",
    [{"tenant_budget_usd_limit": -1}, {"tenant_budget_window_seconds": 1}, {"budget_usd_limit": -1}],
    ids=str,
)
def test_a_budget_that_makes_no_sense_is_a_value_error(settings: Any) -> None:
    with pytest.raises(ValueError, match="greater than or equal"):
        TenantContext(**{"tenant_id": "acme", "budget_usd_limit": 1, **settings})
