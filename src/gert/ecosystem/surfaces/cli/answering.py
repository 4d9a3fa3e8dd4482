"""What `gert approve` and `gert reject` have in common: one answer, put to a ticket."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gert.ecosystem.approvals.terminal import summary
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.approvals.tickets import Answered
from gert.ecosystem.host.approvals import Answer, give
from gert.ecosystem.surfaces.cli.output import say, say_json
from gert.ecosystem.surfaces.cli.ticket_text import outcome, resume_command, say_lines

_Command = TypeVar("_Command", bound=Callable[..., Any])


def takes_answer(command: _Command) -> _Command:
    """The options of an answer, the same for yes and no."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option(
            "--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise."
        ),
        click.option("--key-id", metavar="ID", help="What the key is called; its variable or file says otherwise."),
        click.option("--key", metavar="NAME|FILE", help="Sign with the key in this environment variable or file."),
        click.option("--reason", metavar="TEXT", help="Why; it is recorded with the answer."),
        click.option("--as", "approver", metavar="WHO", help="Who answers; the user of this machine when left out."),
        click.argument("ticket", metavar="TICKET"),
    ):
        command = option(command)
    return command


def put(
    ticket: str,
    approved: bool,
    approver: str | None,
    reason: str | None,
    key: str | None,
    key_id: str | None,
    state_dir: str | None,
    *,
    as_json: bool,
) -> int:
    """Put an answer, and say what it came to."""
    answer = Answer(ticket=ticket, approved=approved, approver=approver, reason=reason, key=key, key_id=key_id)
    given = give(answer, state_dir, os.environ, (lambda _: None) if as_json else _show)
    answered = given.answered
    if as_json:
        say_json({**_document(answered, approved, state_dir), "signature_checked_here": not given.is_unconfirmed})
    else:
        say()
        say_lines(outcome(answered, approved, state_dir))
        if given.is_unconfirmed and answered.objection is None:
            say("no key to verify yours with is set here: whether the signature holds, the run decides")
    return 0 if answered.objection is None else 1


def _show(file: TicketFile) -> None:
    say_lines(line for line in summary(file.ticket.request) if line)


def _document(answered: Answered, approved: bool, state_dir: str | None) -> dict[str, Any]:
    file = answered.file
    return {
        "ticket_id": file.id,
        "run_id": file.run.run_id,
        "approved": approved,
        "counted": answered.objection is None,
        "objection": answered.objection,
        "status": file.status,
        "approvals": file.approvals,
        "needed": file.needed,
        "resume": resume_command(file, state_dir) if file.status != "pending" else None,
    }
