"""The places where policy takes part in model and tool steps."""

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from gert.kernel.agent.ports.model import ModelCallOptions, ModelUsage, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.api import TenantContext

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ModelInvocation:
    """A model call on its way to the model."""

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
        """The same call with other parts."""
        return replace(
            self,
            prompt=self.prompt if prompt is None else prompt,
            messages=self.messages if messages is None else messages,
            model_options=self.model_options if model_options is None else model_options,
            allowed_tools=self.allowed_tools if allowed_tools is None else allowed_tools,
        )


@dataclass(frozen=True, slots=True)
class PreparedToolRequest:
    """A tool call on its way to the tool, with what policy found out about it."""

    arguments_json: str
    semantic_idempotency_key: str | None = None
    intent_id: str | None = None
    amount_usd: float | None = None

    def merge(self, other: "PreparedToolRequest") -> "PreparedToolRequest":
        """What two middlewares found out; the later one's word stands."""
        return PreparedToolRequest(
            other.arguments_json,
            _later(self.semantic_idempotency_key, other.semantic_idempotency_key),
            _later(self.intent_id, other.intent_id),
            _later(self.amount_usd, other.amount_usd),
        )

    def with_arguments_json(self, arguments_json: str) -> "PreparedToolRequest":
        """The same with other arguments."""
        return replace(self, arguments_json=arguments_json)


class KernelMiddleware(Protocol):
    """Takes part in every step, in order.

    `prepare_model` is also called for steps that are replayed, since the question must be known to find its answer:
    it changes nothing but the invocation. The other hooks are called for live steps alone.
    """

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Change what a model is shown."""
        ...

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a model call by raising."""
        ...

    async def after_model(self, *, run_id: str, tenant: TenantContext, usage: ModelUsage) -> None:
        """Account for a model call; its answer is on record already."""
        ...

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str
    ) -> str | PreparedToolRequest:
        """Change what a tool is given, or refuse the call by raising."""
        ...

    async def prepare_tool_result(self, *, run_id: str, tenant: TenantContext, tool_name: str, result_json: str) -> str:
        """Change what the caller sees of a result; what the tool did is on record already."""
        ...


def _later(earlier: _T | None, later: _T | None) -> _T | None:
    return earlier if later is None else later
