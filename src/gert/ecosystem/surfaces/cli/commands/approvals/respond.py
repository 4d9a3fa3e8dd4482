"""`gert approve` and `gert reject`: respond to a request for approval."""

import asyncio
import os
from typing import Any, Final

import click

from gert.ecosystem.host.approvals.respond import Verdict, respond
from gert.ecosystem.host.approvals.ticket_document import answered_document
from gert.ecosystem.host.runs.place import Place, place_for
from gert.ecosystem.surfaces.cli.render.governance.ticket_text import outcome, say_request
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line, print_lines

_OPTIONS: Final = (
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--drop-box", metavar="DIR", help="Respond to a request in this drop box of another user."),
    click.option("--dsn", metavar="DSN", help="Postgres ledger with the ticket; env:NAME for a variable."),
    click.option("--db", metavar="FILE", help="SQLite ledger with the ticket."),
    click.option("--state-dir", metavar="DIR", help="State directory (default: that of the project or the user)."),
    click.option("--key-id", metavar="ID", help="Id of the key (default: from its variable or file name)."),
    click.option("--key", metavar="NAME|FILE", help="Sign with the key in this environment variable or file."),
    click.option("--reason", metavar="TEXT", help="Reason to record with the response."),
    click.option("--as", "approver", metavar="WHO", help="Approver to record (default: the current user)."),
    click.argument("ticket", metavar="TICKET"),
)


def _command(name: str, about: str, *, approved: bool, example: str) -> click.Command:
    """The two commands have the same options, and respond in the same way."""

    def answer(state_dir: str | None, db: str | None, dsn: str | None, as_json: bool, ticket: str, **said: Any) -> int:
        # A drop box needs no ledger, and its approver may have none.
        place = place_for(state_dir, db, os.environ, dsn) if said["drop_box"] is None else Place("")
        return _respond(Verdict(ticket=ticket, approved=approved, **said), place, as_json=as_json)

    for option in _OPTIONS:
        answer = option(answer)
    epilog = f"Example: gert {name} 20260228-143000-123-abc123 {example}"
    return click.command(name, help=about, epilog=epilog)(answer)


approve = _command(
    "approve",
    """Approve a request of a run; `gert approvals show TICKET` shows it first.

    TICKET is the id of a ticket, a unique prefix of it, or `last`: the one that the last run waits for.
    An approval that would not count is refused.
    """,
    approved=True,
    example="--as ann --reason 'checked with ops'",
)

reject = _command(
    "reject",
    """Reject a request of a run; one rejection closes the ticket.

    TICKET is the id of a ticket, a unique prefix of it, or `last`: the one that the last run waits for.
    A rejection that would not count is refused.
    """,
    approved=False,
    example="--as ann --reason 'not during the freeze'",
)


def _respond(verdict: Verdict, place: Place, *, as_json: bool) -> int:
    """Respond, and show the result."""
    given = asyncio.run(respond(verdict, place, os.environ, (lambda _: None) if as_json else say_request))
    words = None if verdict.drop_box is not None else place.words
    if as_json:
        print_json(answered_document(given, verdict.approved, words))
    else:
        print_line()
        print_lines(outcome(given.answered, verdict.approved, words, is_unverified=given.is_unverified))
    return 0 if given.answered.objection is None else 1
