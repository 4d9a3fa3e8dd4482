"""Finding tickets: one by its id, a unique prefix of it, or `last`; or all open ones of a run."""

from contextlib import suppress
from typing import Final, NoReturn

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.approvals.resume_words import input_words
from gert.ecosystem.host.runs.find import LAST, find_run
from gert.ecosystem.host.runs.place import Place
from gert.errors import Forbidden, GertError, UsageError
from gert.kernel.foundation.text import printable

_MOST_NAMED: Final = 5


async def find_ticket(tickets: Tickets, named: str, place: Place) -> str:
    """The id of a ticket; `last` is the one that the run which was written to last waits for.

    UsageError where there is none of this name, or more than one: an answer never reaches a ticket by chance.
    """
    if named != LAST:
        return await tickets.find(named)
    run_id = await find_run(tickets.ledger, LAST, place.name)
    waiting = await _open(tickets, run_id, f"the last run, `{run_id}`,", place)
    if len(waiting) == 1:
        return waiting[0].id
    hint = f"`gert approve {LAST} --all` answers all of them; or name one: {_listed(waiting)}"
    raise UsageError(f"the last run, `{run_id}`, waits for {len(waiting)} approvals", hint=hint)


async def find_tickets(tickets: Tickets, run: str, place: Place, *, answered: bool) -> list[str]:
    """The ids of all open tickets of a run, also of agents that its steps wait for; UsageError where there are none.

    run: its id, a unique prefix of it, or `last`
    answered: also those that are answered already, which a rejection still decides
    """
    run_id = await _run_id(tickets, run, place)
    waiting = await _open(tickets, run_id, f"run `{run_id}`", place)
    found = [view.id for view in waiting if answered or not view.is_answered]
    if not found:
        words = f"{place.words}{await input_words(tickets.ledger, run_id)}"
        hint = f"resume it with `gert resume {run_id}{words}`"
        raise UsageError(f"run `{run_id}` waits for no approval: every ticket is answered", hint=hint)
    return found


async def _run_id(tickets: Tickets, run: str, place: Place) -> str:
    try:
        return await find_run(tickets.ledger, run, place.name)
    except Forbidden:
        # The database role of an approver may read tickets only; their ids begin with that of the run.
        found = {row.run_id for row in await tickets.ledger.tickets(prefix=run)}
        if len(found) == 1:
            return found.pop()
        raise UsageError(f"`{printable(run)}` may be {len(found)} runs with tickets", hint=_LIST) from None


_LIST: Final = "`gert approvals list` shows the tickets"


async def _open(tickets: Tickets, run_id: str, subject: str, place: Place) -> list[TicketView]:
    """The tickets of a run that can be answered; UsageError where there are none, with what to do instead."""
    found = await tickets.all("pending", run_id=run_id, overdue=True, on_problem=_raise)
    with suppress(Forbidden):
        head = await tickets.ledger.head(run_id)
        waits = head.runbook.waits if head is not None and head.runbook is not None else {}
        found += [await tickets.get(ticket_id) for ticket_id in dict.fromkeys(waits.values())]
    now = await tickets.time()
    waiting = [view for view in found if view.status_at(now) == "pending"]
    if waiting:
        return waiting
    late = [view for view in found if view.status_at(now) == "expired" and view.status == "pending"]
    if late:
        what = f"the ticket `{late[0].id}`" if len(late) == 1 else f"all {len(late)} tickets"
        raise UsageError(
            f"{subject} waits for no approval: {what} expired at {late[0].ticket.expires_at}",
            hint=f"`gert resume {run_id}{place.words}{await input_words(tickets.ledger, run_id)}` applies it",
        )
    others = await tickets.all("pending")
    hint = f"other runs wait: {_listed(others)}" if others else "nothing waits for approval"
    raise UsageError(f"{subject} waits for no approval", hint=hint)


def _listed(views: list[TicketView]) -> str:
    named = ", ".join(f"`{each.id}` (`{printable(each.ticket.request.place)}`)" for each in views[:_MOST_NAMED])
    return named if len(views) <= _MOST_NAMED else f"{named} and {len(views) - _MOST_NAMED} more"


def _raise(problem: GertError) -> NoReturn:
    raise problem
