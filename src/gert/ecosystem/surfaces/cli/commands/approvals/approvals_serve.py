"""`gert approvals serve`: the page, callbacks and Slack's buttons for every open ticket."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import click

from gert.ecosystem.surfaces.cli.render.output import print_error, print_json_line, print_line
from gert.kernel.foundation.text import printable

if TYPE_CHECKING:
    from gert.ecosystem.host.channels.serve_tickets import Served


@click.command("serve", epilog="Example: gert approvals serve --listen 127.0.0.1:8765")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; as configured, or 127.0.0.1:8765, otherwise.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: that of the project or the user).")
@click.option("--db", metavar="FILE", help="SQLite ledger.")
@click.option("--dsn", metavar="DSN", help="Postgres ledger; env:NAME for a variable with its address.")
@click.option("--config", metavar="FILE", help="Settings that go before those of the project.")
@click.option("--json", "as_json", is_flag=True, help="Print each address as a line of JSON.")
def command(
    listen: str | None, state_dir: str | None, db: str | None, dsn: str | None, config: str | None, as_json: bool
) -> int:
    """Serve the page of every open ticket, signed callbacks, and Slack's buttons, until Ctrl-C.

    Every person with the address of a page can answer in any name. It is printed here, and sent over the channels that
    are configured. Put a proxy that knows people, or at least https, in front of it before others reach it.
    """
    # Imported here: listing tickets must not load a server.
    from gert.ecosystem.host.channels.page_urls import parse_listen
    from gert.ecosystem.host.channels.serve_tickets import ServeOptions, serve_tickets

    chosen = parse_listen(listen) if listen is not None else None
    if chosen is not None and not chosen.is_local:
        warning = click.style("warning:", fg="yellow")
        click.echo(f"{warning} others can reach {chosen} over plain http, and so can read links on their way", err=True)
    show = _Lines(as_json=as_json)
    options = ServeOptions(listen=chosen, state_dir=state_dir, db=db, dsn=dsn, config=config)
    asyncio.run(serve_tickets(options, os.environ, show.started, show.opened, lambda problem: print_error(*problem)))
    return 0


class _Lines:
    """Says where the server is, and the page of each ticket."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def started(self, served: "Served") -> None:
        """The server is there."""
        self._line(
            {"listening": served.address, "base_url": served.base_url, "slack": served.slack},
            f"serving approvals at {served.base_url} (Ctrl-C ends it)",
        )

    def opened(self, ticket_id: str, url: str, title: str) -> None:
        """A ticket can be answered."""
        self._line({"ticket_id": ticket_id, "page_url": url}, f"{printable(title)}\n  {printable(url)}")

    def _line(self, document: dict[str, object], text: str) -> None:
        if self._as_json:
            print_json_line(document)
        else:
            print_line(text)
        sys.stdout.flush()
