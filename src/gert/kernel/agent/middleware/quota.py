"""Enforces budgets: what a model call may cost is reserved before it is made, and settled when it has ended."""

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gert.errors import BudgetExceededError, ModelPermanentError, UsageError
from gert.kernel.agent.middleware.base import ModelInvocation, PassThroughMiddleware
from gert.kernel.agent.middleware.conditions import Conditions, Refusal
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.foundation.duration import format_duration
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Exceeded, Held, SpendLimit
from gert.kernel.ledger.spending import NANO, nano, root_of

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel

BYTES_PER_TOKEN: Final = 3
"""How the tokens of a prompt are estimated, rather too many than too few: most text has four bytes to a token."""

_PER_MESSAGE: Final = 8


class QuotaMiddleware(PassThroughMiddleware):
    """Refuses a model call that could exceed the budget of its run tree, or of its tenant in a window of time.

    A call reserves what it may cost when its request is recorded, so that parallel calls cannot spend the same money;
    its real cost replaces the reservation when it ends. If that is more, the answer is kept, and the next call is
    refused. `after_model` therefore never raises. Under an enforced policy a model without a known price is refused,
    unless the tenant allows unknown cost.
    """

    def __init__(self, store: EventStore | None = None) -> None:
        self._ledger: Ledger | None = None
        self._kernel: AgentKernel | None = None
        if store is not None:
            self.bind_store(store)

    def bind_store(self, store: EventStore) -> None:
        """Set the store whose ledger records the spending; the kernel calls this."""
        self._ledger = ledger_of(store)

    def bind_kernel(self, kernel: "AgentKernel") -> None:
        """Set the kernel that knows the prices of models; it calls this."""
        self._kernel = kernel

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a call if a budget is spent."""
        for limit in limits_of(run_id, tenant):
            since = None if limit.seconds is None else self._require_ledger.now() - timedelta(seconds=limit.seconds)
            spent = await self._require_ledger.spent(limit.kind, limit.tenant, limit.name, since)
            if spent >= limit.most:
                raise exceeded(limit, spent)

    async def admit_model(self, *, invocation: ModelInvocation, step_key: str | None) -> Conditions:
        """Reserve what a call may cost, as part of the append of its request."""
        tenant, cost = invocation.tenant, self._cost(invocation)
        if cost is None and self._is_enforced and not tenant.allow_unknown_cost:
            raise ModelPermanentError(
                f"the price of the model `{invocation.model}` is unknown",
                category="unknown_cost",
                hint="pass `prices=` to the kernel or the adapter, or set `allow_unknown_cost` for the tenant",
            )
        limits = limits_of(invocation.run_id, tenant)

        def on_refused(found: Held | Exceeded) -> Refusal | None:
            if isinstance(found, Held) or not isinstance(found.limit, SpendLimit) or found.limit not in limits:
                return None
            return Refusal(exceeded(found.limit, found.counted, cost or 0.0))

        return Conditions(limits=limits, on_refused=(on_refused,), reserved_usd=cost or 0.0)

    async def spent(self, run_id: str, tenant_id: str) -> float:
        """Return what a tenant has spent or reserved in the tree of a run, in US dollars."""
        return await self._require_ledger.spent("run", tenant_id, root_of(run_id)) / NANO

    @property
    def _require_ledger(self) -> Ledger:
        if self._ledger is None:
            raise UsageError("the quota has no store to read from", hint="pass it to a kernel, or call `bind_store`")
        return self._ledger

    @property
    def _is_enforced(self) -> bool:
        return self._kernel is not None and self._kernel.policy.mode != "permissive"

    def _cost(self, invocation: ModelInvocation) -> float | None:
        if self._kernel is None:
            return None
        cost = self._kernel.max_cost_usd(invocation.model, prompt_tokens(invocation))
        # A port may report anything; what is not an amount is not known.
        return cost if cost is not None and math.isfinite(cost) and cost >= 0 else None


def limits_of(run_id: str, tenant: TenantContext) -> tuple[SpendLimit, ...]:
    """Return the budgets of a call: that of its run tree, and that of its tenant."""
    limits = [SpendLimit("run", tenant.tenant_id, root_of(run_id), _most(tenant.budget_usd_limit))]
    if tenant.tenant_budget_usd_limit is not None:
        window = float(tenant.tenant_budget_window_seconds)
        limits.append(SpendLimit("tenant", tenant.tenant_id, "", _most(tenant.tenant_budget_usd_limit), window))
    return tuple(limits)


def prompt_tokens(invocation: ModelInvocation) -> int:
    """Estimate the tokens of everything that a model is sent."""
    texts = [invocation.prompt, *(message.content for message in invocation.messages)]
    texts += [call.function.arguments for message in invocation.messages for call in message.tool_calls or ()]
    texts += [tool.description + tool.arguments_schema_json for tool in invocation.allowed_tools]
    texts += [str(item) for item in invocation.model_options.responses_input_items or ()]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return size // BYTES_PER_TOKEN + _PER_MESSAGE * (1 + len(invocation.messages))


def exceeded(limit: SpendLimit, spent: int, cost: float = 0.0) -> BudgetExceededError:
    """A budget is spent, or the next call could exceed it."""
    where = f"in run `{limit.name}` with its sub-agents and forks"
    if limit.seconds is not None:
        where = f"in {format_duration(timedelta(seconds=limit.seconds))} in all its runs"
    more = f", and the call may cost {cost:.6f} USD" if spent < limit.most else ""
    name = "budget_usd_limit" if limit.seconds is None else "tenant_budget_usd_limit"
    return BudgetExceededError(
        f"tenant `{limit.tenant}` has spent {spent / NANO:.6f} of {limit.most / NANO:.6f} USD {where}{more}",
        hint=f"raise `{name}` and run the step again: recorded steps are not paid twice",
    )


def _most(usd: float) -> int:
    # A budget that is not a number allows nothing.
    return 0 if math.isnan(usd) else nano(usd)
