"""Which recorded answers a rerun takes: all before the step it runs live from (DECISIONS 57).

The new run is driven on the recorded answers, without a world. A lane that reaches the step takes none from there on;
every other lane takes its own until none is left, in the order they were recorded. So no answer is taken that depends
on one that is not, and a driver that is fed with the answers reaches the same place.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from gert.ecosystem.host.redrive.redrive import HOST_EVENTS, RedriveJournal, Same, Then, Verify, diverged, redrive
from gert.ecosystem.host.run.driver.driver import CANCEL
from gert.ecosystem.host.run.record.journal import RecordedAnswer
from gert.errors import IntegrityError, TraceError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, Emit, Request
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.path import PathSegment, is_named, lineage, split
from gert.kernel.events.runbook import (
    ApprovalSubmitted,
    BreakGlass,
    InputResolved,
    RunStart,
    StepComplete,
    StepRetry,
    StepStart,
)
from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.foundation.text import path_text
from gert.kernel.runbook.program import Program

FINALLY: Final = "finally"
_MOST_NAMED: Final = 20
_PATH: Final = 2
"""A name of so many segments is a path."""
_READ: Final = re.compile(r"[^/\[\]]+(?:/[^/\[\]]+)*\[.+\](?:/[^/\[\]]+)*")
"""A step as people read it: the key of an item may hold `/`, `[` and `]`."""
_CALLED: Final = ("tool", "action", "extension", "inputs")
# These say who started the run and with what: another run has others.
_OF_THE_RUN: Final = frozenset({RunStart.type, InputResolved.type})
_HINT: Final = "the runbook, its tools, its policies or its inputs lead another way to that step; begin a new run"
_OF_ITS_ACTOR: Final = frozenset({ApprovalSubmitted.type, BreakGlass.type})


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rerun leaves the recorded run.

    answers: those that it takes, in the order it takes them
    beside: requests of other lanes that are open there: they may have been put before
    executed: how often each target had been executed up to there
    """

    answers: tuple[RecordedAnswer, ...]
    beside: tuple[Request[Any], ...]
    executed: dict[str, int]


class StepName:
    """A step as the operator names it: an id, one item of a loop (`id[key]`), or a whole path."""

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        ids = {step.id for step in program.steps if step.id is not None}
        self._has_finally = FINALLY not in ids
        try:
            self._segments = split(text)
        except TraceError:
            if _READ.fullmatch(text) is None:
                raise UsageError(
                    f"`{text}` is not a step", hint="write its id, `id[key]` for one item, or its path"
                ) from None
            self._segments = ()
        name = self._segments[0].name if self._segments else text.partition("[")[0]
        if len(self._segments) < _PATH and "/" not in name and name not in ids and "#" not in text:
            known = listing(sorted(ids), _MOST_NAMED)
            raise UsageError(
                f"the runbook has no step `{name}`", hint=suggestion(name, sorted(ids)) or f"it has {known}"
            )

    def covers(self, path: str | None) -> bool:
        """Whether something happened in the step, or inside it."""
        if path is None:
            return False
        found = split(path)
        if len(self._segments) >= _PATH:
            return len(found) >= len(self._segments) and all(map(_is, self._segments, found))
        # A path goes from step to arm to step; what lies in `finally` is one further in.
        first = 1 if self._has_finally and found[0] == PathSegment(FINALLY) else 0
        if not self._segments:
            return any(is_named(each, self.text) for each in lineage(path)[first::2])
        return any(_is(self._segments[0], each) for each in found[first::2])


def _is(wanted: PathSegment, found: PathSegment) -> bool:
    return wanted.name == found.name and wanted.item in (None, found.item)


async def fork_at(
    step: StepName,
    setup: Setup,
    answers: Iterable[RecordedAnswer],
    recorded: Sequence[bytes],
    *,
    strictly: bool,
    lanes: int,
    verify: Verify | None = None,
) -> Fork:
    """Find where a rerun leaves the recorded run.

    recorded: the events of the recorded run; the new run has to repeat them up to the step
    strictly: nothing was changed, so every event has to repeat its data, too
    verify: refuses an answer that a new run must not take
    """
    events = [event for event in map(decode, recorded) if event.type not in HOST_EVENTS]
    first = next((event.seq for event in events if step.covers(event.path)), None)
    if first is None:
        raise UsageError(f"the run never reached `{step.text}`", hint=_reached(events))
    # A request that was cancelled has no answer of the world.
    real = [entry for entry in answers if entry.key != CANCEL and not _is_cancelled(entry)]
    journal, then = _PathJournal(setup, events, _is_equal if strictly else _is_same_call), _Stop(step)
    with suppress(_Stopped):
        await redrive(setup, real, journal, then, lanes=lanes, until=then.until, verify=verify)
    journal.require_all(before=first)
    if not then.is_reached:
        raise IntegrityError(f"the run does not reach `{step.text}` again", hint=_HINT)
    if not then.asked:
        raise UsageError(
            f"nothing is asked from `{step.text}` on, so a new run would have the same result",
            hint="name an earlier step",
        )
    taken = _without_open_approvals(journal.taken, then.beside)
    return Fork(answers=taken, beside=tuple(then.beside), executed=dict(Counter(_targets(journal.repeated))))


class _Stopped(Exception):
    """No recorded answer is left that the new run may take."""


