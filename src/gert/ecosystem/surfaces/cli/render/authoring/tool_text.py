"""Tools for people: a table, one tool, one action, and the results of a check and of an import."""

import os
from typing import Any, Final

import click
import msgspec

from gert.ecosystem.host.tools.check_tools import CheckedTool
from gert.ecosystem.host.tools.find_tools import FoundTool, ToolAction
from gert.ecosystem.host.tools.import_mcp import ImportedFile
from gert.ecosystem.surfaces.cli.render.governance.contract_text import RISK_COLOURS, effects_text, parameter_text
from gert.ecosystem.surfaces.cli.render.output import plural, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.table import print_table
from gert.ecosystem.surfaces.cli.render.text import BAD, DONE, DOUBTFUL, FAILED, GOOD, clip
from gert.kernel.foundation.text import printable
from gert.kernel.governance.risk import assess, risk_of
from gert.kernel.runbook.mcp_tools import place_of

_MOST_ACTIONS: Final = 4


def print_tools(found: list[FoundTool]) -> None:
    """Print one line for each tool."""
    print_table(
        ["tool", "transport", "actions", "highest risk", "file"],
        [
            [
                each.name,
                (each.tool.meta.transport if each.tool is not None else "invalid", None if each.tool else BAD),
                _names(each),
                _highest(each),
                each.file,
            ]
            for each in found
        ],
        spare=["file", "actions"],
    )


def print_tool(found: FoundTool) -> None:
    """Print a tool without its actions."""
    print_pair("tool", found.name)
    print_pair("file", found.file)
    tool = found.tool
    if tool is None:
        print_pair("", f"the file is invalid: run `gert validate {found.file}`", BAD)
        return
    if tool.meta.description is not None:
        print_pair("about", clip(tool.meta.description))
    print_pair("transport", tool.meta.transport)
    if place := place_of(tool):
        print_pair("server" if tool.meta.transport != "stdio" else "program", place)
    if tool.imported is not None:
        server = tool.imported.server or "a server without a name"
        print_pair("imported", f"{server}, {plural(len(tool.imported.tools), 'tool')}")
    if tool.all_secrets:
        print_pair("secrets", ", ".join(secret.env for secret in tool.all_secrets))
    if not found.checked.document.is_sound:
        print_pair("", f"the file has errors: run `gert validate {found.file}`", BAD)


def print_action(action: ToolAction) -> None:
    """Print an action with its contract."""
    contract, row = action.contract, assess(action.contract)
    print_pair("action", action.name)
    if action.block.description:
        print_pair("about", clip(action.block.description))
    if action.calls:
        print_pair("calls", clip(action.calls))
    print_pair("effects", effects_text(contract))
    if contract.reads:
        print_pair("reads", ", ".join(sorted(contract.reads)))
    print_pair("writes", "undeclared" if contract.omits_writes else ", ".join(sorted(contract.writes)) or "nothing")
    print_pair("risk", f"{row.risk.word}: {row.reason}", RISK_COLOURS[row.risk.word])
    for title, parameters in (("inputs", contract.inputs), ("outputs", contract.outputs)):
        for index, (name, parameter) in enumerate(parameters.items()):
            print_pair(title if index == 0 else "", f"{name}: {parameter_text(parameter)}")


def print_check(checked: CheckedTool) -> None:
    """Print what is wrong with a tool."""
    mark = click.style(DONE, fg=GOOD) if checked.is_ok else click.style(FAILED, fg=BAD)
    about = [printable(each) for each in (checked.transport, checked.server, checked.protocol) if each]
    print_line(
        f"{mark} {printable(checked.name)} ({printable(checked.file)})" + (f": {', '.join(about)}" if about else "")
    )
    for problem in checked.problems:
        print_line(f"  {click.style(printable(problem), fg=BAD)}")
    for note in checked.notes:
        print_line(f"  {click.style(printable(note), fg=DOUBTFUL)}")


def print_import(imported: ImportedFile) -> None:
    """Print what was imported, and what to do next."""
    file = os.path.relpath(imported.file or "")
    server = f" from {printable(imported.server)}" if imported.server else ""
    verb = "updated" if imported.replaced else "wrote"
    print_line(
        f"{click.style(DONE, fg=GOOD)} {verb} {printable(file)}: {plural(len(imported.actions), 'action')}{server}"
        f" (MCP {printable(imported.protocol)})"
    )
    for change in imported.changes:
        print_line(f"  {click.style(printable(change), fg=DOUBTFUL)}")
    for note in imported.notes:
        print_line(f"  {printable(note)}")
    print_line(f"  review its contracts, then run `gert tool check {printable(imported.name)}`")


def import_json(imported: ImportedFile) -> dict[str, Any]:
    """The result of an import as JSON; the file itself is included if it was not written."""
    said: dict[str, Any] = msgspec.to_builtins(imported)
    if imported.file is not None:
        del said["text"]
    return said


def _names(found: FoundTool) -> str:
    names = [action.name for action in found.actions]
    more = f", … {len(names) - _MOST_ACTIONS} more" if len(names) > _MOST_ACTIONS else ""
    return ", ".join(names[:_MOST_ACTIONS]) + more


def _highest(found: FoundTool) -> tuple[str, str | None]:
    risks = [risk_of(action.contract) for action in found.actions]
    word = max(risks).word if risks else "-"
    return word, RISK_COLOURS.get(word)
