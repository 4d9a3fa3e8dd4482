"""Finding a run by its name: its id, a unique prefix of the id, or `last`."""

from typing import Final

from gert.errors import GertError, UsageError
from gert.kernel.foundation.names import is_run_id, listing
from gert.kernel.foundation.text import printable
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import RunFilter

LAST: Final = "last"
"""The run that was written to last: the first one that `gert run list` shows."""

_MOST_NAMED: Final = 5


async def find_run(ledger: Ledger, named: str, place: str) -> str:
    """The id of a run; UsageError where there is none of this name, or more than one.

    place: the name of the ledger, for errors
    """
    require_run_id(named)
    if await ledger.head(named) is not None:
        return named
    unreadable: dict[str, GertError] = {}
    chosen = RunFilter(limit=1) if named == LAST else RunFilter(prefix=named, limit=_MOST_NAMED + 1)
    heads = await ledger.runs(chosen, unreadable.__setitem__)
    found = sorted([*unreadable, *(head.run_id for head in heads)])
    if len(found) == 1:
        return found[0]
    if not found:
        raise no_such_run(named, place)
    count = len(found) if len(found) <= _MOST_NAMED else f"more than {_MOST_NAMED}"
    listed = listing(found[:_MOST_NAMED])
    raise UsageError(f"`{named}` matches {count} runs", hint=f"write more of the id: {listed}")


def require_run_id(text: str) -> None:
    """Refuse a text that cannot be the id of a run, or a prefix of one."""
    if not is_run_id(text):
        raise UsageError(f"`{printable(text)}` is not a run id", hint="`gert run list` shows them")


def no_such_run(run_id: str, place: str) -> UsageError:
    """The error for a run that a ledger does not have."""
    return UsageError(
        f"there is no run `{run_id}` in `{place}`",
        hint="`gert run list` lists the runs; --state-dir, --db or --dsn name another ledger",
    )
