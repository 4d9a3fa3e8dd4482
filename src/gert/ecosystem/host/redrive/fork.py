"""Which recorded answers a new run takes: all that do not come after the step it begins live with (DECISIONS 57).

The run is rehearsed on the recorded answers with nobody to ask. A lane that comes to the step takes none from there on;
every other lane takes its own as far as they go, in the order they were given. What is taken therefore never rests on
anything that is not, and the driver, fed with it, comes to the same place.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.redrive.resume_journal import BETWEEN, difference
from gert.ecosystem.host.run.driver import CANCEL, Driver
from gert.ecosystem.host.run.journal import Journal, Logged
from gert.ecosystem.host.run.lanes import Lane
from gert.errors import IntegrityError, TraceError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AnyAnswer, Ask, AwaitApproval, Said
from gert.kernel.engine.run import run
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.path import PathSegment, split
from gert.kernel.events.runbook import (
    ApprovalSubmitted,
    BreakGlass,
    InputResolved,
    RunStart,
    StepComplete,
    StepRetry,
    StepStart,
)
from gert.kernel.foundation.names import did_you_mean
from gert.kernel.runbook.program import Program

FINALLY: Final = "finally"
_MOST_NAMED: Final = 20
_CALLED: Final = ("tool", "action", "extension", "inputs")
# What says who started the run and with what: of another run it says something else.
_OF_THE_RUN: Final = frozenset({RunStart.type, InputResolved.type})
_OF_ITS_ACTOR: Final = frozenset({ApprovalSubmitted.type, BreakGlass.type})


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a new run leaves the way of an old one.

    answers: what it takes, in the order it takes it
    beside: questions of other lanes that are open there: they were put before, or nobody knows
    executed: how often each target had been executed on the way, by the name the kernel calls it
    """

    answers: tuple[Logged, ...]
    beside: tuple[Ask[Any], ...]
    executed: dict[str, int]


class StepPlace:
    """A step as somebody names it: an id, one item of a loop (`id[key]`), or a whole path."""

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        try:
            self._segments = split(text)
        except TraceError:
            raise UsageError(
                f"`{text}` is not a step", hint="write its id, `id[key]` for one item, or its path"
            ) from None
        ids = {step.id for step in program.steps if step.id is not None}
        self._has_finally = FINALLY not in ids
        if len(self._segments) == 1 and self._segments[0].name not in ids and "#" not in text:
            guess = did_you_mean(self._segments[0].name, sorted(ids))
            known = ", ".join(f"`{each}`" for each in sorted(ids)[:_MOST_NAMED])
            raise UsageError(
                f"the runbook has no step `{self._segments[0].name}`",
                hint=f"did you mean `{guess}`?" if guess else f"it has {known}",
            )

    def covers(self, path: str | None) -> bool:
        """Whether something happened in the step, or inside it."""
        if path is None:
            return False
        found = split(path)
        if len(self._segments) > 1:
            return len(found) >= len(self._segments) and all(map(_is, self._segments, found))
        # A path goes from step to arm to step; what lies in `finally` is one further in.
        first = 1 if self._has_finally and found[0] == PathSegment(FINALLY) else 0
        return any(_is(self._segments[0], each) for each in found[first::2])


def _is(wanted: PathSegment, found: PathSegment) -> bool:
    return wanted.name == found.name and wanted.item in (None, found.item)


async def fork_at(
    step: StepPlace,
    setup: Setup,
    answers: Iterable[Logged],
    recorded: list[bytes],
    *,
    strictly: bool,
    lanes: int,
    hear: Callable[[Ask[Any], AnyAnswer], object] = lambda *_: None,
) -> Fork:
    """Find where a run is left for a new one.

    recorded: the events of the run; the way to the step has to be the one they tell of
    strictly: nothing was changed, so every event has to say the same
    hear: refuses an answer that a new run must not take
    """
    events = [event for event in map(decode, recorded) if event.type not in BETWEEN]
    first = next((event.seq for event in events if step.covers(event.path)), None)
    if first is None:
        raise UsageError(f"the run never came to `{step.text}`", hint=_came_to(events))
    draft = _Draft(setup)
    heard: list[tuple[Ask[Any], AnyAnswer]] = []
    rehearsal = _Rehearsal(draft, answers, step, lanes, lambda ask, answer: heard.append((ask, answer)))
    try:
        await rehearsal.drive(run(setup))
    except _Stopped:
        pass
    except IntegrityError as problem:
        raise _another_way(problem.message) from None
    finally:
        draft.close()
    for ask, answer in heard:
        hear(ask, answer)
    said = [decode(line) for line in draft.taken]
    _require_same_way(said, events, first, strictly=strictly)
    if not rehearsal.has_come:
        raise _another_way(f"it does not come to `{step.text}`")
    if not rehearsal.asked:
        raise UsageError(
            f"nothing is asked from `{step.text}` on, so a new run would come to the same",
            hint="name an earlier step",
        )
    executed = _executed(said)
    taken = _without_open_approvals(rehearsal.taken, heard, rehearsal.beside)
    return Fork(answers=taken, beside=tuple(rehearsal.beside), executed=executed)


