"""Check tools: the file is valid, its program is found or its server answers, and the server is what was imported."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from gert.ecosystem.host.config.settings import settings_for
from gert.ecosystem.host.config.supported import SUPPORTED
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.tools.find_tools import FoundTool
from gert.ecosystem.host.tools.mcp_session import session_with
from gert.ecosystem.process.environment import missing_secret
from gert.ecosystem.process.find_program import Programs
from gert.errors import GertError
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.mcp_tools import ServerTool, called_tools, change_since_import, import_command, shown
from gert.kernel.runbook.validate.domain.installation import tool_lack


class CheckedTool(msgspec.Struct, kw_only=True):
    """What is wrong with a tool, and what is worth knowing."""

    name: str
    file: str
    transport: str | None = None
    problems: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    server: str | None = None
    protocol: str | None = None

    @property
    def is_ok(self) -> bool:
        """Whether a run can use it."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The result as JSON."""
        return {"ok": self.is_ok, **msgspec.to_builtins(self)}


async def check_tool(
    found: FoundTool, environ: Mapping[str, str], *, working: str | None = None, connect: bool = True
) -> CheckedTool:
    """Check one tool; without `connect`, no server is started or called."""
    checked = CheckedTool(name=found.name, file=found.file)
    for finding in found.checked.findings:
        said = f"{finding.rule}: {finding.message} (line {finding.line})"
        if finding.severity is Severity.ERROR:
            checked.problems.append(said)
        elif finding.severity is Severity.WARNING and finding.rule != "D50":
            checked.notes.append(said)
    tool = found.tool
    if tool is None or checked.problems:
        return checked
    checked.transport = tool.meta.transport
    workspace = Workspace(working)
    hosts = settings_for(workspace, workspace.working, environ=environ).mcp_http_hosts
    checked.problems += _missing(tool, environ, hosts, workspace.working)
    if tool.meta.transport == "mcp" and connect and not checked.problems:
        await _compare(tool, checked, environ, hosts, workspace.working)
    return checked


def _missing(tool: Tool, environ: Mapping[str, str], http_hosts: Collection[str], working: str) -> Iterator[str]:
    """Yield what this machine lacks."""
    lack = tool_lack(tool.meta.name, tool, SUPPORTED, http_hosts)
    if lack is not None:
        yield f"{lack.message}; {lack.hint}" if lack.hint else lack.message
        return
    secret = missing_secret(tool, environ)
    if secret is not None:
        yield secret.message
    programs = Programs()
    for name in _programs(tool):
        program = programs.find(name, working, environ)
        if isinstance(program, Failure):
            yield program.message


def _programs(tool: Tool) -> list[str]:
    """The programs of a tool, except those that a template names."""
    if tool.meta.binary is not None:
        return [tool.meta.binary]
    first = (action.argv[0] for action in tool.actions.values() if action.argv)
    return list(dict.fromkeys(word.source for word in first if word.is_text))


async def _compare(
    tool: Tool, checked: CheckedTool, environ: Mapping[str, str], http_hosts: Collection[str], working: str
) -> None:
    """Compare the tools of the server with those that the file calls."""
    try:
        async with session_with(tool, environ, http_hosts, working) as session:
            checked.server, checked.protocol = session.server, session.protocol
            tools = session.tools
    except GertError as problem:
        checked.problems.append(f"{problem.message}; {problem.hint}" if problem.hint else problem.message)
        return
    problems = list(_differences(tool, tools))
    if problems and tool.imported is not None:
        problems[-1] += f"; review the change and run `{import_command(tool)}`"
    checked.problems += problems
    if tool.imported is None:
        checked.notes.append("it was not imported, so a run does not notice when the server changes a tool")
    else:
        new = [name for name in tools if name not in tool.imported.tools]
        checked.notes += [f"the server has a new tool `{shown(name)}`" for name in sorted(new)]


def _differences(tool: Tool, tools: Mapping[str, ServerTool]) -> Iterator[str]:
    for name in called_tools(tool):
        change = change_since_import(tool, name, tools.get(name))
        if change is not None:
            yield change
        elif name not in tools:
            yield f"the server has no tool `{shown(name)}`"
