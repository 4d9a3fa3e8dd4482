"""`gert tool`: write, try, list, show, check and import tools."""

import asyncio
import os

import click

from gert.ecosystem.host.tools.find_tools import find_tools
from gert.ecosystem.surfaces.cli.commands.tools.tool_new import new, try_
from gert.ecosystem.surfaces.cli.render.output import print_error, print_json, print_line
from gert.errors import Exit, UsageError
from gert.kernel.foundation.text import printable

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(epilog="Example: gert tool import --mcp 'uvx mcp-server-time' --name time")
def command() -> None:
    """Write, try, list, show, check and import tools.

    A tool is a `NAME.tool.yaml` file. A runbook finds it in `tools/` beside itself, in the project, or in the working
    directory.
    """


@command.command(name="list", epilog="Example: gert tool list --json")
@click.argument("names", nargs=-1, metavar="[FILES|DIRS]...")
@_as_json
def list_command(names: tuple[str, ...], as_json: bool) -> int:
    """List the tools of the project: where they are, how they are called, and the risk of their actions."""
    from gert.ecosystem.surfaces.cli.render.authoring.tool_text import print_tools

    found = find_tools(names)
    if as_json:
        print_json({"tools": [each.as_json() for each in found]})
    elif not found:
        print_line("no tools: a tool is a file `tools/NAME.tool.yaml`")
    else:
        print_tools(found)
    return Exit.DONE


@command.command(epilog="Example: gert tool show kubectl delete_pod")
@click.argument("name", metavar="NAME|FILE")
@click.argument("action", required=False, metavar="[ACTION]")
@_as_json
def show(name: str, action: str | None, as_json: bool) -> int:
    """Show a tool: its program or server, and the contract and risk of each action."""
    from gert.ecosystem.surfaces.cli.render.authoring.tool_text import print_action, print_tool
    from gert.kernel.foundation.names import suggestion

    [found, *others] = find_tools([name])
    if others:
        raise UsageError(f"`{name}` is a folder with several tools", hint="name one of them, or use `gert tool list`")
    actions = found.actions
    if action is not None:
        actions = [each for each in actions if each.name == action]
        if not actions:
            hint = (
                suggestion(action, [each.name for each in found.actions])
                or f"run `gert tool show {name}` to list its actions"
            )
            raise UsageError(f"the tool `{found.name}` has no action `{action}`", hint=hint)
    if as_json:
        print_json(found.as_json() | {"actions": [each.as_json() for each in actions]})
        return Exit.DONE
    print_tool(found)
    for each in actions:
        print_line()
        print_action(each)
    return Exit.DONE


@command.command(epilog="Example: gert tool check time --json")
@click.argument("names", nargs=-1, metavar="[NAMES|FILES|DIRS]...")
@click.option("--offline", is_flag=True, help="Start and call no MCP server.")
@_as_json
def check(names: tuple[str, ...], offline: bool, as_json: bool) -> int:
    """Check tools: validate the file, find its program or connect to its MCP server, and compare what was imported.

    Without names, gert checks every tool of the project.
    """
    from gert.ecosystem.host.tools.check_tools import check_tool
    from gert.ecosystem.surfaces.cli.render.authoring.tool_text import print_check

    found = find_tools(names)
    results = []
    for each in found:
        result = asyncio.run(check_tool(each, os.environ, connect=not offline))
        results.append(result)
        if not as_json:
            print_check(result)
    is_ok = all(each.is_ok for each in results)
    if as_json:
        print_json({"ok": is_ok, "tools": [each.as_json() for each in results]})
    elif not results:
        print_line("no tools: a tool is a file `tools/NAME.tool.yaml`")
    return Exit.DONE if is_ok else Exit.REFUSED


@command.command(name="import", epilog="Example: gert tool import --mcp 'uvx mcp-server-git --repository .' --name git")
@click.option("--mcp", "place", required=True, metavar="CMD|URL", help="Command or URL of an MCP server.")
@click.option("--name", metavar="NAME", help="Name of the tool (default: from the command or URL).")
@click.option("-o", "--output", metavar="FILE", help="File to write; `-` prints it (default: tools/NAME.tool.yaml).")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="HTTP header to send; `${VARIABLE}` takes a secret from the environment. May be repeated.",
)
@_as_json
def import_command(place: str, name: str | None, output: str | None, headers: tuple[str, ...], as_json: bool) -> int:
    """Import the tools of an MCP server: write a tool file with typed inputs and outputs, and a contract to review.

    gert starts CMD without a shell, or connects to URL, and lists its tools; it calls none of them. The contracts
    follow the server's annotations; where it gives none, effects and writes are unknown, which is the highest risk.
    Importing again keeps the contracts that you reviewed.
    """
    from gert.ecosystem.host.tools.import_mcp import import_mcp
    from gert.ecosystem.surfaces.cli.render.authoring.tool_text import import_json, print_import

    imported = asyncio.run(import_mcp(place, name=name, output=output, headers=headers, environ=os.environ))
    if as_json:
        print_json(import_json(imported))
    elif imported.file is None:
        click.echo("".join(f"{printable(line)}\n" for line in imported.text.splitlines()), nl=False)
        for note in imported.notes:
            print_error(note)
    else:
        print_import(imported)
    return Exit.DONE


command.add_command(new)
command.add_command(try_)
