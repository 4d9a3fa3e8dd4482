"""Coverage: the steps, arms and outcomes of a runbook that its scenarios reach, and those that none does."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gert.kernel.events.path import child, split
from gert.kernel.runbook.documents.steps import BranchStep, EndStep, RepeatStep, Step
from gert.kernel.runbook.places import ANY, inner_lists, step_name
from gert.kernel.runbook.program import Program
from gert.kernel.scenario.observed import RunObservation


class Part(msgspec.Struct, frozen=True):
    """The reached and missed items of one kind."""

    reached: int
    missed: tuple[str, ...]

    @property
    def total(self) -> int:
        """The number of items."""
        return self.reached + len(self.missed)


class CoverageReport(msgspec.Struct, frozen=True):
    """The coverage of one runbook."""

    steps: Part
    arms: Part
    outcomes: Part

    @property
    def is_complete(self) -> bool:
        """Whether nothing was missed."""
        return not (self.steps.missed or self.arms.missed or self.outcomes.missed)


class Coverage:
    """Collects what the scenarios of one runbook reach."""

    def __init__(self, program: Program) -> None:
        self._steps: dict[str, str] = {}
        self._arms: dict[tuple[str, str], str] = {}
        self._ends: dict[str, str] = {}
        self._repeats: set[str] = set()
        self._places: dict[str, str] = {}
        self._reached: set[object] = set()
        self._list(program.runbook.steps, None)
        self._list(program.runbook.finally_, "finally")

    def add(self, seen: RunObservation) -> None:
        """Count what one run reached."""
        self._reached.update(map(self._place, seen.paths))
        self._reached.update((self._place(path), label) for path, label in seen.arms)

    def report(self) -> CoverageReport:
        """Return what is reached and what is missed, in document order."""
        return CoverageReport(self._part(self._steps), self._part(self._arms), self._part(self._ends))

    def _part(self, known: Mapping[Any, str]) -> Part:
        missed = tuple(text for place, text in known.items() if place not in self._reached)
        return Part(len(known) - len(missed), missed)

    def _list(self, steps: tuple[Step, ...], prefix: str | None) -> None:
        for number, step in enumerate(steps, 1):
            place = child(prefix, step_name(step, number))
            if isinstance(step, EndStep):
                self._ends[place] = f"{step.outcome.category} ({step.outcome.code.source}) at {place}"
            else:
                self._steps[place] = place
            self._inside(step, place)

    def _inside(self, step: Step, place: str) -> None:
        for segment, inner in inner_lists(step):
            if isinstance(step, BranchStep) and segment is not None:
                self._arms[place, segment] = f"{place}: {segment}"
            self._list(inner, place if segment is None else child(place, segment))
        if isinstance(step, RepeatStep):
            self._repeats.add(place)

    def _place(self, path: str) -> str:
        """Return a place in the runbook: a path without iterations."""
        known = self._places.get(path)
        if known is None:
            place: str | None = None
            for name, _ in split(path):
                place = child(place, ANY if place in self._repeats else name)
            known = self._places[path] = place or ""
        return known
