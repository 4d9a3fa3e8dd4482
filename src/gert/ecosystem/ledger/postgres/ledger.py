"""The ledger on Postgres: durable, for many processes on many machines.

An append to a run that this process wrote last is one statement; any other locks the row of its run in a transaction.
Reads are tried again on a new connection when one breaks; an append whose commit may have been lost looks first whether
it was.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Self, TypeVar
from weakref import WeakValueDictionary

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.ledger import SqlLedger
from gert.ecosystem.ledger.postgres.at_once import AtOnce, at_once
from gert.ecosystem.ledger.postgres.faults import (
    as_gert_error,
    driver,
    is_doubtful,
    is_no_address,
    is_transient,
    is_undone,
)
from gert.ecosystem.ledger.postgres.notify import Listener, Notifier
from gert.ecosystem.ledger.postgres.schema import check_ledger, check_name, make_ledger
from gert.ecosystem.ledger.transactions import Change, Dialect, Transaction
from gert.ecosystem.ledger.waiters import is_closed
from gert.errors import GertError, UsageError
from gert.kernel.foundation.signature import Key, Keys
from gert.kernel.ledger.head_seal import Sealer
from gert.kernel.ledger.record import Batch, Written

T = TypeVar("T")

POLL_INTERVAL: Final = 2.0
"""Seconds between polls of a waiting caller: notifications may be lost."""

LONGEST_REST: Final = 1.0
_LAST_NOTICES: Final = 1.0
_COUNTS: Final = (
    "SELECT run_id, count, (SELECT coalesce(max(id), 0) FROM inbox WHERE inbox.run_id = runs.run_id)"
    " FROM runs WHERE run_id = ANY($1::text[]) ORDER BY run_id"
)
_NO_KEYS: Final = Keys()


class PostgresLedger(SqlLedger):
    """Runs in one schema of a database; its tables are created if they are not there, unless it is only to be read.

    It connects when it is first used.

    dsn: the address of the database, as `postgresql://user@host/database`
    schema: where in the database the ledger is
    command_timeout_seconds: how long to wait for an answer, and for a connection when all are in use
    max_retry_attempts: how often something is tried when connections break
    retry_backoff_seconds: how long to rest after the first of these; twice as long after each further one
    key, keys: what seals the head of a run on every append, and what seals are checked with
    clock: stamps events; a clock of the caller's own also decides about leases, which otherwise go by the server's
    """

    backend: sql.Backend = "postgres"

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "gert",
        min_pool_size: int = 1,
        max_pool_size: int = 10,
        command_timeout_seconds: float = 30.0,
        max_retry_attempts: int = 5,
        retry_backoff_seconds: float = 0.02,
        read_only: bool = False,
        key: Key | None = None,
        keys: Keys = _NO_KEYS,
        clock: Callable[[], datetime] | None = None,
        ids: Callable[[], str] | None = None,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        if not 0 <= min_pool_size <= max_pool_size or max_pool_size < 1:
            raise UsageError(f"expected a pool of 1 or more connections, found {min_pool_size} to {max_pool_size}")
        driver()
        self._dsn = dsn
        self._schema = check_name(schema)
        self._sizes = (min_pool_size, max_pool_size)
        self._timeout = command_timeout_seconds
        self._attempts = max(1, max_retry_attempts)
        self._backoff = retry_backoff_seconds
        self._pool: Any = None
        self._kept: Any = None
        self._wanting = 0
        self._opening: asyncio.Lock | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._is_durable = True
        self._is_over = False
        now = sql.POSTGRES_NOW if clock is None else "NULL"
        lock = f"{sql.LOCK.replace(' FROM runs', f', {now} FROM runs')} FOR UPDATE OF runs"
        now_query = f"SELECT {sql.POSTGRES_NOW}" if clock is None else None
        dialect = Dialect(lock, now_query, serializes=True, unchanged=sql.UNCHANGED)
        super().__init__(
            dialect, Sealer(key, keys), read_only=read_only, clock=clock, ids=ids, poll_interval=poll_interval
        )
        channel = f"{schema}_written"
        self._notifier = Notifier(self._connect, channel)
        self._listener = Listener(self._connect, channel, self._waiting, lambda pid: pid == self._notifier.pid)

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power, as far as the server says."""
        return self._is_durable

    async def __aenter__(self) -> Self:
        self._check_usable()
        await self._retried(self._opened, lambda _: False)
        return self

    # --- connections

    async def _opened(self) -> Any:
        """The pool; a broken one was given up before."""
        if self._pool is not None:
            return self._pool
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._pool is None:
                least, most = self._sizes
                self._pool = await driver().create_pool(
                    min_size=least, max_size=most, connect=self._connect, reset=_keep, **self._options()
                )
            return self._pool

    async def _connect(self, *_: Any, **options: Any) -> Any:
        """A new connection to a ledger that is there; the first one creates it."""
        options.pop("loop", None)
        try:
            connection = await driver().connect(self._dsn, **{**self._options(), **options})
        except ValueError:
            # Its message may quote the address, and with it a password.
            raise is_no_address() from None
        try:
            await (check_ledger if self._read_only else make_ledger)(connection, self._schema)
            await self._be_durable(connection)
            if self._is_over:
                # Asked for before the pool was closed, which does not wait for it.
                raise is_closed()
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _options(self) -> dict[str, Any]:
        settings = {
            "search_path": self._schema,
            "application_name": "gert",
            "default_transaction_isolation": "read committed",
            "jit": "off",
            # Plans are made while a ledger is small and kept while it grows: they go by its indexes from the start.
            "enable_seqscan": "off",
            # A process that is frozen in the middle of an append does not keep its run from all others.
            "idle_in_transaction_session_timeout": str(max(1, round(self._timeout * 1000))),
        }
        if self._read_only:
            settings["default_transaction_read_only"] = "on"
        return {
            "timeout": self._timeout,
            "command_timeout": self._timeout,
            "server_settings": settings,
            "max_cached_statement_lifetime": 0,
        }

    async def _be_durable(self, connection: Any) -> None:
        """An append is durable when it returns, whatever is usual in this database."""
        row = await connection.fetchrow("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
        self._is_durable = row[0] == "on"
        if row[1] == "off" and not self._read_only:
            await connection.execute("SET synchronous_commit = on")

    def _give_up(self, pool: Any) -> None:
        """Trust no connection of a pool any more; the next statement connects anew."""
        if pool is not None and self._pool is pool:
            self._pool = self._kept = None
            pool.terminate()

    @asynccontextmanager
    async def _connection(self, pool: Any) -> AsyncIterator[Any]:
        """A connection of the pool; one that no other caller waits for is kept for the next statement.

        To give it back and take it again costs three turns of the event loop, as much as a statement.
        """
        found, self._kept = self._kept, None
        if found is not None and found.is_closed():
            await pool.release(found)
            found = None
        if found is None:
            self._wanting += 1
            try:
                found = await pool.acquire(timeout=self._timeout)
            finally:
                self._wanting -= 1
        is_kept = False
        try:
            yield found
            is_kept = self._pool is pool and self._kept is None and not self._wanting and not found.is_closed()
        finally:
            if is_kept:
                self._kept = found
            else:
                await pool.release(found)

    # --- statements

    async def _rows(self, statement: str, *values: Any, heavy: bool = False) -> Sequence[Sequence[Any]]:
        async def read() -> list[tuple[Any, ...]]:
            pool = await self._opened()
            try:
                async with self._connection(pool) as connection:
                    return [tuple(row) for row in await connection.fetch(statement, *values)]
            except Exception as error:
                if is_transient(error):
                    self._give_up(pool)
                raise

        return await self._retried(read, lambda error: is_transient(error) or is_undone(error))

    async def _transact(
        self, begin: Callable[[Sequence[Batch]], Transaction[T]], run_id: str, on_done: Callable[[T], object]
    ) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        async def change() -> None:
            try:
                result = await self._in_turn(begin, run_id)
                on_done(result)
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
                    done.exception()  # looked at: a caller that has gone does not ask for it any more
            except BaseException:
                done.cancel()
                raise
            else:
                if not done.done():
                    done.set_result(result)

        # A task: a cancelled caller does not undo a change that was asked for. It wakes its caller itself, which is one
        # turn of the event loop less than with `asyncio.shield`.
        task = loop.create_task(change())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await done

    async def _in_turn(self, begin: Callable[[Sequence[Batch]], Transaction[T]], run_id: str) -> T:
        """One change to a run after the other: the second would only hold a connection while it waits for the row."""
        turn = self._turns.setdefault(run_id, asyncio.Lock())
        async with turn:
            return await self._changed(begin, run_id)

    async def _changed(self, begin: Callable[[Sequence[Batch]], Transaction[T]], run_id: str) -> T:
        attempted: list[Batch] = []
        one = at_once(begin(()))

        async def change() -> T:
            nonlocal one
            pool = await self._opened()
            try:
                async with self._connection(pool) as connection:
                    believed, one = one, None
                    if believed is not None and not believed.names:
                        if await _is_written(connection, believed, attempted):
                            return believed.result
                        believed = None
                    async with connection.transaction():
                        if believed is not None:
                            await connection.fetch(sql.LOCK_AND_SERIALIZE, run_id, believed.names)
                            if await _is_written(connection, believed, attempted):
                                return believed.result
                        result = await _run(connection, begin(tuple(attempted)))
                        if isinstance(result, Written):
                            attempted.append(result.batch)
                        return result
            except Exception as error:
                if is_transient(error):
                    self._give_up(pool)
                raise

        try:
            return await self._retried(change, lambda error: is_doubtful(error) or is_undone(error))
        except _Refused as refused:
            error = refused.error
        raise error

    async def _retried(self, attempt: Callable[[], Awaitable[T]], may_pass: Callable[[BaseException], bool]) -> T:
        for number in range(1, self._attempts + 1):
            try:
                return await attempt()
            except (GertError, _Refused):
                raise
            except Exception as error:
                if number == self._attempts or not may_pass(error):
                    raise as_gert_error(error) from error
            await asyncio.sleep(min(LONGEST_REST, self._backoff * 2 ** (number - 1)))
        raise AssertionError("unreachable")

    # --- following

    def _listen(self) -> None:
        self._listener.start()

    def _wrote(self, run_id: str) -> None:
        super()._wrote(run_id)
        self._notifier.wrote(run_id)

    async def _look(self, run_ids: Sequence[str]) -> Hashable:
        return tuple(await self._rows(_COUNTS, list(run_ids)))

    # --- life

    async def _close(self) -> None:
        if self._loop is not None and self._loop.is_closed():
            return  # its connections went with it
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.close()
        await self._notifier.close(_LAST_NOTICES)
        self._is_over = True
        pool, kept, self._pool, self._kept = self._pool, self._kept, None, None
        if pool is not None:
            try:
                async with asyncio.timeout(self._timeout):
                    if kept is not None:
                        await pool.release(kept)
                    await pool.close()
            except Exception:
                pool.terminate()


class _Refused(Exception):
    """What a transaction raised itself: the database has nothing to do with it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


async def _is_written(connection: Any, believed: AtOnce[Any], attempted: list[Batch]) -> bool:
    """Whether an append was what it was believed to be; until that is known, its batch may have been written."""
    attempted.append(believed.batch)
    if await connection.fetch(believed.statement, *believed.values):
        return True
    attempted.clear()
    return False


async def _run(connection: Any, transaction: Transaction[T]) -> T:
    """Run the statements of a transaction, one after the other."""
    rows: Any = None
    while True:
        try:
            statement = transaction.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result
        except Exception as error:
            raise _Refused(error) from None
        if isinstance(statement, Change) and len(statement.rows) > 1:
            await connection.executemany(statement.sql, statement.rows)
            rows = ()
        else:
            values = statement.rows[0] if isinstance(statement, Change) else statement.values
            rows = [tuple(row) for row in await connection.fetch(statement.sql, *values)]


async def _keep(_: Any) -> None:
    """Connections are given back as they are: no statement changes their settings, and a reset costs a round trip."""
