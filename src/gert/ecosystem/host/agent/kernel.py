"""The kernel as callers make it: with a registry of its own where they bring none."""

from collections.abc import Sequence

from gert.ecosystem.host.agent.loop import AsyncioLoop
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


@checks_arguments
class ArtanaKernel(AgentKernel):
    """Durable agent runs: `AgentKernel`, with tools that are Python functions unless told otherwise."""

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
        """The middleware an enforced kernel needs, new each time; with `safety` also what `enforced_v2` needs."""
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
