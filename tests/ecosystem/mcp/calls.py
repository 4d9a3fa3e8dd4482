"""Calls of MCP tools through the transport, with real servers."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tests.ecosystem.rpc.children import runs

from gert.ecosystem.host.config.mcp_endpoints import endpoint_of
from gert.ecosystem.rpc import Servers
from gert.ecosystem.tools.command import CommandContext
from gert.ecosystem.tools.mcp.transport import Mcp
from gert.ecosystem.tools.server_calls import ServerCalls
from gert.kernel.engine.requests import CallPreview, CallTool, ToolAnswer
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.governance.contract import resolve
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.program import declared

T = TypeVar("T")
HERE = Path(__file__).parent
RAW = [sys.executable, "-S", "-E", str(HERE / "raw_server.py")]
SDK = [sys.executable, str(HERE / "sdk_server.py")]
_KEYS = count()


def mcp_tool(
    command: list[str] | str,
    *,
    action: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    contract: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    **document: Any,
) -> Tool:
    """A tool whose action `do` calls a server, a command or a URL."""
    place = (
        {"connect": command}
        if isinstance(command, str)
        else {
            "connect": "stdio",
            "binary": command[0],
            "args": command[1:],
        }
    )
    data = {
        "apiVersion": "tool/v0",
        "meta": {"name": "t", "transport": "mcp", **place, **(meta or {})},
        "contract": {"effects": [], "idempotent": True, "outputs": dict(outputs or {}), **(contract or {})},
        "actions": {"do": dict(action or {})},
        **document,
    }
    loaded = load(msgspec.json.encode(data), kind="tool")
    assert loaded.findings == []
    model: Tool = loaded.model
    return model


def raw(mode: str = "good", log: Path | str = os.devnull, **more: Any) -> Tool:
    return mcp_tool([*RAW, mode, str(log)], **more)


@asynccontextmanager
async def transport(
    *, secrets: Mapping[str, str] | None = None, hides: tuple[str, ...] = (), shown: Any = None, **more: Any
) -> Any:
    """A transport that is closed afterwards."""
    environment = {"PATH": os.environ["PATH"], **more.pop("environment", {})}
    hosts = more.pop("http_hosts", ())
    shared: dict[str, Any] = {"secrets": secrets or {}, "withheld": frozenset(), "working": os.getcwd()}
    shared |= {name: more.pop(name) for name in CommandContext.__struct_fields__ if name in more}
    context = CommandContext(environment=environment, run_id="run", **shared)
    calls = ServerCalls(Servers(), context, Redactor([*hides, *(secrets or {}).values()]), shown)
    given = {"limit": 1024 * 1024, "grace": 0.2, **more}
    made = Mcp(calls, lambda tool: endpoint_of(tool, environment, hosts), **given)
    try:
        yield made
    finally:
        await made.close()


def asked(tool: Tool, inputs: Mapping[str, Any] | None = None, *, preview: bool = False, **more: Any) -> Any:
    contract = resolve(declared(tool.contract), declared(tool.actions["do"].contract))
    given: dict[str, Any] = {
        "key": f"k{next(_KEYS)}",
        "path": "steps/0",
        "step_id": "s",
        "tool": "t",
        "action": "do",
        "inputs": dict(inputs or {}),
        "contract": contract,
        **more,
    }
    return CallPreview(**given) if preview else CallTool(**given)


async def call(made: Mcp, tool: Tool, inputs: Mapping[str, Any] | None = None, **more: Any) -> ToolAnswer:
    ask = asked(tool, inputs, **more)
    action = tool.actions["do"].shown if isinstance(ask, CallPreview) else tool.actions["do"]
    assert action is not None
    return await made.call(tool, "do", action, ask)


def finished(work: Callable[[], Awaitable[T]], seconds: float = 30.0) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work()

    return asyncio.run(bounded())


def answer(tool: Tool, inputs: Mapping[str, Any] | None = None, **options: Any) -> ToolAnswer:
    """Call a tool once, with a transport of its own."""

    async def work() -> ToolAnswer:
        async with transport(**options) as made:
            return await call(made, tool, inputs)

    return finished(work)


def lines(log: Path, word: str) -> list[str]:
    """What happened, as the server wrote it down."""
    said = log.read_text().splitlines() if log.exists() else []
    return [line.removeprefix(word).strip() for line in said if line.startswith(word)]


def survivors(log: Path) -> Iterator[int]:
    """The processes of a server that still run."""
    pids = [int(pid) for word in ("start", "child") for pid in lines(log, word)]
    assert pids
    return (pid for pid in pids if runs(pid))
