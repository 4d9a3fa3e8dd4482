"""`gert schema`: the JSON Schema of each document kind and of results, for editors and other tools."""

from typing import Final

import click

from gert.ecosystem.surfaces.cli.render.output import print_json
from gert.errors import UsageError
from gert.kernel.foundation.names import suggestion
from gert.kernel.runbook.schema import SCHEMA_NAMES, schema_of

RESULT: Final = "result"


@click.command(epilog="Example: gert schema result run list")
@click.argument("kind", type=click.Choice([*SCHEMA_NAMES, RESULT]), default="runbook")
@click.argument("command_words", nargs=-1, metavar="[COMMAND]")
def command(kind: str, command_words: tuple[str, ...]) -> int:
    """Print the JSON Schema (Draft 2020-12) of KIND (default: `runbook`).

    `result` is what COMMAND prints with --json (default: `exec`), or an error.

    In VS Code with the YAML extension, point `yaml.schemas` at the file, or begin a document with
    `# yaml-language-server: $schema=runbook.schema.json`.
    """
    if kind != RESULT:
        if command_words:
            raise UsageError(f"`gert schema {kind}` takes no command", hint="pass one after `result`")
        print_json(schema_of(kind))
        return 0
    from gert.ecosystem.surfaces.cli.results import RESULTS, result_schema  # it loads every command's part of the host

    name = " ".join(command_words) or "exec"
    if name not in RESULTS:
        hint = suggestion(name, RESULTS) or "`gert --help` lists the commands"
        raise UsageError(f"there is no command `{name}` that prints a result with --json", hint=hint)
    print_json(result_schema(name))
    return 0
