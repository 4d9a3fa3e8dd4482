"""The tools of a kernel, whichever port has them: what they are, what they take, and whether they change anything."""

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
from gert.kernel.foundation.names import did_you_mean

Arguments = BaseModel | Mapping[str, object] | str
_CHECKING = ("validate", "fingerprint", "tool", "reconcile")


class Tools:
    """One face for every tool port; of what a port cannot say, the careful answer is taken."""

    def __init__(self, port: ToolPort) -> None:
        self.port = port
        self._checking: CheckingToolPort | None = None
        self._known: list[ToolDefinition] = []
        self._sorted: tuple[ToolDefinition, ...] = ()
        if all(hasattr(port, name) for name in _CHECKING):
            self._checking = port  # type: ignore[assignment]

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool, by name."""
        # A port may hand out its own list, and change it.
        known = list(self.port.to_all_tool_definitions())
        if known != self._known:
            self._known, self._sorted = known, tuple(sorted(known, key=lambda tool: tool.name))
        return self._sorted

    def signatures(self) -> tuple[ToolSignature, ...]:
        """What identifies each of them."""
        return tuple(signature_of(tool) for tool in self.definitions())

    def capabilities(self) -> dict[str, str | None]:
        """The capability each tool needs."""
        return self.port.capability_map()

    def definition(self, name: str) -> ToolDefinition:
        """The tool of a name."""
        known = {tool.name: tool for tool in self.port.to_all_tool_definitions()}
        if name not in known:
            meant = did_you_mean(name, known)
            hint = f"did you mean `{meant}`?" if meant else f"registered: {', '.join(sorted(known)) or 'none'}"
            # Models make up names of any length.
            raise ToolNotFound(f"there is no tool `{name[:64]}`", hint=hint)
        return known[name]

    def has(self, name: str) -> bool:
        """Whether there is a tool of a name."""
        return any(tool.name == name for tool in self.port.to_all_tool_definitions())

    def given(self, name: str, arguments: Arguments) -> str:
        """The canonical JSON of arguments as they were given, whether they fit or the tool is there or not."""
        try:
            if isinstance(arguments, str):
                return canonicalize_json_object(arguments)
            if isinstance(arguments, BaseModel):
                return canonicalize_json_object(arguments.model_dump_json())
            if isinstance(arguments, Mapping):
                return canonical_json_dumps(dict(arguments))
        except (GertError, TypeError, ValueError):
            # Values only the tool knows how to write down.
            pass
        return self.canonical(name, arguments)

    def kept(self, name: str, arguments: Arguments) -> Arguments:
        """Arguments as they are now, whatever whoever gave them does to them while a step is taken."""
        if not isinstance(arguments, BaseModel):
            return self.given(name, arguments)
        try:
            return arguments.model_copy(deep=True)
        except Exception:
            # It holds something that has no copy, such as a lock.
            return arguments

    def side_effect(self, name: str) -> bool:
        """Whether a tool changes something; one that does not say so may."""
        return True if self._checking is None else self._checking.tool(name).side_effect

    def canonical(self, name: str, arguments: Arguments) -> str:
        """The canonical JSON of arguments that fit a tool; InputError where they do not."""
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
        """What identifies a tool, and how it is to be treated."""
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
        """Look whether a call happened; None where nobody can tell."""
        if self._checking is None:
            return None
        return await self._checking.reconcile(name, arguments_json, context=context)
