"""Writes a ledger in a folder of files, while nobody else does."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Final, TypeVar

from msgspec import structs

from gert.ecosystem.stores.append_file import AppendFile, Lock, exclusive
from gert.ecosystem.stores.index import Settled
from gert.ecosystem.stores.jsonl_mark import changing, read_mark
from gert.ecosystem.stores.jsonl_reader import JsonlReader
from gert.ecosystem.stores.run_file import HEAD, LINES, End, write_end
from gert.ecosystem.stores.run_lines import is_cut, unreadable
from gert.ecosystem.stores.settling import acquired, released, renewed
from gert.ecosystem.stores.tasks import Task
from gert.errors import Busy, TraceError
from gert.kernel.agent.ledger import Expect, Held, Lease, Overtaken, Write, Written
from gert.kernel.foundation.signature import Key

_MOST_DELAY: Final = 0.05

T = TypeVar("T")


class JsonlWriter:
    """Adds to the files; each append is there once the file that says where the run ends was exchanged.

    torn: what appends left that were never finished, by run; it was moved to files of its own
    """

    def __init__(
        self, files: JsonlReader, *, sync: bool, busy_seconds: float, key: Key | None, clock: Callable[[], datetime]
    ) -> None:
        self._files = files
        self._sync = sync
        self._busy_seconds = busy_seconds
        self._key = key
        self._clock = clock
        self.torn: dict[str, bytes] = {}
        self._held: Lock | None = None

    def do_all(self, tasks: Sequence[Task], *, patiently: bool = True) -> bool:
        """Do tasks one after the other."""
        try:
            with self._alone(self._busy_seconds if patiently else 0):
                for task in tasks:
                    task.run(self)
        except TraceError as error:
            if isinstance(error, Busy) and not patiently:
                return False
            for task in tasks:
                task.error = error
        return True

    def do_alone(self, call: Callable[["JsonlWriter"], T]) -> T:
        """Do one thing; Busy where somebody else has the files."""
        with self._alone(0):
            return call(self)

    def append(
        self, run_id: str, write: Write, expects: Sequence[Expect], fence: int | None
    ) -> Written | Overtaken | Held:
        """Append what `write` makes of the end of the run."""
        with self._files.lock:
            known = self._files.known(run_id)
            known.require_sound()
            before = known.end
            said = self._files.index.settle(run_id, write, expects, fence, self._clock(), self._key)
        if not isinstance(said, Settled):
            return said
        if said.batch.rows:
            self._end_at(self._put(before, said), said)
        return Written(said.batch)

    def acquire(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Take or prolong a lease."""
        lease = self._files.lease(run_id)
        return self._keep(run_id, acquired(lease, run_id, worker_id, ttl_seconds, self._clock()))

    def renew(self, run_id: str, worker_id: str, ttl_seconds: float) -> Lease | None:
        """Prolong a lease."""
        return self._keep(run_id, renewed(self._files.lease(run_id), worker_id, ttl_seconds, self._clock()))

    def release(self, run_id: str, worker_id: str) -> bool:
        """Give a lease back."""
        return self._keep(run_id, released(self._files.lease(run_id), worker_id, self._clock())) is not None

    def close(self) -> None:
        """No file is open between two changes."""

    def _put(self, before: End, said: Settled) -> End:
        """Add the lines; nobody reads them before the run ends after them."""
        file = AppendFile(self._files.path(before.run_id, LINES), sync=self._sync, create=not before.size)
        try:
            if file.size < before.size:
                raise is_cut(file.path, f"{before.size} bytes", file.size)
            if file.size > before.size:
                self._set_aside(file, before)
            file.write([row.line for row in said.batch.rows])
            file.make_durable()
        finally:
            file.close()
        head = said.batch.head
        return structs.replace(
            before,
            count=head.count,
            size=file.size,
            hash=head.hash,
            tenant=head.tenant,
            started_at=head.started_at,
            updated_at=head.updated_at,
            seal=head.seal,
        )

    def _set_aside(self, file: AppendFile, end: End) -> None:
        """Move away what an append left that was never finished: nobody was told that it happened."""
        try:
            with file.reader() as lines:
                lines.seek(end.size)
                left = lines.read()
        except OSError as problem:
            raise unreadable(file.path, problem) from problem
        file.set_aside(end.size, left)
        self.torn[end.run_id] = self.torn.get(end.run_id, b"") + left

    def _keep(self, run_id: str, lease: Lease | None) -> Lease | None:
        if lease is not None:
            with self._files.lock:
                before = self._files.known(run_id).end
            self._end_at(
                structs.replace(before, worker_id=lease.worker_id, token=lease.token, expires_at=lease.expires_at)
            )
        return lease

    def _end_at(self, end: End, said: Settled | None = None) -> None:
        if self._held is None:
            raise TraceError("the ledger is written by somebody who has no lock")
        before = read_mark(self._files.lock_path)
        with changing(self._held) as after:
            write_end(self._files.path(end.run_id, HEAD), end, sync=self._sync)
        with self._files.lock:
            if said is not None:
                self._files.take(end.count - len(said.batch.rows), said, end)
            self._files.known(end.run_id)
            self._files.keep_up(before, after)

    @contextmanager
    def _alone(self, patience: float) -> Iterator[None]:
        """Be the only one who writes, in any process; Busy where somebody else is for too long."""
        until, delay = time.monotonic() + patience, 0.001
        with ExitStack() as stack:
            while True:
                try:
                    self._held = stack.enter_context(exclusive(self._files.lock_path, "the ledger"))
                    break
                except Busy:
                    if time.monotonic() >= until:
                        raise
                    time.sleep(delay)
                    delay = min(delay * 2, _MOST_DELAY)
            try:
                yield
            finally:
                self._held = None
