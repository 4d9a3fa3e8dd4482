"""`gert approvals`: which requests for approval wait, and exactly what each would let run."""

import os

import click

from gert.ecosystem.host.approvals.answers import tickets_here
from gert.ecosystem.host.approvals.ticket_document import ticket_document
from gert.ecosystem.surfaces.cli.commands.approvals_serve import command as serve
from gert.ecosystem.surfaces.cli.render.output import complain, say, say_json, say_table
from gert.ecosystem.surfaces.cli.render.ticket_text import HEADINGS, about, row, say_lines
from gert.errors import GertError

_state_dir = click.option(
    "--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(epilog="Example: gert approvals list")
def command() -> None:
    """List and show requests for approval.

    `gert approve` and `gert reject` answer them.
    """


@command.command("list", epilog="Example: gert approvals list --all")
@click.option("--all", "everything", is_flag=True, help="Also those that are closed.")
@_state_dir
@_as_json
def list_(everything: bool, state_dir: str | None, as_json: bool) -> int:
    """List the tickets that wait for an answer, oldest first."""
    tickets = tickets_here(state_dir, os.environ)
    problems: list[GertError] = []
    found = tickets.all(*(() if everything else ("pending",)), on_problem=problems.append)
    now = tickets.clock()
    if as_json:
        say_json([ticket_document(file, now) for file in found])
    elif found:
        headings = (*HEADINGS, "status") if everything else HEADINGS
        say_table(headings, [row(file, now, with_status=everything) for file in found])
    else:
        say("there are no tickets" if everything else "nothing waits for approval")
    for problem in problems:
        complain(problem.message, problem.hint)
    return 1 if problems else 0


@command.command(epilog="Example: gert approvals show 20260228-143000-123-abc123")
@click.argument("ticket", metavar="TICKET")
@_state_dir
@_as_json
def show(ticket: str, state_dir: str | None, as_json: bool) -> int:
    """Show exactly what would run, which rule asks, and what was answered.

    TICKET is the id of a ticket, or as much of it as no other has.
    """
    tickets = tickets_here(state_dir, os.environ)
    file = tickets.get(tickets.find(ticket))
    now = tickets.clock()
    if as_json:
        say_json(ticket_document(file, now))
    else:
        say_lines(about(file, now))
    return 0


command.add_command(serve)
