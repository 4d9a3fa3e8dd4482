"""`gert approvals`: list and show requests for approval."""

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gert.ecosystem.host.approvals.ticket_document import ticket_document
from gert.ecosystem.host.approvals.ticket_ledger import NoLedger, TicketPlace, open_tickets
from gert.ecosystem.surfaces.cli.commands.approvals_serve import command as serve
from gert.ecosystem.surfaces.cli.render.output import print_error, print_json, print_line, print_table
from gert.ecosystem.surfaces.cli.render.ticket_text import HEADINGS, about, row, say_lines
from gert.errors import GertError

F = TypeVar("F", bound=Callable[..., Any])


def _of_ledger(function: F) -> F:
    """The options that name a ledger, and `--json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--dsn", metavar="DSN", help="Postgres ledger; env:NAME for a variable with its address."),
        click.option("--db", metavar="FILE", help="SQLite ledger."),
        click.option("--state-dir", metavar="DIR", help="State directory (default: that of the project or the user)."),
    ):
        function = option(function)
    return function


@click.group(epilog="Example: gert approvals list")
def command() -> None:
    """List and show requests for approval.

    `gert approve` and `gert reject` respond to them.
    """


@command.command("list", epilog="Example: gert approvals list --all")
@click.option("--all", "everything", is_flag=True, help="Also list closed tickets.")
@_of_ledger
def list_(everything: bool, state_dir: str | None, db: str | None, dsn: str | None, as_json: bool) -> int:
    """List the open tickets, oldest first."""
    return asyncio.run(_list(everything, TicketPlace(state_dir=state_dir, db=db, dsn=dsn), as_json=as_json))


async def _list(everything: bool, place: TicketPlace, *, as_json: bool) -> int:
    problems: list[GertError] = []
    try:
        async with open_tickets(place, os.environ) as tickets:
            found = await tickets.all(*(() if everything else ("pending",)), on_problem=problems.append)
            now = await tickets.time()
    except NoLedger:
        found = []
    if as_json:
        print_json([ticket_document(view, now) for view in found])
    elif found:
        headings = (*HEADINGS, "status") if everything else HEADINGS
        print_table(headings, [row(view, now, with_status=everything) for view in found])
    else:
        print_line("there are no tickets" if everything else "nothing waits for approval")
    for problem in problems:
        print_error(problem.message, problem.hint)
    return 1 if problems else 0


@command.command(epilog="Example: gert approvals show 20260228-143000-123-abc123")
@click.argument("ticket", metavar="TICKET")
@_of_ledger
def show(ticket: str, state_dir: str | None, db: str | None, dsn: str | None, as_json: bool) -> int:
    """Show what would run, which rule requires approval, and the responses.

    TICKET is the id of a ticket; a unique prefix is enough.
    """
    return asyncio.run(_show(ticket, TicketPlace(state_dir=state_dir, db=db, dsn=dsn), as_json=as_json))


async def _show(ticket: str, place: TicketPlace, *, as_json: bool) -> int:
    async with open_tickets(place, os.environ) as tickets:
        view = await tickets.get(await tickets.find(ticket))
        now = await tickets.time()
    if as_json:
        print_json(ticket_document(view, now))
    else:
        say_lines(about(view, now))
    return 0


command.add_command(serve)