class _Stop(Then):
    """Stops where the recorded answers end.

    is_reached: a lane has reached the step
    asked, beside: the requests that are open there, from the step on and in other lanes
    """

    def __init__(self, step: StepName) -> None:
        self._step = step
        self.is_reached = False
        self.asked: list[Request[Any]] = []
        self.beside: list[Request[Any]] = []

    def until(self, path: str | None) -> bool:
        """Whether an event lies in the step."""
        is_in_step = self._step.covers(path)
        self.is_reached |= is_in_step
        return is_in_step

    def begin(self, announced: list[Request[Any]]) -> None:
        """Stop."""
        self.beside = announced
        if self.driver is not None:
            self.asked = [ask for ask in self.driver.unanswered if ask not in announced]
        raise _Stopped


class _PathJournal(RedriveJournal):
    """Compares the events of a new run with those of another one, path by path, and writes nothing.

    The new run takes only some of the answers, so its lanes may take turns in another order.

    taken: the answers that the new run took
    repeated: the events that it emitted
    """

    def __init__(self, setup: Setup, events: Iterable[Envelope], same: Same) -> None:
        super().__init__(setup.run_id, (), (), same=same, has_secrets=bool(setup.secret_inputs))
        self._by_path: dict[str | None, deque[Envelope]] = {}
        for event in events:
            if event.type not in _OF_THE_RUN:
                self._by_path.setdefault(event.path, deque()).append(event)
        self.taken: list[RecordedAnswer] = []
        self.repeated: list[Envelope] = []

    def say(self, said: Emit) -> None:
        """Compare an event with the next one on record at its path."""
        self._timestamp = ""
        line, written = self._encoded(said)
        event, payload, path = decode(line), written.payload, written.path
        if payload.type not in _OF_THE_RUN:
            expected = self._by_path.get(path)
            if not expected:
                raise diverged(event, f"`{payload.type}` is not recorded there", path, _HINT)
            self._compare(said, expected.popleft(), None)
        self.repeated.append(event)
        self._add(line, payload, path, event.timestamp)

    def log(self, entry: RecordedAnswer) -> None:
        """Keep an answer that the new run takes."""
        self.taken.append(entry)

    def require_all(self, before: int) -> None:
        """Refuse a run that did not repeat every event that was recorded before the step."""
        for path, events in self._by_path.items():
            if events and events[0].seq < before:
                how = f"`{events[0].type}` is recorded, and the run does not emit it"
                raise diverged(events[0], how, path, self._hint(events[0]))

    def _hint(self, recorded: Envelope) -> str:
        if recorded.type == BreakGlass.type:
            return "an emergency override is not taken over: pass --break-glass again"
        return _HINT


def _without_open_approvals(
    taken: Iterable[RecordedAnswer], beside: Iterable[Request[Any]]
) -> tuple[RecordedAnswer, ...]:
    """The answers without those of approved steps that the new run would continue: it begins such a step anew.

    An approval is for the call it was requested for. A call that has no recorded answer is another one.
    """
    taken = list(taken)
    approved = {_visit(entry.key) for entry in taken if isinstance(entry.answer, ApprovalAnswer)}
    approved |= {_visit(ask.key) for ask in beside if isinstance(ask, AwaitApproval)}
    open_visits = approved & {_visit(ask.key) for ask in beside}
    return tuple(entry for entry in taken if not any(_is_of(entry.key, visit) for visit in open_visits))


def _visit(key: str) -> str:
    """The visit of a step that a request belongs to, for every request but its first one."""
    return key.rpartition("#")[0]


def _is_of(key: str, visit: str) -> bool:
    """Whether a request belongs to a visit of a step."""
    return key == visit or (_visit(key) == visit and key.rpartition("#")[2].isdecimal())


def _is_cancelled(entry: RecordedAnswer) -> bool:
    return entry.answer.failure is not None and entry.answer.failure.kind == "cancelled"


# --- comparison


def _is_equal(old: Envelope, new: Envelope) -> bool:
    """Whether an event repeats another one in a run of the same runbook with the same inputs."""
    return _is_same_step(old, new) and (old.type in _OF_ITS_ACTOR or _without_times(old) == _without_times(new))


def _is_same_call(old: Envelope, new: Envelope) -> bool:
    """Whether an event repeats another one although something has changed: of a call, what is called with what."""
    is_same = old.type != StepStart.type or all(old.data.get(name) == new.data.get(name) for name in _CALLED)
    return _is_same_step(old, new) and is_same


def _is_same_step(old: Envelope, new: Envelope) -> bool:
    return old.type == new.type and old.data.get("step_id") == new.data.get("step_id")


def _without_times(event: Envelope) -> dict[str, Any]:
    """The data of an event without durations: lanes may have taken turns in another order."""
    data = {name: value for name, value in event.data.items() if name not in ("duration", "waited")}
    if lanes := data.get("branch_outcomes"):
        data["branch_outcomes"] = [{**each, "duration": None, "waited": None} for each in lanes]
    return data


def _reached(events: Iterable[Envelope]) -> str:
    steps = dict.fromkeys(event.data.get("step_id") for event in events if event.type == StepComplete.type)
    listed = [f"`{path_text(step)}`" for step in steps if isinstance(step, str)]
    return f"it reached {', '.join(listed[:_MOST_NAMED])}" if listed else "it reached no step"


def _targets(said: Iterable[Envelope]) -> Iterator[str]:
    started: dict[str | None, str] = {}
    for event in said:
        data: Mapping[str, Any] = event.data
        if event.type == StepRetry.type and event.path in started:
            yield started[event.path]
        if event.type != StepStart.type or not data.get("contract_summary"):
            continue
        if data.get("tool"):
            target = f"{data['tool']}:{data['action']}" if data.get("action") else str(data["tool"])
        else:
            target = str(data.get("extension") or data.get("type"))
        started[event.path] = target
        yield target
