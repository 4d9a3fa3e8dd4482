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


class ScopeConflict(msgspec.Struct, frozen=True):
    """Two steps of different lanes that wrote the same scope path."""

    scope: str
    first: str
    second: str

    def failed(self, *, continued: bool = False) -> Result:
        """Return the failed result of the second lane."""
        message = f"`{self.first}` and `{self.second}` run at the same time and both write the scope `{self.scope}`"
        hint = "give each of them its own scope"
        return failed("evaluation", f"{message} ({hint})", failed_step=self.second, continued=continued)


class LaneAccess(msgspec.Struct, frozen=True):
    """The resources that all steps of a lane read and write."""

    reads: Tags
    writes: Tags


SERIALIZED: Final[Tags] = frozenset(("one at a time",))
"""A resource that every step serialized by a rule writes; no real tag contains a space."""


def access_of(steps: tuple[Step, ...], plan: Callable[[Step], Plan | None]) -> LaneAccess:
    """Return what the steps of a lane read and write, at any depth."""
    settings = [planned.settings for step in walk(steps) if (planned := plan(step)) is not None]
    serialized = SERIALIZED if any(each.decision.serialize for each in settings) else frozenset()
    return LaneAccess(
        frozenset().union(*(each.contract.reads for each in settings)),
        serialized.union(*(each.contract.writes for each in settings)),
    )


class ScopeClaims:
    """The scope paths that the lanes of a block have written: two lanes never write the same path (DECISIONS 67).

    Archives of repeated blocks are excluded: gert writes those, and each run of a block replaces the last.
    """

    def __init__(self) -> None:
        self._scopes: dict[tuple[str, ...], str] = {}
        # Paths of values, and prefixes of scopes: a lane must not write a value where another lane has a scope.
        self._values: dict[tuple[str, ...], str] = {}
        self._above: dict[tuple[str, ...], str] = {}

    def conflict(self, changes: Changes) -> ScopeConflict | None:
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
                    return ScopeConflict("/".join(place), known[place], writer)
        for path, writer in written.items():
            self._scopes[path] = writer
            self._values.update(((*path, name), writer) for name in changes.scopes[path])
            self._above.update((path[:length], writer) for length in range(1, len(path) + 1))
        return None


def is_serialized(step: Step, plan: Callable[[Step], Plan | None]) -> bool:
    """Whether a rule serializes this step or one inside it."""
    return not SERIALIZED.isdisjoint(access_of((step,), plan).writes)


class LaneSchedule(msgspec.Struct, frozen=True):
    """For each lane, the earlier lanes it waits for; and the groups of lanes that contend for a resource."""

    after: tuple[frozenset[int], ...]
    contending: tuple[tuple[int, ...], ...]


def schedule_lanes(lanes: Sequence[LaneAccess]) -> LaneSchedule:
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
        _schedule_users(resource, users, lanes, after)
    return LaneSchedule(tuple(frozenset(each) for each in after), tuple(contending))


def _schedule_users(resource: str, users: Iterable[int], lanes: Sequence[LaneAccess], after: list[set[int]]) -> None:
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


def run_after(lane: Steps[Result], frame: Frame, before: Sequence[Frame]) -> Steps[Result]:
    """Run a lane after the lanes it waits for, and record when it began and ended."""
    frame.clock.begin(earlier.clock for earlier in before)
    if any(earlier.state.skipped_write for earlier in before):
        frame.state.skip_write()
    result = yield from lane
    frame.clock.end()
    return result
