"""The tool files of a project: where they are, and what each of their actions promises."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gert.ecosystem.host.config.files import is_file, yaml_files
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.errors import UsageError
from gert.kernel.foundation.names import did_you_mean
from gert.kernel.governance.contract import Contract, resolve
from gert.kernel.governance.risk import assess
from gert.kernel.runbook.documents.tool import ActionBlock, Tool
from gert.kernel.runbook.mcp_tools import place_of
from gert.kernel.runbook.program import declared
from gert.kernel.runbook.tools import TOOL_SUFFIX, is_path

_SUFFIXES = (TOOL_SUFFIX, TOOL_SUFFIX.replace(".yaml", ".yml"))


class ToolAction(msgspec.Struct, frozen=True):
    """An action of a tool with its contract."""

    name: str
    block: ActionBlock
    contract: Contract

    def as_json(self) -> dict[str, Any]:
        """The action as JSON."""
        row = assess(self.contract)
        said = {"description": self.block.description, "timeout": self.block.timeout, "calls": self.calls}
        return {
            "name": self.name,
            **{key: value for key, value in said.items() if value},
            "contract": self.contract.full(),
            "risk_level": row.risk.word,
            "risk_reason": row.reason,
        }

    @property
    def calls(self) -> str | None:
        """The method or tool of a server that it calls, or its command."""
        block = self.block
        return block.mcp_tool or block.method or (" ".join(word.source for word in block.argv) if block.argv else None)


def actions_of(tool: Tool) -> list[ToolAction]:
    """The actions of a tool with their contracts."""
    outer = declared(tool.contract)
    return [
        ToolAction(name, action, resolve(outer, declared(action.contract))) for name, action in tool.actions.items()
    ]


class FoundTool(msgspec.Struct, frozen=True):
    """A tool file, as far as it is valid."""

    file: str
    checked: Checked

    @property
    def tool(self) -> Tool | None:
        """The tool, if its structure is valid."""
        model = self.checked.document.model
        return model if isinstance(model, Tool) else None

    @property
    def name(self) -> str:
        """The name of the tool, or of its file."""
        return self.tool.meta.name if self.tool is not None else _stem(self.file)

    @property
    def actions(self) -> list[ToolAction]:
        """The actions with their contracts."""
        return [] if self.tool is None else actions_of(self.tool)

    def as_json(self) -> dict[str, Any]:
        """The tool as JSON."""
        meta = self.tool.meta if self.tool is not None else None
        about: dict[str, Any] = {"file": self.file, "name": self.name, "valid": self.checked.document.is_sound}
        if self.tool is not None and meta is not None:
            about |= {"transport": meta.transport, "place": place_of(self.tool), "description": meta.description}
            about["secrets"] = [secret.env for secret in self.tool.all_secrets]
            if self.tool.imported is not None:
                about["imported"] = {"server": self.tool.imported.server, "tools": len(self.tool.imported.tools)}
        return {**about, "actions": [action.as_json() for action in self.actions]}


def find_tools(names: Iterable[str] = ()) -> list[FoundTool]:
    """Return the tools with these names, or in these files and folders; without names, all of the project."""
    workspace = Workspace()
    root = workspace.project_root(workspace.working) or workspace.working
    files = [file for name in names for file in _named(name, root, workspace.working)]
    if not names:
        files = list(_tool_files(root))
    return [
        FoundTool(_shown(file, workspace.working), workspace.check(file, kind="tool")) for file in dict.fromkeys(files)
    ]


def _named(name: str, root: str, working: str) -> Iterator[str]:
    path = os.path.join(working, name)
    if os.path.isdir(path) and is_path(name + "/"):
        found = list(_tool_files(path))
        if not found:
            raise UsageError(f"there are no tool files in `{name}`", hint=f"they are named `NAME{TOOL_SUFFIX}`")
        yield from found
    elif is_file(path):
        yield path
    elif is_path(name) or name.endswith((".yaml", ".yml")):
        raise UsageError(f"there is no file `{name}`")
    else:
        yield _by_name(name, root, working)


def _by_name(name: str, root: str, working: str) -> str:
    """Find a tool as a runbook of the project does, or else anywhere in the project."""
    for base in (root, working):
        file = os.path.join(base, "tools", f"{name}{TOOL_SUFFIX}")
        if is_file(file):
            return file
    stems = {_stem(file): file for file in reversed(list(_tool_files(root)))}
    if name in stems:
        return stems[name]
    guess = did_you_mean(name, stems)
    hint = f"did you mean `{guess}`?" if guess else "run `gert tool list` to list the tools of the project"
    raise UsageError(f"there is no tool `{name}`", hint=hint)


def _tool_files(folder: str) -> Iterator[str]:
    return (file for file in yaml_files(folder) if file.endswith(_SUFFIXES))


def _stem(file: str) -> str:
    name = os.path.basename(file)
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


def _shown(file: str, working: str) -> str:
    relative = os.path.relpath(file, working)
    return file if relative.startswith("..") else relative
