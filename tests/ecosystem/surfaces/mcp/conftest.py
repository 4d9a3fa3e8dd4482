"""A served folder, and clients of both protocol eras."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from gert.ecosystem.host.operations.access import Access
from gert.ecosystem.host.operations.catalogue import Catalogue
from gert.ecosystem.surfaces.mcp.published import publish
from gert.ecosystem.surfaces.mcp.server import build_server

TOOL = """
apiVersion: tool/v0
meta: {name: sh, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}}
actions:
  run: {argv: [sh, -c, "{{ .script }}"]}
  change: {argv: [sh, -c, "{{ .script }}"], contract: {effects: [filesystem], writes: [files]}}
"""

QUICK = """
apiVersion: kernel/v0
meta: {name: quick, description: Says hello., inputs: {word: {type: string, default: hello}}}
tools: [sh]
steps:
  - {id: say, type: tool, tool: sh, action: run, inputs: {script: "echo {{ .word }}"}}
  - {id: done, type: end, outcome: {category: resolved, code: ok}}
"""

LONG = QUICK.replace("name: quick", "name: long").replace("echo {{ .word }}", "sleep 60")

WRITES = """
apiVersion: kernel/v0
meta:
  name: writes
  governance: {rules: [{writes: [files], action: require-approval}]}
  inputs: {text: {type: string, required: true}, secret: {type: string, secret: true, from: env/GERTTEST_SECRET}}
tools: [sh]
steps:
  - {id: change, type: tool, tool: sh, action: change, inputs: {script: "echo {{ .text }}"}}
  - {id: done, type: end, outcome: {category: resolved, code: ok}}
"""


class Served:
    """A folder that is served, with what callers may do there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.options: dict[str, Any] = {}

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def access(self) -> Access:
        root = os.path.realpath(self.root)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GERT_")}
        said: dict[str, Any] = {"state_dir": str(self.root.parent / "state"), **self.options}
        return Access(root=root, environ=environ, catalogue=Catalogue(root), **said)

    def client(self, mode: Any = "auto", published: tuple[str, ...] = (), **options: Any) -> Client:
        access = self.access()
        return Client(build_server(access, publish(access, published)), mode=mode, **options)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """A folder with three runbooks and a tool."""
    made = Served(tmp_path / "served")
    made.write("gert-project.yaml", "name: served\n")
    made.write("tools/sh.tool.yaml", TOOL)
    for name, text in (("quick", QUICK), ("long", LONG), ("writes", WRITES)):
        made.write(f"runbooks/{name}.yaml", text)
    return made


def drive(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test with a limit for a machine under load."""

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await work()

    asyncio.run(bounded())
