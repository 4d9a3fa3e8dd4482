"""A small MCP server written with the SDK, over stdio or, with a port, over HTTP; it speaks both eras."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("demo", version="1.2")
READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)


class Size(BaseModel):
    """What `measure` returns."""

    width: int
    height: int | None = None


@server.tool(annotations=READ)
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=READ)
def measure(text: str) -> Size:
    """Measure a text."""
    return Size(width=len(text))


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False))
def note(word: str, file: str) -> str:
    """Append a word to a file."""
    with Path(file).open("a") as opened:
        opened.write(f"{word}\n")
    return f"noted {word}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
