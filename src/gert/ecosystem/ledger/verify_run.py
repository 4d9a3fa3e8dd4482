"""Verifying a run in a ledger: everything it has is read once, a page at a time."""

from typing import Final

from gert.errors import Busy, RunNotFound, TraceError, Unavailable
from gert.kernel.events.trace_seal import Check, CheckReport
from gert.kernel.foundation.signature import Keys
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Call, Head
from gert.kernel.ledger.run_checks import Recomputed, Stored, check_run

_NO_KEYS: Final = Keys()
_PAGE: Final = 1000
_MOST_PASSES: Final = 100
_ALL: Final = 1_000_000


async def verify_run(
    ledger: Ledger, run_id: str, keys: Keys = _NO_KEYS, *, require_seal: bool = False, key_id: str | None = None
) -> CheckReport:
    """Check what a ledger stores of a run against what its events and answers lead to; RunNotFound where there is none.

    A row that cannot be read fails the verification; a ledger that cannot be read raises.
    """
    found = Recomputed(run_id)
    try:
        stored = await read_run(ledger, found)
    except (Busy, Unavailable):
        raise
    except TraceError as error:
        return CheckReport((Check(1, "rows", passed=False, reason=error.message),), events=found.events)
    if stored.head is None and not found.events and not found.answers:
        raise RunNotFound(f"there is no run `{run_id}`", hint="`gert run list` shows the runs of this ledger")
    return check_run(found, stored, keys, require_seal=require_seal, key_id=key_id)


async def read_run(ledger: Ledger, found: Recomputed) -> Stored:
    """Read a run until its head stays as it is while the rest is read; of a run that grows, only what is new."""
    run_id, since = found.run_id, 0
    head: Head | None = None
    for _ in range(_MOST_PASSES):
        head = await ledger.head(run_id)
        since = await _read_events(ledger, found, since)
        calls, status = await _calls(ledger, run_id), await ledger.status(run_id)
        tickets = await ledger.tickets(run_id=run_id, limit=_ALL)
        stored = Stored(head, status, calls, tickets, await ledger.snapshot(run_id))
        if await ledger.head(run_id) == head:
            break
    return stored


async def _read_events(ledger: Ledger, found: Recomputed, since: int) -> int:
    while rows := await ledger.events(found.run_id, since, _PAGE):
        await _read_answers(ledger, found, found.answers_named(rows))
        found.add_events(rows)
        since = rows[-1].seq
    await _read_answers(ledger, found, _ALL)
    return since


async def _read_answers(ledger: Ledger, found: Recomputed, until: int) -> None:
    while found.answers < until:
        lines = await ledger.answers(found.run_id, found.answers, min(_PAGE, until - found.answers))
        if not lines:
            return
        found.add_answers(lines)


async def _calls(ledger: Ledger, run_id: str) -> list[Call]:
    calls: list[Call] = []
    while rows := await ledger.all_calls(run_id, calls[-1].seq if calls else 0, _PAGE):
        calls += rows
    return calls