def _without_open_approvals(
    taken: Iterable[Logged], heard: Iterable[tuple[Ask[Any], AnyAnswer]], beside: Iterable[Ask[Any]]
) -> tuple[Logged, ...]:
    """The answers without those of approved steps that the new run would go on with: it begins such a step anew.

    An approval is for the call it was asked for. A call that has no recorded answer is another one.
    """
    approved = {_visit(ask.key) for ask, _ in heard if isinstance(ask, AwaitApproval)}
    approved |= {_visit(ask.key) for ask in beside if isinstance(ask, AwaitApproval)}
    open_visits = approved & {_visit(ask.key) for ask in beside}
    return tuple(entry for entry in taken if not any(_is_of(entry.key, visit) for visit in open_visits))


def _visit(key: str) -> str:
    """The visit of a step that a question belongs to, for every question but its first one."""
    return key.rpartition("#")[0]


def _is_of(key: str, visit: str) -> bool:
    """Whether a question belongs to a visit of a step."""
    return key == visit or (_visit(key) == visit and key.rpartition("#")[2].isdecimal())


class _Stopped(Exception):
    """Whatever is left to ask is not for the recorded answers."""


class _Silent:
    """A world nobody asks."""

    def immediate(self, ask: Ask[Any]) -> AnyAnswer | None:
        """Nothing is known."""
        return None

    async def answer(self, ask: Ask[Any]) -> AnyAnswer:
        """Never called: the rehearsal stops before."""
        raise AssertionError(ask.key)


