"""Runs the transactions and reads of one SQLite file beside an event loop.

Transactions that wait share one commit. As long as the disk is quick they are committed on the event loop's own thread,
since handing work to a thread and back takes longer than such a commit: the first at once, and those that other callers
ask for in the same turn of the loop together in the next turn.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic, perf_counter
from typing import Any, Final, TypeVar
from weakref import finalize, ref

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.sqlite.file import (
    MEMORY,
    FileGuard,
    as_gert_error,
    is_busy,
    open_reader,
    open_writer,
    retried,
    roll_back,
)
from gert.ecosystem.ledger.transactions import Change, Transaction
from gert.errors import TraceError

T = TypeVar("T")

LOOK_EVERY: Final = 0.05
"""How long, in seconds, a ledger whose file was taken away may be written on: looking costs an eighth of a commit."""

QUICK_SECONDS: Final = 0.002
"""How long a commit may keep the event loop waiting."""

_MOST_TOGETHER: Final = 256
_MOST_QUICK: Final = 32


class _Task:
    """A transaction, and the future of a caller that waits for its result."""

    __slots__ = ("begin", "error", "future", "loop", "on_done", "result")

    def __init__(
        self,
        begin: Callable[[], Transaction[Any]],
        on_done: Callable[[Any], object],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.begin = begin
        self.on_done = on_done
        self.loop = loop
        self.future: asyncio.Future[Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def wait(self) -> "asyncio.Future[Any]":
        """The future of the result."""
        self.future = self.loop.create_future()
        return self.future

    def settle(self) -> None:
        """Hand the result to the caller, on its event loop."""
        if self.error is None:
            self.on_done(self.result)
        if self.future is None or self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class _HalfDone(Exception):
    """A transaction failed after it had changed something: the commit it shared has to be done again without it."""


class Executor:
    """One connection that writes, one that reads on the event loop, and one that reads on a thread.

    patience: how long to wait for other processes, in seconds
    look_every: how long to believe, in seconds, that the file is where it was
    """

    def __init__(
        self, path: str, *, sync: bool, read_only: bool, patience: float, look_every: float = LOOK_EVERY
    ) -> None:
        self.path = path
        # As it is now: a change of the working folder, or of a link, does not move the file.
        self.file = path if path == MEMORY else os.path.realpath(path)
        self._patience = patience
        self._alone = read_only
        self._writing = Lock()
        self._reading = Lock()
        self._writer: sqlite3.Connection | None = None
        self._near: sqlite3.Connection | None = None
        self._far: sqlite3.Connection | None = None
        self._guard: FileGuard | None = None
        self._took = 0.0
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._queued = 0
        self._soon: list[_Task] = []
        self._is_turn_taken = False
        try:
            if read_only:
                self._near = open_reader(self.file, alone=True, patience=patience)
            else:
                self._writer = open_writer(self.file, sync=sync, patience=patience)
        except sqlite3.Error as error:
            raise as_gert_error(path, error) from error
        if path == MEMORY:
            self._near = self._far = self._writer
            self._reading = self._writing
        elif not read_only:
            self._guard = FileGuard(self.file, every=look_every)

    # --- reading

    def read(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """The rows of a statement, on the calling thread."""
        with self._errors():
            if self._near is None:
                self._near = open_reader(self.file, alone=self._alone)
            with self._reading if self._near is self._writer else _UNLOCKED:
                return self._near.execute(sql.for_sqlite(statement), values).fetchall()

    async def read_far(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """The rows of a statement that may give many, on a thread."""
        return await asyncio.to_thread(self._read_far, statement, values)

    def _read_far(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        with self._errors(), self._reading:
            if self._far is None:
                self._far = open_reader(self.file, alone=self._alone, patience=self._patience)
            return self._far.execute(sql.for_sqlite(statement), values).fetchall()

    def version(self) -> int:
        """A number that changes whenever another connection has written."""
        return int(self.read("PRAGMA data_version", ())[0][0])

    def require_file(self) -> None:
        """Refuse to wait for others where the file is not the one that they write to."""
        if self._guard is not None:
            self._guard.require_there()

    # --- writing

    async def transact(self, begin: Callable[[], Transaction[T]], on_done: Callable[[T], object]) -> T:
        """Run a transaction; it is committed when this returns, and even if the caller is cancelled."""
        task = _Task(begin, on_done, asyncio.get_running_loop())
        if self._soon or self._is_turn_taken:
            self._commit_soon(task)
        elif self._commit_now([task]):
            if task.error is not None:
                raise task.error
            on_done(task.result)
            self._is_turn_taken = True
            try:
                await asyncio.sleep(0)
            finally:
                self._is_turn_taken = False
            result: T = task.result
            return result
        else:
            self._enqueue(task)
        # It is settled on this event loop, so not before this.
        return await task.wait()  # type: ignore[no-any-return]

    def _commit_now(self, tasks: Sequence[_Task]) -> bool:
        """Commit tasks on the event loop, if it does not have to wait for the disk, the thread or another process."""
        if self._queued or self._took >= QUICK_SECONDS or not self._writing.acquire(blocking=False):
            return False
        try:
            return self._commit(tasks, patience=0.0)
        finally:
            self._writing.release()

    def _commit_soon(self, task: _Task) -> None:
        if not self._soon:
            task.loop.call_soon(self.flush)
        self._soon.append(task)

    def flush(self) -> None:
        """Commit what this turn of the event loop waits for."""
        tasks, self._soon = self._soon, []
        if tasks and len(tasks) <= _MOST_QUICK and self._commit_now(tasks):
            for task in tasks:
                task.settle()
        else:
            for task in tasks:
                self._enqueue(task)

    def _enqueue(self, task: _Task) -> None:
        self._queued += 1
        if self._thread is None:
            self._thread = Thread(target=_work, args=(self._queue, ref(self)), name="gert-ledger", daemon=True)
            self._thread.start()
            # The thread of a ledger that was forgotten ends, too.
            finalize(self, self._queue.put, None)
        self._queue.put(task)

    def commit_all(self, tasks: Sequence[_Task]) -> None:
        """Commit tasks on the calling thread, and hand their results to the event loop."""
        with self._writing:
            try:
                self._commit(tasks, patience=self._patience)
            except BaseException as error:
                for task in tasks:
                    task.error = error
        # An event loop that was closed has no caller that waits.
        with suppress(RuntimeError):
            tasks[0].loop.call_soon_threadsafe(self._settle, tasks)

    def _settle(self, tasks: Sequence[_Task]) -> None:
        self._queued -= len(tasks)
        for task in tasks:
            task.settle()

    def _commit(self, tasks: Sequence[_Task], *, patience: float) -> bool:
        """Run transactions in one commit; False where nothing was done, since that may take longer than `patience`.

        Each fails for its own reasons; where one fails halfway, the commit is undone and each is run alone.
        """
        writer = self._writer
        if writer is None:
            raise TraceError("the ledger is open only for reading")
        began = perf_counter()
        try:
            retried(lambda: writer.execute("BEGIN IMMEDIATE"), monotonic() + patience)
        except sqlite3.Error as error:
            if is_busy(error) and not patience:
                return False
            for task in tasks:
                task.error = as_gert_error(self.path, error)
            return True
        try:
            if self._guard is not None:
                self._guard.require()
            for task in tasks:
                self._run(writer, task)
            writer.execute("COMMIT")
        except BaseException as error:
            roll_back(writer)
            if len(tasks) > 1 and isinstance(error, (_HalfDone, sqlite3.Error)):
                for task in tasks:
                    task.error = task.result = None
                if not patience:
                    return False
                for task in tasks:
                    self._commit([task], patience=patience)
            else:
                self._fail(tasks, error)
        self._took = perf_counter() - began
        return True

    def _fail(self, tasks: Sequence[_Task], error: BaseException) -> None:
        if isinstance(error, _HalfDone) and error.__cause__ is not None:
            error = error.__cause__
        for task in tasks:
            task.error = as_gert_error(self.path, error) if isinstance(error, sqlite3.Error) else error

    def _run(self, writer: sqlite3.Connection, task: _Task) -> None:
        """Run one transaction; what it refuses before it changes anything concerns its own caller alone."""
        changed = False
        transaction = task.begin()
        rows: Any = None
        try:
            while True:
                statement = transaction.send(rows)
                if isinstance(statement, Change):
                    changed = True
                    rows = self._change(writer, statement)
                else:
                    rows = writer.execute(sql.for_sqlite(statement.sql), statement.values).fetchall()
        except StopIteration as end:
            task.result = end.value
        except sqlite3.Error:
            raise
        except BaseException as error:
            if changed:
                raise _HalfDone from error
            task.error = error

    @staticmethod
    def _change(writer: sqlite3.Connection, change: Change) -> Sequence[Sequence[Any]]:
        statement = sql.for_sqlite(change.sql)
        if len(change.rows) == 1:
            return writer.execute(statement, change.rows[0]).fetchall()
        writer.executemany(statement, change.rows)
        return ()

    # --- closing

    async def close(self) -> None:
        """Commit what waits, and close the connections."""
        self.flush()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(thread.join)
        # Readers first: SQLite takes its log back into the file with the last connection, if that one may write.
        # Otherwise the latest commits would be in the log only, and a copy of the file would lack them.
        for connection in (self._near, self._far, self._writer):
            if connection is not None:
                connection.close()
        self._near = self._far = self._writer = None

    def _errors(self) -> "_GertErrors":
        return _GertErrors(self.path)


def _work(queue: "SimpleQueue[_Task | None]", executor: "ref[Executor]") -> None:
    """Commit what waits, together, until there is nothing more to come."""
    is_over = False
    while not is_over:
        tasks: list[_Task] = []
        while len(tasks) < _MOST_TOGETHER and (not tasks or not queue.empty()):
            task = queue.get()
            if task is None:
                is_over = True
                break
            tasks.append(task)
        found = executor() if tasks else None
        if found is not None:
            found.commit_all(tasks)
        # Nothing here keeps a ledger that was forgotten.
        del found, tasks, task


class _GertErrors:
    """Turns errors of SQLite into errors of gert."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise as_gert_error(self._path, error) from error


class _Unlocked:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


_UNLOCKED: Final = _Unlocked()
