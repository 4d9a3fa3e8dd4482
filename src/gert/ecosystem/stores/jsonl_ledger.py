"""A ledger in a folder: a trace for each run, readable with any editor."""

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from os import PathLike, fspath

from gert.ecosystem.stores.async_ledger import POLL_INTERVAL, AsyncLedger
from gert.ecosystem.stores.folders import make_folder
from gert.ecosystem.stores.jsonl_reader import LOCK, JsonlReader
from gert.ecosystem.stores.jsonl_writer import JsonlWriter
from gert.ecosystem.stores.naming import utc_now
from gert.ecosystem.stores.run_file import HEAD
from gert.ecosystem.stores.threads import Threads
from gert.errors import TraceError
from gert.kernel.foundation.signature import Key


class JsonlLedger(AsyncLedger):
    """A folder of runs; made if it is not there, unless it is only to be read.

    sync: every append is on disk before it returns
    busy_timeout_ms: how long to wait for other processes that write
    key: seals the end of a run on every append
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        sync: bool = True,
        read_only: bool = False,
        busy_timeout_ms: int = 5000,
        key: Key | None = None,
        clock: Callable[[], datetime] = utc_now,
        ids: Callable[[], str] | None = None,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        self.path = fspath(folder)
        _prepare(self.path, read_only=read_only)
        reader = JsonlReader(self.path)
        writer = JsonlWriter(reader, sync=sync, busy_seconds=busy_timeout_ms / 1000, key=key, clock=clock)
        self._torn = writer.torn
        super().__init__(
            # Files are opened for every look and every change: never here, always on a thread.
            lambda on_done: Threads(writer, reader, reader, on_done, quick=0),
            durable=sync,
            shared=True,
            read_only=read_only,
            clock=clock,
            ids=ids,
            poll_interval=poll_interval,
        )

    @property
    def torn(self) -> Mapping[str, bytes]:
        """What was found after the ends of runs, left by whoever died while appending; it was set aside."""
        return self._torn


def is_ledger(folder: str) -> bool:
    """Whether a folder holds a ledger: whoever has written to one left its lock, or at least a run."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name == LOCK or entry.name.endswith(HEAD) for entry in entries)
    except OSError:
        return False


def _prepare(folder: str, *, read_only: bool) -> None:
    try:
        if not read_only:
            make_folder(folder)
        elif not os.path.isdir(folder):
            raise TraceError(f"there is no folder `{folder}`")
    except (OSError, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or "it is not a path").lower()
        raise TraceError(f"`{folder}` cannot hold a ledger: {why}") from problem
