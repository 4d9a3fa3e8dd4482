"""Which lanes may run side by side: neither writes what the other reads or writes (kernel-v0 §8)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gert.kernel.engine.plan import Plan
from gert.kernel.governance.contract import Tags
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.program import walk


class Touched(msgspec.Struct, frozen=True):
    """What a lane reads and writes, all its steps together."""

    reads: Tags
    writes: Tags


ONE_AT_A_TIME: Final[Tags] = frozenset(("one at a time",))
"""What all steps write that a rule serializes; no tag has a space in it."""


def touched_by(steps: tuple[Step, ...], plan: Callable[[Step], Plan | None]) -> Touched:
    """What the steps of a lane touch, at any depth."""
    terms = [planned.terms for step in walk(steps) if (planned := plan(step)) is not None]
    serialized = ONE_AT_A_TIME if any(each.decision.serialize for each in terms) else frozenset()
    return Touched(
        frozenset().union(*(each.contract.reads for each in terms)),
        serialized.union(*(each.contract.writes for each in terms)),
    )


def is_serialized(step: Step, plan: Callable[[Step], Plan | None]) -> bool:
    """Whether a rule wants this step, or one inside it, to run one at a time."""
    return not ONE_AT_A_TIME.isdisjoint(touched_by((step,), plan).writes)


class Turns(msgspec.Struct, frozen=True):
    """For each lane, the earlier ones it waits for; and the lanes that contend for one resource."""

    after: tuple[frozenset[int], ...]
    contending: tuple[tuple[int, ...], ...]


def turns(lanes: Sequence[Touched]) -> Turns:
    """Who waits for whom: a writer for everyone before it, a reader for the last writer.

    Lanes are gone through by resource, so that many of them are not compared in pairs.
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


def longest(spent: list[float], after: tuple[frozenset[int], ...]) -> float:
    """How long lanes take together when each waits for its turn."""
    done: list[float] = []
    for index, own in enumerate(spent):
        done.append(own + max((done[earlier] for earlier in after[index]), default=0.0))
    return max(done, default=0.0)
