"""The tools of a kernel: their definitions, arguments and side effects, for every tool port."""

from collections.abc import Mapping

from pydantic import BaseModel

from gert.errors import GertError, InputError, ToolNotFound
from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.ports.tool import CheckingToolPort, ToolExecutionContext, ToolExecutionResult, ToolPort
from gert.kernel.agent.steps.question import signature_of
from gert.kernel.agent.types.api import ToolFingerprint
from gert.kernel.agent.types.serde import plain_model
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, canonicalize_json_object
from gert.kernel.foundation.names import suggestion

Arguments = BaseModel | Mapping[str, object] | str
_CHECKING = ("validate", "fingerprint", "tool", "reconcile")


class Tools:
    """One interface to every tool port; what a port does not declare is assumed to be unsafe."""

    def __init__(self, port: ToolPort) -> None:
        self.port = port
        self._checking: CheckingToolPort | None = None
        self._known: list[ToolDefinition] = []
        self._sorted: tuple[ToolDefinition, ...] = ()
        if all(hasattr(port, name) for name in _CHECKING):
            self._checking = port  # type: ignore[assignment]

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return every tool, sorted by name."""
        # A port may return its own list and change it later.
        known = list(self.port.to_all_tool_definitions())
        if known != self._known:
            self._known, self._sorted = known, tuple(sorted(known, key=lambda tool: tool.name))
        return self._sorted

    def signatures(self) -> tuple[ToolSignature, ...]:
        """Return the signature of every tool."""
        return tuple(signature_of(tool) for tool in self.definitions())

    def capabilities(self) -> dict[str, str | None]:
        """Return the capability each tool needs, by name."""
        return self.port.capability_map()

    def definition(self, name: str) -> ToolDefinition:
        """Return a tool by name; ToolNotFound if it is not registered."""
        known = {tool.name: tool for tool in self.port.to_all_tool_definitions()}
        if name not in known:
            hint = suggestion(name, known) or f"registered: {', '.join(sorted(known)) or 'none'}"
            # Models invent names of any length.
            raise ToolNotFound(f"there is no tool `{name[:64]}`", hint=hint)
        return known[name]

    def has(self, name: str) -> bool:
        """Whether a tool of this name is registered."""
        return any(tool.name == name for tool in self.port.to_all_tool_definitions())

    def given(self, name: str, arguments: Arguments) -> str:
        """Return arguments as canonical JSON without validating them; the tool need not be registered."""
        try:
            if isinstance(arguments, str):
                return canonicalize_json_object(arguments)
            if isinstance(arguments, BaseModel):
                return canonicalize_json_object(arguments.model_dump_json())
            if isinstance(arguments, Mapping):
                return canonical_json_dumps(dict(arguments))
        except (GertError, TypeError, ValueError):
            # Only the tool can serialize these values.
            pass
        return self.canonical(name, arguments)

    def kept(self, name: str, arguments: Arguments) -> Arguments:
        """Copy arguments, so that the caller cannot change them while the step runs."""
        if not isinstance(arguments, BaseModel):
            return self.given(name, arguments)
        try:
            return arguments.model_copy(deep=True)
        except Exception:
            # It holds something that cannot be copied, such as a lock.
            return arguments

    def side_effect(self, name: str) -> bool:
        """Whether a tool has side effects; assumed where the port does not declare it."""
        return True if self._checking is None else self._checking.tool(name).side_effect

    def resumable(self, name: str) -> bool:
        """Whether an interrupted call of a tool is continued by the same step."""
        return self._checking is not None and getattr(self._checking.tool(name), "resumable", False)

    @property
    def own(self) -> frozenset[ToolSignature]:
        """Return the tools that do not come from the port; a run is never pinned to tools without them."""
        return frozenset()

    def canonical(self, name: str, arguments: Arguments) -> str:
        """Validate arguments and return them as canonical JSON; InputError if they do not fit the tool."""
        if self._checking is not None:
            return self._checking.validate(name, arguments)
        if isinstance(arguments, str):
            return canonicalize_json_object(arguments)
        if isinstance(arguments, BaseModel):
            return canonical_json_dumps(plain_model(arguments))
        if isinstance(arguments, Mapping):
            return canonical_json_dumps(dict(arguments))
        raise InputError(f"expected the arguments of `{name}` to be an object, found `{type(arguments).__name__}`")

    def fingerprint(self, name: str) -> ToolFingerprint:
        """Return the identity, risk level and sandbox profile of a tool."""
        tool = self.definition(name)
        if self._checking is not None:
            return self._checking.fingerprint(name)
        return ToolFingerprint(
            tool.name,
            tool.tool_version,
            tool.schema_version,
            tool.schema_hash,
            tool.risk_level,  # type: ignore[arg-type]
            tool.sandbox_profile,
        )

    async def call(self, name: str, arguments_json: str, context: ToolExecutionContext) -> ToolExecutionResult:
        """Call a tool."""
        return await self.port.call(name, arguments_json, context=context)

    async def reconcile(
        self, name: str, arguments_json: str, context: ToolExecutionContext
    ) -> ToolExecutionResult | None:
        """Ask the tool whether a call happened; None if it does not know."""
        if self._checking is None:
            return None
        return await self._checking.reconcile(name, arguments_json, context=context)
