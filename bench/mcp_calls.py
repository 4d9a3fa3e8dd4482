"""MCP: calls of a tool through gert's transport beside the SDK client's own, over stdio, one after the other."""

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench.pairs import Work, seconds
from bench.ratio import Ratio, report

CALLS: Final = 500
ROUNDS: Final = 5
LIMIT: Final = 1 / 0.8
"""The aim is 80 % of the SDK client's rate."""

SERVER: Final = """
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
server = MCPServer("bench")
@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    return a + b
server.run("stdio")
"""

TOOL: Final = """
apiVersion: tool/v0
meta: {{name: bench, transport: mcp, connect: stdio, binary: {python}, args: [{script}]}}
contract:
  effects: []
  writes: []
  idempotent: true
  inputs: {{a: {{type: int}}, b: {{type: int}}}}
  outputs: {{result: {{type: int}}}}
actions: {{add: {{}}}}
"""


def main() -> int:
    """Measure and report; the ratio is of times, so 1.25 is 80 % of the rate."""
    return report([asyncio.run(_measured())])


async def _measured() -> Ratio:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "server.py")
        script.write_text(SERVER)
        async with _gert(script) as ours, _sdk(script) as theirs:
            await ours()
            await theirs()
            pairs = [(await seconds(ours), await seconds(theirs)) for _ in range(ROUNDS)]
    measured, floor = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"     {CALLS / measured:.0f} calls a second through gert, {CALLS / floor:.0f} through the SDK's client")
    return Ratio(f"{CALLS} MCP calls over stdio / the SDK client's", measured, floor, LIMIT)


@asynccontextmanager
async def _sdk(script: Path) -> AsyncIterator[Work]:
    from mcp import Client, StdioServerParameters

    async with Client(StdioServerParameters(command=sys.executable, args=[str(script)])) as client:
        await client.list_tools()

        async def work() -> None:
            for number in range(CALLS):
                await client.call_tool("add", {"a": number, "b": 1})

        yield work


@asynccontextmanager
async def _gert(script: Path) -> AsyncIterator[Work]:
    from gert.ecosystem.rpc import Servers
    from gert.ecosystem.tools.command import CommandContext
    from gert.ecosystem.tools.mcp.transport import Mcp
    from gert.ecosystem.tools.server_calls import ServerCalls
    from gert.kernel.engine.requests import CallTool
    from gert.kernel.foundation.redaction import Redactor
    from gert.kernel.governance.contract import resolve
    from gert.kernel.runbook.document import load
    from gert.kernel.runbook.program import declared

    context = CommandContext(
        environment=dict(os.environ), secrets={}, withheld=frozenset(), working=os.getcwd(), run_id="bench"
    )
    calls = ServerCalls(Servers(), context, Redactor(["hunter2"]))
    refused: Any = None
    transport = Mcp(calls, lambda _: refused)
    tool = load(TOOL.format(python=sys.executable, script=script).encode(), kind="tool").model
    contract = resolve(declared(tool.contract))

    async def work() -> None:
        for number in range(CALLS):
            ask = CallTool(
                key=str(number),
                path="s",
                step_id="s",
                tool="bench",
                action="add",
                inputs={"a": number, "b": 1},
                contract=contract,
            )
            answer = await transport.call(tool, "add", tool.actions["add"], ask)
            if answer.outputs != {"result": number + 1}:
                raise RuntimeError(f"a wrong answer: {answer}")

    try:
        yield work
    finally:
        await transport.close()
