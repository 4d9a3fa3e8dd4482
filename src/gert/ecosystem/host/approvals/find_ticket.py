"""Finding a ticket by its name: its id, a unique prefix of it, or `last`."""

from typing import Final, NoReturn

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.runs.find import LAST, find_run
from gert.errors import GertError, UsageError
from gert.kernel.foundation.text import printable

_MOST_NAMED: Final = 5


async def find_ticket(tickets: Tickets, named: str, place: str) -> str:
    """The id of a ticket; `last` is the one that the run which was written to last waits for.

    UsageError where there is none of this name, or more than one: an answer never reaches a ticket by chance.
    place: the name of the ledger, for errors
    """
    if named != LAST:
        return await tickets.find(named)
    run_id = await find_run(tickets.ledger, LAST, place)
    waiting = await tickets.all("pending", run_id=run_id, on_problem=_raise)
    if len(waiting) == 1:
        return waiting[0].id
    if waiting:
        hint = f"name one of them: {_listed(waiting)}"
        raise UsageError(f"the last run, `{run_id}`, waits for {len(waiting)} approvals", hint=hint)
    others = await tickets.all("pending")
    hint = f"other runs wait: {_listed(others)}" if others else "nothing waits for approval"
    raise UsageError(f"the last run, `{run_id}`, waits for no approval", hint=hint)


def _listed(views: list[TicketView]) -> str:
    named = ", ".join(f"`{each.id}` (`{printable(each.ticket.request.place)}`)" for each in views[:_MOST_NAMED])
    return named if len(views) <= _MOST_NAMED else f"{named} and {len(views) - _MOST_NAMED} more"


def _raise(problem: GertError) -> NoReturn:
    raise problem
