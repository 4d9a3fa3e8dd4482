"""Drives a run: turns its requests into awaits, its lanes into turns, and its events into entries of a journal.

The events depend only on the run and on the order in which answers arrive. Lanes advance one at a time, each until it
has to wait; answers are taken in the order they came. Fed with recorded answers in that order, the driver emits the
same events again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec

from gert.ecosystem.host.run.driver.clock import RunClock
from gert.ecosystem.host.run.driver.gc_tuning import settled_heap
from gert.ecosystem.host.run.driver.lanes import Lane, Lanes
from gert.ecosystem.host.run.record.journal import RecordedAnswer
from gert.ecosystem.host.run.world.worlds import Detached, World, failure_of
from gert.ecosystem.tools.outputs import Interrupted
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.clock import format_seconds
from gert.kernel.engine.policy_gate import exceeded
from gert.kernel.engine.requests import ANSWERS, AnyAnswer, Emit, PauseAnswer, Request, RunLanes, Steps, failed_answer
from gert.kernel.events.runbook import Failure, FinallyStart, RunCancelled
from gert.kernel.ledger.record import Claim

T = TypeVar("T")

MAX_PARALLEL: Final = 16
CANCEL: Final = "!cancel"
"""The key of a cancellation among the recorded answers; no request has it."""
_PATIENCE: Final = 500
"""How many events a lane may emit before signals and timers get a turn."""
_TOGETHER: Final = 8
"""How many requests are collected before they are put to the world: the first run while more lanes begin."""


class JournalPort(Protocol):
    """A journal, as the driver uses it."""

    @property
    def events(self) -> int:
        """How many events were emitted."""

    @property
    def repeats(self) -> bool:
        """Whether everything emitted so far was on record before: the run is not yet past its record."""

    @property
    def is_full(self) -> bool:
        """Whether so many events wait that they should be written before more are emitted."""

    def say(self, said: Emit) -> None:
        """Add an event; TraceError where it cannot be recorded."""

    def log(self, entry: RecordedAnswer) -> None:
        """Add an answer."""

    async def settle(self, claims: Sequence[Claim] = ()) -> Mapping[str, int]:
        """Make all events and answers durable; gives the requests whose claims were refused."""

    async def confirm(self) -> None:
        """Refuse to act where another process has taken the run."""


Gate: TypeAlias = Callable[[Request[Any]], Awaitable[int | None]]
"""Waits until a request may be put to the world."""
OnRest: TypeAlias = Callable[[list[str]], object]
"""Gets the keys of the requests that all lanes wait for."""


class Suspended(Exception):
    """Every request that is open waits for a person; the run is on record up to there.

    tickets: of other runs that requests wait for, by the key of the request
    """

    def __init__(self, asks: Iterable[Request[Any]], tickets: Mapping[str, str]) -> None:
        super().__init__("the run waits for a person")
        self.asks = tuple(asks)
        self.tickets = tickets


class Driver:
    """Drives one run.

    recorded: recorded answers; they are fed to the run before the world is asked
    until: whether a path lies at or inside the step that the recorded answers lead up to; a lane that has passed the
        step is fed no more of them, and its events are not emitted
    on_recorded: checks each recorded answer and its request before the run gets it; an exception stops the run
    on_live: called once when no recorded answer is left, with the requests that were announced and have no answer
    clock: gives the time at which an answer is taken; without one, only the durations of answers advance time
    claim_of: the execution that a request counts as; one that exceeds a limit is denied and not made
    gate: awaited before a request is put to the world; gives the message that let it pass, if one did
    on_rest: called where no lane can go on without an answer, with the keys of the open requests in the order of lanes
    """

    def __init__(
        self,
        world: World,
        journal: JournalPort,
        *,
        max_parallel: int = MAX_PARALLEL,
        recorded: Iterable[RecordedAnswer] = (),
        until: Callable[[str | None], bool] | None = None,
        on_recorded: Callable[[Request[Any], AnyAnswer], object] | None = None,
        on_live: Callable[[list[Request[Any]]], object] | None = None,
        clock: RunClock | None = None,
        claim_of: Callable[[Request[Any]], Claim | None] = lambda _: None,
        gate: Gate | None = None,
        on_rest: OnRest | None = None,
    ) -> None:
        self._claim_of = claim_of
        self._gate = gate
        self._on_rest = on_rest
        self._world = world
        self._journal = journal
        self._lanes = Lanes(max_parallel)
        self._recorded = deque(recorded)
        self._until = until
        self._on_recorded = on_recorded
        self._on_live = on_live
        self._clock = clock
        self._latest = 0.0
        self._idle: tuple[tuple[float, float], ...] = ()
        self._announced: set[str] = set()
        self._parked: dict[str, tuple[Lane, Request[Any]]] = {}
        self._asked: list[tuple[Lane, Request[Any]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals: deque[tuple[Lane | None, RecordedAnswer]] = deque()
        self._arrived = asyncio.Event()
        self._open = 0
        # Requests in flight: of which lane, and since when.
        self._unanswered: dict[str, tuple[Lane, float]] = {}
        self._waiting: list[tuple[Lane, Request[Any]]] = []
        self._tickets: dict[str, str] = {}
        # A requested cancellation, and one that is being delivered to lanes.
        self._wish: str | None = None
        self._reason: str | None = None
        self._is_finally = False
        self._looked = 0
        self._turns = 0

    @property
    def unanswered(self) -> list[Request[Any]]:
        """The requests that are about to be put to the world."""
        return [ask for _, ask in self._asked]

    async def drive(self, steps: Steps[T]) -> T:
        """Run to the end, and return what the run returns."""
        with settled_heap():
            return await self._drive(steps)

    async def _drive(self, steps: Steps[T]) -> T:
        root = self._lanes.root(steps)
        try:
            while not root.done:
                if self._is_cancellation_due():
                    self._take_next()  # a lane that requests nothing must be cancelled, too
                if self._lanes.ready:
                    self._turns += 1
                    self._advance(*self._lanes.ready.popleft())
                    if self._journal.is_full:
                        await self._journal.settle()
                    if len(self._asked) >= _TOGETHER and self._on_live is None and not self._parked:
                        await self._ask()
                        await asyncio.sleep(0)
                    await self._look_up()
                elif not self._take_next():
                    self._go_live()
                    await self._ask()
                    # An answer may have come while the disk was waited for: then the run is not at its end yet.
                    if self._waiting and not self._open and not self._arrivals:
                        waiting = sorted(self._waiting, key=lambda each: each[0].order)
                        raise Suspended((ask for _, ask in waiting), self._tickets)
                    self._rest()
                    await self._arrived.wait()
                    self._arrived.clear()
            await self._journal.settle()
            return cast("T", root.result)
        except Suspended:
            raise
        except Exception:
            # Events before any failure are on record.
            with suppress(TraceError):
                await self._journal.settle()
            raise
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self, reason: str, message_id: int | None = None, *, even_finally: bool = False) -> None:
        """Stop: every open request is answered with a cancellation, and no more lanes begin.

        The steps of `finally` run however the run ended, so they are stopped only where the caller says so.
        """
        if self._wish is not None or (self._is_finally and not even_finally):
            return
        self._wish = reason
        # As an answer without a request: so it is recorded where it happened. It comes before answers that were not
        # taken yet, because lanes that request nothing must be cancelled while those wait.
        stop = PauseAnswer(failure=Failure("cancelled", reason), message_id=message_id)
        self._arrivals.appendleft((None, RecordedAnswer(CANCEL, stop)))
        for task in self._tasks:
            task.cancel()
        waiting, self._waiting = self._waiting, []
        self._open += len(waiting)
        for lane, ask in waiting:
            self._arrive(lane, ask, failed_answer(ask, Failure("cancelled", reason)))
        self._arrived.set()

    def _go_live(self) -> None:
        """No recorded answer is left: from here on, requests are put to the world."""
        on_live, self._on_live = self._on_live, None
        if on_live is not None:
            on_live([ask for _, ask in self._asked if ask.key in self._announced])
            self._idle = self._clock.idle() if self._clock is not None else ()

    def _end_cancellation(self) -> None:
        """The cancellation was delivered, or the run has ended: later requests are those of `finally`."""
        self._reason = self._wish = None
        self._arrivals = deque(entry for entry in self._arrivals if entry[0] is not None)

    def _rest(self) -> None:
        """Say which requests are open, unless an answer has come that a lane can go on with."""
        if self._on_rest is not None and not self._arrivals:
            detached = {ask.key for _, ask in self._waiting}
            in_flight = sorted(self._unanswered.items(), key=lambda entry: entry[1][0].order)
            self._on_rest([key for key, _ in in_flight if key not in detached])

    async def _look_up(self) -> None:
        """Give signals and timers a turn now and then: a run that requests nothing would never wait."""
        if self._journal.events - self._looked >= _PATIENCE:
            self._looked = self._journal.events
            await asyncio.sleep(0)

    # --- turns

    def _take_next(self) -> bool:
        """Take the next answer, recorded or live, one at a time; false when there is none yet."""
        if known := self._next_recorded():
            entry, lane = known, None
            if entry.key in self._parked:
                lane, ask = self._parked.pop(entry.key)
                self._recall(entry, ask)
        elif self._parked:
            # The last requests of the record have no answer in it.
            self._asked += self._parked.values()
            self._parked.clear()
            return False
        elif self._arrivals:
            lane, entry = self._arrivals.popleft()
            entry = msgspec.structs.replace(entry, answer=self._stamped(entry.answer))
        else:
            return False
        if lane is not None:
            self._journal.log(entry)
            self._lanes.ready.append((lane, entry.answer))
        elif entry.answer.failure is not None:
            self._journal.log(msgspec.structs.replace(entry, turn=self._turns))
            self._reason = entry.answer.failure.message
            self._lanes.drop_waiting()
        return True

    def _next_recorded(self) -> RecordedAnswer | None:
        """The next recorded answer; up to a step, the next one to a request of a lane that has not passed it."""
        if not self._recorded:
            return None
        if self._until is not None:
            open_keys = [key for key, (lane, _) in self._parked.items() if not lane.is_past]
            at = next((at for at, entry in enumerate(self._recorded) if entry.key in open_keys), None)
            if at is None:
                self._recorded.clear()
                return None
            self._recorded.rotate(-at)
            entry = self._recorded.popleft()
            self._recorded.rotate(at)
            return entry
        entry = self._recorded.popleft()
        if entry.key not in self._parked and entry.key != CANCEL:
            raise IntegrityError(
                f"replay diverged at event {self._journal.events + 1}: an answer to `{entry.key}` is recorded, and the "
                "run does not request it",
                hint="the runbook, its tools or its inputs are not those the run was recorded with",
            )
        return entry

    def _stamped(self, answer: AnyAnswer) -> AnyAnswer:
        """An answer that says when it is taken; the first one after a resume also says when the run was not driven."""
        if self._clock is None:
            return answer
        idle, self._idle = self._idle, ()
        self._latest = max(self._latest, self._clock.age)
        return msgspec.structs.replace(answer, at=self._latest, idle=idle)

    def _recall(self, entry: RecordedAnswer, ask: Request[Any]) -> None:
        """Refuse a recorded answer that cannot be one to this request."""
        if type(entry.answer) is not ANSWERS[type(ask)]:
            raise IntegrityError(
                f"replay diverged at event {self._journal.events + 1}: the recorded answer to `{entry.key}` is of "
                "another kind than the request",
                hint="the record was changed, or the runbook was",
            )
        self._latest = max(self._latest, entry.answer.at or 0.0)
        if self._on_recorded is not None:
            self._on_recorded(ask, entry.answer)

    def _is_cancellation_due(self) -> bool:
        """Whether a cancellation waits; a recorded one comes again after as many turns of lanes as the first time."""
        if self._recorded:
            return self._recorded[0].key == CANCEL and self._turns >= (self._recorded[0].turn or 0)
        return self._wish is not None and self._reason is None and bool(self._arrivals)

    def _advance(self, lane: Lane, value: Any) -> None:
        """Advance a lane until it requests something, forks, ends, or has emitted many events."""
        said = 0
        say, go_on = self._journal.say, lane.steps.send
        send: Callable[[Any], Any] = go_on
        while True:
            try:
                item = send(value)
            except StopIteration as end:
                self._lanes.finish(lane, end.value)
                if lane.is_past and lane.block is not None:
                    lane.block.parent.has_passed = True
                return
            value, send = None, go_on
            if type(item) is Emit:
                if self._until is not None and self._is_past(lane, item.path):
                    continue
                try:
                    say(item)
                except TraceError as error:
                    # Too large to record: the step that emitted it fails.
                    value = error
                    send = lane.steps.throw
                    continue
                if type(item.payload) is FinallyStart:
                    self._is_finally = True
                if (self._reason or self._wish) and type(item.payload) in (RunCancelled, FinallyStart):
                    self._end_cancellation()
                if self._reason is not None:
                    value = Failure("cancelled", self._reason)
                said += 1
                if said >= _PATIENCE:
                    self._lanes.ready.appendleft((lane, value))
                    return
            elif type(item) is RunLanes:
                self._lanes.fork(lane, item)
                if self._reason is not None:
                    self._lanes.drop_waiting()
                return
            else:
                answer = self._at_once(lane, cast("Request[Any]", item))
                if answer is None:
                    return
                value = answer

    def _is_past(self, lane: Lane, path: str | None) -> bool:
        """Whether an event at this path belongs to a lane that has passed the step."""
        if self._until is not None and self._until(path):
            lane.has_passed = True
        return lane.is_past

    def _at_once(self, lane: Lane, ask: Request[Any]) -> AnyAnswer | None:
        """An answer that needs no world; otherwise the request waits for its turn."""
        if self._on_live is not None and self._journal.repeats and not lane.is_past:
            # It may have been put before: the events that led to it were on record.
            self._announced.add(ask.key)
        if self._recorded:
            entry = self._recorded[0]
            if entry.key != ask.key or not entry.at_once or lane.is_past:
                self._parked[ask.key] = (lane, ask)
                return None
            self._recall(entry, ask)
            self._recorded.popleft()
            self._journal.log(entry)
            return entry.answer
        if self._reason is not None:
            answer: AnyAnswer | None = failed_answer(ask, Failure("cancelled", self._reason))
        else:
            answer = self._world.immediate(ask)
        if answer is None:
            self._asked.append((lane, ask))
            return None
        answer = self._stamped(answer)
        self._journal.log(RecordedAnswer(ask.key, answer, at_once=True))
        return answer

    # --- requests

    async def _ask(self) -> None:
        """Put the waiting requests to the world, once every event is durable and every execution claimed."""
        self._start_requests(await self._journal.settle(self._claims()))

    def _claims(self) -> list[Claim]:
        """The claims of the requests that the world would be asked; none where the run is being cancelled."""
        if self._reason is not None or self._wish is not None:
            return []
        return [claim for _, ask in self._asked if (claim := self._claim_of(ask)) is not None]

    def _start_requests(self, refused: Mapping[str, int]) -> None:
        asked, self._asked = self._asked, []
        self._open += len(asked)
        for lane, ask in asked:
            reason = self._reason or self._wish
            if reason is not None:
                # A call that the operator reconciled keeps its result although the run is stopped.
                settled = self._world.immediate(ask)
                self._arrive(lane, ask, settled or failed_answer(ask, Failure("cancelled", reason)))
                continue
            if ask.counts is not None and ask.key in refused:
                # A call that the operator has reconciled is not made, so no limit applies to it.
                settled = self._world.immediate(ask)
                self._arrive(lane, ask, settled or failed_answer(ask, exceeded(ask.counts, refused[ask.key])))
                continue
            self._unanswered[ask.key] = (lane, time.monotonic())
            task = asyncio.create_task(self._answer(lane, ask))
            self._tasks.add(task)
            task.add_done_callback(partial(self._answer_cancelled, lane, ask))

    def _answer_cancelled(self, lane: Lane, ask: Request[Any], task: "asyncio.Task[None]") -> None:
        """Answer a request that was cancelled: a task that had not begun never gets to do so itself.

        One that was answered while it was being cancelled is not answered again.
        """
        self._tasks.discard(task)
        reason, begun = self._reason or self._wish, self._unanswered.get(ask.key)
        if task.cancelled() and reason is not None and begun is not None:
            self._arrive(lane, ask, _lasting(failed_answer(ask, Failure("cancelled", reason)), begun[1]))

    async def _answer(self, lane: Lane, ask: Request[Any]) -> None:
        # Before its time begins: a step that waits for a person to advance it does not time out.
        let_by = await self._gate(ask) if self._gate is not None else None
        start = time.monotonic()
        limit: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(ask.timeout) as limit:
                try:
                    # A process that was stopped since the call was announced must not make it beside another driver.
                    await self._journal.confirm()
                    answer = await self._world.answer(ask)
                except Interrupted as cut:
                    reason = self._reason or self._wish
                    if limit.expired():
                        answer = msgspec.structs.replace(cut.answer, failure=_timed_out(ask))
                    elif reason is not None:
                        answer = msgspec.structs.replace(cut.answer, failure=Failure("cancelled", reason))
                    else:
                        raise
        except Detached as detached:
            reason = self._reason or self._wish
            if reason is None:
                self._open -= 1
                self._waiting.append((lane, ask))
                if detached.ticket_id:
                    self._tickets[ask.key] = detached.ticket_id
                self._arrived.set()
                return
            # A run that is stopped does not wait for a person.
            answer = failed_answer(ask, Failure("cancelled", reason))
        except TimeoutError as error:
            if limit is not None and limit.expired():
                answer = failed_answer(ask, _timed_out(ask))
            else:
                answer = failed_answer(
                    ask, Failure("transport", f"the world gave up: {str(error) or 'it took too long'}")
                )
        except Exception as error:
            answer = failed_answer(ask, failure_of(error))
        if let_by is not None:
            answer = msgspec.structs.replace(answer, message_id=let_by)
        self._arrive(lane, ask, _lasting(answer, start))

    def _arrive(self, lane: Lane, ask: Request[Any], answer: AnyAnswer) -> None:
        self._open -= 1
        self._unanswered.pop(ask.key, None)
        self._arrivals.append((lane, RecordedAnswer(ask.key, answer)))
        self._arrived.set()


def _timed_out(ask: Request[Any]) -> Failure:
    return Failure("timeout", f"no answer within {format_seconds(ask.timeout or 0.0)}")


def _lasting(answer: AnyAnswer, start: float) -> AnyAnswer:
    """An answer that says how long it took: the time it was waited for, unless the world measured it."""
    return answer if answer.duration else msgspec.structs.replace(answer, duration=round(time.monotonic() - start, 3))
