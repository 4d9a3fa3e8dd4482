"""The documented kernel: `AgentKernel` on asyncio, with a tool registry by default."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.middleware.base import KernelMiddleware
from gert.kernel.agent.middleware.capabilities import CapabilityGuardMiddleware
from gert.kernel.agent.middleware.pii import PIIScrubberMiddleware
from gert.kernel.agent.middleware.quota import QuotaMiddleware
from gert.kernel.agent.ports.model import ModelPort
from gert.kernel.agent.ports.store import EventStore
from gert.kernel.agent.ports.tool import ToolPort
from gert.kernel.agent.types.api import KernelPolicy
from gert.kernel.foundation.arguments import checks_arguments

T = TypeVar("T")


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

    async def until(self, subscribe: Callable[[Callable[[], None]], None]) -> None:
        """Wait until the callback passed to `subscribe` is called."""
        called = asyncio.get_running_loop().create_future()
        subscribe(lambda: None if called.done() else called.set_result(None))
        await called


@checks_arguments
class ArtanaKernel(AgentKernel):
    """Durable agent runs, with Python functions as tools unless `tool_port` is passed."""

    def __init__(
        self,
        *,
        store: EventStore,
        model_port: ModelPort,
        tool_port: ToolPort | None = None,
        middleware: Sequence[KernelMiddleware] | None = None,
        policy: KernelPolicy | None = None,
    ) -> None:
        super().__init__(
            store=store,
            model_port=model_port,
            tool_port=tool_port if tool_port is not None else LocalToolRegistry(),
            loop=AsyncioLoop(),
            middleware=middleware,
            policy=policy,
        )

    @staticmethod
    def default_middleware_stack(
        *,
        pii: bool = True,
        quota: bool = True,
        capabilities: bool = True,
        safety: KernelMiddleware | None = None,
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
