"""Which lanes may run side by side: neither writes what the other reads or writes (kernel-v0 §8)."""

from collections.abc import Iterable, Sequence

import msgspec

from gert.kernel.governance.contract import Tags
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.program import Program, walk


class Touched(msgspec.Struct, frozen=True):
    """What a lane reads and writes, all its steps together."""

    reads: Tags
    writes: Tags


def touched_by(steps: tuple[Step, ...], program: Program) -> Touched:
    """What the steps of a lane touch, at any depth."""
    contracts = [contract for step in walk(steps) if (contract := program.contract_of(step)) is not None]
    return Touched(
        frozenset().union(*(contract.reads for contract in contracts)),
        frozenset().union(*(contract.writes for contract in contracts)),
    )


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
