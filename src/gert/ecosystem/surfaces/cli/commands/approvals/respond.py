"""`gert approve` and `gert reject`: respond to requests for approval."""

import asyncio
import os
from typing import Any, Final

import click

from gert.ecosystem.host.approvals.respond import Given, TicketView, Verdict, respond, respond_to_each
from gert.ecosystem.host.approvals.ticket_document import answered_document
from gert.ecosystem.host.runs.place import Place, place_for
from gert.ecosystem.surfaces.cli.render.governance.ticket_text import following, outcome, say_request
from gert.ecosystem.surfaces.cli.render.output import error_document, print_error, print_json, print_line, print_lines
from gert.errors import Exit, GertError, UsageError, code_of, exit_of

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
    click.option("--all", "everything", is_flag=True, help="Respond to all open tickets of the run RUN."),
    click.argument("named", metavar="TICKET...", nargs=-1, required=True),
)


def _command(name: str, about: str, *, approved: bool, example: str) -> click.Command:
    """The two commands have the same options, and respond in the same way."""

    def answer(
        state_dir: str | None,
        db: str | None,
        dsn: str | None,
        as_json: bool,
        everything: bool,
        named: tuple[str, ...],
        **said: Any,
    ) -> int:
        # A drop box needs no ledger, and its approver may have none.
        place = place_for(state_dir, db, os.environ, dsn) if said["drop_box"] is None else Place("")
        verdict = Verdict(ticket=named[0], approved=approved, **said)
        if not everything and len(named) == 1:
            return _respond(verdict, place, as_json=as_json)
        run = _one_run(named, verdict) if everything else None
        return asyncio.run(_respond_to_each(verdict, named, run, place, as_json=as_json))

    for option in _OPTIONS:
        answer = option(answer)
    epilog = f"Example: gert {name} 20260228-143000-123-abc123 {example}"
    return click.command(name, help=about, epilog=epilog)(answer)


def _one_run(named: tuple[str, ...], verdict: Verdict) -> str:
    if verdict.drop_box is not None:
        raise UsageError("`--all` needs a ledger, found `--drop-box`", hint="a drop box has no runs: name the tickets")
    if len(named) > 1:
        raise UsageError(f"expected one run with `--all`, found {len(named)} names", hint="for example `last --all`")
    return named[0]


approve = _command(
    "approve",
    """Approve requests of a run; `gert approvals show TICKET` shows one first.

    TICKET is the id of a ticket, a unique prefix of it, or `last`: that of the run that was written to last. With
    --all, RUN is the id of a run, a unique prefix of it, or `last`: all its open tickets are approved.
    An approval that would not count is refused; the other tickets are answered all the same.
    """,
    approved=True,
    example="--as ann --reason 'checked with ops'",
)

reject = _command(
    "reject",
    """Reject requests of a run; one rejection closes a ticket.

    TICKET is the id of a ticket, a unique prefix of it, or `last`: that of the run that was written to last. With
    --all, RUN is the id of a run, a unique prefix of it, or `last`: all its open tickets are rejected.
    A rejection that would not count is refused; the other tickets are answered all the same.
    """,
    approved=False,
    example="--as ann --reason 'not during the freeze'",
)


def _respond(verdict: Verdict, place: Place, *, as_json: bool) -> int:
    """Respond, and show the result."""
    given = asyncio.run(respond(verdict, place, os.environ, _unseen if as_json else say_request))
    words = _words(verdict, place)
    if as_json:
        print_json(answered_document(given, verdict.approved, words))
    else:
        print_line()
        print_lines(outcome(given, verdict.approved, words))
        print_lines(following([given], words))
    return 0 if given.answered.objection is None else Exit.REFUSED


async def _respond_to_each(
    verdict: Verdict, named: tuple[str, ...], run: str | None, place: Place, *, as_json: bool
) -> int:
    """Respond to several tickets, and show the result of each; what to do next is said once."""
    words = _words(verdict, place)
    documents: list[Any] = []
    answered: list[Given] = []
    code: int = Exit.DONE
    on_ticket = _unseen if as_json else say_request
    async for ticket, given in respond_to_each(verdict, named, place, os.environ, on_ticket, run=run):
        if isinstance(given, GertError):
            code = max(code, exit_of(given))
            error = error_document(code_of(given), given.message, given.hint, exit_of(given), given)
            refused = {"approved": verdict.approved, "received": False, "objection": given.message}
            documents.append({"ticket_id": ticket, **refused, "error": error})
            if not as_json:
                print_error(given.message if ticket in given.message else f"`{ticket}`: {given.message}", given.hint)
            continue
        answered.append(given)
        code = max(code, Exit.DONE if given.answered.objection is None else Exit.REFUSED)
        documents.append(answered_document(given, verdict.approved, words))
        if not as_json:
            print_lines(outcome(given, verdict.approved, words))
            print_line()
    if as_json:
        print_json(documents)
    else:
        print_lines(following(answered, words))
    return code


def _words(verdict: Verdict, place: Place) -> str | None:
    """The options that name the ledger; None in a drop box."""
    return None if verdict.drop_box is not None else place.words


def _unseen(_: TicketView) -> None:
    """Show nothing of a ticket: the result is JSON."""
