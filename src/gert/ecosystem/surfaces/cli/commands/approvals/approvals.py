"""`gert approvals`: list and show requests for approval."""

import asyncio
import os
from functools import partial

import click

from gert.ecosystem.host.approvals.list_tickets import Listed, list_tickets, show_ticket, tickets_place
from gert.ecosystem.host.approvals.respond import TicketView
from gert.ecosystem.host.approvals.ticket_document import resume_command, ticket_document
from gert.ecosystem.surfaces.cli.commands.approvals.approvals_serve import command as serve
from gert.ecosystem.surfaces.cli.options import LedgerChoice, ledger_options, named_run
from gert.ecosystem.surfaces.cli.render.governance.ticket_text import HEADINGS, SPARE, about, due_text, row
from gert.ecosystem.surfaces.cli.render.output import print_error, print_json, print_line, print_lines
from gert.ecosystem.surfaces.cli.render.table import print_table


@click.group(epilog="Example: gert approvals list")
def command() -> None:
    """List and show requests for approval.

    `gert approve` and `gert reject` respond to them.
    """


_DROP_BOX = click.option("--drop-box", metavar="DIR", help="Requests in this drop box of another user.")


@command.command("list", epilog="Example: gert approvals list --all")
@click.option("--all", "everything", is_flag=True, help="Also list closed tickets.")
@_DROP_BOX
@partial(named_run, is_required=False)
@ledger_options
def list_(everything: bool, drop_box: str | None, run_id: str | None, ledger: LedgerChoice, as_json: bool) -> int:
    """List the open tickets, oldest first; also expired ones until their run is resumed.

    RUN is the id of a run, a unique prefix of it, or `last` (default: all runs).
    """
    place = tickets_place(*ledger, drop_box, os.environ, run_id)
    found = asyncio.run(list_tickets(place, os.environ, run_id, with_closed=everything))
    if as_json:
        print_json([ticket_document(view, found.now, _resume(found, view)) for view in found.views])
    elif found.views:
        headings = (*HEADINGS, "status") if everything else HEADINGS
        print_table(headings, [row(view, found.now, with_status=everything) for view in found.views], SPARE)
        for view in found.views:
            if (resume := _resume(found, view)) is not None:
                said = due_text(resume, None if view.is_answered else view.ticket.expires_at)
                print_line(f"{view.id} {'is ' if view.is_answered else ''}{said}")
    else:
        print_line("there are no tickets" if everything else "nothing waits for approval")
    for problem in found.problems:
        print_error(problem.message, problem.hint)
    return 1 if found.problems else 0


@command.command(epilog="Example: gert approvals show 20260228-143000-123-abc123")
@click.argument("ticket", metavar="TICKET")
@_DROP_BOX
@ledger_options
def show(ticket: str, drop_box: str | None, ledger: LedgerChoice, as_json: bool) -> int:
    """Show what would run, which rule requires approval, and the responses.

    TICKET is the id of a ticket, a unique prefix of it, or `last`: that of the run that was written to last.
    """
    place = tickets_place(*ledger, drop_box, os.environ)
    found = asyncio.run(show_ticket(place, os.environ, ticket))
    [view] = found.views
    if as_json:
        print_json(ticket_document(view, found.now, _resume(found, view)))
    else:
        print_lines(about(view, found.now, _resume(found, view)), folds=True)
    return 0


def _resume(found: Listed, view: TicketView) -> str | None:
    """The command that resumes the run of an answered or expired ticket, where no process drives it."""
    inputs = found.undriven.get(view.resumes or "")
    is_left = view.status == "pending" and view.is_due(found.now)
    return resume_command(view, f"{found.words}{inputs}") if is_left and inputs is not None else None


command.add_command(serve)
