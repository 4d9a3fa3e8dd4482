"""`gert version`: print the version."""

import click

from gert._version import __version__
from gert.ecosystem.host.config.machine.version import commit, version_line
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line


@click.command(epilog="Example: gert version --json")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(as_json: bool) -> int:
    """Print the version and the commit gert was built from."""
    if as_json:
        print_json({"version": __version__, "commit": commit()})
    else:
        print_line(version_line())
    return 0
