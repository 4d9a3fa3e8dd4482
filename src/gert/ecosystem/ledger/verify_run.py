"""Verification of a run in a ledger: everything is read once, a page at a time."""

from typing import Final

from gert.errors import RunError
from gert.kernel.foundation.signature import Keys
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Call, TicketRow
from gert.kernel.ledger.verify import Recomputed, RunReport, Stored, check_run

_NO_KEYS: Final = Keys()
_PAGE: Final = 500


async def verify_run(
    ledger: Ledger, run_id: str, keys: Keys = _NO_KEYS, *, require_seal: bool = False, key_id: str | None = None
) -> RunReport:
    """Check a run against everything the ledger stores of it; RunError where there is no such run."""
    found, stored = await read_run(ledger, run_id)
    if stored.head is None and not found.events:
        raise RunError(f"there is no run `{run_id}`", hint="`gert run list` shows what there is")
    return check_run(found, stored, keys, require_seal=require_seal, key_id=key_id)


async def read_run(ledger: Ledger, run_id: str) -> tuple[Recomputed, Stored]:
    """Read a run, and compute again what follows from it; a run that grows meanwhile is read on."""
    found = Recomputed(run_id)
    while True:
        before = found.events
        while page := await ledger.events(run_id, found.events, _PAGE):
            await _take_answers(ledger, found, found.answers_named(page))
            found.add_events(page)
        head = await ledger.head(run_id)
        await _take_answers(ledger, found, head.answers if head is not None else 0)
        if found.events == before or head is None or head.count <= found.events:
            break
    await _take_answers(ledger, found, None)
    status = await ledger.status(run_id)
    tickets: list[TicketRow] = await ledger.tickets(run_id=run_id, limit=1_000_000)
    return found, Stored(head, status, await _calls(ledger, run_id), tickets)


async def _take_answers(ledger: Ledger, found: Recomputed, until: int | None) -> None:
    """Take answers up to a number, or all that are left."""
    while until is None or found.answers < until:
        page = await ledger.answers(found.run_id, found.answers, _PAGE if until is None else until - found.answers)
        if not page:
            return
        found.add_answers(page)


async def _calls(ledger: Ledger, run_id: str) -> list[Call]:
    calls: list[Call] = []
    while page := await ledger.all_calls(run_id, calls[-1].seq if calls else 0, _PAGE):
        calls += page
    return calls
