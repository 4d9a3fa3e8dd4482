"""Where a new tool file goes, and how it is written."""

import os
from contextlib import suppress
from typing import Final

from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import UsageError
from gert.kernel.runbook.tools import TOOL_SUFFIX

STDOUT: Final = "-"


def tool_path(output: str | None, name: str, workspace: Workspace) -> str | None:
    """The path of a new tool file: the chosen one, or in `tools/` of the project; None for standard output."""
    if output == STDOUT:
        return None
    if output is not None:
        if not output.endswith((".yaml", ".yml")):
            raise UsageError(f"expected a YAML file, found `{output}`", hint=f"for example tools/{name}{TOOL_SUFFIX}")
        return os.path.join(workspace.working, output)
    root = workspace.project_root(workspace.working) or workspace.working
    return os.path.join(root, "tools", f"{name}{TOOL_SUFFIX}")


def write_tool(file: str, text: str) -> None:
    """Write the file at once, or not at all."""
    part = f"{file}.{os.urandom(4).hex()}.part"
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        try:
            with open(part, "x", encoding="utf-8") as opened:
                opened.write(text)
            os.replace(part, file)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise UsageError(f"cannot write `{file}`: {why}", hint="choose another file with -o") from None
