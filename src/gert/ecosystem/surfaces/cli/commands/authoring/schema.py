"""`gert schema`: the JSON Schema of each document kind and of results, for editors and other tools."""

from typing import Final

import click

from gert.ecosystem.surfaces.cli.render.output import print_json
from gert.kernel.runbook.schema import SCHEMA_NAMES, schema_of

RESULT: Final = "result"


@click.command(epilog="Example: gert schema tool > tool.schema.json")
@click.argument("kind", type=click.Choice([*SCHEMA_NAMES, RESULT]), default="runbook")
def command(kind: str) -> int:
    """Print the JSON Schema (Draft 2020-12) of KIND (default: `runbook`).

    `result` is what `gert exec --json` prints, and every error with --json.

    In VS Code with the YAML extension, point `yaml.schemas` at the file, or begin a document with
    `# yaml-language-server: $schema=runbook.schema.json`.
    """
    if kind == RESULT:
        from gert.ecosystem.surfaces.cli.render.result_schema import result_schema

        print_json(result_schema())
    else:
        print_json(schema_of(kind))
    return 0
