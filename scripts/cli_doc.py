"""The page docs/cli.md, from the commands themselves."""

from collections.abc import Iterator
from importlib import import_module

import click

from gert.ecosystem.surfaces.cli.main import COMMANDS, group

HEADER = """# Command line

Every command, as its `--help` prints it. This page is generated from the commands by `make docs`.
[Results and exit codes](results.md) explains what commands print and how they exit.

| Command | Does |
|---|---|
"""

# Programs beside `gert` that people start.
PROGRAMS = {
    "gert-tui": "gert.ecosystem.surfaces.tui.main",
    "gert-mcp": "gert.ecosystem.surfaces.mcp.main",
    "gert-runner": "gert.ecosystem.surfaces.runner.command",
}
WIDTH = 100


def page() -> str:
    """Give the whole page."""
    rows = [f"| [`gert {name}`](#gert-{name}) | {about} |" for name, (_, about) in COMMANDS.items()]
    programs = {name: found for name, place in PROGRAMS.items() if (found := _program(place)) is not None}
    rows += [f"| [`{name}`](#{name}) | {_first_line(program)} |" for name, program in programs.items()]
    sections = [_sections(group, "gert", None), *(_sections(program, name, None) for name, program in programs.items())]
    return HEADER + "\n".join(rows) + "\n" + "".join(text for each in sections for text in each)


def _program(place: str) -> click.Command | None:
    return next((value for value in vars(import_module(place)).values() if isinstance(value, click.Command)), None)


def _first_line(command: click.Command) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _sections(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    settings = {**command.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, **settings)
    if path != "gert":
        level = "##" if path.count(" ") <= 1 else "###"
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        yield f"\n{level} `{path}`\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _sections(inner, f"{path} {name}", context)
