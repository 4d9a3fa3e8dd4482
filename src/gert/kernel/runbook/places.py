"""Where the steps of a runbook are, as paths of a run name them, and whether a written path can be one of them."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from gert.kernel.runbook.documents.steps import Arm, BranchStep, GroupStep, Lane, ParallelStep, RepeatStep, Step
from gert.kernel.runbook.program import Program

ANY = "*"
"""The segment for every iteration of a repeat."""


class Place(NamedTuple):
    """One segment: a step, an arm, a lane or an iteration.

    items: what paths name the items of its `for_each` by
    """

    name: str
    items: Literal["INDEX", "KEY"] | None = None

    def __str__(self) -> str:
        return f"{self.name}[{self.items}]" if self.items is not None else self.name

    def has_item(self, item: str) -> bool:
        """Return whether it can have an item of that name."""
        return self.items == "KEY" or (self.items == "INDEX" and is_index(item))


def inner_lists(step: Step) -> Iterator[tuple[str | None, tuple[Step, ...]]]:
    """Yield the lists inside a step, with the segment of each in a path; a group has no segment."""
    if isinstance(step, (BranchStep, ParallelStep)):
        branches: tuple[Arm | Lane, ...] = step.branches
        yield from zip(step.names, (each.steps for each in branches), strict=True)
    elif isinstance(step, RepeatStep):
        yield ANY, step.body
    elif isinstance(step, GroupStep):
        yield None, step.steps


def step_name(step: Step, number: int) -> str:
    """Return the name of a step in paths: its id, or its type and position."""
    return step.id or f"{step.type}#{number}"


def places_of(program: Program) -> Iterator[tuple[Place, ...]]:
    """Yield the path of every step, without items."""
    waiting: list[tuple[tuple[Step, ...], tuple[Place, ...]]] = [
        (program.runbook.finally_, (Place("finally"),)),
        (program.runbook.steps, ()),
    ]
    while waiting:
        steps, outer = waiting.pop()
        for number, step in enumerate(steps, 1):
            place = (*outer, Place(step_name(step, number), _items_of(step)))
            yield place
            waiting += (
                (inner, place if segment is None else (*place, Place(segment))) for segment, inner in inner_lists(step)
            )


def _items_of(step: Step) -> Literal["INDEX", "KEY"] | None:
    if step.for_each is None:
        return None
    return "KEY" if step.for_each.key is not None else "INDEX"


def is_index(item: str) -> bool:
    """Return whether a text is the index of an item, as paths write it."""
    return item.isascii() and item.isdecimal() and (item == "0" or item[0] != "0")


def segments_of(written: str) -> list[tuple[str, str | None]] | None:
    """Split a path as people write it, `outer[a/b]/step`; None where brackets do not match."""
    segments: list[tuple[str, str | None]] = []
    rest = written
    while rest:
        slash, bracket = rest.find("/"), rest.find("[")
        if bracket < 0 or 0 <= slash < bracket:
            name, _, rest = rest.partition("/")
            segments.append((name, None))
            continue
        end = _closing(rest, bracket)
        if end is None or rest[end + 1 : end + 2] not in ("", "/"):
            return None
        segments.append((rest[:bracket], rest[bracket + 1 : end]))
        rest = rest[end + 2 :]
    return segments


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for at in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return None


def is_place(segments: list[tuple[str, str | None]], place: tuple[Place, ...]) -> bool:
    """Return whether a written path can be the end of a step's path; items may be left out."""
    if len(segments) > len(place):
        return False
    pairs = zip(segments, place[len(place) - len(segments) :], strict=True)
    return all(known.name in (name, ANY) and (item is None or known.has_item(item)) for (name, item), known in pairs)
