"""The summary of one run, folded from the few events that matter.

Most events of a trace do not. Lines written by gert begin alike, so such an event is recognized by
the first bytes of its line, and the rest is skipped.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gert.errors import InputError, TraceError
from gert.kernel.events.envelope import Envelope, parse_timestamp
from gert.kernel.events.tally import Tally
from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES, RUN_STATUSES
from gert.kernel.foundation.duration import parse_duration

LONGEST_TEXT: Final = 200
"""The most characters of a name or code: a summary must stay small whatever a trace contains."""

MOST_PER_RUN: Final = 100
"""The most different violations, or uses of break-glass, that are distinguished in one run."""

_ITEM: Final = re.compile(r"\[[^\[\]/]*\]")


class RunSummary(msgspec.Struct):
    """The summary of one run.

    started: when its `run_start` was written
    seconds, waited: how long it took, and how much of that it waited; None if unknown
    status: how it ended; None while there is no `run_complete`
    claimed: the category and code of the last `end` step; final once the run has completed
    violations: how often each kind of violation happened at each step
    break_glass: how often each actor overrode a decision at each step
    trace: where it was read
    """

    run_id: str
    runbook: str
    started: datetime
    mode: str
    actor: str
    trace: str = ""
    status: str | None = None
    claimed: tuple[str, str | None] | None = None
    category: str | None = None
    code: str | None = None
    seconds: float | None = None
    waited: float | None = None
    failure_kind: str | None = None
    failed_step: str | None = None
    violations: Tally[tuple[str, str]] = msgspec.field(default_factory=lambda: Tally(MOST_PER_RUN))
    break_glass: Tally[tuple[str, str]] = msgspec.field(default_factory=lambda: Tally(MOST_PER_RUN))

    @classmethod
    def begin(cls, event: Envelope, trace: str = "") -> "RunSummary":
        """Return the summary of a run that begins with this event; TraceError if it is not a start event."""
        if event.type != "run_start":
            raise TraceError(f"it begins with `{_text(event.type)}`, and not with `run_start`")
        said = event.data
        return cls(
            run_id=_text(event.run_id),
            runbook=_text(said.get("runbook")) or "(unnamed)",
            started=parse_timestamp(event.timestamp),
            # Early traces have no mode, and were of real runs.
            mode=_text(said.get("mode")) or "real",
            actor=_text(said.get("actor")),
            trace=trace,
        )

    def take(self, event: Envelope) -> None:
        """Add another event of the run; a run ends once."""
        take = _TAKES.get(event.type)
        if take is not None and self.status is None:
            take(self, event)


def without_item(path: str) -> str:
    """Return a step path without the iteration, so that `each[3]` and `each[7]` count together."""
    return _ITEM.sub("", path)


def _violation(run: RunSummary, event: Envelope) -> None:
    run.violations.add((_text(event.data.get("kind")), without_item(_text(event.data.get("step_id")))))


def _break_glass(run: RunSummary, event: Envelope) -> None:
    run.break_glass.add((_text(event.data.get("actor")), without_item(_text(event.data.get("step_id")))))


def _outcome(run: RunSummary, event: Envelope) -> None:
    _claim(run, event.data.get("structured_outcome"))


def _complete(run: RunSummary, event: Envelope) -> None:
    said = event.data
    _claim(run, said.get("outcome"))
    status = said.get("status")
    run.status = status if status in RUN_STATUSES else "completed" if run.claimed else "error"
    run.seconds, run.waited = _seconds(run, event), _waited(event)
    if run.status == "completed":
        # A dry-run claims no outcome, even if it has `end` events.
        run.category, run.code = run.claimed if run.claimed and run.mode != "dry-run" else (None, None)
        return
    failure = said.get("failure")
    run.failure_kind = (_text(failure.get("kind")) if isinstance(failure, dict) else "") or None
    run.failed_step = _text(said.get("failed_step")) or None


def _claim(run: RunSummary, outcome: Any) -> None:
    if isinstance(outcome, dict) and outcome.get("category") in OUTCOME_CATEGORIES:
        run.claimed = outcome["category"], _text(outcome.get("code")) or None


def _seconds(run: RunSummary, event: Envelope) -> float | None:
    """Return the recorded duration, or else the time between its first and last timestamp."""
    try:
        return parse_duration(_text(event.data.get("duration"))).total_seconds()
    except InputError:
        try:
            return max(0.0, (parse_timestamp(event.timestamp) - run.started).total_seconds())
        except TraceError:
            return None


def _waited(event: Envelope) -> float | None:
    """Return the recorded waiting time; None if there is none."""
    try:
        return parse_duration(_text(event.data["waited"])).total_seconds() if "waited" in event.data else 0.0
    except InputError:
        return None


def _text(value: Any) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


_TAKES: Final[Mapping[str, Callable[[RunSummary, Envelope], None]]] = {
    "contract_violation": _violation,
    "break_glass": _break_glass,
    "outcome_resolved": _outcome,
    "run_complete": _complete,
}
# The bound match method, without a wrapper: it is called for every line.
is_irrelevant: Final[Callable[[bytes], object | None]] = re.compile(
    rb'\{"seq":[0-9]{1,16},"run_id":"[A-Za-z0-9._-]{1,128}","type":"(?!(?:%b)")[a-z][a-z0-9_]{0,63}"'
    % "|".join(("run_start", *_TAKES)).encode()
).match
"""Matches a line that, by its first bytes, no summary needs; any other has to be read."""