class _Draft(Journal):
    """What a rehearsal says; kept in memory only.

    taken: the lines that were said before the step was reached
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.run_id, has_secrets=bool(setup.secret_inputs))
        self.taken: list[bytes] = []
        self.hears: Callable[[str | None], bool] = lambda _: False

    def say(self, said: Said) -> None:
        """Keep an event if it belongs to the way."""
        super().say(said)
        event = self._events.pop()
        if not self.hears(said.path):
            self.taken.append(event.line)

    def log(self, entry: Logged) -> None:
        """Answers are kept by whoever takes them."""
        self._timestamp = ""


class _Rehearsal(Driver):
    """Drives a run on recorded answers, each lane as far as it comes without reaching the step.

    taken: the answers, in the order they were taken
    asked, beside: what is open when no further one can be, from the step on and in other lanes
    """

    def __init__(
        self,
        draft: _Draft,
        answers: Iterable[Logged],
        step: StepPlace,
        lanes: int,
        on_recorded: Callable[[Ask[Any], AnyAnswer], object],
    ) -> None:
        # Whoever was told to stop had no answer: those are not answers of the world.
        real = [entry for entry in answers if entry.key != CANCEL and not _is_cancelled(entry)]
        super().__init__(_Silent(), draft, max_parallel=lanes, recorded=real, on_recorded=on_recorded)
        draft.hears = self._hears
        self._step = step
        self._lane: Lane | None = None
        self._beyond: set[Lane] = set()
        self.has_come = False
        self.taken: list[Logged] = []
        self.asked: list[Ask[Any]] = []
        self.beside: list[Ask[Any]] = []

    def _hears(self, path: str | None) -> bool:
        """Whether what is said lies at or beyond the step."""
        lane = self._lane
        if lane is None:
            return False
        if self._step.covers(path):
            self.has_come = True
            self._beyond.add(lane)
        return self._is_beyond(lane)

    def _is_beyond(self, lane: Lane) -> bool:
        at: Lane | None = lane
        while at is not None:
            if at in self._beyond:
                return True
            at = at.block.parent if at.block is not None else None
        return False

    def _advance(self, lane: Lane, value: Any) -> None:
        self._lane = lane
        super()._advance(lane, value)
        if lane.done and lane.block is not None and self._is_beyond(lane):
            self._beyond.add(lane.block.parent)

    def _take_next(self) -> bool:
        """Take the first recorded answer to a question that is open before the step."""
        at = next((at for at, entry in enumerate(self._recorded) if self._may_take(entry)), None)
        if at is None:
            for lane, ask in (*self._asked, *self._parked.values()):
                (self.asked if self._is_beyond(lane) else self.beside).append(ask)
            raise _Stopped
        entry = self._recorded[at]
        del self._recorded[at]
        self._recorded.appendleft(entry)
        self.taken.append(entry)
        return super()._take_next()

    def _may_take(self, entry: Logged) -> bool:
        parked = self._parked.get(entry.key)
        return parked is not None and not self._is_beyond(parked[0])


def _is_cancelled(entry: Logged) -> bool:
    return entry.answer.failure is not None and entry.answer.failure.kind == "cancelled"


# --- the way


def _require_same_way(said: list[Envelope], recorded: list[Envelope], first: int, *, strictly: bool) -> None:
    """Hold what is said up to the step against the record, place by place: lanes may have taken turns otherwise."""
    before, again = _by_path(recorded), _by_path(said)
    for path in {**before, **again}:
        told, told_again = before.get(path, []), again.get(path, [])
        for old, new in itertools.zip_longest(told, told_again):
            if new is None:
                # What had happened before the step was reached has to happen again; what came later need not.
                if old is not None and old.seq < first:
                    raise _another_way(f"event {old.seq}, `{old.type}`{_at(path)}, does not come again")
                break
            if old is None or not _is_same(old, new, strictly=strictly):
                was = difference(old, new, new.type) if old is not None else "it is new"
                raise _another_way(f"{_where(old, new)}{_at(path)}: {was}", old)


def _by_path(events: Iterable[Envelope]) -> dict[str | None, list[Envelope]]:
    found: dict[str | None, list[Envelope]] = {}
    for event in events:
        if event.type not in _OF_THE_RUN:
            found.setdefault(event.path, []).append(event)
    return found


def _is_same(old: Envelope, new: Envelope, *, strictly: bool) -> bool:
    if old.type != new.type or old.data.get("step_id") != new.data.get("step_id"):
        return False
    if strictly and old.type not in _OF_ITS_ACTOR:
        return _without_times(old) == _without_times(new)
    # Of an answer it matters what was asked: another question would have had another one.
    return old.type != StepStart.type or all(old.data.get(name) == new.data.get(name) for name in _CALLED)


def _without_times(event: Envelope) -> dict[str, Any]:
    """What an event says, but for how long it took: lanes may have taken turns otherwise."""
    data = {name: value for name, value in event.data.items() if name not in ("duration", "waited")}
    if lanes := data.get("branch_outcomes"):
        data["branch_outcomes"] = [{**each, "duration": None, "waited": None} for each in lanes]
    return data


def _where(old: Envelope | None, new: Envelope) -> str:
    return f"event {old.seq}" if old is not None else f"`{new.type}`"


def _at(path: str | None) -> str:
    return f" at `{path}`" if path else ""


def _another_way(why: str, old: Envelope | None = None) -> IntegrityError:
    hint = "the runbook, its tools, its policies or its inputs lead another way to that step; begin a new run"
    if old is not None and old.type == BreakGlass.type:
        hint = "an emergency override is not taken over: say --break-glass again"
    return IntegrityError(f"the way to the step is not the same: {why}", hint=hint)


def _came_to(events: Iterable[Envelope]) -> str:
    steps = dict.fromkeys(event.data.get("step_id") for event in events if event.type == StepComplete.type)
    listed = [f"`{step}`" for step in steps if isinstance(step, str)]
    return f"it came to {', '.join(listed[:_MOST_NAMED])}" if listed else "it came to no step"


def _executed(said: Iterable[Envelope]) -> dict[str, int]:
    """How often each target was executed, as the kernel counts them."""
    return _counted(_targets(said))


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


def _counted(targets: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for target in targets:
        counts[target] = counts.get(target, 0) + 1
    return counts
