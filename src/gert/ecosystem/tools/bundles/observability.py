"""Tools for agents that look at logs and metrics, below one folder. They change nothing."""

import asyncio
from typing import Final

import msgspec

from gert.ecosystem.tools.bundles.rooted import Rooted
from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.errors import ToolPermanentError
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

MAX_BYTES: Final = 256 * 1024
MOST_LINES: Final = 5000


@checks_arguments
class ObservabilityTools:
    """Reads the end of log files, and files of metrics."""

    def __init__(self, *, root: str) -> None:
        self._files = Rooted(root)

    async def query_logs(self, file: str, limit: int = 200) -> str:
        """Return the last lines of a log file."""
        if not 1 <= limit <= MOST_LINES:
            raise ToolPermanentError(f"expected `limit` from 1 to {MOST_LINES}, found {limit}")
        data = await asyncio.to_thread(self._files.read, file, MAX_BYTES, end=True)
        lines = data.decode(errors="replace").splitlines()
        return canonical_json_dumps({"file": file, "lines": lines[-limit:]})

    async def query_metrics(self, file: str) -> str:
        """Return the metrics in a file: JSON, or lines of a name and a value."""
        data = await asyncio.to_thread(self._files.read, file, MAX_BYTES)
        try:
            found = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            found = _of_lines(data.decode(errors="replace"))
        return canonical_json_dumps({"file": file, "metrics": found})

    def registry(self) -> LocalToolRegistry:
        """Return these tools for a kernel: `ArtanaKernel(tool_port=…)`."""
        tools = LocalToolRegistry()
        tools.register(self.query_logs, risk_level="low")
        tools.register(self.query_metrics, risk_level="low")
        return tools


def _of_lines(text: str) -> dict[str, object]:
    """Read `name value` lines, as Prometheus writes them; comments and other lines are left out."""
    found: dict[str, object] = {}
    for line in text.splitlines():
        name, _, value = line.strip().rpartition(" ")
        if name and not name.startswith("#"):
            try:
                number = float(value)
            except ValueError:
                continue
            found[name] = number if number - number == 0 else value
    return found
