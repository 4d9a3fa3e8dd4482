"""The tools of a kernel: registering them, and which of them a tenant may use."""

from collections.abc import Callable, Sequence

from gert.kernel.agent.middleware.base import KernelMiddleware, ModelInvocation
from gert.kernel.agent.ports.model import (
    ModelCallOptions,
    ToolDefinition,
)
from gert.kernel.agent.ports.tool import ToolCallable, ToolRiskLevel
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.steps.tool_visibility import after_middleware, allowed, visibility_of, visibility_report
from gert.kernel.agent.steps.tools import Arguments, Tools
from gert.kernel.agent.types.api import (
    TenantContext,
    ToolFingerprint,
)
from gert.kernel.foundation.arguments import checks_arguments


@checks_arguments
class KernelTools:
    """The syscalls of the kernel about its tools."""

    _tools: Tools
    _middleware: Sequence[KernelMiddleware]

    def tool(
        self,
        *,
        requires_capability: str | None = None,
        side_effect: bool = False,
        tool_version: str = "1.0.0",
        schema_version: str = "1",
        risk_level: ToolRiskLevel = "medium",
        sandbox_profile: str | None = None,
        **more: object,
    ) -> Callable[[ToolCallable], ToolCallable]:
        """Register a function as a tool; further settings are passed to the tool port."""

        def register(function: ToolCallable) -> ToolCallable:
            self._tools.port.register(
                function,
                requires_capability,
                side_effect,
                tool_version,
                schema_version,
                risk_level,
                sandbox_profile,
                **more,
            )
            return function

        return register

    def list_registered_tools(self) -> tuple[ToolDefinition, ...]:
        """Return every tool, sorted by name."""
        return self._tools.definitions()

    def list_tools(
        self, *, tenant_capabilities: frozenset[str], visible_tool_names: set[str] | None = None
    ) -> tuple[ToolDefinition, ...]:
        """Return the tools that a tenant with these capabilities may use, sorted by name."""
        tools, needed = self._tools.definitions(), self._tools.capabilities()
        return allowed(visibility_of(tools, needed, tenant_capabilities, visible_tool_names))

    def list_tools_for_tenant(
        self, *, tenant: TenantContext, visible_tool_names: set[str] | None = None
    ) -> tuple[ToolDefinition, ...]:
        """Return the tools a tenant may use, sorted by name."""
        return self.list_tools(tenant_capabilities=tenant.capabilities, visible_tool_names=visible_tool_names)

    def tool_capability_map(self) -> dict[str, str | None]:
        """Return the capability each tool needs, by name."""
        return self._tools.capabilities()

    def tool_fingerprint(self, *, tool_name: str) -> ToolFingerprint:
        """Return the identity, risk level and sandbox profile of a tool."""
        return self._tools.fingerprint(tool_name)

    def canonicalize_tool_args(self, *, tool_name: str, arguments: Arguments) -> tuple[str, str]:
        """Validate arguments; return them as canonical JSON, with the hash of the tool's schema."""
        tool = self._tools.definition(tool_name)
        return self._tools.canonical(tool_name, arguments), tool.schema_hash

    async def describe_capabilities(
        self, *, tenant: TenantContext, visible_tool_names: set[str] | None = None
    ) -> dict[str, object]:
        """Return which tools a tenant may use, and why not the others."""
        tools, needed = self._tools.definitions(), self._tools.capabilities()
        return visibility_report(visibility_of(tools, needed, tenant.capabilities, visible_tool_names), tenant)

    async def explain_tool_allowlist(
        self,
        *,
        tenant: TenantContext,
        model: str = "tool_allowlist_explain",
        run_id: str = "__tool_allowlist_explain__",
        visible_tool_names: set[str] | None = None,
        prompt: str = "Explain tool allowlist for this tenant.",
        messages: Sequence[ChatMessage] | None = None,
    ) -> dict[str, object]:
        """Return which tools a model step would offer after middleware; no model is called, no event recorded."""
        tools, needed = self._tools.definitions(), self._tools.capabilities()
        visibility = visibility_of(tools, needed, tenant.capabilities, visible_tool_names)
        shown = tuple(messages) if messages else (ChatMessage(role="user", content=prompt),)
        invocation = ModelInvocation(
            run_id, tenant, model, prompt, shown, ModelCallOptions(), allowed(visibility), needed
        )
        for middleware in self._middleware:
            invocation = await middleware.prepare_model(invocation)
        final = sorted(tool.name for tool in invocation.allowed_tools)
        decided = after_middleware(visibility, invocation.allowed_tools)
        return visibility_report(decided, tenant) | {"model": model, "final_allowed_tools": final}
