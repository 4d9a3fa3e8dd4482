"""Tools for agents that change code: files and git, below one folder."""

import asyncio
import os
from typing import Any, Final

from gert.ecosystem.process.helper import read_helper
from gert.ecosystem.tools.bundles.rooted import Rooted, parts_of
from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.errors import ToolPermanentError
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionResult
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.names import is_safe_name

MAX_BYTES: Final = 1 << 20
TIMEOUT: Final = 60.0
WORKTREES: Final = ".worktrees"

# A repository may come from anywhere: none of its hooks and helpers is started.
_GIT: Final = (
    "git", "--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never",
)  # fmt: skip
_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


@checks_arguments
class CodingHarnessTools:
    """Reads and writes files below a folder, shows its changes, and makes worktrees in it."""

    def __init__(self, *, sandbox_root: str) -> None:
        self._files = Rooted(sandbox_root)

    async def read_file(self, path: str) -> str:
        """Return the text of a file; of a long one the beginning."""
        data = await asyncio.to_thread(self._files.read, path, MAX_BYTES)
        # As JSON, so that the text of a file is never taken for a structured result.
        return canonical_json_dumps({"path": path, "text": data.decode(errors="replace")})

    async def apply_patch(self, path: str, content: str, artana_context: ToolExecutionContext) -> str:
        """Replace the content of a file, or create it."""
        data = content.encode()
        await asyncio.to_thread(self._files.write, path, data)
        return canonical_json_dumps({"path": path, "bytes": len(data)})

    async def git_diff(self, path: str | None = None) -> str:
        """Return the changes that are not committed, of all files or of one."""
        within = [] if path is None else ["--", "/".join(parts_of(path))]
        found = await self._git("diff", "--no-ext-diff", "--no-textconv", "--no-color", *within)
        return canonical_json_dumps({"diff": found})

    async def create_worktree(self, artana_context: ToolExecutionContext, name: str | None = None) -> str:
        """Make a worktree of the current commit and return its path."""
        place = _worktree(name, artana_context)
        await self._git("worktree", "add", "--detach", os.path.join(self._files.root, place))
        return canonical_json_dumps({"worktree": place})

    def registry(self) -> LocalToolRegistry:
        """Return these tools for a kernel: `ArtanaKernel(tool_port=…)`."""
        tools = LocalToolRegistry()
        tools.register(self.read_file, risk_level="low")
        tools.register(self.git_diff, risk_level="low")
        tools.register(self.apply_patch, side_effect=True, reconcile=self._is_applied)
        tools.register(self.create_worktree, side_effect=True, reconcile=self._is_created)
        return tools

    async def _is_applied(self, context: ToolExecutionContext, given: dict[str, Any]) -> ToolExecutionResult:
        data = str(given["content"]).encode()
        try:
            found = await asyncio.to_thread(self._files.read, given["path"], len(data) + 1)
        except ToolPermanentError:
            found = None
        if found != data:
            return ToolExecutionResult("transient_error", "null", error_message="the file was not written")
        return ToolExecutionResult("success", canonical_json_dumps({"path": given["path"], "bytes": len(data)}))

    async def _is_created(self, context: ToolExecutionContext, given: dict[str, Any]) -> ToolExecutionResult:
        place = _worktree(given.get("name"), context)
        listed = await self._git("worktree", "list", "--porcelain")
        if f"worktree {os.path.join(self._files.root, place)}\n" not in f"{listed}\n":
            return ToolExecutionResult("transient_error", "null", error_message="the worktree was not made")
        return ToolExecutionResult("success", canonical_json_dumps({"worktree": place}))

    async def _git(self, *words: str) -> str:
        command = [*_GIT, "-C", self._files.root, *words]
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT}
        try:
            done = await asyncio.to_thread(read_helper, command, environment, limit=MAX_BYTES, timeout=TIMEOUT)
        except FileNotFoundError:
            raise ToolPermanentError("git is not installed") from None
        if done.code:
            raise ToolPermanentError(f"`git {words[0]}` failed with {done.code}")
        return done.stdout.decode(errors="replace")


def _worktree(name: str | None, context: ToolExecutionContext) -> str:
    chosen = name if name is not None else f"wt-{context.idempotency_key[:12]}"
    if not is_safe_name(chosen):
        raise ToolPermanentError(f"`{chosen[:100]}` is not a name for a folder")
    return f"{WORKTREES}/{chosen}"
