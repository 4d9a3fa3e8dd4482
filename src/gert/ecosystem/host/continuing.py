"""The journal of a run that goes on: what is said again is held against the record, what is new is added to it."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from gert.ecosystem.host.journal import Journal, Logged
from gert.ecosystem.stores.port import Store
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.asks import Said
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import RunForked, RunResumed, StepReconciled

BETWEEN: Final = frozenset({RunResumed.type, RunForked.type, StepReconciled.type})
"""Events the host says about a run: the engine does not say them again."""


class ContinuedJournal(Journal):
    """Goes on with a trace.

    loosely: the runbook was changed, and only the way the run took has to be the same
    """

    def __init__(self, store: Store, run_id: str, *, loosely: bool = False, **options: Any) -> None:
        super().__init__(store, run_id, **options)
        self._loosely = loosely
        self._stored: Iterator[bytes] = store.events(run_id)
        self._next: bytes | None = None
        self._is_new = False
        self._known = sum(1 for _ in store.answers(run_id))
        self._advance()

    @property
    def repeats(self) -> bool:
        """Whether everything said so far was on record before."""
        return not self._is_new

    def say(self, said: Said) -> None:
        """Hold an event against the record, or add it."""
        stored = self._next
        if stored is None:
            self._is_new = True
            super().say(said)
            return
        recorded = decode(stored)
        self._timestamp = recorded.timestamp
        again = self._again(said)
        if stored != again and not (self._loosely and _is_alike(recorded, said)):
            raise IntegrityError(
                f"event {recorded.seq} does not come again: `{recorded.type}` is recorded, and the run says"
                f" `{said.payload.type}`" + (f" at `{said.path}`" if said.path else ""),
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

    def unsupported(self) -> int:
        """How many events are on record beyond what the answers lead to: after a loss of power, a batch at most."""
        left = [self._next] if self._next is not None else []
        return sum(1 for _ in chain(left, self._stored))

    def forget_rest(self) -> None:
        """Go on from here, whatever else was on record."""
        self._next, self._stored = None, iter(())

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


def _is_alike(recorded: Envelope, said: Said) -> bool:
    payload: Payload = said.payload
    step = getattr(payload, "step_id", None)
    return (recorded.type, recorded.path, recorded.data.get("step_id")) == (payload.type, said.path, step)
