"""What `gert approve` and `gert reject` have in common: one answer, put to a ticket."""

import os
from typing import Any, Final

import click

from gert.ecosystem.approvals.terminal import summary
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.host.approvals.answers import Answer, Given, give
from gert.ecosystem.surfaces.cli.render.output import say, say_json
from gert.ecosystem.surfaces.cli.render.ticket_text import outcome, resume_command, say_lines

_OPTIONS: Final = (
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise."),
    click.option("--key-id", metavar="ID", help="What the key is called; its variable or file says otherwise."),
    click.option("--key", metavar="NAME|FILE", help="Sign with the key in this environment variable or file."),
    click.option("--reason", metavar="TEXT", help="Why; it is recorded with the answer."),
    click.option("--as", "approver", metavar="WHO", help="Who answers; the user of this machine when left out."),
    click.argument("ticket", metavar="TICKET"),
)


def answering(name: str, about: str, *, approved: bool, example: str) -> click.Command:
    """The command that says yes, or the one that says no: the same options, and the same way to answer."""

    def answer(state_dir: str | None, as_json: bool, **said: Any) -> int:
        return _put(Answer(approved=approved, **said), state_dir, as_json=as_json)

    for option in _OPTIONS:
        answer = option(answer)
    epilog = f"Example: gert {name} 20260228-143000-123-abc123 {example}"
    return click.command(name, help=about, epilog=epilog)(answer)


def _put(answer: Answer, state_dir: str | None, *, as_json: bool) -> int:
    """Put an answer, and say what it came to."""
    given = give(answer, state_dir, os.environ, (lambda _: None) if as_json else _show)
    answered = given.answered
    if as_json:
        say_json(_document(given, answer.approved, state_dir))
    else:
        say()
        say_lines(outcome(answered, answer.approved, state_dir, is_unverified=given.is_unverified))
    return 0 if answered.objection is None else 1


def _show(file: TicketFile) -> None:
    say_lines(line for line in summary(file.ticket.request) if line)


def _document(given: Given, approved: bool, state_dir: str | None) -> dict[str, Any]:
    file, objection = given.answered.file, given.answered.objection
    return {
        "ticket_id": file.id,
        "run_id": file.run.run_id,
        "approved": approved,
        "counted": objection is None and not given.is_unverified,
        "objection": objection,
        "status": file.status,
        "approvals": file.approvals,
        "min_approvers": file.needed,
        "resume": resume_command(file, state_dir) if file.status != "pending" or given.is_unverified else None,
        "signature_checked_here": not given.is_unverified,
    }
