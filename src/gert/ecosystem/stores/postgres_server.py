"""The way of one ledger to its server: connected when first needed, on one event loop, let go after what was begun."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from gert.ecosystem.stores.postgres_faults import driver, is_no_address, is_transient, is_undone, worded
from gert.ecosystem.stores.postgres_pool import Pool
from gert.ecosystem.stores.postgres_schema import check_ledger, check_name, make_ledger
from gert.ecosystem.stores.waiting import is_closed
from gert.errors import GertError, TraceError

LONGEST_REST: Final = 1.0


class Server:
    """Connections to the ledger in one schema of one database."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str,
        most: int,
        timeout: float,
        attempts: int,
        backoff: float,
        read_only: bool,
    ) -> None:
        driver()
        self._dsn = dsn
        self.schema = check_name(schema)
        self.channel = f"{schema}_written"
        self._timeout = timeout
        self._attempts = attempts
        self._backoff = backoff
        self._read_only = read_only
        self.pool = Pool(self.connect, most=most, patience=timeout)
        self.is_durable = True
        self._settings = {
            "search_path": self.schema,
            "application_name": "gert",
            "default_transaction_isolation": "read committed",
            "jit": "off",
            # Plans are made while a ledger is small and kept while it grows: they go by its indexes from the beginning.
            "enable_seqscan": "off",
        }
        if read_only:
            self._settings["default_transaction_read_only"] = "on"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None
        self._is_open = False
        self._is_closing = False
        self._busy = 0
        self._idle: asyncio.Event | None = None

    # --- who may use it

    @property
    def is_used(self) -> bool:
        """Whether an event loop owns it already."""
        return self._loop is not None

    def check_usable(self) -> None:
        """Refuse whoever comes too late, or from another event loop: TraceError."""
        if self._is_closing:
            raise is_closed()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise TraceError(
                "the ledger belongs to another event loop",
                hint="use it from the loop that used it first, or open one for each loop; "
                "call `asyncio.run` once, around everything",
            )

    def begin(self) -> None:
        """Begin something that is waited for before the ledger is closed; `end` says when it is over."""
        self.check_usable()
        self._busy += 1

    def end(self) -> None:
        """Say that something is over."""
        self._busy -= 1
        if not self._busy and self._idle is not None:
            self._idle.set()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Do something that is waited for before the ledger is closed."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    # --- connections

    async def connect(self) -> Any:
        """A new connection to a ledger that is there; the first one makes it."""
        try:
            connection = await driver().connect(
                self._dsn,
                timeout=self._timeout,
                command_timeout=self._timeout,
                server_settings=self._settings,
                max_cached_statement_lifetime=0,
            )
        except ValueError:
            # What it says may quote the address, and with it a password.
            raise is_no_address() from None
        if not self._is_open:
            try:
                await self._open(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def _open(self, connection: Any) -> None:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._is_open:
                return
            await (check_ledger if self._read_only else make_ledger)(connection, self.schema)
            fsync, commit = await connection.fetchrow(
                "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
            )
            self.is_durable = fsync == "on"
            if commit == "off":
                # Durable when an append returns, whatever is usual in this database.
                self._settings["synchronous_commit"] = "on"
                await connection.execute("SET synchronous_commit = on")
            self._is_open = True

    async def fill(self, least: int) -> None:
        """Have connections ready, and know whether the ledger is there."""
        try:
            await self.pool.fill(least)
        except GertError:
            raise
        except Exception as error:
            raise worded(error) from error

    # --- reading

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """What a question gives; asked again where only the connection was to blame."""
        with self.working():
            for attempt in range(1, self._attempts + 1):
                link = None
                try:
                    link = await self.pool.take()
                    found: list[Any] = await link.connection.fetch(query, *values)
                    return found
                except GertError:
                    raise
                except Exception as error:
                    if attempt == self._attempts or not (is_transient(error) or is_undone(error)):
                        raise worded(error) from error
                    if link is not None and is_transient(error):
                        self.pool.renew(link.generation)
                finally:
                    if link is not None:
                        self.pool.give_back(link)
                await asyncio.sleep(min(LONGEST_REST, self._backoff * 2 ** (attempt - 1)))
        raise AssertionError("unreachable")

    async def row(self, query: str, *values: Any) -> Any:
        """The first row a question gives, if there is one."""
        return next(iter(await self.rows(query, *values)), None)

    # --- its end

    async def close(self, finish: "Callable[[], Any]") -> None:
        """Let nobody begin anything, wait for what was begun, and disconnect."""
        self._is_closing = True
        if self._loop is None:
            return
        if self._busy:
            self._idle = asyncio.Event()
            await self._idle.wait()
        await finish()
        await self.pool.close(self._timeout)
