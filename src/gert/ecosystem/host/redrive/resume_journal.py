"""The journal of a run that is driven again: it compares what is emitted with the record, and appends what is new."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gert.ecosystem.host.run.journal import Journal, Logged
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.requests import Said
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.runbook import RunAdopted, RunComplete, RunForked, RunResumed, StepReconciled
from gert.kernel.ledger.record import Claim

BETWEEN: Final = frozenset({RunResumed.type, RunAdopted.type, RunForked.type, StepReconciled.type})
"""Events that the host writes about a run: the engine does not emit them again."""

_SAME: Final = ("step_id", "status", "ticket_id", "approver", "approved", "outcome")
"""What an event about a step must repeat even where the runbook has changed."""
_MOST_NAMED: Final = 3


class ResumeJournal(Journal):
    """Continues a record; nothing is written before `go_live`, so that a refused resume changes nothing.

    loosely: the runbook has changed, and only the path of the run has to be the same
    opening: emitted before anything that is new
    on_end: called when the run ends by what is on record alone, before it says so; it goes live, or refuses
    """

    def __init__(
        self,
        run_id: str,
        lines: Sequence[bytes],
        answers: Sequence[bytes],
        *args: Any,
        loosely: bool = False,
        opening: Sequence[Said] = (),
        **options: Any,
    ) -> None:
        super().__init__(run_id, *args, **options)
        self._loosely = loosely
        self._opening = opening
        self.on_end: Callable[[], object] = self.go_live
        self._is_live = False
        self._recorded = deque(lines)
        self._known = deque(answers)
        self._is_new = False
        self._skip_host_events()

    @property
    def repeats(self) -> bool:
        """Whether everything emitted so far was on record before."""
        return not self._is_new

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be written before more is emitted."""
        return self._is_live and super().is_full

    def go_live(self) -> None:
        """From here on, what is emitted is appended; IntegrityError where the record goes further than its answers."""
        if self._recorded:
            raise IntegrityError(
                f"the record holds {len(self._recorded)} events that its answers do not lead to",
                hint="the record was changed; `gert run verify-ledger` says more",
            )
        self._is_live = True
        self._open()

    def take_all(self) -> None:
        """Take the whole record as it is, and go live after it."""
        for line in self._known:
            self._count_answer(line)
        self._known.clear()
        while self._recorded:
            self._take()
        self._is_live = self._is_new = True

    async def settle(self, claims: Sequence[Claim] = ()) -> Mapping[str, int]:
        """Make everything durable that is new, once the run may go on."""
        return await super().settle(claims) if self._is_live else {}

    def say(self, said: Said) -> None:
        """Compare an event with the record, or append it."""
        if not self._recorded:
            self._open()
            if not self._is_live and type(said.payload) is RunComplete:
                self.on_end()
            super().say(said)
            return
        stored = self._recorded[0]
        recorded = decode(stored)
        self._timestamp = recorded.timestamp
        again = self._again(said)
        if stored != again and not (self._loosely and again is not None and _is_alike(recorded, decode(again))):
            raise IntegrityError(
                f"replay diverged at event {recorded.seq}: "
                + difference(recorded, decode(again) if again is not None else None, said.payload.type)
                + (f" at `{said.path}`" if said.path else ""),
                hint="the runbook, its tools, its inputs or gert itself have changed since the run began",
            )
        self._take()
        self._skip_host_events()

    def log(self, entry: Logged) -> None:
        """Keep an answer that is not on record yet."""
        if self._known:
            self._timestamp = ""
            self._count_answer(self._known.popleft())
            self._stored = self._head
            return
        self._is_new = True
        super().log(entry)

    def _open(self) -> None:
        """Before the first new event come those that say who adopted and resumed the run."""
        self._is_new = True
        opening, self._opening = self._opening, ()
        for said in opening:
            super().say(said)

    def _again(self, said: Said) -> bytes | None:
        try:
            return self._encoded(said)[0]
        except TraceError:
            return None

    def _take(self) -> None:
        """Take the next recorded line as it is."""
        line = self._recorded.popleft()
        event = decode(line)
        self._add(line, event.payload, event.path, event.timestamp)
        self._projection.clear()
        self._stored = self._head

    def _skip_host_events(self) -> None:
        """Go to the next recorded event that the engine emits."""
        while self._recorded and decode(self._recorded[0]).type in BETWEEN:
            self._take()
        if not self._recorded:
            self._timestamp = ""


def _is_alike(recorded: Envelope, again: Envelope) -> bool:
    """Whether an event tells of the same path: the same thing at the same place, with the same result."""
    if (recorded.type, recorded.path) != (again.type, again.path):
        return False
    if any(recorded.data.get(name) != again.data.get(name) for name in _SAME):
        return False
    mine, its = (event.data.get("outputs") or {} for event in (recorded, again))
    return all(mine[name] == its[name] for name in mine.keys() & its.keys())


def difference(recorded: Envelope, again: Envelope | None, emitted: str) -> str:
    """How an event differs from its record: another event, or the same one with other data."""
    if again is not None and recorded.type == again.type:
        names = dict.fromkeys((*recorded.data, *again.data))
        if others := [f"`{name}`" for name in names if recorded.data.get(name) != again.data.get(name)]:
            return f"`{recorded.type}` is recorded with another {' and another '.join(others[:_MOST_NAMED])}"
        if recorded.answers != again.answers:
            return f"`{recorded.type}` is recorded after other answers"
    return f"`{recorded.type}` is recorded, and the run emits `{emitted}`"
