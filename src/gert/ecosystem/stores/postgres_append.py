"""Appends to runs on Postgres: at once where the end of a run is remembered, carefully where it is not.

The end of a run is compared and changed by the statement that appends, so what is remembered may be old: then nothing
was written, and we look again. Whoever loses such races too often waits for the row instead.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from msgspec import structs

from gert.ecosystem.stores.postgres_faults import EVENTS_INDEX, HELD_INDEX, is_transient, is_undone, violated, worded
from gert.ecosystem.stores.postgres_pool import Link, Pool
from gert.ecosystem.stores.postgres_sending import Sending
from gert.ecosystem.stores.postgres_statements import HELD_BY, LAST_CALLS, LINES_AT, STANDING, TOUCH, statement
from gert.ecosystem.stores.settling import check_follows, rival, settled
from gert.ecosystem.stores.sqlite_rows import call_of, head_of, lease_of
from gert.errors import TraceError
from gert.kernel.agent.ledger import Batch, Call, Expect, Head, Held, Overtaken, Write, Written, may_append
from gert.kernel.agent.verifying import seal_head
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.foundation.signature import Key

MAX_HEADS: Final = 4096
"""Ends of runs that are remembered."""

RACES: Final = 3
"""How often somebody else may be faster before we wait in line."""

Appended = Written | Overtaken | Held


class Wanted(NamedTuple):
    """What somebody wants to append."""

    run_id: str
    write: Write
    expects: Sequence[Expect]
    fence: int | None


class Appends:
    """Appends of one ledger: those to one run in order, those to different runs beside each other."""

    def __init__(
        self,
        pool: Pool,
        wrote: Callable[[Written], None],
        *,
        clock: Callable[[], datetime],
        own_time: bool,
        key: Key | None,
        attempts: int,
        backoff: float,
    ) -> None:
        self._pool = pool
        self._wrote = wrote
        self._clock = clock
        self._own_time = own_time
        self._key = key
        self._attempts = attempts
        self._backoff = backoff
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._left: set[asyncio.Task[Any]] = set()

    def count_of(self, run_id: str) -> int:
        """How many events a run has at least, as far as is known here."""
        head = self._heads.get(run_id)
        return head.count if head is not None else 0

    async def append(self, wanted: Wanted) -> Appended:
        """Append; once it was sent, a cancellation no longer keeps it from happening."""
        run_id = wanted.run_id
        lane = self._lanes.get(run_id)
        if lane is None:
            lane = self._lanes[run_id] = asyncio.Lock()
        await lane.acquire()
        held: Callable[[], None] | None = lane.release
        try:
            batch = self._from_memory(wanted)
            if batch is not None:
                link = await self._pool.take()
                sending: Sending[Any] | None = None
                try:
                    query, values = statement(batch, wanted.expects, wanted.fence, own_time=self._own_time)
                    prepared = await link.prepared(query)
                    sending = Sending(prepared.fetch(*values))
                    await sending
                    if prepared.get_statusmsg() != "INSERT 0 0":
                        return self._keep(batch)
                    batch = None
                except asyncio.CancelledError:
                    if sending is not None and sending.is_under_way:
                        self._let_finish(self._settle(sending, prepared, link, batch, lane))
                        held = link = None
                    raise
                except Exception as error:
                    if not self._is_passing(error):
                        raise worded(error) from error
                finally:
                    if link is not None:
                        self._pool.give_back(link)
            held = None
            return await self._finish(self._carefully(wanted, batch, lane))
        finally:
            if held is not None:
                held()

    async def drain(self) -> None:
        """Wait for what goes on although nobody waits for it any more."""
        while self._left:
            await asyncio.wait(self._left)
