"""`gert input`: list the configured providers of inputs, and try them outside a run."""

import asyncio
import os
from typing import Any

import click

from gert.ecosystem.surfaces.cli.render.output import print_json, print_line
from gert.ecosystem.surfaces.cli.render.table import Cell, print_table
from gert.errors import Exit
from gert.kernel.foundation.values import show

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_config = click.option("--config", metavar="FILE", help="Read this configuration beside those of the project.")


@click.group(epilog="Example: gert input check cmdb.server.hostname")
def command() -> None:
    """List and try the providers that inputs with `from: provider/NAME.PATH` are read from.

    Providers are configured under `providers` in `gert-project.yaml`, `gert-config.yaml` or `.gert/config.yaml`.
    """


@command.command("list", epilog="Example: gert input list --json")
@_config
@_as_json
def list_(config: str | None, as_json: bool) -> int:
    """List the providers that are configured for this folder; none of them is started."""
    from gert.ecosystem.host.run.check_inputs import list_providers

    entries = list_providers(config, os.environ)
    if as_json:
        print_json({"providers": entries})
    elif entries:
        rows = [
            [
                each.name,
                each.program or (each.problem or "", "red"),
                f"{each.timeout:g} s",
                ", ".join(f"{name}{'' if is_set else ' (not set)'}" for name, is_set in each.variables.items()),
                os.path.relpath(each.file),
            ]
            for each in entries
        ]
        print_table(
            ("provider", "program", "time limit", "credentials", "configured in"),
            rows,
            spare=("time limit", "configured in"),
        )
    else:
        print_line("no providers are configured")
    return Exit.DONE


@command.command(epilog="Example: gert input check pagerduty.incident.title runbooks/triage.yaml")
@click.argument("names", nargs=-1, required=True, metavar="BINDING|RUNBOOK...")
@_config
@_as_json
def check(names: tuple[str, ...], config: str | None, as_json: bool) -> int:
    """Ask providers for values, as a run would, without a run.

    A BINDING is `NAME.PATH` or `provider/NAME.PATH`; for a RUNBOOK, gert asks for every input that is bound to a
    provider. Each provider gets one call. Nothing is recorded, and the values of secret inputs are not shown.
    """
    from gert.ecosystem.host.run.check_inputs import check_inputs

    results = asyncio.run(check_inputs(names, config, os.environ))
    if as_json:
        print_json({"inputs": [_document(each.input, each.source, each.value, each.problem) for each in results]})
    else:
        rows: list[list[Cell]] = [
            [
                each.input,
                each.source,
                show(each.value) if each.problem is None else (each.problem.message, "red"),
            ]
            for each in results
        ]
        print_table(("input", "source", "value"), rows)
    return Exit.DONE if all(each.problem is None for each in results) else Exit.REFUSED


def _document(name: str, source: str, value: Any, problem: Any) -> dict[str, Any]:
    if problem is None:
        return {"input": name, "source": source, "value": value}
    return {"input": name, "source": source, "problem": problem}
