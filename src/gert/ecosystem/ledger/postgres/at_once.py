"""An append as one statement: one round trip, where this process wrote the run last and waits for no other run.

The transaction is run without a database, with the rows that it believes to read. What it changes becomes one statement
that writes all of it if the row of the run is as believed, and nothing otherwise: then the transaction is run again
under the lock of the row. So a belief saves time and decides nothing.

A statement does not see what others commit while it runs. So names that appends wait for each other over, as those of
limits and semantic keys, are locked by a statement of their own before it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.transactions import Belief, Change, Transaction
from gert.kernel.ledger.record import Batch, Written

T = TypeVar("T")

_MOST_ROWS: Final = 16
_PLACE: Final = re.compile(r"\$(\d+)")
_VALUES: Final = re.compile(r"VALUES (\([^)]*\))")
# The parts of a statement do not see what the others change: none of these is about a row that another one writes.
_INSERTS: Final = frozenset({sql.ADD_EVENT, sql.ADD_ANSWER, sql.ADD_CALL, sql.ADD_SPEND})
_CHANGES: Final = frozenset({sql.END_CALL, sql.DROP_OUTPUT})


class AtOnce(NamedTuple, Generic[T]):
    """A statement that returns a row if it has written, and what the append has written and returns in that case.

    names: what has to be locked before, in this order
    """

    names: Sequence[str]
    statement: str
    values: Sequence[Any]
    batch: Batch
    result: T


def at_once(transaction: Transaction[T]) -> AtOnce[T] | None:
    """A transaction as one statement; None where it has to read, or refuses."""
    names: list[str] = []
    beliefs: list[Belief] = []
    changes: list[Change] = []
    rows: Any = None
    try:
        while True:
            step = transaction.send(rows)
            if isinstance(step, Change):
                changes.append(step)
                rows = ()
            elif step.sql == sql.SERIALIZE:
                names += step.values
                rows = ()
            elif step.belief is None:
                return None
            else:
                beliefs.append(step.belief)
                rows = step.belief.rows
    except StopIteration as end:
        result: T = end.value
    except Exception:
        return None  # what is believed may be wrong: under the lock it is raised again, or not
    moves = [change for change in changes if change.sql == sql.MOVE_HEAD]
    others = [change for change in changes if change.sql != sql.MOVE_HEAD]
    if not isinstance(result, Written) or len(moves) != 1 or not all(map(_fits, others)):
        return None
    statement = _statement(
        tuple((belief.condition, len(belief.values)) for belief in beliefs),
        tuple((change.sql, len(change.rows), len(change.rows[0])) for change in others),
    )
    values = [*moves[0].rows[0]]
    for belief in beliefs:
        values += belief.values
    for change in others:
        for row in change.rows:
            values += row
    return AtOnce(names, statement, values, result.batch, result)


def _fits(change: Change) -> bool:
    return (
        len(change.rows) <= _MOST_ROWS if change.sql in _INSERTS else change.sql in _CHANGES and len(change.rows) == 1
    )


@lru_cache(maxsize=256)
def _statement(conditions: tuple[tuple[str, int], ...], changes: tuple[tuple[str, int, int], ...]) -> str:
    """Move the head on all conditions; make the changes if it was moved."""
    used = len(_PLACE.findall(sql.MOVE_HEAD))
    text = f"WITH moved AS ({sql.MOVE_HEAD}"
    for condition, width in conditions:
        text += f" AND {_shifted(condition, used)}"
        used += width
    text += " RETURNING 1)"
    for number, (change, count, width) in enumerate(changes):
        found = _VALUES.search(change)
        if found is None:
            part = f"{_shifted(change, used)} AND EXISTS (SELECT FROM moved)"
        else:
            rows = ", ".join(_shifted(found[1], used + width * n) for n in range(count))
            part = _VALUES.sub(f"SELECT * FROM (VALUES {rows}) AS new WHERE EXISTS (SELECT FROM moved)", change)  # noqa: S608 - constants
        text += f", part{number} AS ({part})"
        used += count * width
    return f"{text} SELECT FROM moved"


def _shifted(text: str, by: int) -> str:
    return _PLACE.sub(lambda place: f"${int(place[1]) + by}", text)
