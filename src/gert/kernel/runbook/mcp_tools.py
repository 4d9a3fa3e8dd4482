"""Tools as an MCP server lists them, and how they differ from what was imported.

A digest covers the parts that decide what a call means: both schemas and the annotations. The description is left out:
gert shows the one in the tool file, so a server cannot change what people and models read.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import plain_line
from gert.kernel.runbook.documents.tool import ImportedTool, Tool

HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
LONGEST_NAME: Final = 80
STDIO: Final = "stdio"

_PARTS: Final[Mapping[str, str]] = {
    "inputs": "its input schema",
    "outputs": "its output schema",
    "annotations": "its annotations",
}
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of an MCP server, as plain data."""

    name: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, bool] = msgspec.field(default_factory=dict)
    description: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The schemas of its arguments, by name."""
        found = self.input_schema.get("properties")
        return found if isinstance(found, dict) else {}

    def digests(self) -> dict[str, str]:
        """The digest of each part that decides what a call means."""
        from gert.kernel.foundation.canonical import digest  # hashing is not needed to validate

        parts = {"inputs": self.input_schema, "outputs": self.output_schema, "annotations": self.annotations}
        return {name: digest(_ENCODER.encode(part)) for name, part in parts.items()}


def called_tools(tool: Tool) -> dict[str, set[str]]:
    """The tools of the server that a tool file calls, previews included, with the arguments it passes."""
    found: dict[str, set[str]] = {}
    shared = tool.contract.inputs if tool.contract is not None else {}
    for name, action in tool.actions.items():
        own = action.contract.inputs if action.contract is not None else {}
        passed = {action.mcp_arguments.get(each, each) for each in (*shared, *own)}
        found.setdefault(action.mcp_tool or name, set()).update(passed)
        if action.preview is not None and action.preview.mcp_tool is not None:
            found.setdefault(action.preview.mcp_tool, set())
    return found


def change_since_import(tool: Tool, name: str, found: ServerTool | None) -> str | None:
    """Return how a tool of the server differs from what was imported; None if it does not, or was not imported."""
    recorded = tool.imported.tools.get(name) if tool.imported is not None else None
    if recorded is None:
        return None
    if found is None:
        return f"the server no longer has the tool `{shown(name)}`"
    parts = list(_changed_parts(recorded, found, called_tools(tool).get(name, set())))
    return f"the tool `{shown(name)}` changed since it was imported: {', '.join(parts)}" if parts else None


def place_of(tool: Tool) -> str:
    """The command or the URL of a server, as in the tool file; empty for a tool without a server."""
    meta = tool.meta
    if meta.connect is not None and meta.connect != STDIO:
        return meta.connect
    return shlex.join([meta.binary, *(word.source for word in meta.args)]) if meta.binary is not None else ""


def import_command(tool: Tool) -> str:
    """The command that imports the server of a tool again."""
    return f"gert tool import --mcp {shlex.quote(place_of(tool))} --name {shlex.quote(tool.meta.name)}"


def shown(name: str) -> str:
    """A name that a server chose, for a message."""
    return plain_line(name, LONGEST_NAME) or "?"


def _changed_parts(recorded: ImportedTool, found: ServerTool, passed: Collection[str]) -> Iterator[str]:
    now = found.digests()
    for part, words in _PARTS.items():
        if now[part] != getattr(recorded, part):
            yield words + (_arguments(found, passed) if part == "inputs" else "")


def _arguments(found: ServerTool, passed: Collection[str]) -> str:
    """Name the arguments that came and went, where the tool file knows them."""
    added = [shown(name) for name in found.arguments if name not in passed]
    removed = [shown(name) for name in sorted(passed) if name not in found.arguments]
    said = [f"{what} {listing(names, 4)}" for what, names in (("new:", added), ("gone:", removed)) if names and passed]
    return f" ({'; '.join(said)})" if said else ""
