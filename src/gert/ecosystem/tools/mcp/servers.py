"""The server of an MCP tool: the command that starts it, or its URL."""

from collections.abc import Callable

import msgspec

from gert.ecosystem.process.command import Command, Encoded
from gert.ecosystem.rpc.child_peer import Server
from gert.ecosystem.rpc.peer import GRACE
from gert.ecosystem.tools.command import CommandContext, server_command
from gert.ecosystem.tools.mcp.endpoint import Endpoint
from gert.ecosystem.tools.mcp.links import Link, ProcessLink, UrlLink
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.mcp_tools import STDIO

EndpointOf = Callable[[Tool], Endpoint | Failure]
"""Returns the endpoint of a tool with a URL, or why it is refused."""


def server_of(tool: Tool, context: CommandContext, endpoint_of: EndpointOf) -> Command | Endpoint | Failure:
    """Return how the server of a tool is reached."""
    if tool.meta.connect == STDIO:
        return server_command(tool, context)
    return endpoint_of(tool)


def link_to(
    server: Command | Endpoint,
    tool: Tool,
    redactor: Redactor,
    *,
    limit: int,
    grace: float = GRACE,
    name: str = "",
    marks: Encoded | None = None,
    on_stderr: Callable[[str], None] | None = None,
) -> Link:
    """Return a new link to a server; nothing is started or connected yet.

    limit: bytes of one message
    grace: seconds for each way to stop a process
    marks: the variable that marks the processes of a server
    """
    title = f"the server of `{tool.meta.name}`"
    if isinstance(server, Endpoint):
        return UrlLink(title, server, limit)
    command = msgspec.structs.replace(server, environment={**server.environment, **(marks or {})})
    return ProcessLink(
        Server(
            name=name, title=title, command=command, redactor=redactor, on_stderr=on_stderr, limit=limit, grace=grace
        )
    )
