"""Python functions as tools: registered by their signature, called with what fits it, judged by how they end."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from gert.ecosystem.tools.arguments import canonical_arguments, fitting
from gert.ecosystem.tools.call import call, within
from gert.ecosystem.tools.results import MAX_MESSAGE, failed, raised, returned
from gert.ecosystem.tools.signatures import CONTEXT, Signature, description_of, schema_of, signature_of
from gert.ecosystem.tools.tool_settings import MAX_BACKOFF_SECONDS, check_limits, check_name, check_versions
from gert.errors import InputError
from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.ports.tool import (
    RegisteredTool,
    ToolCallable,
    ToolExecutionContext,
    ToolExecutionResult,
    ToolReconciler,
    ToolRiskLevel,
)
from gert.kernel.agent.steps.error_text import named
from gert.kernel.agent.types.api import ToolFingerprint
from gert.kernel.foundation.arguments import checked
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import loads
from gert.kernel.foundation.names import did_you_mean


class _Tool(NamedTuple):
    registered: RegisteredTool
    signature: Signature


class LocalToolRegistry:
    """The tools of a program: its own functions.

    Arguments are checked strictly, as JSON: a number is not taken from text, and a name nobody declared is refused.
    What is checked is what is recorded, and what is recorded is what the function is called with, defaults included.
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
    ) -> None:
        """Take a function as a tool, or say why it cannot be one.

        name: what models call it; the function's own name otherwise
        timeout_seconds: how long one attempt may take
        max_attempts: how often a call is made that is known not to have happened; after a timeout, or an error a
            tool did not foresee, that is known only of tools without side effects
        backoff_seconds: the pause before the second attempt; it doubles before each one after
        reconcile: looks, without changing anything, whether the call of an idempotency key happened
        """
        called = check_name(function, name)
        if called in self._tools:
            raise InputError(f"a tool is called `{called}` already")
        check_versions(called, tool_version, schema_version, risk_level)
        check_limits(called, timeout_seconds, max_attempts, backoff_seconds)
        if reconcile is not None and not callable(reconcile):
            raise InputError(f"expected `reconcile` of the tool `{called}` to be a function")
        signature = signature_of(function, called)
        if side_effect and not signature.takes_context:
            raise InputError(
                f"the tool `{called}` has side effects and needs the parameter `{CONTEXT}: ToolExecutionContext`",
                hint="pass its `idempotency_key` on, so that a call that is repeated is done once",
            )
        schema = schema_of(signature.model, called)
        self._tools[called] = _Tool(
            RegisteredTool(
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
            ),
            signature,
        )

    @checked
    async def call(self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext) -> ToolExecutionResult:
        """Call a tool, and say how it ended; only cancellation is raised."""
        try:
            tool = self._find(tool_name)
            fitting(tool.registered, arguments_json)
        except InputError as error:
            return failed("permanent_error", error.message)
        for attempt in range(1, tool.registered.max_attempts):
            result = await _attempt(tool, arguments_json, context)
            # The one outcome that says: it did not happen, and may if it is tried again.
            if result.outcome != "transient_error":
                return result
            await asyncio.sleep(min(tool.registered.backoff_seconds * 2 ** (attempt - 1), MAX_BACKOFF_SECONDS))
        return await _attempt(tool, arguments_json, context)

    @checked
    async def reconcile(
        self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext
    ) -> ToolExecutionResult | None:
        """Look whether a call happened, without making it; None where the tool cannot tell."""
        registered = self._find(tool_name).registered
        if registered.reconcile is None:
            return None
        try:
            found = await within(
                registered.timeout_seconds, _look(registered.reconcile, context, loads(arguments_json))
            )
        except Exception as error:
            # That nobody could look says nothing about the call.
            return failed("unknown_outcome", f"it could not be found out: {named(error, MAX_MESSAGE)}")
        return None if found is None else returned(found, side_effect=True, received_key=None)

    def validate(self, tool_name: str, arguments: BaseModel | Mapping[str, object] | str) -> str:
        """Give the canonical JSON of arguments that fit a tool, with its defaults filled in, or refuse them."""
        return canonical_arguments(self._find(tool_name).registered, arguments)

    @checked
    def tool(self, tool_name: str) -> RegisteredTool:
        """A tool by its name."""
        return self._find(tool_name).registered

    @checked
    def arguments_model(self, tool_name: str) -> type[BaseModel]:
        """The model a tool's arguments fit."""
        return self._find(tool_name).registered.arguments_model

    @checked
    def fingerprint(self, tool_name: str) -> ToolFingerprint:
        """What identifies a tool, and how it is to be treated."""
        tool = self._find(tool_name).registered
        return ToolFingerprint(
            tool.name, tool.tool_version, tool.schema_version, tool.schema_hash, tool.risk_level, tool.sandbox_profile
        )

    @checked
    def list_for_capabilities(self, capabilities: frozenset[str]) -> list[RegisteredTool]:
        """The tools that whoever has these capabilities may use, by name."""
        return [
            tool
            for tool in self._by_name()
            if tool.requires_capability is None or tool.requires_capability in capabilities
        ]

    @checked
    def to_tool_definitions(self, capabilities: frozenset[str]) -> list[ToolDefinition]:
        """The same, as a model is told of them."""
        return [_definition(tool) for tool in self.list_for_capabilities(capabilities)]

    def to_all_tool_definitions(self) -> list[ToolDefinition]:
        """Every tool, as a model is told of it."""
        return [_definition(tool) for tool in self._by_name()]

    def capability_map(self) -> dict[str, str | None]:
        """The capability each tool needs."""
        return {tool.name: tool.requires_capability for tool in self._by_name()}

    def _by_name(self) -> list[RegisteredTool]:
        return [self._tools[name].registered for name in sorted(self._tools)]

    def _find(self, tool_name: str) -> _Tool:
        if not isinstance(tool_name, str):
            raise InputError(f"expected the name of a tool, found a `{type(tool_name).__name__}`")
        tool = self._tools.get(tool_name)
        if tool is None:
            near = did_you_mean(tool_name, self._tools)
            raise InputError(
                f"no tool is called `{tool_name[:64]}`", hint=f"did you mean `{near}`?" if near is not None else None
            )
        return tool


async def _attempt(made: _Tool, arguments_json: str, context: ToolExecutionContext) -> ToolExecutionResult:
    tool = made.registered
    # Read anew for each attempt: a function may change what it is given.
    arguments = made.signature.arguments(fitting(tool, arguments_json), context)
    try:
        value = await within(tool.timeout_seconds, call(tool.function, arguments))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled the call: something inside the tool was cancelled, and it did not take care of that.
        return raised(error, side_effect=tool.side_effect)
    except Exception as error:
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
