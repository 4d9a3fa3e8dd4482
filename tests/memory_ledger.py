"""The part of a ledger that journals use, in memory: for tests that drive runs, from any event loop."""

import asyncio
from collections.abc import Sequence
from typing import Any, Self, cast

import msgspec

from gert.ecosystem.host.redrive.redrive import RedriveJournal
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.append_rules import check_follows
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Event, Expect, Head, Write, Written
from gert.kernel.ledger.run_checks import Recomputed


class MemoryLedger:
    """Keeps the runs that are appended to it.

    batches: everything that was written, as it was written together
    turns: how often the event loop turns while an append is waited for
    """

    turns = 0
    witness = None
    export = None

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._heads: dict[str, Head] = {}
        self._lines: dict[str, list[bytes]] = {}
        self._answers: dict[str, list[bytes]] = {}

    @classmethod
    def holding(cls, run_id: str, lines: Sequence[bytes], answers: Sequence[bytes]) -> Self:
        """A ledger with these lines and answers of a run."""
        found = Recomputed(run_id)
        found.add_answers(answers)
        events = [decode(line) for line in lines]
        found.add_events(
            [
                Event(event.seq, event.type, event.timestamp, None, line)
                for event, line in zip(events, lines, strict=True)
            ]
        )
        ledger = cls()
        head = msgspec.structs.replace(found.head, kind="runbook")
        ledger._heads[run_id], ledger._lines[run_id], ledger._answers[run_id] = head, [*lines], [*answers]
        return ledger

    @property
    def port(self) -> Ledger:
        """This ledger, as a journal takes it."""
        return cast("Ledger", self)

    def resumed(self, run_id: str, **options: Any) -> RedriveJournal:
        """The journal of a run that is driven again."""
        return RedriveJournal(run_id, self.events(run_id), self.answers(run_id), self.port, **options)

    async def append(
        self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), adopt: bool = False
    ) -> Written:
        """Keep what `write` makes of the head."""
        for _ in range(self.turns):
            await asyncio.sleep(0)
        head = self._heads.get(run_id, Head(run_id))
        batch = write(head, "")
        check_follows(head, batch)
        self.keep(batch)
        self.batches.append(batch)
        self._heads[run_id] = batch.head
        self._lines.setdefault(run_id, []).extend(event.line for event in batch.events)
        self._answers.setdefault(run_id, []).extend(batch.answers)
        return Written(batch)

    def keep(self, batch: Batch) -> None:
        """Called before a batch is kept; what it raises keeps it from that."""

    def events(self, run_id: str) -> list[bytes]:
        """The lines of a run."""
        return [*self._lines.get(run_id, ())]

    def answers(self, run_id: str) -> list[bytes]:
        """The answers of a run."""
        return [*self._answers.get(run_id, ())]

    def head_of(self, run_id: str) -> Head:
        """The head of a run."""
        return self._heads[run_id]
