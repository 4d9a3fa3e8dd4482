"""Tickets in words: rows of a list, everything about one of them, and what an answer came to."""

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import click

from gert.ecosystem.approvals.terminal import summary
from gert.ecosystem.approvals.ticket_file import Heard, TicketFile
from gert.ecosystem.approvals.tickets import Answered
from gert.ecosystem.surfaces.cli.render.output import Cell, plural, say
from gert.ecosystem.surfaces.cli.render.text import elapsed
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.text import printable

HEADINGS: Final = ("ticket", "runbook", "step", "risk", "asked by", "since", "expires", "answers")
COLOURS: Final = {"pending": "yellow", "approved": "green", "rejected": "red", "expired": "red", "abandoned": None}
RISKS: Final = {"high": "red", "critical": "red", "medium": "yellow"}


def row(file: TicketFile, now: datetime, *, with_status: bool) -> list[Cell]:
    """One ticket in a list."""
    request, status = file.ticket.request, file.status_at(now)
    cells: list[Cell] = [
        (file.id, None),
        (request.runbook, None),
        (request.place, None),
        (request.risk_level, RISKS.get(request.risk_level)),
        (request.requested_by or "the kernel", None),
        (_ago(file.ticket.created_at, now), None),
        (_ahead(file.ticket.expires_at, now) if status == "pending" else "", None),
        (f"{file.approvals}/{file.needed}", None),
    ]
    return [*cells, (status, COLOURS[status])] if with_status else cells


def about(file: TicketFile, now: datetime) -> Iterator[str]:
    """Everything that is known about a ticket, line by line."""
    status = file.status_at(now)
    yield f"ticket {click.style(file.id, bold=True)}: {click.style(status, fg=COLOURS[status])}"
    yield from summary(file.ticket.request)
    ticket, request = file.ticket, file.ticket.request
    rows = [
        ("signatures", "required" if request.require_signed_approvals else "not required"),
        ("file", file.run.file),
        ("waiting", f"since {ticket.created_at}, {_ago(ticket.created_at, now)}"),
        ("expires", f"{ticket.expires_at}, {_ahead(ticket.expires_at, now)}"),
        ("answers", standing(file)),
    ]
    yield from (f"  {f'{name}:'.ljust(15)}{printable(value)}" for name, value in rows)
    yield from (f"    {_said(heard)}" for heard in (*file.responses, *file.refused))
    if file.unrecorded:
        yield f"    and {plural(file.unrecorded, 'answer')} more that did not count"
    if file.notes:
        yield "  notes:"
    yield from (f"    {printable(note)}" for note in file.notes)


def outcome(answered: Answered, approved: bool, state_dir: str | None, *, is_unverified: bool = False) -> Iterator[str]:
    """What an answer came to, and what to do next."""
    file = answered.file
    if answered.objection is not None:
        yield f"{click.style('not counted:', fg='red')} {printable(answered.objection)}"
        return
    word = "approval" if approved else "rejection"
    if is_unverified:
        yield f"{click.style('received:', fg='yellow')} your {word}; {standing(file)}"
        yield "no key to verify your signature with is set here: it counts once the run has verified it"
        if not approved:
            yield "a rejection needs no signature: without --key it counts at once"
    else:
        yield f"{click.style('counted:', fg='green')} your {word}; {standing(file)}"
    if file.status != "pending" or is_unverified:
        yield "a run that waits goes on by itself; one that was set aside goes on with:"
        yield f"  {printable(resume_command(file, state_dir))}"


def resume_command(file: TicketFile, state_dir: str | None) -> str:
    """How the run is gone on with, unless it waits by itself."""
    # A ticket may come from others: whatever it says, what is shown is one command.
    places = {"--run": file.run.run_id, "--db": file.run.db, "--dsn": file.run.dsn, "--state-dir": state_dir or ""}
    return shlex.join(["gert", "resume", *(word for place in places.items() if place[1] for word in place)])


def standing(file: TicketFile) -> str:
    """How many have approved, and what that means."""
    count = f"{file.approvals} of {plural(file.needed, 'approval')}"
    return count if file.status == "pending" else f"{count}, the ticket is {file.status}"


def _said(heard: Heard) -> str:
    response = heard.response
    word = click.style("approved", fg="green") if response.approved else click.style("rejected", fg="red")
    signed = f", signed with `{printable(response.key_id or 'default')}`" if response.signature else ""
    reason = f": {printable(response.reason)}" if response.reason else ""
    against = f" ({click.style('not counted', fg='yellow')}: {printable(heard.objection)})" if heard.objection else ""
    if heard.is_unverified and not heard.objection:
        against = f" ({click.style('received', fg='yellow')}: counts once the run has verified the signature)"
    return f"{printable(response.approver)} {word} at {printable(response.timestamp)}{signed}{reason}{against}"


def _ago(moment: str | None, now: datetime) -> str:
    return f"{elapsed(now - parse_timestamp(moment))} ago" if moment else ""


def _ahead(moment: str | None, now: datetime) -> str:
    if not moment:
        return ""
    left = parse_timestamp(moment) - now
    return f"in {elapsed(left)}" if left > timedelta() else f"{elapsed(-left)} ago"


def say_lines(lines: Iterator[str]) -> None:
    """Print them."""
    for line in lines:
        say(line)
