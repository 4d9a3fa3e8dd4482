"""Run outcomes by runbook: a fold over run summaries."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.summary import RunSummary, without_item
from gert.kernel.events.tally import Durations, Tally
from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES

INCOMPLETE: Final = "incomplete"
NO_OUTCOME: Final = "no_outcome"
ENDINGS: Final = (*OUTCOME_CATEGORIES, "failed", "error", "cancelled", INCOMPLETE, NO_OUTCOME)
"""The categories that runs are counted in; each run counts once."""

REPEATED: Final = 2
"""The number of runs from which a violation counts as repeated."""

Objection = Literal["mode", "period", "runbook"]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs count; `until` is exclusive, and omitted fields exclude nothing."""

    since: datetime | None = None
    until: datetime | None = None
    runbook: str | None = None
    mode: str | None = None

    def objection(self, run: RunSummary) -> Objection | None:
        """Return why a run does not count, judging by its start."""
        if self.runbook is not None and run.runbook != self.runbook:
            return "runbook"
        if self.mode is not None and run.mode != self.mode:
            return "mode"
        early = self.since is not None and run.started < self.since
        late = self.until is not None and run.started >= self.until
        return "period" if early or late else None


class RunbookOutcomes:
    """The outcomes of the runs of one runbook."""

    def __init__(self, runbook: str) -> None:
        self.runbook = runbook
        self.runs = 0
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.endings = dict.fromkeys(ENDINGS, 0)
        self.codes: Tally[tuple[str, str]] = Tally()
        self.durations = Durations()
        self.waits = Durations()
        self.failures: Tally[tuple[str, str]] = Tally()
        self.break_glass: Tally[tuple[str, str]] = Tally()
        self.break_glass_runs = 0
        # By kind and step: how often, and in how many runs.
        self._violations: Tally[tuple[str, str]] = Tally()
        self._violated_in: Tally[tuple[str, str]] = Tally()

    def add(self, run: RunSummary) -> None:
        """Count one more run."""
        self.runs += 1
        self.first = run.started if self.first is None else min(self.first, run.started)
        self.last = run.started if self.last is None else max(self.last, run.started)
        self.endings[ending(run)] += 1
        if run.category is not None and run.code is not None:
            self.codes.add((run.code, run.category))
        if run.seconds is not None:
            self.durations.add(run.seconds)
            self.waits.add(run.waited or 0.0)
        if run.failure_kind is not None:
            self.failures.add((run.failure_kind, without_item(run.failed_step or "")))
        for place in run.violations:
            self._violations.add(place, run.violations[place])
            self._violated_in.add(place)
        for use in run.break_glass:
            self.break_glass.add(use, run.break_glass[use])
        self.break_glass_runs += bool(run.break_glass.total)

    def percent(self, ending: str) -> float:
        """Return the percentage of all runs with this ending."""
        return 100 * self.endings[ending] / self.runs if self.runs else 0.0

    def top_codes(self) -> list[tuple[str, int]]:
        """Outcome codes, the most frequent first, whatever their category."""
        counted: Tally[str] = Tally()
        for (code, _), count in self.codes.top():
            counted.add(code, count)
        return counted.top()

    def failures_by_kind(self) -> list[tuple[str, int, list[tuple[str, int]]]]:
        """Each kind of failure, how often, and at which steps; the most frequent first."""
        kinds: Tally[str] = Tally()
        steps: dict[str, list[tuple[str, int]]] = {}
        for (kind, step), count in self.failures.top():
            kinds.add(kind, count)
            steps.setdefault(kind, []).append((step, count))
        return [(kind, count, steps[kind]) for kind, count in kinds.top()]

    def repeated_violations(self) -> list[tuple[str, str, int, int]]:
        """Kind, step, runs and times of what happened in more than one run."""
        return [
            (kind, step, runs, self._violations[kind, step])
            for (kind, step), runs in self._violated_in.top()
            if runs >= REPEATED
        ]

    def as_data(self) -> dict[str, Any]:
        """Return all numbers as JSON data, with stable names."""
        return {
            "runbook": self.runbook,
            "runs": self.runs,
            "first": _written(self.first),
            "last": _written(self.last),
            "endings": {each: self._share(each) for each in ENDINGS},
            "codes": [
                {"code": code, "category": category, "count": count} for (code, category), count in self.codes.top()
            ],
            "other_codes": self.codes.beyond,
            "durations": _spread(self.durations),
            "waited": _spread(self.waits),
            "failures": [
                {"kind": kind, "count": count, "steps": [{"step": step, "count": at} for step, at in steps]}
                for kind, count, steps in self.failures_by_kind()
            ],
            "repeated_violations": [
                {"kind": kind, "step": step, "runs": runs, "times": times}
                for kind, step, runs, times in self.repeated_violations()
            ],
            "break_glass": {
                "uses": self.break_glass.total,
                "runs": self.break_glass_runs,
                "by": [{"actor": actor, "step": step, "uses": uses} for (actor, step), uses in self.break_glass.top()],
            },
        }

    def _share(self, ending: str) -> dict[str, Any]:
        return {"count": self.endings[ending], "percent": round(self.percent(ending), 2)}


class OutcomeReport:
    """Run outcomes, by runbook."""

    def __init__(self) -> None:
        self.runs = 0
        self._by_name: dict[str, RunbookOutcomes] = {}

    def add(self, run: RunSummary) -> None:
        """Count one more run."""
        self.runs += 1
        if run.runbook not in self._by_name:
            self._by_name[run.runbook] = RunbookOutcomes(run.runbook)
        self._by_name[run.runbook].add(run)

    @property
    def runbooks(self) -> list[RunbookOutcomes]:
        """The runbooks, the one that ran most often first."""
        return sorted(self._by_name.values(), key=lambda each: (-each.runs, each.runbook))


def distinct(runs: Iterable[RunSummary]) -> Iterator[RunSummary]:
    """Yield each run once; a later copy replaces one that was made before the run ended."""
    ended: set[str] = set()
    unfinished: dict[str, RunSummary] = {}
    for run in runs:
        if run.run_id in ended:
            continue
        if run.status is None:
            unfinished[run.run_id] = run
            continue
        ended.add(run.run_id)
        unfinished.pop(run.run_id, None)
        yield run
    yield from unfinished.values()


def ending(run: RunSummary) -> str:
    """Return the category that a run is counted in."""
    if run.status is None:
        return INCOMPLETE
    return run.status if run.status != "completed" else run.category or NO_OUTCOME


def _spread(measured: Durations) -> dict[str, Any]:
    return {
        "runs": measured.count,
        "median_seconds": measured.percentile(50),
        "p95_seconds": measured.percentile(95),
        "longest_seconds": measured.longest if measured.count else None,
    }


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else format_timestamp(moment)
