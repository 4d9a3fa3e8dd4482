"""An append that looks first: how the run stands, who has its lease, and whether it was written already."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import structs

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.naming import stamps_of
from gert.ecosystem.stores.postgres_faults import HELD_INDEX, is_doubtful, may_pass, violated, worded
from gert.ecosystem.stores.postgres_pool import Link, Pool
from gert.ecosystem.stores.postgres_statements import (
    LAST_CALLS,
    LINES_AT,
    LOCK,
    NOTHING_DONE,
    STANDING,
    TOUCH,
    holds,
    statement,
)
from gert.ecosystem.stores.rows import call_of, head_of, lease_of
from gert.ecosystem.stores.settling import check_follows, rival, settled
from gert.errors import Busy, GertError, TraceError
from gert.kernel.agent.ledger import Batch, Call, Expect, Head, Held, Lease, Overtaken, Write, Written, may_append
from gert.kernel.agent.verifying import seal_head
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.signature import Key

RACES: Final = 2
"""How often somebody else may be faster before we wait in line."""

MAX_RACES: Final = 20
LONGEST_REST: Final = 1.0


class Wanted(NamedTuple):
    """What somebody wants to append."""

    run_id: str
    write: Write
    expects: Sequence[Expect]
    fence: int | None


class Attempt:
    """How far an append has come.

    doubt: what was sent when a connection broke: it may be written
    sent: what was sent last
    """

    __slots__ = ("doubt", "failures", "races", "sent", "wanted")

    def __init__(self, wanted: Wanted, doubt: Batch | None) -> None:
        self.wanted = wanted
        self.doubt = doubt
        self.sent: Batch | None = None
        self.failures = 0
        self.races = 0


class Making:
    """Makes batches: asks the writer, checks what it says, and seals it."""

    def __init__(self, clock: Callable[[], datetime], key: Key | None, *, own_time: bool) -> None:
        self.clock = clock
        self.own_time = own_time
        self._stamp = stamps_of(clock)
        self._key = key

    def batch(self, wanted: Wanted, head: Head) -> Batch:
        """What is to be written after the end of a run."""
        batch = wanted.write(head, self._stamp())
        check_follows(head, batch)
        if self._key is not None and batch.rows:
            return batch._replace(head=structs.replace(batch.head, seal=seal_head(batch.head, self._key)))
        return batch


class _Refused(Exception):
    """What the writer raised, whatever it is: no fault of the database."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _NothingWritten(Exception):
    """Why nothing is written; raised, so that whoever stands in line leaves nothing behind."""

    def __init__(self, answer: Overtaken | Held) -> None:
        super().__init__(answer)
        self.answer = answer


class _Standing(NamedTuple):
    head: Head
    lease: Lease | None
    server_time: datetime | None


class Careful:
    """Appends that begin by looking."""

    def __init__(self, pool: Pool, making: Making, *, attempts: int, backoff: float) -> None:
        self._pool = pool
        self._making = making
        self._attempts = attempts
        self._backoff = backoff

    async def append(self, attempt: Attempt) -> Written | Overtaken | Held:
        """Append, however often that takes; an event is never written twice."""
        while True:
            link = None
            try:
                link = await self._pool.take()
                async with _in_line(link, attempt):
                    result = await self._try(link, attempt)
                if result is not None:
                    return result
                attempt.races += 1
            except _Refused as refused:
                raise refused.error from None
            except _NothingWritten as nothing:
                return nothing.answer
            except GertError:
                raise
            except Exception as error:
                held = await self._after(error, attempt, link)
                if held is not None:
                    return held
            finally:
                if link is not None:
                    self._pool.give_back(link)
            if attempt.races > MAX_RACES:
                raise Busy(f"others write run `{attempt.wanted.run_id}` all the time", hint="try again")

    async def _try(self, link: Link, attempt: Attempt) -> Written | None:
        """Look, ask the writer, and send; None where somebody else was faster."""
        wanted, attempt.sent = attempt.wanted, None
        standing = await _standing(link.connection, wanted.run_id)
        # (1) What was sent before a connection broke is there, or can still come, or never will.
        if attempt.doubt is not None:
            if await _is_written(link.connection, standing.head, attempt.doubt):
                return Written(attempt.doubt)
            if standing.head.count != attempt.doubt.head.count - len(attempt.doubt.rows):
                attempt.doubt = None
        # (2) Whoever writes may write.
        now = standing.server_time if not self._making.own_time else None
        may_append(standing.lease, wanted.fence, now or self._making.clock())
        # (3) The writer knows the last request under each key.
        if (overtaken := await _overtaken(link.connection, wanted)) is not None:
            raise _NothingWritten(overtaken)
        batch = attempt.doubt if attempt.doubt is not None else self._made(wanted, standing.head)
        if not batch.rows:
            return Written(batch)
        if holds(batch) and (held := await _held(link.connection, batch)) is not None:
            raise _NothingWritten(held)
        # (4) All of that still holds when it is written: the statement says so again.
        attempt.sent = batch
        query, values = statement(batch, wanted.expects, wanted.fence, own_time=self._making.own_time)
        prepared = await link.prepared(query)
        await prepared.fetch(*values)
        return Written(batch) if prepared.get_statusmsg() != NOTHING_DONE else None

    def _made(self, wanted: Wanted, head: Head) -> Batch:
        try:
            return self._making.batch(wanted, head)
        except Exception as error:
            raise _Refused(error) from error

    async def _after(self, error: Exception, attempt: Attempt, link: Link | None) -> Held | None:
        """What follows from a failure: an answer, an exception, or another try."""
        if not may_pass(error):
            raise worded(error) from error
        if violated(error) is None:
            await self._try_again(error, attempt, link)
            return None
        attempt.races += 1
        if violated(error) == HELD_INDEX and link is not None and attempt.sent is not None:
            with suppress(Exception):  # the next try meets whatever is wrong now
                return await _held(link.connection, attempt.sent)
        return None

    async def _try_again(self, error: Exception, attempt: Attempt, link: Link | None) -> None:
        """Rest before another try, or give up."""
        attempt.failures += 1
        if is_doubtful(error):
            attempt.doubt = attempt.sent or attempt.doubt
            if link is not None:
                self._pool.renew(link.generation)
        if attempt.failures >= self._attempts:
            problem = worded(error)
            if attempt.doubt is not None and isinstance(problem, GertError):
                problem.hint = f"it may be written: look at the end of run `{attempt.wanted.run_id}`"
            raise problem from error
        await asyncio.sleep(min(LONGEST_REST, self._backoff * 2 ** (attempt.failures - 1)))


