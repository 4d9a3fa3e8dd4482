"""Refuses tools to tenants that lack the capability for them."""

from collections.abc import Callable, Mapping

from gert.errors import CapabilityDeniedError, UsageError
from gert.kernel.agent.middleware.base import ModelInvocation, PassThroughMiddleware, PreparedToolRequest
from gert.kernel.agent.types.api import TenantContext


class CapabilityGuardMiddleware(PassThroughMiddleware):
    """Offers a model only the tools its tenant may use, and refuses calls of the others."""

    def __init__(self) -> None:
        self._needed: Callable[[], Mapping[str, str | None]] | None = None

    def bind_capabilities(self, needed: Callable[[], Mapping[str, str | None]]) -> None:
        """Set the function that returns the capability each tool needs; the kernel calls this."""
        self._needed = needed

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Remove the tools the tenant may not use."""
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
            raise UsageError("the guard knows no tools", hint="pass it to a kernel, or call `bind_capabilities`")
        needed = self._needed().get(tool_name)
        if not _may(tenant.capabilities, needed):
            raise CapabilityDeniedError(
                f"tenant `{tenant.tenant_id}` may not use `{tool_name}`", hint=f"it needs `{needed}`"
            )
        return arguments_json


def _may(held: frozenset[str], needed: str | None) -> bool:
    return needed is None or needed in held
