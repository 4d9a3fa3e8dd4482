"""Appends to runs on Postgres: at once where the end of a run is remembered, carefully where it is not.

The end of a run is compared and changed by the statement that appends, so what is remembered may be old: then nothing
was written, and we look again. Whoever loses such races too often waits for the row instead.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from gert.ecosystem.stores.postgres_careful import Attempt, Careful, Making, Wanted
from gert.ecosystem.stores.postgres_faults import is_doubtful, may_pass, worded
from gert.ecosystem.stores.postgres_pool import Link, Pool
from gert.ecosystem.stores.postgres_sending import Sending
from gert.ecosystem.stores.postgres_statements import NOTHING_DONE, statement
from gert.errors import GertError
from gert.kernel.agent.ledger import Batch, Head, Held, Overtaken, Written

T = TypeVar("T")

MAX_RUNS: Final = 4096
"""Runs whose end is remembered."""


class Appends:
    """Appends of one ledger: those to one run in order, those to different runs beside each other."""

    def __init__(
        self, pool: Pool, making: Making, wrote: Callable[[Written], None], *, attempts: int, backoff: float
    ) -> None:
        self._pool = pool
        self._making = making
        self._careful = Careful(pool, making, attempts=attempts, backoff=backoff)
        self._wrote = wrote
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._going_on: set[asyncio.Task[Any]] = set()

    def count_of(self, run_id: str) -> int:
        """How many events a run has at least, as far as is known here."""
        run = self._runs.get(run_id)
        return run.head.count if run is not None and run.head is not None else 0

    async def append(self, wanted: Wanted) -> Written | Overtaken | Held:
        """Append; it happens also where whoever waits for it is cancelled, who then pays for a task."""
        run = self._run(wanted.run_id)
        turn = run.turn_now() or await self._turn(run, wanted)
        try:
            doubt: Batch | None = None
            batch = self._from_memory(wanted, run.head)
            if batch is not None:
                try:
                    if await self._at_once(wanted, batch, turn):
                        return self._keep(run, batch)
                except GertError:
                    raise
                except Exception as error:
                    doubt = self._in_doubt(error, batch, turn)
            turn.give_back(self._pool)
            return await self._go_on(turn, self._carefully(run, Attempt(wanted, doubt)))
        except asyncio.CancelledError:
            if not turn.is_handed_on:
                turn.give_back(self._pool)
                self._hand_on(turn, self._carefully(run, Attempt(wanted, turn.sent)))
            raise
        finally:
            if not turn.is_handed_on:
                turn.end(self._pool)

    async def drain(self) -> None:
        """Wait for what goes on although nobody waits for it any more."""
        while self._going_on:
            await asyncio.wait(self._going_on)

    # --- at once

    def _from_memory(self, wanted: Wanted, head: Head | None) -> Batch | None:
        """What would be written if the run still ended as we remember; None where only looking again can tell."""
        if head is None:
            return None
        try:
            batch = self._making.batch(wanted, head)
        except Exception:
            # It may refuse something that is not so any more: it is asked again about the run as it is.
            return None
        return batch if batch.rows else None

    async def _at_once(self, wanted: Wanted, batch: Batch, turn: "_Turn") -> bool:
        """Send it in one round trip; whether the run ended as we remembered."""
        link = turn.link = self._pool.take_now() or await self._pool.take()
        query, values = statement(batch, wanted.expects, wanted.fence, own_time=self._making.own_time)
        prepared = link.statements.get(query) or await link.prepared(query)
        sending = Sending(prepared.fetch(*values))
        turn.sent = batch
        try:
            await sending
        except asyncio.CancelledError:
            if sending.is_under_way:
                self._hand_on(turn, self._settle(turn, wanted, sending, prepared, batch))
            raise
        return bool(prepared.get_statusmsg() != NOTHING_DONE)

    async def _settle(
        self, turn: "_Turn", wanted: Wanted, sending: Sending[Any], prepared: Any, batch: Batch
    ) -> Written | Overtaken | Held:
        """See an append through whose writer has gone."""
        turn.run.head = None
        doubt: Batch | None = None
        try:
            await sending.rest()
            if prepared.get_statusmsg() != NOTHING_DONE:
                return self._keep(turn.run, batch)
        except Exception as error:
            doubt = self._in_doubt(error, batch, turn)
        turn.give_back(self._pool)
        return await self._carefully(turn.run, Attempt(wanted, doubt))

    def _in_doubt(self, error: Exception, batch: Batch, turn: "_Turn") -> Batch | None:
        """What may be written although its answer was lost; raises what looking again would not mend."""
        if not may_pass(error):
            raise worded(error) from error
        if not is_doubtful(error):
            return None
        if turn.link is not None:
            self._pool.renew(turn.link.generation)
        return batch

    # --- carefully

    async def _carefully(self, run: "_Run", attempt: Attempt) -> Written | Overtaken | Held:
        run.head = None
        result = await self._careful.append(attempt)
        if isinstance(result, Written):
            return self._keep(run, result.batch)
        return result

    def _keep(self, run: "_Run", batch: Batch) -> Written:
        """Remember where a run ends now, and let others know."""
        written = Written(batch)
        if batch.rows:
            run.head = batch.head
            self._wrote(written)
        return written

    # --- whose turn it is

    def _run(self, run_id: str) -> "_Run":
        run = self._runs.get(run_id)
        if run is not None:
            self._runs.move_to_end(run_id)
            return run
        run = self._runs[run_id] = _Run()
        if len(self._runs) > MAX_RUNS:
            self._forget()
        return run

    def _forget(self) -> None:
        """Forget the run that was not written for the longest time, unless somebody is at it."""
        oldest = next(iter(self._runs))
        if self._runs[oldest].is_busy:
            self._runs.move_to_end(oldest)
        else:
            del self._runs[oldest]

    async def _turn(self, run: "_Run", wanted: Wanted) -> "_Turn":
        """Wait for those who came before; whoever is cancelled leaves a task in his place."""
        place = run.line_up()
        try:
            await place.coming
        except asyncio.CancelledError:
            self._start(self._in_turn(run, place, wanted), lambda: run.leave(place))
            raise
        except BaseException:
            run.leave(place)
            raise
        return _Turn(run)

    async def _in_turn(self, run: "_Run", place: "_Place", wanted: Wanted) -> Written | Overtaken | Held:
        await place.taken_over()
        return await self._carefully(run, Attempt(wanted, None))

    async def _go_on(self, turn: "_Turn", work: Coroutine[Any, Any, T]) -> T:
        """Do the rest in a task, which goes on when whoever waits here is cancelled."""
        task = self._hand_on(turn, work)
        await asyncio.wait((task,))
        return task.result()

    def _hand_on(self, turn: "_Turn", work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Leave a turn to a task."""
        turn.is_handed_on = True
        return self._start(work, lambda: turn.end(self._pool))

    def _start(self, work: Coroutine[Any, Any, T], after: Callable[[], None]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._going_on.add(task)
        task.add_done_callback(lambda done: self._end(done, after))
        return task

    def _end(self, task: "asyncio.Task[Any]", after: Callable[[], None]) -> None:
        self._going_on.discard(task)
        after()
        if not task.cancelled():
            task.exception()  # whoever wanted to know has gone, or asks the task


class _Run:
    """A run as this process knows it: where it ended last, and who appends to it, one after the other."""

    __slots__ = ("_is_busy", "_waiting", "head")

    def __init__(self) -> None:
        self.head: Head | None = None
        self._is_busy = False
        self._waiting: deque[_Place] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether somebody is at it."""
        return self._is_busy

    def turn_now(self) -> "_Turn | None":
        """The turn, if nobody has it."""
        if self._is_busy:
            return None
        self._is_busy = True
        return _Turn(self)

    def line_up(self) -> "_Place":
        """A place behind those who came before."""
        place = _Place()
        self._waiting.append(place)
        return place

    def leave(self, place: "_Place") -> None:
        """Give up a place, or the turn that has come."""
        if place.has_come:
            self.release()
        else:
            place.is_left = True

    def release(self) -> None:
        """Let the next one in."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.is_left:
                place.come()
                return
        self._is_busy = False


class _Place:
    """Where somebody stands in line; it is kept for the append when whoever waits there is cancelled."""

    __slots__ = ("coming", "has_come", "is_left")

    def __init__(self) -> None:
        self.coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.has_come = False
        self.is_left = False

    def come(self) -> None:
        """It is the turn of whoever stands here, who may have been cancelled just now."""
        self.has_come = True
        if not self.coming.done():
            self.coming.set_result(None)

    async def taken_over(self) -> None:
        """Wait here instead of somebody who was cancelled."""
        if not self.has_come:
            self.coming = asyncio.get_running_loop().create_future()
            await self.coming


class _Turn:
    """The right to append to a run in this process, and the connection for it.

    sent: what was sent on it, and may be written whatever became of the answer
    """

    __slots__ = ("is_handed_on", "link", "run", "sent")

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.link: Link | None = None
        self.is_handed_on = False
        self.sent: Batch | None = None

    def give_back(self, pool: Pool) -> None:
        """Let others have the connection."""
        link, self.link = self.link, None
        if link is not None:
            pool.give_back(link)

    def end(self, pool: Pool) -> None:
        """Let the next one in."""
        self.give_back(pool)
        self.run.release()
