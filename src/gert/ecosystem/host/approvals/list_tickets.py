"""Tickets as commands list and show them: of a ledger, or of a drop box."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TypeAlias

import msgspec

from gert.ecosystem.approvals.drop_box import find_request, list_requests
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.approvals.find_ticket import find_ticket
from gert.ecosystem.host.approvals.resume_words import input_words
from gert.ecosystem.host.approvals.ticket_ledger import NoLedger, open_tickets
from gert.ecosystem.host.config.ledger_location import ledger_name
from gert.ecosystem.host.run.record.lease import is_driven
from gert.ecosystem.host.runs.find import find_run, no_such_run
from gert.ecosystem.host.runs.place import Place, place_for
from gert.ecosystem.ledger.ids import utc_now
from gert.errors import Forbidden, GertError, UsageError

DropBoxPath: TypeAlias = str


class Listed(msgspec.Struct, kw_only=True):
    """Tickets that were found.

    now: the time by the clock that decides about timeouts
    words: the options that name their ledger
    undriven: runs with an answered or overdue ticket that no process drives, each with the options that give its secret
        inputs again
    problems: tickets that cannot be read
    """

    views: list[TicketView] = []
    now: datetime = msgspec.field(default_factory=utc_now)
    words: str = ""
    undriven: dict[str, str] = {}
    problems: list[GertError] = []


def tickets_place(
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
    drop_box: str | None,
    environ: Mapping[str, str],
    run: str | None = None,
) -> Place | DropBoxPath:
    """The ledger or the drop box that options name; UsageError where they name both."""
    if drop_box is None:
        return place_for(state_dir, db, environ, dsn)
    if any(each is not None for each in (state_dir, db, dsn, run)):
        raise UsageError("expected `--drop-box` or a ledger, found both", hint="a drop box has no runs")
    return drop_box


async def list_tickets(
    place: Place | DropBoxPath, environ: Mapping[str, str], run: str | None = None, *, with_closed: bool = False
) -> Listed:
    """The tickets of a ledger or drop box, the oldest first; `run` names the run they are of."""
    found = Listed()
    if isinstance(place, str):
        found.views = list_requests(place, found.problems.append)
        return found
    try:
        async with open_tickets(place, environ) as tickets:
            run_id = await find_run(tickets.ledger, run, ledger_name(place.ledger)) if run is not None else None
            statuses = () if with_closed else ("pending",)
            problems = found.problems.append
            found.views = await tickets.all(*statuses, run_id=run_id, overdue=True, on_problem=problems)
            await _complete(found, tickets, place)
    except NoLedger:
        if run is not None:
            raise no_such_run(run, ledger_name(place.ledger)) from None
    return found


async def show_ticket(place: Place | DropBoxPath, environ: Mapping[str, str], named: str) -> Listed:
    """One ticket, by its id, a unique prefix of it, or `last`."""
    if isinstance(place, str):
        return Listed(views=[find_request(place, named)])
    async with open_tickets(place, environ) as tickets:
        found = Listed(views=[await tickets.get(await find_ticket(tickets, named, place))])
        await _complete(found, tickets, place)
    return found


async def _complete(found: Listed, tickets: Tickets, place: Place) -> None:
    found.now, found.words = await tickets.time(), place.words
    # The database role of an approver may not read who drives a run.
    with suppress(Forbidden):
        due = (view.resumes for view in found.views if view.status == "pending" and view.is_due(found.now))
        for run_id in dict.fromkeys(due):
            if run_id is not None and not await is_driven(tickets.ledger, run_id):
                found.undriven[run_id] = await input_words(tickets.ledger, run_id)
