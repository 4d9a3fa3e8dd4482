"""gert-mcp: start-up to the list of tools beside the SDK's bare server, and a folder of 1,000 runbooks."""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.ratio import Ratio, report

ROUNDS: Final = 5
RUNBOOKS: Final = 1000
LIMIT: Final = 1.3

BARE: Final = """
import asyncio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult, Tool

async def tools(ctx, params):
    return ListToolsResult(tools=[Tool(name="add", input_schema={"type": "object"})])

async def main():
    server = Server("bare", on_list_tools=tools)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())

asyncio.run(main())
"""

RUNBOOK: Final = """apiVersion: kernel/v0
meta:
  name: runbook-{number}
  description: Restarts the service number {number} and checks that it answers.
  inputs: {{host: {{type: string, required: true}}, times: {{type: int, default: 3}}}}
steps:
  - {{id: look, type: assert, assert: [{{type: equals, value: "{{{{ .host }}}}", expected: a}}]}}
  - {{id: done, type: end, outcome: {{category: resolved, code: ok}}}}
"""


def main() -> int:
    """Measure and report."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measured(Path(folder)))


async def _measured(folder: Path) -> int:
    bare, root = folder / "bare.py", folder / "served"
    bare.write_text(BARE)
    (root / "runbooks").mkdir(parents=True)
    ours = [str(Path(sys.executable).parent / "gert-mcp"), "--root", str(root)]
    commands = (ours, [sys.executable, str(bare)])
    pairs = [[await _started(command) for command in commands] for _ in range(ROUNDS + 1)][1:]
    measured, floor = (statistics.median(side) for side in zip(*pairs, strict=True))
    for number in range(RUNBOOKS):
        (root / "runbooks" / f"{number}.yaml").write_text(RUNBOOK.format(number=number))
    listing = statistics.median([await _listed(root) for _ in range(ROUNDS)])
    return report(
        [
            Ratio("gert-mcp to tools/list / the SDK's bare server", measured, floor, LIMIT),
            Ratio(f"{RUNBOOKS} runbooks listed / one second", listing, 1.0, 1.0),
        ]
    )


async def _started(command: list[str]) -> float:
    """Seconds from the start of a server to its tools."""
    from mcp import Client, StdioServerParameters

    began = time.perf_counter()
    async with Client(StdioServerParameters(command=command[0], args=command[1:])) as client:
        await client.list_tools()
        return time.perf_counter() - began


async def _listed(root: Path) -> float:
    """Seconds in which a new server lists every runbook, page by page."""
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(command=str(Path(sys.executable).parent / "gert-mcp"), args=["--root", str(root)])
    async with Client(server) as client:
        await client.list_tools()
        began = time.perf_counter()
        cursor, count = None, 0
        while count < RUNBOOKS:
            said = {"limit": 200, **({"cursor": cursor} if cursor else {})}
            page = (await client.call_tool("gert_list_runbooks", said)).structured_content or {}
            cursor, count = page.get("next_cursor"), count + len(page["runbooks"])
        return time.perf_counter() - began
