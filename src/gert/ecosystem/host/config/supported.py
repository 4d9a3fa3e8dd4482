"""The transports, extension runners and input providers of this installation, one row each.

Validation warns about others; a run that needs them is refused before its first step.
"""

from collections.abc import Callable, Collection, Container, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from gert.errors import DocumentError
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock, Tool
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.installation import unsupported
from gert.kernel.runbook.validate.facts import Supported

if TYPE_CHECKING:
    from gert.ecosystem.tools.server_calls import ServerCalls
    from gert.ecosystem.tools.stdio import ProgramLocation
    from gert.kernel.engine.requests import CallExtension, CallPreview, CallTool, ToolAnswer


class CallsTools(Protocol):
    """Calls tools."""

    async def call(
        self, tool: Tool, action_name: str, action: ActionBlock, ask: "CallTool | CallPreview"
    ) -> "ToolAnswer":
        """Call an action, or run its preview."""


class CallsExtensions(Protocol):
    """Calls extensions."""

    async def call(self, ask: "CallExtension") -> "ToolAnswer":
        """Execute a step in its extension."""


class Transport(CallsTools, Protocol):
    """A transport: it calls tools and can be stopped."""

    def locate(self, tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> "ProgramLocation | None":
        """The file that an action would run, and its folder; None if there is none."""

    def kill_all(self) -> None:
        """Kill all running calls."""

    async def close(self) -> None:
        """Release what is kept between calls."""


def _stdio(calls: "ServerCalls", http_hosts: Collection[str]) -> Transport:
    from gert.ecosystem.tools.stdio import Stdio  # slow to import, and validation needs only the names

    return Stdio(calls.context, calls.redactor, calls.on_output)


def _jsonrpc(calls: "ServerCalls", http_hosts: Collection[str]) -> Transport:
    from gert.ecosystem.tools.jsonrpc import JsonRpc

    return JsonRpc(calls)


def _mcp(calls: "ServerCalls", http_hosts: Collection[str]) -> Transport:
    from gert.ecosystem.host.config.mcp_endpoints import endpoint_of
    from gert.ecosystem.tools.mcp.transport import Mcp

    return Mcp(calls, partial(endpoint_of, environ=calls.context.environment, http_hosts=http_hosts))


TRANSPORTS: Final[Mapping[str, Callable[["ServerCalls", Collection[str]], Transport]]] = {
    "stdio": _stdio,
    "jsonrpc": _jsonrpc,
    "mcp": _mcp,
}
"""How each transport is made for a run, from what its calls share and the hosts that plain http may reach."""

# What a transport needs beside gert: the package, and the extra that installs it.
_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {"mcp": ("mcp", "gert[mcp]")}


class _Installed:
    """The transports whose packages are installed; looked up only when a tool uses them.

    Calls of the transport `runner` need the settings of the project, so the run makes it (`host/run/execute.py`).
    """

    def __contains__(self, name: object) -> bool:
        return name == RUNNER or (
            name in TRANSPORTS and (name not in _PACKAGES or find_spec(_PACKAGES[str(name)][0]) is not None)
        )


SUPPORTED: Final = Supported(
    transports=_Installed(),
    extensions=frozenset(),
    providers=frozenset(),
    hints={name: f"install it with `pip install '{extra}'`" for name, (_, extra) in _PACKAGES.items()},
)


def require_supported(
    program: Program, runners: Container[str], http_hosts: Collection[str], tools: Container[str] = ()
) -> None:
    """Refuse a program with a step that this installation cannot run.

    runners: those of extensions
    http_hosts: the hosts that MCP servers may be reached at by plain http
    tools: tools that the embedding program calls itself
    """
    supported = msgspec.structs.replace(SUPPORTED, extensions=runners, tools=tools)
    needs = list(unsupported(program, supported, http_hosts))
    if needs:
        more = f" (and {len(needs) - 1} more)" if len(needs) > 1 else ""
        listed = "run `gert validate` to list everything that this installation cannot run"
        raise DocumentError(f"{needs[0].message}{more}", hint=needs[0].hint if not more and needs[0].hint else listed)
