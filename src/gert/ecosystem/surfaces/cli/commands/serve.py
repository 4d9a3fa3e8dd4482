"""`gert serve`: serve an editor over JSON-RPC on standard input and output."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from gert.ecosystem.host.operations.access import open_access
from gert.ecosystem.surfaces.cli.render.output import print_json

if TYPE_CHECKING:
    from gert.ecosystem.surfaces.serve.service import Service


@click.command(name="serve", epilog="Example: gert serve --root .")
@click.option("--root", metavar="DIR", default=".", show_default=True, help="Serve only files in this folder.")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy to the floor of every run.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--db", metavar="FILE", help="Record runs in this SQLite ledger.")
@click.option(
    "--dsn", metavar="DSN", help="Record runs in this Postgres ledger; env:NAME reads the DSN from a variable."
)
@click.option("--schema", is_flag=True, help="Print the methods of this version as JSON and exit.")
def command(schema: bool, **place: Any) -> int:
    """Serve an editor: JSON-RPC 2.0, one message per line, on standard input and output.

    It ends when the editor closes its input. Runs have processes of their own and continue.
    """
    from gert.ecosystem.surfaces.serve.service import Service, reference

    if schema:
        print_json(reference())
        return 0
    asyncio.run(_serve(Service(open_access(**place))))
    return 0


async def _serve(service: "Service") -> None:
    from gert.ecosystem.host.operations.parent import while_parent_lives
    from gert.ecosystem.rpc.own_stdio import own_stdio

    async with own_stdio(service.handlers) as peer:
        service.connect(peer)
        try:
            await while_parent_lives(peer.ended())
        finally:
            await service.close()
