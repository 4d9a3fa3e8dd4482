"""A session with the MCP server of a tool outside of a run: to import it, or to compare it with its tool file."""

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from gert.ecosystem.host.config.mcp_endpoints import endpoint_of
from gert.ecosystem.process.own_process import prepare_for_tools
from gert.ecosystem.tools.command import CommandContext
from gert.errors import DocumentError, RpcError, RpcLost, RpcTimeout
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor, credentials_of
from gert.kernel.runbook.documents.tool import Tool

if TYPE_CHECKING:
    from gert.ecosystem.tools.mcp.session import Session

LIMIT: Final = 16 * 1024 * 1024
OPEN_SECONDS: Final = 60.0


@asynccontextmanager
async def session_with(
    tool: Tool, environ: Mapping[str, str], http_hosts: Collection[str], working: str, seconds: float = OPEN_SECONDS
) -> AsyncIterator["Session"]:
    """Connect to the server of a tool; DocumentError or RpcError if that fails. Nothing of it runs afterwards."""
    from gert.ecosystem.tools.mcp.servers import link_to, server_of  # these load the SDK
    from gert.ecosystem.tools.mcp.session import Session

    prepare_for_tools()
    context = CommandContext(
        environment=environ, secrets={}, withheld=frozenset(), working=working, run_id=os.urandom(8).hex()
    )
    server = server_of(tool, context, lambda tool: endpoint_of(tool, environ, http_hosts))
    if isinstance(server, Failure):
        raise DocumentError(server.message)
    redactor = redactor_of(tool, environ)
    session = Session(link_to(server, tool, redactor, limit=LIMIT, marks=context.marks("tool")))
    try:
        async with asyncio.timeout(seconds):
            await session.open()
    except RpcError as problem:
        # A server may repeat what it was sent.
        raise RpcLost(redactor.text(problem.message).value, sent=False, hint=problem.hint) from None
    except TimeoutError:
        raise RpcTimeout(f"{session.link.title} did not answer within {seconds:g}s{session.said}") from None
    try:
        yield session
    finally:
        await session.close()


def redactor_of(tool: Tool, environ: Mapping[str, str]) -> Redactor:
    """Return a redactor for the declared secrets of a tool."""
    values = (environ.get(secret.env, "") for secret in tool.all_secrets)
    return Redactor(part for value in values if value for part in credentials_of(value))
