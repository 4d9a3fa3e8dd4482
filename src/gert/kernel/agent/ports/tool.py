"""The port to tools: what is called, what a call is told about itself, and how it can end."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel

from gert.errors import ToolPermanentError, ToolTransientError, ToolUnknownOutcomeError
from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.types.api import ToolFingerprint

__all__ = [
    "CheckingToolPort",
    "RegisteredTool",
    "ToolCallable",
    "ToolExecutionContext",
    "ToolExecutionOutcome",
    "ToolExecutionResult",
    "ToolPermanentError",
    "ToolPort",
    "ToolReconciler",
    "ToolRiskLevel",
    "ToolTransientError",
    "ToolUnknownOutcomeError",
]

ToolRiskLevel: TypeAlias = Literal["low", "medium", "high", "critical"]
ToolExecutionOutcome: TypeAlias = Literal["success", "transient_error", "permanent_error", "unknown_outcome"]
"""How a call ended; nobody knows whether a call of unknown outcome happened, and the two errors say it did not."""

ToolCallable: TypeAlias = Callable[..., Any]
"""A Python function, plain or async, whose signature says what it takes."""


@dataclass(frozen=True, slots=True)
class ToolExecutionContext:
    """What a call is told about itself.

    idempotency_key: the same for every attempt of one call, and for no other call
    request_event_id: the `tool_requested` that announced it
    """

    run_id: str
    tenant_id: str
    idempotency_key: str
    request_event_id: str | None
    tool_version: str
    schema_version: str
    tenant_capabilities: frozenset[str] = frozenset()
    tenant_budget_usd_limit: float | None = None


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """How a call ended.

    result_json: what the tool returned, as JSON text
    received_idempotency_key: the key the other side says it was called with
    effect_id: what the other side calls what was done
    """

    outcome: ToolExecutionOutcome
    result_json: str
    received_idempotency_key: str | None = None
    effect_id: str | None = None
    request_id: str | None = None
    error_message: str | None = None


ToolReconciler: TypeAlias = Callable[[ToolExecutionContext, dict[str, Any]], Awaitable[ToolExecutionResult | None]]
"""Looks, without changing anything, whether the call of an idempotency key happened; None where it cannot tell."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool as it was registered.

    timeout_seconds: how long one attempt may take
    max_attempts: how often a call is tried that is known not to have happened
    backoff_seconds: how long it waits before the second attempt; twice as long before each one after
    reconcile: looks whether a call happened
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


class ToolPort(Protocol):
    """Whoever has tools and calls them.

    A call never raises for what a tool does: how it ended is the result. Only cancellation passes through.
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
        """Take a function as a tool; its name and its signature are the tool's."""
        ...

    async def call(self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext) -> ToolExecutionResult:
        """Call a tool, and say how it ended."""
        ...

    def list_for_capabilities(self, capabilities: frozenset[str]) -> list[RegisteredTool]:
        """The tools that whoever has these capabilities may use, by name."""
        ...

    def to_tool_definitions(self, capabilities: frozenset[str]) -> list[ToolDefinition]:
        """The same, as a model is told of them."""
        ...

    def to_all_tool_definitions(self) -> list[ToolDefinition]:
        """Every tool, as a model is told of it."""
        ...

    def capability_map(self) -> dict[str, str | None]:
        """The capability each tool needs."""
        ...


class CheckingToolPort(ToolPort, Protocol):
    """A tool port that also checks arguments before anything is called, and knows its tools apart."""

    def validate(self, tool_name: str, arguments: BaseModel | Mapping[str, object] | str) -> str:
        """Give the canonical JSON of arguments that fit the tool, or refuse them."""
        ...

    def fingerprint(self, tool_name: str) -> ToolFingerprint:
        """What identifies a tool."""
        ...

    def arguments_model(self, tool_name: str) -> type[BaseModel]:
        """The model a tool's arguments fit."""
        ...

    def tool(self, tool_name: str) -> RegisteredTool:
        """A tool by its name."""
        ...

    async def reconcile(
        self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext
    ) -> ToolExecutionResult | None:
        """Look whether a call happened, without making it; None where nobody can tell."""
        ...
