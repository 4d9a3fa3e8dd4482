"""`gert tool new` and `gert tool try`: write a tool file, and run one of its actions."""

import os
import shlex
import sys

import click
import msgspec

from gert.ecosystem.host.config.variables import given_values
from gert.ecosystem.surfaces.cli.commands.runs.exec import checked_actor, drive
from gert.ecosystem.surfaces.cli.live.view import make_view
from gert.ecosystem.surfaces.cli.render.output import print_json, print_warning
from gert.errors import Exit, UsageError
from gert.kernel.foundation.text import printable

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.command(
    "new", epilog="Example: gert tool new kubectl --effects network --writes none -- kubectl get pods -n NAMESPACE"
)
@click.argument("name", metavar="NAME")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--example", "examples", multiple=True, metavar="'COMMAND'", help="Another example. May be repeated.")
@click.option("--from-help", is_flag=True, help="Run `PROGRAM --help` and read its commands and options.")
@click.option("--program", metavar="PROGRAM", help="Program of the tool (default: that of the example, or NAME).")
@click.option("--action", metavar="ACTION", help="Name of the action of COMMAND (default: its subcommands, or `run`).")
@click.option("--effects", metavar="LIST", help="Effects of every action, separated by commas; `none` for none.")
@click.option("--writes", metavar="LIST", help="What every action writes, separated by commas; `none` for nothing.")
@click.option("--idempotent", is_flag=True, help="Calling an action twice does no more than calling it once.")
@click.option("-o", "--output", metavar="FILE", help="File to write; `-` prints it (default: tools/NAME.tool.yaml).")
@_as_json
def new(
    name: str,
    command: tuple[str, ...],
    examples: tuple[str, ...],
    from_help: bool,
    program: str | None,
    action: str | None,
    effects: str | None,
    writes: str | None,
    idempotent: bool,
    output: str | None,
    as_json: bool,
) -> int:
    """Write a tool file from an example command, or from the `--help` of a program; add an action to an existing one.

    In an example, words that stand for values become inputs: `<name>` or `{name}`, also within a word, or `<name=30>`
    with a default; if there are none of them, words in capitals such as NAMESPACE. gert does not run the example.
    With --from-help it runs `PROGRAM --help` and, if that lists the command of an example, `PROGRAM COMMAND --help`;
    nothing else. It prints each command before it runs it, gives it no input, and ends it after 10 seconds. Effects
    are unknown unless --effects and --writes say what they are: review the file before you rely on it.
    """
    from gert.ecosystem.host.tools.new_tool import Claims, new_tool
    from gert.ecosystem.surfaces.cli.render.authoring.try_text import print_new

    made = new_tool(
        name,
        [*([command] if command else []), *map(_split, examples)],
        environ=os.environ,
        from_help=from_help,
        program=program,
        action=action,
        claims=Claims(effects=_list(effects), writes=_list(writes), idempotent=idempotent),
        output=output,
        announce=lambda words: click.echo(f"running: {printable(words)}", err=True),
    )
    if as_json:
        said = msgspec.to_builtins(made)
        print_json(said if made.file is None else {key: value for key, value in said.items() if key != "text"})
    elif made.file is None:
        click.echo("".join(f"{printable(line)}\n" for line in made.text.splitlines()), nl=False)
    else:
        print_new(made)
    return Exit.DONE


@click.command("try", epilog="Example: gert tool try disk usage --input path=/var")
@click.argument("tool", metavar="TOOL|FILE")
@click.argument("action", required=False, metavar="[ACTION]")
@click.option("--var", "variables", multiple=True, metavar="NAME=TEXT", help="Set an input to text.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Set an input to a YAML value; @FILE reads a file."
)
@click.option("--dry-run", is_flag=True, help="Show the command and the decision; run nothing but a preview.")
@click.option("--wait", "waits", is_flag=True, help="Wait for approvals from elsewhere, such as `gert approve`.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user).")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder to the floor.")
@click.option("--config", metavar="FILE", help="Settings file to read in addition to the project's.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@_as_json
def try_(
    tool: str,
    action: str | None,
    variables: tuple[str, ...],
    inputs: tuple[str, ...],
    dry_run: bool,
    waits: bool,
    actor: str | None,
    policies: tuple[str, ...],
    config: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Run one ACTION of a tool; show its command, what it printed, what was extracted, and whether its contract holds.

    The same policies apply as in a run, and the run is recorded. gert asks for approvals at the terminal; with --wait
    it prints their tickets instead. ACTION may be left out if the tool has only one.
    """
    from gert.ecosystem.host.tools.try_action import TryOptions, try_action
    from gert.ecosystem.surfaces.cli.render.authoring.try_text import print_tried

    options = TryOptions(
        tool=tool,
        action=action,
        given=given_values(variables, inputs, ()),
        dry_run=dry_run,
        waits=waits,
        actor=checked_actor(actor),
        policies=policies,
        config=config,
        state_dir=state_dir,
    )
    # The terminal's prompt says what is asked for; a run that waits has to say whom to ask.
    view = make_view(stream=sys.stderr, verbose=False, quiet=False) if waits and sys.stderr is not None else None
    observers = [view] if view is not None else []
    tried = drive(try_action(options, os.environ, observers, print_warning), observers)
    if as_json:
        print_json({**msgspec.to_builtins(tried, enc_hook=str), "contract_holds": tried.holds})
    else:
        print_tried(tried)
    if tried.status not in ("success", "skipped") or (tried.status == "skipped" and tried.failure is not None):
        return Exit.NOT_COMPLETED
    return Exit.DONE if tried.holds else Exit.REFUSED


def _split(example: str) -> list[str]:
    try:
        return shlex.split(example)
    except ValueError as problem:
        raise UsageError(f"`{example}` cannot be split into words: {str(problem).lower()}") from None


def _list(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text.strip() == "none" else tuple(each.strip() for each in text.split(",") if each.strip())
