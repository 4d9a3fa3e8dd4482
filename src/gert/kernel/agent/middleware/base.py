"""The hooks of middleware in model and tool steps."""

from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from gert.kernel.agent.middleware.conditions import NO_CONDITIONS, Conditions
from gert.kernel.agent.ports.model import ModelCallOptions, ModelUsage, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.api import TenantContext

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ModelInvocation:
    """A model call before it reaches the model."""

    run_id: str
    tenant: TenantContext
    model: str
    prompt: str
    messages: tuple[ChatMessage, ...]
    model_options: ModelCallOptions
    allowed_tools: tuple[ToolDefinition, ...]
    tool_capability_by_name: dict[str, str | None]

    def with_updates(
        self,
        *,
        prompt: str | None = None,
        messages: tuple[ChatMessage, ...] | None = None,
        model_options: ModelCallOptions | None = None,
        allowed_tools: tuple[ToolDefinition, ...] | None = None,
    ) -> "ModelInvocation":
        """Return a copy with these parts replaced."""
        return replace(
            self,
            prompt=self.prompt if prompt is None else prompt,
            messages=self.messages if messages is None else messages,
            model_options=self.model_options if model_options is None else model_options,
            allowed_tools=self.allowed_tools if allowed_tools is None else allowed_tools,
        )


@dataclass(frozen=True, slots=True)
class PreparedToolRequest:
    """A tool call before it reaches the tool, with what middleware derived from it.

    conditions: what is recorded with the request, and what may still refuse it inside the append
    approval_key: the approval that the call uses
    """

    arguments_json: str
    semantic_idempotency_key: str | None = None
    intent_id: str | None = None
    amount_usd: float | None = None
    conditions: Conditions = field(default=NO_CONDITIONS)
    approval_key: str | None = None

    def merge(self, other: "PreparedToolRequest") -> "PreparedToolRequest":
        """Merge with the result of a later middleware, whose values take precedence."""
        return PreparedToolRequest(
            other.arguments_json,
            _later(self.semantic_idempotency_key, other.semantic_idempotency_key),
            _later(self.intent_id, other.intent_id),
            _later(self.amount_usd, other.amount_usd),
            self.conditions & other.conditions,
            _later(self.approval_key, other.approval_key),
        )

    def with_arguments_json(self, arguments_json: str) -> "PreparedToolRequest":
        """Return a copy with other arguments."""
        return replace(self, arguments_json=arguments_json)


class KernelMiddleware(Protocol):
    """Hooks that run in every step, in order.

    `prepare_model` also runs for replayed steps, since it is part of the question that finds the answer: it must change
    only the invocation. The other hooks run for live steps only, after it was checked that the run is neither paused,
    blocked nor leased by another worker.

    Optional: `prepare_tool_request` may also take `step_key`. `admit_model(invocation, step_key)` may refuse a model
    call by raising, or return `Conditions` on the append of its request. `bind_store(store)`, `bind_kernel(kernel)` and
    `bind_capabilities(needed)` are called by the kernel that the middleware is passed to; through that kernel it can
    take steps and append, under the lease of the kernel. A middleware belongs to one kernel at a time.
    """

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Change what the model sees."""

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a model call by raising."""

    async def after_model(self, *, run_id: str, tenant: TenantContext, usage: ModelUsage) -> None:
        """Account for a model call; its answer is already recorded."""

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str
    ) -> str | PreparedToolRequest:
        """Change the arguments of a tool call, or refuse the call by raising."""

    async def prepare_tool_result(self, *, run_id: str, tenant: TenantContext, tool_name: str, result_json: str) -> str:
        """Change the result that the caller sees; the tool's own result is already recorded."""


class PassThroughMiddleware:
    """Middleware that changes nothing; a guard overrides the hooks it needs."""

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Change what the model sees."""
        return invocation

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a model call by raising."""

    async def after_model(self, *, run_id: str, tenant: TenantContext, usage: ModelUsage) -> None:
        """Account for a model call; its answer is already recorded."""

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str
    ) -> str | PreparedToolRequest:
        """Change the arguments of a tool call, or refuse the call by raising."""
        return arguments_json

    async def prepare_tool_result(self, *, run_id: str, tenant: TenantContext, tool_name: str, result_json: str) -> str:
        """Change the result that the caller sees."""
        return result_json


def _later(earlier: _T | None, later: _T | None) -> _T | None:
    return earlier if later is None else later
