"""Kernels for tests: in memory, with a fake clock."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from gert.ecosystem.host.agent.event_listener import OnEvent
from gert.ecosystem.host.agent.kernel import ArtanaKernel
from gert.ecosystem.host.agent.stores import InMemoryStore
from gert.ecosystem.host.agent.testing.clock import FakeClock, FakeIds
from gert.ecosystem.host.agent.testing.model import ScriptedModel
from gert.ecosystem.host.agent.testing.replies import Answer
from gert.kernel.agent.middleware.base import KernelMiddleware
from gert.kernel.agent.ports.model import ModelPort
from gert.kernel.agent.ports.tool import ToolPort
from gert.kernel.agent.types.api import KernelPolicy, TenantContext


def memory_kernel(
    model: ModelPort | Sequence[Answer] = (),
    *,
    clock: Callable[[], datetime] | None = None,
    ids: Callable[[], str] | None = None,
    tool_port: ToolPort | None = None,
    middleware: Sequence[KernelMiddleware] | None = None,
    policy: KernelPolicy | None = None,
    on_event: OnEvent | None = None,
) -> ArtanaKernel:
    """Return a kernel in memory, with a fake clock and consecutive ids.

    model: the model port; a list is the script of a `ScriptedModel`
    """
    return ArtanaKernel(
        store=InMemoryStore(clock=clock or FakeClock(), ids=ids or FakeIds(), on_event=on_event),
        model_port=ScriptedModel(model) if isinstance(model, Sequence) else model,
        tool_port=tool_port,
        middleware=middleware,
        policy=policy,
    )


def a_tenant(
    tenant_id: str = "acme", *, capabilities: Iterable[str] = (), budget_usd_limit: float = 100.0
) -> TenantContext:
    """Return a tenant with a budget."""
    return TenantContext(tenant_id=tenant_id, capabilities=frozenset(capabilities), budget_usd_limit=budget_usd_limit)
