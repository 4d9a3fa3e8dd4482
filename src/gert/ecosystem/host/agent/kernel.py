"""The kernel as callers make it: with a registry of its own where they bring none."""

from collections.abc import Sequence

from gert.ecosystem.executors.functions import LocalToolRegistry
from gert.kernel.agent.kernel import AgentKernel
from gert.kernel.agent.middleware import KernelMiddleware
from gert.kernel.agent.ports.model import ModelPort
from gert.kernel.agent.ports.store import EventStore
from gert.kernel.agent.ports.tool import ToolPort
from gert.kernel.agent.shapes import KernelPolicy


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
            middleware=middleware,
            policy=policy,
        )
