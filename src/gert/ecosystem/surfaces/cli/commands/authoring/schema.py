"""`gert schema`: the JSON Schema of each document kind, for editors and other tools."""

import click

from gert.ecosystem.surfaces.cli.render.output import print_json
from gert.kernel.runbook.schema import SCHEMA_NAMES, schema_of


@click.command(epilog="Example: gert schema tool > tool.schema.json")
@click.argument("kind", type=click.Choice(SCHEMA_NAMES), default="runbook")
def command(kind: str) -> int:
    """Print the JSON Schema (Draft 2020-12) of KIND (default: `runbook`).

    In VS Code with the YAML extension, point `yaml.schemas` at the file, or begin a document with
    `# yaml-language-server: $schema=runbook.schema.json`.
    """
    print_json(schema_of(kind))
    return 0
