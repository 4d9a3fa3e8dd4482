"""The ledger in a SQLite file: durable, for many processes on one machine. `:memory:` is a ledger for tests."""

import os
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final, TypeVar

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.ledger import SqlLedger
from gert.ecosystem.ledger.sqlite.executor import LOOK_EVERY, Executor
from gert.ecosystem.ledger.sqlite.file import MEMORY
from gert.ecosystem.ledger.transactions import Dialect, Transaction
from gert.kernel.foundation.signature import Key, Keys
from gert.kernel.ledger.head_seal import Sealer
from gert.kernel.ledger.record import Batch

T = TypeVar("T")

POLL_INTERVAL: Final = 0.2
PATIENCE: Final = 60.0
_DIALECT: Final = Dialect(lock=sql.LOCK.replace(" FROM runs", ", NULL FROM runs"))
_NO_KEYS: Final = Keys()


class SqliteLedger(SqlLedger):
    """Runs in a SQLite file, which is made if it is not there, unless it is only to be read.

    sync: every append is on disk before it returns; without, a loss of power may take the last of them
    patience: how long to wait for other processes, in seconds
    look_every: how long a file that was removed may be written on, in seconds
    key, keys: what seals the head of a run on every append, and what seals are checked with
    """

    backend: sql.Backend = "sqlite"

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        sync: bool = True,
        read_only: bool = False,
        patience: float = PATIENCE,
        key: Key | None = None,
        keys: Keys = _NO_KEYS,
        clock: Callable[[], datetime] | None = None,
        ids: Callable[[], str] | None = None,
        poll_interval: float = POLL_INTERVAL,
        look_every: float = LOOK_EVERY,
    ) -> None:
        self.path = fspath(path)
        self._sync = sync
        self._executor = Executor(self.path, sync=sync, read_only=read_only, patience=patience, look_every=look_every)
        super().__init__(
            _DIALECT, Sealer(key, keys), read_only=read_only, clock=clock, ids=ids, poll_interval=poll_interval
        )

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power."""
        return self._sync and self.path != MEMORY

    def _file_id(self) -> str:
        try:
            found = os.stat(self._executor.file)
        except OSError:
            return ""  # in memory, or removed, which the next change refuses
        return f"{found.st_dev}:{found.st_ino}"

    async def wait_for_message(self, run_id: str, after: int, timeout: float) -> bool:
        """Wait until a run has a message with an id above `after`; none comes to a file that was removed."""
        self._executor.require_file()
        return await super().wait_for_message(run_id, after, timeout)

    async def _rows(self, statement: str, *values: Any, heavy: bool = False) -> Sequence[Sequence[Any]]:
        if heavy:
            return await self._executor.read_far(statement, values)
        return self._executor.read(statement, values)

    async def _transact(
        self, begin: Callable[[Sequence[Batch]], Transaction[T]], run_id: str, on_done: Callable[[T], object]
    ) -> T:
        return await self._executor.transact(lambda: begin(()), on_done)

    async def _look(self, run_ids: Sequence[str]) -> Hashable:
        return self._executor.version()

    async def _close(self) -> None:
        await self._executor.close()
