"""Steps that this installation cannot run (DECISIONS 73)."""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from gert.kernel.runbook.documents.steps import ExtensionStep, ToolStep
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Finding, Path, warning
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.files.mcp_server import plain_http_host
from gert.kernel.runbook.validate.facts import Facts, Supported


class Need(msgspec.Struct, frozen=True):
    """Something that a step needs and this installation lacks: its path, the reason, and what to do."""

    path: Path
    message: str
    hint: str | None = None


_RUNNER_HINT: Final = "install the program `gert-ext-<name>` on PATH, or give the path of a program"


def unsupported(program: Program, supported: Supported, http_hosts: Collection[str] = ()) -> Iterator[Need]:
    """Yield every step that cannot run, because of its tool or extension.

    http_hosts: the hosts that MCP servers may be reached at by plain http
    """
    for step in program.steps:
        if isinstance(step, ToolStep):
            tool = program.tool_of(step)
            lack = (
                tool_lack(step.tool, tool, supported, http_hosts)
                if tool is not None and step.tool not in supported.tools
                else None
            )
            if lack is not None:
                yield Need(step.at("tool"), f"{step.label} cannot run here: {lack.message}", lack.hint)
        elif isinstance(step, ExtensionStep) and step.extension not in supported.extensions:
            message = f"{step.label} cannot run here: this installation has no runner for the extension"
            yield Need(step.at("extension"), f"{message} `{step.extension}`", _RUNNER_HINT)


def supported_steps(case: Case) -> Iterator[Finding]:
    """D50: this installation can run every step."""
    supported = case.facts.supported
    if supported is None:
        return
    for need in unsupported(case.program, supported, case.facts.mcp_http_hosts):
        yield warning("D50", need.path, need.message, need.hint)


def supported_tool(tool: Tool, facts: Facts) -> Iterator[Finding]:
    """D50, for a tool file by itself."""
    if facts.supported is None:
        return
    lack = tool_lack(tool.meta.name, tool, facts.supported, facts.mcp_http_hosts)
    if lack is not None:
        yield warning("D50", lack.path, lack.message, lack.hint)


def tool_lack(name: str, tool: Tool, supported: Supported, http_hosts: Collection[str]) -> Need | None:
    """Return why this installation cannot call a tool, with the path in its file."""
    transport = tool.meta.transport
    if transport not in supported.transports:
        message = f"this installation cannot call the tool `{name}`, whose transport is `{transport}`"
        return Need(("meta", "transport"), message, supported.hints.get(transport))
    host = plain_http_host(tool, http_hosts) if transport == "mcp" else None
    if host is None:
        return None
    message = f"the tool `{name}` would reach `{host}` by plain http, and anyone on the way could read and change calls"
    return Need(("meta", "connect"), message, "use https, or list the host in `mcp_http_hosts` of the project")
