"""A ledger in a SQLite file: durable, for many processes on one machine."""

from collections.abc import Callable
from datetime import datetime
from os import PathLike, fspath

from gert.ecosystem.stores.async_ledger import POLL_INTERVAL, AsyncLedger
from gert.ecosystem.stores.naming import utc_now
from gert.ecosystem.stores.port import QUICK_SECONDS
from gert.ecosystem.stores.sqlite_reader import SqliteReader
from gert.ecosystem.stores.sqlite_writer import SqliteWriter
from gert.ecosystem.stores.threads import Threads
from gert.kernel.foundation.signature import Key


class SqliteLedger(AsyncLedger):
    """A database of runs; made if it is not there, unless it is only to be read.

    sync: every append is on disk before it returns; without, a loss of power may take the last of them
    busy_timeout_ms: how long SQLite waits for other processes, each of `max_retry_attempts` times
    retry_backoff_seconds: how long to rest after the first of these; twice as long after each further one
    key: seals the end of a run on every append
    quick_seconds: how long the event loop may stand still for what is done at once; 0 to do everything on threads
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        sync: bool = True,
        read_only: bool = False,
        busy_timeout_ms: int = 5000,
        max_retry_attempts: int = 5,
        retry_backoff_seconds: float = 0.02,
        key: Key | None = None,
        clock: Callable[[], datetime] = utc_now,
        ids: Callable[[], str] | None = None,
        poll_interval: float = POLL_INTERVAL,
        quick_seconds: float = QUICK_SECONDS,
    ) -> None:
        self.path = fspath(path)
        writer = None
        if not read_only:
            writer = SqliteWriter(
                self.path,
                sync=sync,
                busy_timeout_ms=busy_timeout_ms,
                max_retry_attempts=max_retry_attempts,
                retry_backoff_seconds=retry_backoff_seconds,
                key=key,
                clock=clock,
            )
        # What reads on the event loop waits for nobody; who has to wait does so on the thread.
        near = SqliteReader(self.path, alone=read_only, busy_timeout_ms=0)
        far = SqliteReader(self.path, alone=read_only, busy_timeout_ms=busy_timeout_ms)
        if read_only:
            far.check()
        super().__init__(
            lambda on_done: Threads(writer, near, far, on_done, quick=quick_seconds),
            durable=sync,
            shared=True,
            read_only=read_only,
            clock=clock,
            ids=ids,
            poll_interval=poll_interval,
        )
