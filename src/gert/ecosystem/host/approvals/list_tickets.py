"""Tickets as commands list and show them: of a ledger, or of a drop box."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

import msgspec

from gert.ecosystem.approvals.drop_box import find_request, list_requests
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.approvals.ticket_ledger import NoLedger, TicketPlace, open_tickets
from gert.ecosystem.host.run.record.lease import is_driven
from gert.ecosystem.host.runs.find import find_run, no_such_run
from gert.ecosystem.ledger.ids import utc_now
from gert.errors import Forbidden, GertError, UsageError


class Listed(msgspec.Struct, kw_only=True):
    """Tickets that were found.

    now: the time by the clock that decides about timeouts
    words: the options that name their ledger
    undriven: runs with an answered ticket that no process drives
    problems: tickets that cannot be read
    """

    views: list[TicketView] = []
    now: datetime = msgspec.field(default_factory=utc_now)
    words: str = ""
    undriven: set[str] = set()
    problems: list[GertError] = []


async def list_tickets(
    place: TicketPlace, environ: Mapping[str, str], run: str | None = None, *, with_closed: bool = False
) -> Listed:
    """The tickets of a place, the oldest first; `run` names the run they are of."""
    found = Listed()
    if place.drop_box is not None:
        _require_only(place, run)
        found.views = list_requests(place.drop_box, found.problems.append)
        return found
    try:
        async with open_tickets(place, environ) as tickets:
            run_id = await find_run(tickets.ledger, run, place.name(environ)) if run is not None else None
            statuses = () if with_closed else ("pending",)
            found.views = await tickets.all(*statuses, run_id=run_id, on_problem=found.problems.append)
            await _complete(found, tickets, place, environ)
    except NoLedger:
        if run is not None:
            raise no_such_run(run, place.name(environ)) from None
    return found


async def show_ticket(place: TicketPlace, environ: Mapping[str, str], start: str) -> Listed:
    """One ticket, by its id or a unique prefix of it."""
    if place.drop_box is not None:
        _require_only(place, None)
        return Listed(views=[find_request(place.drop_box, start)])
    async with open_tickets(place, environ) as tickets:
        found = Listed(views=[await tickets.get(await tickets.find(start))])
        await _complete(found, tickets, place, environ)
    return found


async def _complete(found: Listed, tickets: Tickets, place: TicketPlace, environ: Mapping[str, str]) -> None:
    found.now, found.words = await tickets.time(), place.words(environ)
    # The database role of an approver may not read who drives a run.
    with suppress(Forbidden):
        for run_id in {view.run_id for view in found.views if view.is_answered}:
            if not await is_driven(tickets.ledger, run_id):
                found.undriven.add(run_id)


def _require_only(place: TicketPlace, run: str | None) -> None:
    if place.is_named or place.state_dir is not None or run is not None:
        raise UsageError("expected `--drop-box` or a ledger, found both", hint="a drop box has no runs")
