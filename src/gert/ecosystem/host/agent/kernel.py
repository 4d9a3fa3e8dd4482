"""The documented kernel: `AgentKernel` on asyncio, with a tool registry by default."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from gert.ecosystem.host.agent.approvals import AgentApprovals
from gert.ecosystem.host.config.ledger_location import Database
from gert.ecosystem.models.prices import Price
from gert.ecosystem.process.environment import started_by
from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.errors import UsageError
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.middleware.base import KernelMiddleware
from gert.kernel.agent.middleware.capabilities import CapabilityGuardMiddleware
from gert.kernel.agent.middleware.pii import PIIScrubberMiddleware
from gert.kernel.agent.middleware.quota import QuotaMiddleware
from gert.kernel.agent.middleware.stack import require_middleware
from gert.kernel.agent.ports.approvals import ApprovalPort
from gert.kernel.agent.ports.model import MaxCost, ModelPort
from gert.kernel.agent.ports.store import EventStore
from gert.kernel.agent.ports.tool import ToolPort
from gert.kernel.agent.safety.middleware import SafetyPolicyMiddleware
from gert.kernel.agent.types.api import KernelPolicy
from gert.kernel.foundation.arguments import checks_arguments

T = TypeVar("T")


class Pack(Protocol):
    """Tools that bring the rules they are under: `ToolPack`, `RunbookTool`."""

    @property
    def middleware(self) -> KernelMiddleware | None:
        """What decides about calls, if the tools do not decide themselves."""

    @property
    def secret_variables(self) -> frozenset[str]:
        """The variables that hold secrets of the tools."""

    def register(
        self, port: LocalToolRegistry, lock: asyncio.Lock, database: Database | None, hidden: frozenset[str]
    ) -> None:
        """Register the tools; those that a rule serializes take turns with `lock`.

        database: the ledger of the kernel's runs, where other processes can open it
        hidden: the variables that hold secrets of any pack: a tool gets only those that it declares
        """

    async def close(self) -> None:
        """Release what is kept between calls."""


class AsyncioLoop:
    """The running asyncio event loop."""

    async def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task, and return when it has ended or first waits."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.sleep(0)
        except BaseException:
            task.cancel()
            raise
        return task

    async def all(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run coroutines concurrently until all have ended; if this is cancelled, so are they."""
        return await asyncio.gather(*works, return_exceptions=True)

    async def until(self, subscribe: Callable[[Callable[[], None]], None]) -> None:
        """Wait until the callback passed to `subscribe` is called."""
        called = asyncio.get_running_loop().create_future()
        subscribe(lambda: None if called.done() else called.set_result(None))
        await called


def _with_ledger(store: EventStore) -> EventStore:
    from gert.ecosystem.host.agent.custom_store import with_ledger  # most programs use a store of gert

    return cast("EventStore", with_ledger(store))


def _cost_by(prices: Mapping[str, Price] | None) -> MaxCost:
    """Return the prices for a model port that has none of its own; the shipped table is read when it is needed."""

    def max_cost(model: str, prompt_tokens: int) -> float | None:
        from gert.ecosystem.models.price_table import max_cost_usd, with_overrides

        return max_cost_usd(with_overrides(prices), model, prompt_tokens)

    return max_cost


@checks_arguments
class ArtanaKernel(AgentKernel):
    """Durable agent runs, with Python functions as tools unless `tool_port` is passed.

    approvals: how people are asked (default: tickets in the ledger, with the keys of the environment)
    prices: prices of models, for budgets, where the model port does not know them
    packs: tool packs and runbooks that are tools of the kernel, each with the rules it is under
    """

    def __init__(
        self,
        *,
        store: EventStore,
        model_port: ModelPort,
        tool_port: ToolPort | None = None,
        middleware: Sequence[KernelMiddleware] | None = None,
        policy: KernelPolicy | None = None,
        approvals: ApprovalPort | None = None,
        prices: Mapping[str, Price] | None = None,
        packs: Sequence[Pack] = (),
    ) -> None:
        tool_port = tool_port if tool_port is not None else LocalToolRegistry()
        # The rules of packs are about their tools alone: a policy mode needs its own middleware beside them.
        require_middleware(policy or KernelPolicy(), middleware or ())
        rules = (each.middleware for each in packs)
        self._packs = tuple(packs)
        super().__init__(
            store=store if hasattr(store, "ledger") else _with_ledger(store),
            model_port=model_port,
            tool_port=tool_port,
            loop=AsyncioLoop(),
            middleware=(*(middleware or ()), *(each for each in rules if each is not None)),
            policy=policy,
            approvals=approvals if approvals is not None else AgentApprovals(),
            prices=_cost_by(prices),
            started_by=started_by(os.environ),
        )
        turns = asyncio.Lock()
        hidden = frozenset[str]().union(*(pack.secret_variables for pack in packs))
        for pack in packs:
            if not isinstance(tool_port, LocalToolRegistry):
                raise UsageError("packs need a LocalToolRegistry", hint="leave `tool_port` out")
            pack.register(tool_port, turns, getattr(store, "database", None), hidden)

    async def close(self) -> None:
        """Refuse new calls, wait for open ones, stop the servers of packs, and close the store."""
        try:
            await super().close()
        finally:
            for pack in self._packs:
                await pack.close()

    @staticmethod
    def default_middleware_stack(
        *,
        pii: bool = True,
        quota: bool = True,
        capabilities: bool = True,
        safety: SafetyPolicyMiddleware | None = None,
    ) -> tuple[KernelMiddleware, ...]:
        """Return new middleware for an enforced kernel; `safety` is added for `enforced_v2`."""
        stack: list[KernelMiddleware] = []
        if pii:
            stack.append(PIIScrubberMiddleware())
        if quota:
            stack.append(QuotaMiddleware())
        if capabilities:
            stack.append(CapabilityGuardMiddleware())
        if safety is not None:
            stack.append(safety)
        return tuple(stack)
