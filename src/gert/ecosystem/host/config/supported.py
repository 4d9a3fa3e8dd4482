"""The transports, extension runners and input providers of this installation, one row each.

Validation warns about others; a run that needs them is refused before its first step.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from gert.errors import DocumentError
from gert.kernel.engine.requests import CallPreview, CallTool, ToolAnswer
from gert.kernel.runbook.documents.tool import ActionBlock, Tool
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.installation import unsupported
from gert.kernel.runbook.validate.facts import Supported

if TYPE_CHECKING:
    from gert.ecosystem.tools.stdio import ProgramLocation


class CallsTools(Protocol):
    """Calls tools."""

    async def call(self, tool: Tool, action_name: str, action: ActionBlock, ask: CallTool | CallPreview) -> ToolAnswer:
        """Call an action, or run its preview."""


class Transport(CallsTools, Protocol):
    """A transport: it calls tools and can be stopped."""

    def locate(self, tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> "ProgramLocation | None":
        """The file that an action would run, and its folder; None if there is none."""

    def kill_all(self) -> None:
        """Kill all running calls."""


def _stdio(**given: Any) -> Transport:
    from gert.ecosystem.tools.stdio import Stdio  # slow to import, and validation needs only the names

    return Stdio(**given)


TRANSPORTS: Final[Mapping[str, Callable[..., Transport]]] = {"stdio": _stdio}

SUPPORTED: Final = Supported(transports=frozenset(TRANSPORTS), extensions=frozenset(), providers=frozenset())


def require_supported(program: Program) -> None:
    """Refuse a program with a step that this installation cannot run."""
    needs = list(unsupported(program, SUPPORTED))
    if needs:
        more = f" (and {len(needs) - 1} more)" if len(needs) > 1 else ""
        raise DocumentError(
            f"{needs[0].message}{more}", hint="run `gert validate` to list everything that this installation cannot run"
        )
