"""Drives a run: turns its questions into awaits, its lanes into turns, and what it says into a journal.

What is written depends on nothing but the run and the order in which answers arrive. Lanes advance one at a
time, each until it has to wait; answers are taken in the order they came. Fed with a log of answers in that
order, the driver writes the same events again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, TypeVar, cast

import msgspec

from gert.ecosystem.host.journal import Journal, Logged
from gert.ecosystem.host.lanes import Block, Lane, Lanes
from gert.ecosystem.host.worlds import World, answer_with
from gert.errors import GertError, IntegrityError, TraceError
from gert.kernel.engine.asks import AnyAnswer, Ask, RunLanes, Said, Steps
from gert.kernel.events.runbook import Failure, RunCancelled

T = TypeVar("T")

MAX_PARALLEL: Final = 16
_PATIENCE: Final = 500
"""How much a lane may say before the loop gets a chance to look up."""


class Driver:
    """Drives one run."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        *,
        max_parallel: int = MAX_PARALLEL,
        recorded: Iterable[Logged] = (),
    ) -> None:
        self._world = world
        self._journal = journal
        self._lanes = Lanes(max_parallel)
        self._recorded = deque(recorded)
        self._parked: dict[str, tuple[Lane, Ask[Any]]] = {}
        self._asked: list[tuple[Lane, Ask[Any]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals: deque[tuple[Lane, Ask[Any], AnyAnswer]] = deque()
        self._arrived = asyncio.Event()
        self._reason: str | None = None

    async def drive(self, steps: Steps[T]) -> T:
        """Run to the end, and return what the run returns."""
        root = self._lanes.root(steps)
        try:
            while not root.done:
                await self._advance_all()
                await self._journal.settle()
                if not root.done:
                    self._put()
                    await self._take()
            return cast("T", root.result)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self, reason: str) -> None:
        """Stop what is under way: every open question is answered with a cancellation, no lane begins any more."""
        if self._reason is not None:
            return
        self._reason = reason
        for task in self._tasks:
            task.cancel()
        self._lanes.drop_waiting()
        self._arrived.set()

    # --- turns

    async def _advance_all(self) -> None:
        """Advance lanes until every one of them waits for an answer."""
        while True:
            while self._lanes.ready:
                lane, value = self._lanes.ready.popleft()
                self._advance(lane, value)
                if self._journal.is_full:
                    await self._journal.settle()
                    await asyncio.sleep(0)
            if not self._recorded:
                break
            self._next_recorded()
        if self._parked:
            # The log ends here; what was asked last has no answer in it.
            self._asked += self._parked.values()
            self._parked.clear()

    def _advance(self, lane: Lane, value: Any) -> None:
        """Let a lane go on until it asks something of the world, forks, ends, or has said a good deal."""
        said = 0
        send = lane.steps.send
        while True:
            try:
                item = send(value)
            except StopIteration as end:
                self._lanes.finish(lane, end.value)
                return
            value = None
            if type(item) is Said:
                try:
                    self._journal.say(item)
                except TraceError as error:
                    # Too large to write down: the step that made it hears of it, and fails.
                    value = error
                    send = lane.steps.throw
                    continue
                if self._reason is not None and type(item.payload) is RunCancelled:
                    self._reason = None  # the run knows; what it asks from now on, it asks in `finally`
                said += 1
                if said >= _PATIENCE and self._journal.is_full:
                    self._lanes.ready.appendleft((lane, None))
                    return
            elif type(item) is RunLanes:
                self._lanes.fork(lane, item)
                if self._reason is not None:
                    self._lanes.drop_waiting()
                return
            else:
                answer = self._at_once(lane, cast("Ask[Any]", item))
                if answer is None:
                    return
                value = answer
            send = lane.steps.send

    def _at_once(self, lane: Lane, ask: Ask[Any]) -> AnyAnswer | None:
        """An answer that needs no world; otherwise the question waits for its turn."""
        if self._recorded:
            self._parked[ask.key] = (lane, ask)
            return None
        if self._reason is not None:
            answer: AnyAnswer | None = answer_with(ask, Failure("cancelled", self._reason))
        else:
            answer = self._world.immediate(ask)
        if answer is None:
            self._asked.append((lane, ask))
            return None
        self._journal.log(ask.key, answer)
        return answer

    def _next_recorded(self) -> None:
        entry = self._recorded[0]
        if entry.key not in self._parked:
            raise IntegrityError(
                f"the log has an answer to `{entry.key}`, and the run does not ask that",
                hint="the runbook, its tools or its inputs are not those the log was made with",
            )
        self._recorded.popleft()
        lane, _ = self._parked.pop(entry.key)
        self._journal.log(entry.key, entry.answer)
        self._lanes.ready.append((lane, entry.answer))

    # --- questions

    def _put(self) -> None:
        """Put the questions that wait; everything said before them is durable."""
        asked, self._asked = self._asked, []
        for lane, ask in asked:
            if self._reason is not None:
                self._arrive(lane, ask, answer_with(ask, Failure("cancelled", self._reason)))
                continue
            task = asyncio.create_task(self._answer(lane, ask))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _take(self) -> None:
        """Wait for answers, and hand them on in the order they came."""
        while not self._arrivals and not self._lanes.ready:
            await self._arrived.wait()
            self._arrived.clear()
        while self._arrivals:
            lane, ask, answer = self._arrivals.popleft()
            self._journal.log(ask.key, answer)
            self._lanes.ready.append((lane, answer))

    async def _answer(self, lane: Lane, ask: Ask[Any]) -> None:
        start = time.monotonic()
        try:
            async with asyncio.timeout(ask.timeout) as limit:
                answer = await self._world.answer(ask)
        except TimeoutError:
            late = limit.expired()
            message = f"no answer within {_seconds(ask.timeout)}" if late else "the world gave up waiting"
            answer = answer_with(ask, Failure("timeout", message))
        except asyncio.CancelledError:
            if self._reason is None:
                raise
            answer = answer_with(ask, Failure("cancelled", self._reason))
        except GertError as error:
            answer = answer_with(ask, Failure("transport", error.message))
        if not answer.duration:
            answer = msgspec.structs.replace(answer, duration=round(time.monotonic() - start, 3))
        self._arrive(lane, ask, answer)

    def _arrive(self, lane: Lane, ask: Ask[Any], answer: AnyAnswer) -> None:
        self._arrivals.append((lane, ask, answer))
        self._arrived.set()


def _seconds(timeout: float | None) -> str:
    from gert.kernel.engine.frame import written

    return written(timeout or 0.0)


__all__ = ["MAX_PARALLEL", "Block", "Driver"]
