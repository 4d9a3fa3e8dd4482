"""Python functions as tools: registered by their signature, called with validated arguments."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from gert.ecosystem.tools.arguments import canonical_arguments, validated
from gert.ecosystem.tools.call import call, within
from gert.ecosystem.tools.results import MAX_MESSAGE, failed, raised, returned
from gert.ecosystem.tools.signatures import CONTEXT, Signature, description_of, schema_of, signature_of
from gert.ecosystem.tools.tool_settings import MAX_BACKOFF_SECONDS, check_limits, check_name, check_versions
from gert.errors import InputError, ToolSuspended
from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.ports.tool import (
    RegisteredTool,
    ToolCallable,
    ToolExecutionContext,
    ToolExecutionResult,
    ToolReconciler,
    ToolRiskLevel,
)
from gert.kernel.agent.steps.error_text import error_summary
from gert.kernel.agent.types.api import ToolFingerprint
from gert.kernel.foundation.arguments import checked
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import loads
from gert.kernel.foundation.names import suggestion


class _Tool(NamedTuple):
    registered: RegisteredTool
    signature: Signature
    definition: ToolDefinition


class LocalToolRegistry:
    """The functions of a program as tools.

    Arguments are validated strictly, as JSON: text is not converted to a number, and an undeclared name is refused.
    The validated arguments, with defaults, are recorded, and the function is called with the recorded ones.
    """

    def __init__(self) -> None:
        self._tools: dict[str, _Tool] = {}

    def __repr__(self) -> str:
        return f"LocalToolRegistry({', '.join(sorted(self._tools))})"

    def register(
        self,
        function: ToolCallable,
        requires_capability: str | None = None,
        side_effect: bool = False,
        tool_version: str = "1.0.0",
        schema_version: str = "1",
        risk_level: ToolRiskLevel = "medium",
        sandbox_profile: str | None = None,
        *,
        name: str | None = None,
        timeout_seconds: float | None = None,
        max_attempts: int = 1,
        backoff_seconds: float = 0.0,
        reconcile: ToolReconciler | None = None,
        resumable: bool = False,
    ) -> None:
        """Register a function as a tool; InputError if it cannot be one.

        name: the name for models (default: the function's name)
        timeout_seconds: how long one attempt may take
        max_attempts: how often a call is attempted while it is known not to have happened; after a timeout or an
            unexpected error, that is known only of tools without side effects
        backoff_seconds: the pause before the second attempt; it doubles before each further one
        reconcile: finds out, without changing anything, whether the call of an idempotency key happened
        resumable: the tool is durable itself: a call that was interrupted, or that raises `ToolSuspended`, stays open,
            and the same step calls the tool again under the same idempotency key
        """
        called = check_name(function, name)
        if called in self._tools:
            raise InputError(f"a tool `{called}` already exists", hint="register it under another `name`")
        check_versions(called, tool_version, schema_version, risk_level)
        check_limits(called, timeout_seconds, max_attempts, backoff_seconds)
        if reconcile is not None and not callable(reconcile):
            raise InputError(f"expected `reconcile` of the tool `{called}` to be a function")
        signature = signature_of(function, called)
        if side_effect and not signature.takes_context:
            raise InputError(
                f"the tool `{called}` has side_effect=True and needs the parameter `{CONTEXT}: ToolExecutionContext`",
                hint="pass its `idempotency_key` to the target, so that a repeated call takes effect once",
            )
        schema = schema_of(signature.model, called)
        registered = RegisteredTool(
            name=called,
            requires_capability=requires_capability,
            function=function,
            description=description_of(function),
            arguments_schema_json=schema,
            arguments_model=signature.model,
            accepts_artana_context=signature.takes_context,
            tool_version=tool_version,
            schema_version=schema_version,
            schema_hash=sha256_hex(schema.encode()),
            risk_level=risk_level,
            sandbox_profile=sandbox_profile,
            side_effect=side_effect,
            timeout_seconds=timeout_seconds,
            max_attempts=max_attempts,
            backoff_seconds=backoff_seconds,
            reconcile=reconcile,
            resumable=resumable,
        )
        self._tools[called] = _Tool(registered, signature, _definition(registered))

    @checked
    async def call(self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext) -> ToolExecutionResult:
        """Call a tool and return how it ended; only cancellation and the suspension of a call are raised."""
        try:
            tool = self._find(tool_name)
            arguments = validated(tool.registered, arguments_json)
        except InputError as error:
            return failed("permanent_error", error.message)
        for attempt in range(1, tool.registered.max_attempts):
            result = await _attempt(tool, arguments, context)
            # Only this outcome means that the call did not happen and may succeed on a retry.
            if result.outcome != "transient_error":
                return result
            await asyncio.sleep(min(tool.registered.backoff_seconds * 2 ** (attempt - 1), MAX_BACKOFF_SECONDS))
            # Read again for each attempt: a function may change its arguments.
            arguments = validated(tool.registered, arguments_json)
        return await _attempt(tool, arguments, context)

    @checked
    async def reconcile(
        self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext
    ) -> ToolExecutionResult | None:
        """Find out whether a call happened, without making it; None if the tool does not know."""
        registered = self._find(tool_name).registered
        if registered.reconcile is None:
            return None
        try:
            found = await within(
                registered.timeout_seconds, _look(registered.reconcile, context, loads(arguments_json))
            )
        except Exception as error:
            # A failed reconciler says nothing about the call.
            return failed("unknown_outcome", f"the reconciler failed: {error_summary(error, MAX_MESSAGE)}")
        return None if found is None else returned(found, side_effect=True, received_key=None)

    def validate(self, tool_name: str, arguments: BaseModel | Mapping[str, object] | str) -> str:
        """Validate arguments and return them as canonical JSON with defaults; InputError if they do not fit."""
        return canonical_arguments(self._find(tool_name).registered, arguments)

    @checked
    def tool(self, tool_name: str) -> RegisteredTool:
        """Return a tool by name."""
        return self._find(tool_name).registered

    @checked
    def arguments_model(self, tool_name: str) -> type[BaseModel]:
        """Return the pydantic model of a tool's arguments."""
        return self._find(tool_name).registered.arguments_model

    @checked
    def fingerprint(self, tool_name: str) -> ToolFingerprint:
        """Return the identity, risk level and sandbox profile of a tool."""
        tool = self._find(tool_name).registered
        return ToolFingerprint(
            tool.name, tool.tool_version, tool.schema_version, tool.schema_hash, tool.risk_level, tool.sandbox_profile
        )

    @checked
    def list_for_capabilities(self, capabilities: frozenset[str]) -> list[RegisteredTool]:
        """Return the tools that a tenant with these capabilities may use, sorted by name."""
        return [
            tool
            for tool in self._by_name()
            if tool.requires_capability is None or tool.requires_capability in capabilities
        ]

    @checked
    def to_tool_definitions(self, capabilities: frozenset[str]) -> list[ToolDefinition]:
        """Return the same tools as they are described to a model."""
        return [self._tools[tool.name].definition for tool in self.list_for_capabilities(capabilities)]

    def to_all_tool_definitions(self) -> list[ToolDefinition]:
        """Return every tool as it is described to a model."""
        return [self._tools[name].definition for name in sorted(self._tools)]

    def capability_map(self) -> dict[str, str | None]:
        """Return the capability each tool needs, by name."""
        return {tool.name: tool.requires_capability for tool in self._by_name()}

    def _by_name(self) -> list[RegisteredTool]:
        return [self._tools[name].registered for name in sorted(self._tools)]

    def _find(self, tool_name: str) -> _Tool:
        if not isinstance(tool_name, str):
            raise InputError(f"expected the name of a tool, found a `{type(tool_name).__name__}`")
        tool = self._tools.get(tool_name)
        if tool is None:
            raise InputError(f"there is no tool `{tool_name[:64]}`", hint=suggestion(tool_name, self._tools))
        return tool


async def _attempt(made: _Tool, given: BaseModel, context: ToolExecutionContext) -> ToolExecutionResult:
    tool = made.registered
    arguments = made.signature.arguments(given, context)
    try:
        value = await within(tool.timeout_seconds, call(tool.function, arguments))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The call was not cancelled: something inside the tool was, and the tool did not handle it.
        return raised(error, side_effect=tool.side_effect)
    except Exception as error:
        if tool.resumable and isinstance(error, ToolSuspended):
            raise
        return raised(error, side_effect=tool.side_effect)
    key = context.idempotency_key if tool.accepts_artana_context else None
    return returned(value, side_effect=tool.side_effect, received_key=key)


async def _look(
    reconcile: ToolReconciler, context: ToolExecutionContext, arguments: dict[str, Any]
) -> ToolExecutionResult | None:
    result: Any = await reconcile(context, arguments)
    if result is not None and not isinstance(result, ToolExecutionResult):
        raise TypeError(f"expected a ToolExecutionResult or None, found a {type(result).__name__}")
    return result


def _definition(tool: RegisteredTool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        arguments_schema_json=tool.arguments_schema_json,
        tool_version=tool.tool_version,
        schema_version=tool.schema_version,
        schema_hash=tool.schema_hash,
        risk_level=tool.risk_level,
        sandbox_profile=tool.sandbox_profile,
    )
