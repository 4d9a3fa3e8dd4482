"""The way of a run, folded from its events: what became of each step, and which arms and jumps it took."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import child, split
from gert.kernel.runbook.documents.steps import RepeatStep
from gert.kernel.runbook.program import Program

_SEVERAL: Final = 2
_WORST_FIRST: Final = ("failed", "error", "running", "success", "skipped")


class Visits(msgspec.Struct):
    """How often a step was begun and how it ended: as a whole, and for the items of its own loop.

    is_left: the run went on after it
    item_count: how many items the loop has
    refused: how many were denied, or not approved
    """

    whole: Counter[str] = msgspec.field(default_factory=Counter)
    items: Counter[str] = msgspec.field(default_factory=Counter)
    titles: set[str] = msgspec.field(default_factory=set)
    verdict: str = ""
    is_left: bool = False
    item_count: int = 0
    refused: int = 0

    @property
    def result(self) -> str | None:
        """The worst result."""
        return next((each for each in _WORST_FIRST if self.whole[each] or self.items[each]), None)

    @property
    def title(self) -> str | None:
        """The title that was shown; several are those of items."""
        return next(iter(self.titles)) if len(self.titles) == 1 and self.item_count < _SEVERAL else None

    @property
    def count_text(self) -> str:
        """Of several visits, how many did not go well: `1 of 2 failed`."""
        counted = self.items if self.item_count or self.items else self.whole
        total = max(self.item_count, counted.total())
        found = {
            "failed": counted["failed"] + counted["error"],
            "running": counted["running"],
            "refused": self.refused,
            "skipped": counted["skipped"] - self.refused,
            "not run": total - counted.total(),
        }
        parts = [f"{number:,} {word}" for word, number in found.items() if number]
        if total < _SEVERAL or not parts:
            return ""
        number, _, word = parts[0].partition(" ")
        return ", ".join([f"{number} of {total:,} {word}", *parts[1:]])


class Way(msgspec.Struct, frozen=True):
    """The way of a run, by path; the items of a loop and the iterations of a block have one path.

    arms: arms and lanes that were entered
    jumps: steps whose `next` was followed
    """

    visits: dict[str, Visits] = msgspec.field(default_factory=dict)
    arms: set[str] = msgspec.field(default_factory=set)
    jumps: set[str] = msgspec.field(default_factory=set)


def way_of(events: Iterable[Envelope], program: Program) -> Way:
    """Fold the events of a run."""
    repeats = frozenset(step.id for step in program.steps if isinstance(step, RepeatStep))
    way = Way()
    running: set[str] = set()
    for event in events:
        if event.path is None:
            continue
        said = event.payload
        path = _static(event.path, repeats)
        visits = way.visits.get(path) or Visits()
        counter = visits.items if event.path.endswith("]") else visits.whole
        if isinstance(said, says.StepStart):
            running.add(event.path)
            counter["running"] += 1
            if said.title and len(visits.titles) < _SEVERAL:
                visits.titles.add(said.title)
        elif isinstance(said, says.StepComplete):
            if event.path in running:
                running.discard(event.path)
                counter["running"] -= 1
            counter[said.status] += 1
            visits.refused += said.status == "skipped" and said.failure is not None
            visits.is_left |= counter is visits.whole and (said.failure is None or said.continued)
        elif isinstance(said, says.GovernanceDecision):
            visits.verdict = said.decision
        elif isinstance(said, says.ForEachStart):
            visits.item_count += said.item_count
        elif isinstance(said, says.BranchEnter):
            way.arms.add(child(path, said.branch_label))
        elif isinstance(said, says.ParallelFork):
            way.arms.update(child(path, label) for label in said.branches)
        elif isinstance(said, says.NextTaken):
            way.jumps.add(path)
        else:
            continue
        way.visits[path] = visits
    return way


def _static(path: str, repeats: frozenset[str]) -> str:
    """A path without the items of loops and the numbers of iterations: all of them are one block in the picture."""
    inside: str | None = None
    before = ""
    for segment in split(path):
        name = "0" if before in repeats and segment.name.isdecimal() else segment.name
        inside, before = child(inside, name), segment.name
    return inside or ""
