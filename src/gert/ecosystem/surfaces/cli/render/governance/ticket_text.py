"""Tickets as text: rows of a list, everything about one ticket, and the result of a response."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

import click

from gert.ecosystem.host.approvals.respond import Given, Received, TicketView, summary
from gert.ecosystem.host.approvals.ticket_document import resume_command
from gert.ecosystem.surfaces.cli.render.output import plural, print_lines
from gert.ecosystem.surfaces.cli.render.table import Cell
from gert.ecosystem.surfaces.cli.render.text import elapsed
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.text import printable

HEADINGS: Final = ("ticket", "runbook", "step", "risk", "asked by", "since", "expires", "answers")
SPARE: Final = ("since", "answers", "runbook", "asked by", "risk")
"""Columns to drop on a narrow terminal, in this order."""
COLOURS: Final = {"pending": "yellow", "approved": "green", "rejected": "red", "expired": "red", "abandoned": None}
RISKS: Final = {"high": "red", "critical": "red", "medium": "yellow"}


def row(view: TicketView, now: datetime, *, with_status: bool) -> list[Cell]:
    """One ticket in a list."""
    request, status = view.ticket.request, view.status_at(now)
    cells: list[Cell] = [
        view.id,
        request.runbook,
        request.place,
        (request.risk_level, RISKS.get(request.risk_level)),
        request.requested_by or "the kernel",
        _ago(view.ticket.created_at, now),
        _ahead(view.ticket.expires_at, now) if view.status == "pending" else "",
        f"{view.approvals}/{view.needed}{_received(view)}",
    ]
    return [*cells, (status, COLOURS[status])] if with_status else cells


def about(view: TicketView, now: datetime, resume: str | None) -> Iterator[str]:
    """Everything the ledger has about a ticket, line by line.

    resume: the command that resumes its run, where the ticket is answered or expired and no process drives the run
    """
    status = view.status_at(now)
    yield f"ticket {click.style(view.id, bold=True)}: {click.style(status, fg=COLOURS[status])}"
    yield from summary(view.ticket.request)
    ticket, request = view.ticket, view.ticket.request
    rows = [
        ("signatures", "required" if request.require_signed_approvals else "not required"),
        ("waiting", f"since {ticket.created_at}, {_ago(ticket.created_at, now)}"),
        ("expires", f"{ticket.expires_at}, {_ahead(ticket.expires_at, now)}"),
        ("answers", standing(view)),
    ]
    yield from (f"  {f'{name}:'.ljust(15)}{printable(value)}" for name, value in rows)
    yield from (f"    {_response(each, view)}" for each in view.responses)
    if resume is not None:
        yield f"  {due_text(resume, None if view.is_answered else ticket.expires_at)}"
    if view.notes:
        yield "  notes:"
    yield from (f"    {printable(note)}" for note in view.notes)


def outcome(given: Given, approved: bool, words: str | None) -> Iterator[str]:
    """The result of a response.

    words: the options that name the ledger; None in a drop box
    """
    answered = given.answered
    view, word = answered.view, "approval" if approved else "rejection"
    if answered.objection is not None:
        yield f"{click.style('not counted:', fg='red')} {printable(answered.objection)}"
        return
    if words is None:
        yield f"{click.style('received:', fg='yellow')} your {word} is in the drop box; its owner's run collects it"
        return
    how_many = f", {view.given} of {view.needed} needed" if approved else ""
    closed = f"; the ticket is {view.status}" if view.status != "pending" else ""
    yield f"{click.style('received:', fg='green')} your {word}{how_many}{closed}"
    if given.is_unverified:
        yield "no key to verify your signature is set here: the run verifies it before it counts"
        if not approved:
            yield "a rejection needs no signature: it also counts without --key"


def following(given: Iterable[Given], words: str | None) -> Iterator[str]:
    """What to do after responses: how their runs continue, each said once.

    words: the options that name the ledger, for the commands that resume runs; None in a drop box
    """
    resume: dict[str, list[str]] = {}
    for each in given:
        answered, view = each.answered, each.answered.view
        command = [resume_command(view, f"{words or ''}{each.input_words}")] if view.resumes is not None else []
        if answered.objection is not None:
            sentence = _LATE if answered.is_late and command else None
        elif view.ticket.request.run_kind == "agent":
            sentence = _AGENT
        else:
            sentence = _DETACHED if answered.is_decided or each.is_unverified else None
        if sentence is not None and words is not None:
            resume.setdefault(sentence, []).extend(command)
    for sentence, commands in resume.items():
        yield sentence
        if sentence == _AGENT and commands:
            yield "if it is a step of a detached run, resume that with:"
        yield from (f"  {printable(command)}" for command in dict.fromkeys(commands))


_DETACHED: Final = "a waiting run continues by itself; resume a detached run with:"
_AGENT: Final = "the agent takes it when it runs the step again"
_LATE: Final = "a waiting run applies the timeout by itself; for a detached run, this does:"


def due_text(resume: str, expired_at: str | None) -> str:
    """What to do about a ticket that is answered or expired, and whose run no process drives.

    expired_at: when it expired; None if it is answered
    """
    if expired_at is not None:
        return f"expired at {expired_at}; `{printable(resume)}` applies it"
    return f"answered; resume the run with `{printable(resume)}`"


def standing(view: TicketView) -> str:
    """How many approvals the run has counted, how many responses it has received, and the status."""
    waiting = f", {plural(len(view.waiting), 'answer')} received that the run has not taken yet" if view.waiting else ""
    count = f"{view.approvals} of {plural(view.needed, 'approval')} counted{waiting}"
    return count if view.status == "pending" else f"{count}, the ticket is {view.status}"


def _received(view: TicketView) -> str:
    waiting = len(view.waiting)
    return f" (+{waiting} received)" if waiting else ""


def say_request(view: TicketView) -> None:
    """Print what a ticket asks for."""
    print_lines((line for line in summary(view.ticket.request) if line), folds=True)


def _response(received: Received, view: TicketView) -> str:
    response = received.response
    word = click.style("approved", fg="green") if response.approved else click.style("rejected", fg="red")
    signed = f", signed with `{printable(response.key_id or 'default')}`" if response.signature else ""
    reason = f": {printable(response.reason)}" if response.reason else ""
    note = ""
    if received.objection:
        note = f" ({click.style('not counted', fg='yellow')}: {printable(received.objection)})"
    elif not received.is_taken:
        what = "the run has not taken it yet" if view.status == "pending" else "after the ticket was closed"
        note = f" ({click.style('received', fg='yellow')}: {what})"
    return f"{printable(response.approver)} {word} at {printable(response.timestamp)}{signed}{reason}{note}"


def _ago(moment: str | None, now: datetime) -> str:
    return f"{elapsed(now - parse_timestamp(moment))} ago" if moment else ""


def _ahead(moment: str | None, now: datetime) -> str:
    if not moment:
        return ""
    left = parse_timestamp(moment) - now
    return f"in {elapsed(left)}" if left > timedelta() else f"{elapsed(-left)} ago"
