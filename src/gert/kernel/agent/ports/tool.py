"""The port to tools: definitions, the context of a call, and its outcome."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel

from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.types.api import ToolFingerprint

ToolRiskLevel: TypeAlias = Literal["low", "medium", "high", "critical"]
ToolExecutionOutcome: TypeAlias = Literal["success", "transient_error", "permanent_error", "unknown_outcome"]
"""How a call ended. The two errors mean that it did not happen; with `unknown_outcome` it may have happened."""

ToolCallable: TypeAlias = Callable[..., Any]
"""A Python function, plain or async, whose signature declares its arguments."""


@dataclass(frozen=True, slots=True)
class ToolExecutionContext:
    """The context that a tool receives with a call.

    idempotency_key: the same for every attempt of one call, and for no other call
    request_event_id: the id of its `tool_requested` event
    step_key: the key of its step, if it has one
    """

    run_id: str
    tenant_id: str
    idempotency_key: str
    request_event_id: str | None
    tool_version: str
    schema_version: str
    tenant_capabilities: frozenset[str] = frozenset()
    tenant_budget_usd_limit: float | None = None
    step_key: str | None = None


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """How a call ended.

    result_json: the result of the tool, as JSON text
    received_idempotency_key: the key that the target reports it was called with
    effect_id: the target's id of the effect
    """

    outcome: ToolExecutionOutcome
    result_json: str
    received_idempotency_key: str | None = None
    effect_id: str | None = None
    request_id: str | None = None
    error_message: str | None = None


ToolReconciler: TypeAlias = Callable[[ToolExecutionContext, dict[str, Any]], Awaitable[ToolExecutionResult | None]]
"""Finds out, without changing anything, whether the call of an idempotency key happened; None if it does not know."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A registered tool.

    timeout_seconds: how long one attempt may take
    max_attempts: how often a call is attempted while it is known not to have happened
    backoff_seconds: the wait before the second attempt; it doubles with each further one
    reconcile: finds out whether a call happened
    resumable: a call that did not end is continued under its idempotency key by the same step
    """

    name: str
    requires_capability: str | None
    function: ToolCallable
    description: str
    arguments_schema_json: str
    arguments_model: type[BaseModel]
    accepts_artana_context: bool
    tool_version: str
    schema_version: str
    schema_hash: str
    risk_level: ToolRiskLevel
    sandbox_profile: str | None = None
    side_effect: bool = False
    timeout_seconds: float | None = None
    max_attempts: int = 1
    backoff_seconds: float = 0.0
    reconcile: ToolReconciler | None = None
    resumable: bool = False


class ToolPort(Protocol):
    """Holds tools and calls them.

    A call never raises because of the tool: its outcome is the result. Only cancellation passes through.
    """

    def register(
        self,
        function: ToolCallable,
        requires_capability: str | None = None,
        side_effect: bool = False,
        tool_version: str = "1.0.0",
        schema_version: str = "1",
        risk_level: ToolRiskLevel = "medium",
        sandbox_profile: str | None = None,
    ) -> None:
        """Register a function as a tool under its name, with its signature."""

    async def call(self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext) -> ToolExecutionResult:
        """Call a tool and return how it ended."""

    def list_for_capabilities(self, capabilities: frozenset[str]) -> list[RegisteredTool]:
        """Return the tools that a tenant with these capabilities may use, sorted by name."""

    def to_tool_definitions(self, capabilities: frozenset[str]) -> list[ToolDefinition]:
        """Return the same tools as they are described to a model."""

    def to_all_tool_definitions(self) -> list[ToolDefinition]:
        """Return every tool as it is described to a model."""

    def capability_map(self) -> dict[str, str | None]:
        """Return the capability each tool needs, by name."""


class CheckingToolPort(ToolPort, Protocol):
    """A tool port that also validates arguments, and knows the version and side effects of its tools."""

    def validate(self, tool_name: str, arguments: BaseModel | Mapping[str, object] | str) -> str:
        """Validate arguments and return them as canonical JSON; InputError if they do not fit the tool."""

    def fingerprint(self, tool_name: str) -> ToolFingerprint:
        """Return the identity of a tool."""

    def arguments_model(self, tool_name: str) -> type[BaseModel]:
        """Return the pydantic model of a tool's arguments."""

    def tool(self, tool_name: str) -> RegisteredTool:
        """Return a tool by name."""

    async def reconcile(
        self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext
    ) -> ToolExecutionResult | None:
        """Find out whether a call happened, without making it; None if the tool does not know."""
