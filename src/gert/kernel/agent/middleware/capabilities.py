"""Keeps tools from tenants that lack the capability they need."""

from collections.abc import Callable, Mapping

from gert.errors import CapabilityDeniedError, UsageError
from gert.kernel.agent.middleware.base import ModelInvocation, PreparedToolRequest
from gert.kernel.agent.middleware.pass_through import PassingMiddleware
from gert.kernel.agent.types.api import TenantContext


class CapabilityGuardMiddleware(PassingMiddleware):
    """Offers a model only tools its tenant may use, and refuses calls of the others, whoever asks for them."""

    def __init__(self) -> None:
        self._needed: Callable[[], Mapping[str, str | None]] | None = None

    def bind_capabilities(self, needed: Callable[[], Mapping[str, str | None]]) -> None:
        """Learn which capability each tool needs, from the kernel that knows the tools."""
        self._needed = needed

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Take away the tools the tenant may not use."""
        held, needed = invocation.tenant.capabilities, invocation.tool_capability_by_name
        tools = tuple(tool for tool in invocation.allowed_tools if _may(held, needed.get(tool.name)))
        return (
            invocation if len(tools) == len(invocation.allowed_tools) else invocation.with_updates(allowed_tools=tools)
        )

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str
    ) -> str | PreparedToolRequest:
        """Refuse a call the tenant may not make."""
        if self._needed is None:
            raise UsageError("the guard knows no tools", hint="hand it to a kernel, or call `bind_capabilities`")
        needed = self._needed().get(tool_name)
        if not _may(tenant.capabilities, needed):
            raise CapabilityDeniedError(
                f"tenant `{tenant.tenant_id}` may not use `{tool_name}`", hint=f"it needs `{needed}`"
            )
        return arguments_json


def _may(held: frozenset[str], needed: str | None) -> bool:
    return needed is None or needed in held
