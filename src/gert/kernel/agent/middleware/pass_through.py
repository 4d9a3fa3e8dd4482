"""A middleware that lets everything pass; a guard changes the hooks it is about."""

from gert.kernel.agent.middleware.base import ModelInvocation, PreparedToolRequest
from gert.kernel.agent.ports.model import ModelUsage
from gert.kernel.agent.types.api import TenantContext


class PassingMiddleware:
    """Takes part in every step and changes nothing."""

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Change what a model is shown."""
        return invocation

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a model call by raising."""

    async def after_model(self, *, run_id: str, tenant: TenantContext, usage: ModelUsage) -> None:
        """Account for a model call; its answer is on record already."""

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str
    ) -> str | PreparedToolRequest:
        """Change what a tool is given, or refuse the call by raising."""
        return arguments_json

    async def prepare_tool_result(self, *, run_id: str, tenant: TenantContext, tool_name: str, result_json: str) -> str:
        """Change what the caller sees of a result."""
        return result_json
