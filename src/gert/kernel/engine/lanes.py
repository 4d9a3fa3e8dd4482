"""Schedules lanes: two lanes run concurrently if neither writes what the other reads or writes (kernel-v0 §8)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.requests import Steps
from gert.kernel.engine.results import Result, failed
from gert.kernel.engine.state import REPEAT, Changes
from gert.kernel.governance.contract import Tags
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.program import walk


class Clash(msgspec.Struct, frozen=True):
    """Two steps of different lanes that wrote the same scope path."""

    scope: str
    first: str
    second: str

    def failed(self, *, continued: bool = False) -> Result:
        """Return the failed result of the second lane."""
        message = f"`{self.first}` and `{self.second}` run at the same time and both write the scope `{self.scope}`"
        hint = "give each of them its own scope"
        return failed("evaluation", f"{message} ({hint})", failed_step=self.second, continued=continued)


class Touched(msgspec.Struct, frozen=True):
    """The resources that all steps of a lane read and write."""

    reads: Tags
    writes: Tags


ONE_AT_A_TIME: Final[Tags] = frozenset(("one at a time",))
"""A resource that every step serialized by a rule writes; no real tag contains a space."""


def touched_by(steps: tuple[Step, ...], plan: Callable[[Step], Plan | None]) -> Touched:
    """Return what the steps of a lane read and write, at any depth."""
    terms = [planned.terms for step in walk(steps) if (planned := plan(step)) is not None]
    serialized = ONE_AT_A_TIME if any(each.decision.serialize for each in terms) else frozenset()
    return Touched(
        frozenset().union(*(each.contract.reads for each in terms)),
        serialized.union(*(each.contract.writes for each in terms)),
    )


class Claims:
    """The scope paths that the lanes of a block have written: two lanes never write the same path (DECISIONS 67).

    Archives of repeated blocks are excluded: gert writes those, and each run of a block replaces the last.
    """

    def __init__(self) -> None:
        self._scopes: dict[tuple[str, ...], str] = {}
        # Paths of values, and prefixes of scopes: a lane must not write a value where another lane has a scope.
        self._values: dict[tuple[str, ...], str] = {}
        self._above: dict[tuple[str, ...], str] = {}

    def clash(self, changes: Changes) -> Clash | None:
        """Return the conflict between another lane's changes and those claimed so far, or claim them."""
        written = {path: who for path, who in changes.writers.items() if path[0] != REPEAT and path in changes.scopes}
        for path, writer in written.items():
            values = [(*path, name) for name in changes.scopes[path]]
            above = [path[:length] for length in range(1, len(path) + 1)]
            met = (
                (self._scopes, path),
                *((self._above, each) for each in values),
                *((self._values, each) for each in above),
            )
            for known, place in met:
                if place in known:
                    return Clash("/".join(place), known[place], writer)
        for path, writer in written.items():
            self._scopes[path] = writer
            self._values.update(((*path, name), writer) for name in changes.scopes[path])
            self._above.update((path[:length], writer) for length in range(1, len(path) + 1))
        return None


def is_serialized(step: Step, plan: Callable[[Step], Plan | None]) -> bool:
    """Whether a rule serializes this step or one inside it."""
    return not ONE_AT_A_TIME.isdisjoint(touched_by((step,), plan).writes)


class Turns(msgspec.Struct, frozen=True):
    """For each lane, the earlier lanes it waits for; and the groups of lanes that contend for a resource."""

    after: tuple[frozenset[int], ...]
    contending: tuple[tuple[int, ...], ...]


def turns(lanes: Sequence[Touched]) -> Turns:
    """Decide which lane waits for which: a writer for all users before it, a reader for the last writer.

    Grouping lanes by resource avoids comparing them in pairs.
    """
    after: list[set[int]] = [set() for _ in lanes]
    contending: dict[tuple[int, ...], None] = {}
    for resource in sorted(frozenset().union(*(lane.writes for lane in lanes)) if lanes else ()):
        users = [index for index, lane in enumerate(lanes) if resource in lane.writes or resource in lane.reads]
        if len(users) < 2:
            continue
        contending[tuple(users)] = None
        _take_turns(resource, users, lanes, after)
    return Turns(tuple(frozenset(each) for each in after), tuple(contending))


def _take_turns(resource: str, users: Iterable[int], lanes: Sequence[Touched], after: list[set[int]]) -> None:
    writer: int | None = None
    readers: list[int] = []
    for index in users:
        if writer is not None:
            after[index].add(writer)
        if resource in lanes[index].writes:
            after[index].update(readers)
            writer, readers = index, []
        else:
            readers.append(index)


def in_turn(lane: Steps[Result], frame: Frame, before: Sequence[Frame]) -> Steps[Result]:
    """Run a lane after the lanes it waits for, and record when it began and ended."""
    frame.clock.begin(earlier.clock for earlier in before)
    if any(earlier.state.skipped_write for earlier in before):
        frame.state.skip_write()
    result = yield from lane
    frame.clock.end()
    return result
