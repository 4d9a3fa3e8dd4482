"""Tools that an agent brings itself, beside those of its kernel: no other agent or step sees them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from gert.errors import InputError
from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionResult
from gert.kernel.agent.steps.question import signature_of
from gert.kernel.agent.steps.tools import Arguments, Tools
from gert.kernel.agent.types.api import ToolFingerprint
from gert.kernel.agent.types.serde import plain_model, plain_value
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, loads

Reconcile = Callable[[Any], Awaitable[ToolExecutionResult | None]]


@dataclass(frozen=True)
class OwnTool:
    """A tool of an agent.

    arguments: the model of its arguments
    run: does its work with these arguments
    reconcile: finds out whether a call with these arguments happened
    """

    name: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[Any], Awaitable[object]]
    side_effect: bool = False
    reconcile: Reconcile | None = None

    @cached_property
    def definition(self) -> ToolDefinition:
        """Return it as it is described to a model."""
        schema = canonical_json_dumps(self.arguments.model_json_schema())
        return ToolDefinition(
            self.name, self.description, schema, schema_hash=sha256_hex(schema.encode()), risk_level="low"
        )

    def read(self, arguments: Arguments) -> BaseModel:
        """Validate arguments; InputError if they do not fit."""
        try:
            if isinstance(arguments, str):
                return self.arguments.model_validate(loads(arguments), strict=True)
            given = plain_model(arguments) if isinstance(arguments, BaseModel) else dict(arguments)
            return self.arguments.model_validate(given, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"the arguments of `{self.name}` do not fit: `{where}` {first['msg']}") from error


class AgentTools(Tools):
    """The tools of a kernel, and an agent's own; a tool of the kernel hides an own one of the same name."""

    def __init__(self, base: Tools, own: Mapping[str, OwnTool]) -> None:
        super().__init__(base.port)
        self._own = {name: tool for name, tool in own.items() if not base.has(name)}

    @property
    def own(self) -> frozenset[ToolSignature]:
        """Return the signatures of the agent's own tools."""
        return frozenset(signature_of(tool.definition) for tool in self._own.values())

    @property
    def own_names(self) -> frozenset[str]:
        """Return the names of the agent's own tools."""
        return frozenset(self._own)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return every tool, sorted by name."""
        own = (tool.definition for tool in self._own.values())
        return tuple(sorted((*super().definitions(), *own), key=lambda tool: tool.name))

    def definition(self, name: str) -> ToolDefinition:
        """Return a tool by name; ToolNotFound if there is none."""
        return self._own[name].definition if name in self._own else super().definition(name)

    def has(self, name: str) -> bool:
        """Whether there is a tool of this name."""
        return name in self._own or super().has(name)

    def side_effect(self, name: str) -> bool:
        """Whether a tool has side effects."""
        return self._own[name].side_effect if name in self._own else super().side_effect(name)

    def resumable(self, name: str) -> bool:
        """Whether an interrupted call of a tool is continued by the same step."""
        return name not in self._own and super().resumable(name)

    def canonical(self, name: str, arguments: Arguments) -> str:
        """Validate arguments and return them as canonical JSON; InputError if they do not fit the tool."""
        if name not in self._own:
            return super().canonical(name, arguments)
        return canonical_json_dumps(plain_model(self._own[name].read(arguments)))

    def fingerprint(self, name: str) -> ToolFingerprint:
        """Return the identity, risk level and sandbox profile of a tool."""
        if name not in self._own:
            return super().fingerprint(name)
        tool = self._own[name].definition
        return ToolFingerprint(tool.name, tool.tool_version, tool.schema_version, tool.schema_hash, "low", None)

    async def call(self, name: str, arguments_json: str, context: ToolExecutionContext) -> ToolExecutionResult:
        """Call a tool; an exception of an own tool is its outcome."""
        tool = self._own.get(name)
        if tool is None:
            return await super().call(name, arguments_json, context)
        found = await tool.run(tool.read(arguments_json))
        return ToolExecutionResult("success", canonical_json_dumps(plain_value(found)))

    async def reconcile(
        self, name: str, arguments_json: str, context: ToolExecutionContext
    ) -> ToolExecutionResult | None:
        """Ask a tool whether a call happened; None if it does not know."""
        tool = self._own.get(name)
        if tool is None:
            return await super().reconcile(name, arguments_json, context)
        return None if tool.reconcile is None else await tool.reconcile(tool.read(arguments_json))
