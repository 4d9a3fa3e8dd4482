"""The journal of a run that goes on: what is said again is held against the record, what is new is added to it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

from gert.ecosystem.host.journal import Journal, Logged
from gert.ecosystem.stores.port import Store
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.asks import Said
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.runbook import RunComplete, RunForked, RunResumed, StepReconciled

BETWEEN: Final = frozenset({RunResumed.type, RunForked.type, StepReconciled.type})
"""Events the host says about a run: the engine does not say them again."""

_PUTS: Final = frozenset({"step_start", "step_retry", "approval_submitted"})
_TAKES: Final = frozenset({"step_complete", "step_retry", "approval_resolved"})
_SAME: Final = ("step_id", "status", "ticket_id", "approver", "approved", "outcome")
"""What is said of a step must be the same even where the runbook is not."""
_MOST_NAMED: Final = 3
_ASKING: Final = frozenset({"tool", "manual", "extension"})


class ContinuedJournal(Journal):
    """Goes on with a trace; nothing is written before `go_live`, so that whoever refuses to go on has changed nothing.

    loosely: the runbook was changed, and only the way the run took has to be the same
    opening: said before anything that is new
    on_end: called when the run ends by what is on record alone, before it says so; it goes live, or refuses
    """

    def __init__(
        self, store: Store, run_id: str, *, loosely: bool = False, opening: Said | None = None, **options: Any
    ) -> None:
        super().__init__(store, run_id, **options)
        self._loosely = loosely
        self._opening = opening
        self.on_end: Callable[[], object] = self.go_live
        self._is_live = False
        self._stored: Iterator[bytes] = store.events(run_id)
        self._next: bytes | None = None
        self._is_new = False
        self._known = sum(1 for _ in store.answers(run_id))
        self._advance()

    @property
    def repeats(self) -> bool:
        """Whether everything said so far was on record before."""
        return not self._is_new

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be written before more is said."""
        return self._is_live and super().is_full

    def go_live(self) -> None:
        """From here on, what is said may be written."""
        self._is_live = True
        self._open()

    async def settle(self, *, alone: bool = False) -> None:
        """Make everything durable that is new, once the run may go on."""
        if self._is_live:
            await super().settle(alone=alone)

    def say(self, said: Said) -> None:
        """Hold an event against the record, or add it."""
        stored = self._next
        if stored is None:
            self._open()
            if not self._is_live and type(said.payload) is RunComplete:
                self.on_end()
            super().say(said)
            return
        recorded = decode(stored)
        self._timestamp = recorded.timestamp
        again = self._again(said)
        if stored != again and not (self._loosely and again is not None and _is_alike(recorded, decode(again))):
            raise IntegrityError(
                f"event {recorded.seq} does not come again: "
                + otherwise(recorded, decode(again) if again is not None else None, said.payload.type)
                + (f" at `{said.path}`" if said.path else ""),
                hint="the runbook, its tools, its inputs or gert itself are not those the run began with",
            )
        self._take(stored)
        self._advance()

    def log(self, entry: Logged) -> None:
        """Keep an answer that is not in the log yet."""
        if self._known:
            self._known -= 1
            self._timestamp = ""
            return
        self._is_new = True
        super().log(entry)

    def unsupported(self) -> list[bytes]:
        """The events on record beyond what the answers lead to: after a loss of power, a batch at most."""
        left = [self._next] if self._next is not None else []
        return list(chain(left, self._stored))

    def forget_rest(self) -> None:
        """Go on from here, whatever else was on record."""
        self._next, self._stored = None, iter(())

    def _open(self) -> None:
        """Something is new: first comes who says it."""
        self._is_new = True
        opening, self._opening = self._opening, None
        if opening is not None:
            super().say(opening)

    def _again(self, said: Said) -> bytes | None:
        try:
            return self._encoded(said)[0]
        except TraceError:
            return None

    def _take(self, line: bytes) -> None:
        self._chain.append(line)
        self._written += 1

    def _advance(self) -> None:
        """The next stored event that the engine says; those of the host are taken as they are."""
        for line in self._stored:
            if decode(line).type not in BETWEEN:
                self._next = line
                return
            self._take(line)
        self._next = None
        self._timestamp = ""


def is_one_batch(lines: Iterable[bytes]) -> bool:
    """Whether events may have been written together: then none of them is the end of what another one announced."""
    announced: set[str | None] = set()
    for event in map(decode, lines):
        if event.type in _TAKES and event.path in announced:
            return False
        if event.type in _PUTS and event.data.get("type", "tool") in _ASKING:
            announced.add(event.path)
    return True


def _is_alike(recorded: Envelope, again: Envelope) -> bool:
    """Whether an event tells of the same way: the same thing at the same place, which came to the same."""
    if (recorded.type, recorded.path) != (again.type, again.path):
        return False
    if any(recorded.data.get(name) != again.data.get(name) for name in _SAME):
        return False
    mine, its = (event.data.get("outputs") or {} for event in (recorded, again))
    return all(mine[name] == its[name] for name in mine.keys() & its.keys())


def otherwise(recorded: Envelope, again: Envelope | None, said: str) -> str:
    """What a run says otherwise than its record does: another event, or the same one with something else in it."""
    if again is not None and recorded.type == again.type:
        names = dict.fromkeys((*recorded.data, *again.data))
        if others := [f"`{name}`" for name in names if recorded.data.get(name) != again.data.get(name)]:
            return f"`{recorded.type}` is recorded with another {' and another '.join(others[:_MOST_NAMED])}"
    return f"`{recorded.type}` is recorded, and the run says `{said}`"