def _in_line(link: Link, attempt: Attempt) -> AbstractAsyncContextManager[Any]:
    """Whoever lost too many races waits for the row, and has it until all is written."""
    if attempt.races < RACES:
        return nullcontext()
    return _Line(link.connection, attempt.wanted.run_id)


class _Line:
    def __init__(self, connection: Any, run_id: str) -> None:
        self._connection = connection
        self._run_id = run_id
        self._transaction = connection.transaction()

    async def __aenter__(self) -> None:
        await self._transaction.__aenter__()
        try:
            await self._connection.execute(TOUCH, self._run_id)
            await self._connection.execute(LOCK, self._run_id)
        except BaseException as error:
            await self._transaction.__aexit__(type(error), error, None)
            raise

    async def __aexit__(self, *error: Any) -> None:
        await self._transaction.__aexit__(*error)


async def _standing(connection: Any, run_id: str) -> _Standing:
    row = await connection.fetchrow(STANDING, run_id)
    if row is None:
        return _Standing(Head(run_id), None, None)
    *columns, worker, token, expires, server_time, last = row
    head = head_of(columns)
    if head.count != last:
        raise is_cut(run_id, head.count, last)
    return _Standing(head, lease_of(run_id, worker, token, expires), parse_timestamp(server_time))


def is_cut(run_id: str, counted: int, found: int) -> TraceError:
    """Say that a run does not end where it should."""
    return TraceError(
        f"run `{run_id}` does not end where it should: expected {counted} events, found {found}",
        hint="nothing is added to it; `gert run verify-ledger` says more",
    )


async def _is_written(connection: Any, head: Head, batch: Batch) -> bool:
    """Whether these very lines are in the run."""
    if head.count < batch.head.count:
        return False
    found = await connection.fetch(LINES_AT, head.run_id, [row.seq for row in batch.rows])
    return dict(map(tuple, found)) == {row.seq: row.line for row in batch.rows}


async def _overtaken(connection: Any, wanted: Wanted) -> Overtaken | None:
    if not wanted.expects:
        return None
    last = dict(
        map(tuple, await connection.fetch(LAST_CALLS, wanted.run_id, [expect.key for expect in wanted.expects]))
    )
    return next((Overtaken(key) for key, seq in wanted.expects if last[key] != seq), None)


async def _held(connection: Any, batch: Batch) -> Held | None:
    """The call that is in the way; None where it is not any more."""
    calls, ends = settled(batch)
    found: dict[Call, list[Call]] = {}
    for call in calls:
        if call.held:
            rows = await connection.fetch(sql.HOLDERS, call.tenant, call.name, call.semantic_key)
            found[call] = [call_of(row) for row in rows]
    other = rival(batch.head.run_id, calls, ends, lambda call: found.get(call, ()))
    return Held(other) if other is not None else None
