"""Runbook runs on Postgres, for an engine that does not know of event loops: a thread has one for it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from gert.ecosystem.stores.batch import check_batch, check_next, columns_of
from gert.ecosystem.stores.postgres_careful import is_cut
from gert.ecosystem.stores.postgres_faults import is_doubtful, is_undone, violated, worded
from gert.ecosystem.stores.postgres_pool import Link
from gert.ecosystem.stores.postgres_server import Server
from gert.ecosystem.stores.postgres_statements import ADD_LINES, ANSWERS_PAGE, EVENTS_PAGE, LINES_AT
from gert.ecosystem.stores.postgres_wake import Telling
from gert.errors import Busy, GertError, TraceError
from gert.kernel.events.chain import GENESIS
from gert.kernel.foundation.canonical import sha256_hex

T = TypeVar("T")

_PAGE: Final = 500
_PAGE_BYTES: Final = 1 << 18
_END: Final = """
SELECT coalesce((SELECT count FROM runs WHERE run_id = $1), 0),
    (SELECT coalesce(max(seq), 0) FROM events WHERE run_id = $1)
"""
_LAST: Final = "SELECT line FROM events WHERE run_id = $1 ORDER BY seq DESC LIMIT $2"
_LAST_TIME: Final = "SELECT timestamp FROM events WHERE run_id = $1 ORDER BY seq DESC LIMIT 1"
_RUNS: Final = "SELECT run_id FROM runs WHERE run_id > $1 AND count > 0 ORDER BY run_id LIMIT $2"
_STATE: Final = "SELECT state FROM states WHERE run_id = $1"
_LOCKED: Final = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = $1 AND objid = $2 AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_TAKE_LOCK: Final = "SELECT pg_try_advisory_lock($1)"
_END_SESSION: Final = "SELECT pg_terminate_backend($1)"
_WRITE_STATE: Final = "INSERT INTO states VALUES ($1, $2) ON CONFLICT (run_id) DO UPDATE SET state = $2"


class _Held:
    """The lock on a run: it lives as long as the session that took it, and what is written goes through that one."""

    def __init__(self, link: Link) -> None:
        self.turn = asyncio.Lock()
        self.hold(link)

    def hold(self, link: Link) -> None:
        self.link = link
        self.session: int = link.connection.get_server_pid()


class PostgresRunStore:
    """The runs in one schema of a database; its tables are made if they are not there, unless it is only to be read.

    masked: takes out of a message what nobody is to be shown
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "gert",
        read_only: bool = False,
        masked: Callable[[str], str] = str,
        command_timeout_seconds: float = 30.0,
        max_retry_attempts: int = 5,
        retry_backoff_seconds: float = 0.02,
    ) -> None:
        self._attempts = max(1, max_retry_attempts)
        self._backoff = retry_backoff_seconds
        self._timeout = command_timeout_seconds
        self._read_only = read_only
        self._masked = masked
        self._held: dict[str, _Held] = {}
        self._server = Server(
            dsn,
            schema=schema,
            most=4,
            timeout=command_timeout_seconds,
            attempts=self._attempts,
            backoff=retry_backoff_seconds,
            read_only=read_only,
        )
        self._telling = Telling(self._server.connect, self._server.channel)
        self._loop = asyncio.new_event_loop()
        self._thread: Thread | None = Thread(target=self._loop.run_forever, name="gert-postgres", daemon=True)
        self._thread.start()
        try:
            self._do(self._open())
        except BaseException:
            self.close()
            raise

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power, as far as the server says."""
        return self._server.is_durable

    def append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes] = ()) -> None:
        """Write a batch in one statement."""
        check_batch(run_id, first_seq, events, answers)
        self._check_writable()
        if first_seq == 1:
            check_next(run_id, 0, 1)
        self._do(self._append(run_id, first_seq, events, answers))

    def events(self, run_id: str, since: int = 0) -> Iterator[bytes]:
        """The lines after the number `since`."""
        return self._lines(EVENTS_PAGE, run_id, since)

    def last_lines(self, run_id: str, limit: int) -> list[bytes]:
        """The last lines of a run, the very last first."""
        return [line for (line,) in self._ask(_LAST, run_id, limit)]

    def last_time(self, run_id: str) -> str:
        """The timestamp of the last event of a run."""
        return next((str(time) for (time,) in self._ask(_LAST_TIME, run_id)), "")

    def answers(self, run_id: str) -> Iterator[bytes]:
        """The answers, in order."""
        return self._lines(ANSWERS_PAGE, run_id, 0)

    def write_state(self, run_id: str, state: bytes) -> None:
        """Keep what identifies a run, in place of what was kept before."""
        self._check_writable()
        self._ask(_WRITE_STATE, run_id, state)

    def state(self, run_id: str) -> bytes | None:
        """What identifies a run, if it was kept."""
        return next((bytes(state) for (state,) in self._ask(_STATE, run_id)), None)

    @contextmanager
    def lease(self, run_id: str) -> Iterator[None]:
        """Be the only one who drives a run, as long as this process lives; Busy where somebody else does."""
        self._do(self._hold(run_id))
        try:
            yield
        finally:
            if self._thread is not None:
                self._do(self._let_go(run_id))

    def is_driven(self, run_id: str) -> bool:
        """Whether somebody drives a run, on whatever machine."""
        return bool(self._ask(_LOCKED, *self._lock_halves(run_id)))

    def runs(self) -> Iterator[str]:
        """The runs, by id."""
        last = ""
        while found := self._ask(_RUNS, last, _PAGE):
            for (last,) in found:
                yield str(last)

    def close(self) -> None:
        """Disconnect."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._server.close(self._last_words), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- on the thread of the loop

    async def _open(self) -> None:
        with self._server.working():
            await self._server.fill(1)

    async def _append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes]) -> None:
        rows = [columns_of(line) for line in events]
        last = sha256_hex(events[-1]) if events else GENESIS
        times = [row.timestamp for row in rows]
        ends = (times[0], times[-1]) if times else ("", "")
        before = first_seq - 1
        lines = ([row.type for row in rows], times, list(events), list(answers))
        is_in_doubt = False
        with self._server.working():
            for attempt in range(1, self._attempts + 1):
                try:
                    if await self._send(run_id, before, before + len(events), last, *ends, *lines):
                        self._telling.wrote(run_id)
                        return
                except GertError:
                    raise
                except Exception as error:
                    # Answers alone cannot be told from those before them: who sent them twice would never know.
                    may_pass = is_undone(error) or (is_doubtful(error) and bool(events))
                    if violated(error) is None and not (may_pass and attempt < self._attempts):
                        raise worded(error) from error
                    is_in_doubt = is_in_doubt or is_doubtful(error)
                    await asyncio.sleep(self._backoff * 2 ** (attempt - 1))
                if is_in_doubt and await self._are_there(run_id, first_seq, events):
                    return
                await self._check_end(run_id, first_seq)
        raise Busy(f"another process writes run `{run_id}`", hint="wait for it to end")

    async def _send(self, run_id: str, *values: Any) -> bool:
        held = self._held.get(run_id)
        if held is None:
            return await self._send_by_anyone(run_id, *values)
        async with held.turn:
            if held.link.connection.is_closed():
                held.hold(await self._lock(run_id, held.session))
            try:
                return bool(await (await held.link.prepared(ADD_LINES)).fetch(run_id, *values))
            except Exception as error:
                if is_doubtful(error):
                    held.link.connection.terminate()
                raise

    async def _send_by_anyone(self, *values: Any) -> bool:
        link = await self._server.pool.take()
        try:
            return bool(await (await link.prepared(ADD_LINES)).fetch(*values))
        except Exception as error:
            if is_doubtful(error):
                self._server.pool.renew(link.generation)
            raise
        finally:
            self._server.pool.give_back(link)

    async def _are_there(self, run_id: str, first_seq: int, events: Sequence[bytes]) -> bool:
        wanted = dict(enumerate(events, start=first_seq))
        return dict(map(tuple, await self._server.rows(LINES_AT, run_id, list(wanted)))) == wanted

    async def _check_end(self, run_id: str, first_seq: int) -> None:
        """Say why nothing was written, if it can be told."""
        [(counted, found)] = await self._server.rows(_END, run_id)
        if counted != found:
            raise is_cut(run_id, counted, found)
        check_next(run_id, found, first_seq)

    async def _last_words(self) -> None:
        await self._telling.close(1.0)
        for run_id in list(self._held):
            await self._let_go(run_id)

    async def _hold(self, run_id: str) -> None:
        self._server.check_usable()
        try:
            self._held[run_id] = _Held(await self._lock(run_id))
        except GertError:
            raise
        except Exception as error:
            raise worded(error) from error

    async def _let_go(self, run_id: str) -> None:
        held = self._held.pop(run_id, None)
        if held is None:
            return
        async with held.turn:
            await self._hang_up(held.link.connection)

    async def _hang_up(self, connection: Any) -> None:
        try:
            await connection.close(timeout=self._timeout)
        except Exception:  # a lock ends with its session, however that ends
            connection.terminate()

    def _lock_number(self, run_id: str) -> int:
        return int(sha256_hex(f"gert-run\n{self._server.schema}\n{run_id}".encode())[:16], 16) - (1 << 63)

    def _lock_halves(self, run_id: str) -> tuple[int, int]:
        return divmod(self._lock_number(run_id) % (1 << 64), 1 << 32)

    async def _lock(self, run_id: str, lost: int | None = None) -> Link:
        """A connection that holds the lock on a run; Busy where somebody else has it.

        lost: a session of ours that was cut off. The server may not have noticed, and would keep its lock for hours.
        """
        connection = await self._server.connect()
        try:
            for attempt in range(self._attempts):
                if await connection.fetchval(_TAKE_LOCK, self._lock_number(run_id)):
                    return Link(connection, self._server.pool.generation)
                if lost is None:
                    break
                holders = [pid for (pid,) in await connection.fetch(_LOCKED, *self._lock_halves(run_id))]
                if holders and lost not in holders:
                    break
                if holders:
                    await connection.execute(_END_SESSION, lost)
                await asyncio.sleep(self._backoff * 2**attempt)
        except BaseException:
            connection.terminate()
            raise
        await self._hang_up(connection)
        raise Busy(f"run `{run_id}` is being driven by another process", hint="wait for it to end")

    # --- on the thread of whoever uses it

    def _check_writable(self) -> None:
        if self._read_only:
            raise TraceError("the store is closed, or open only for reading")

    def _lines(self, query: str, run_id: str, since: int) -> Iterator[bytes]:
        while found := self._ask(query, run_id, since, _PAGE, _PAGE_BYTES):
            since = found[-1][0]
            for _, line in found:
                yield line

    def _ask(self, query: str, *values: Any) -> list[Any]:
        return self._do(self._server.rows(query, *values))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise TraceError("the store is closed")
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except GertError as problem:
            problem.message = self._masked(problem.message)
            problem.args = (problem.message,)
            raise problem from None
