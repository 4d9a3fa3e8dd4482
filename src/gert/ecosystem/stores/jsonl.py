"""One run in two files of lines: the trace, and beside it the log of answers."""

from collections.abc import Iterator, Sequence
from itertools import islice
from os import PathLike, fspath
from threading import Lock
from types import TracebackType
from typing import Self

from gert.ecosystem.stores.append_file import AppendFile, read_lines
from gert.ecosystem.stores.batch import MAX_ANSWER_BYTES, check_batch, check_next
from gert.ecosystem.stores.beside import Beside
from gert.ecosystem.stores.recovery import is_taken, whole_answers, whole_events
from gert.errors import TraceError
from gert.kernel.events.envelope import MAX_LINE_BYTES


class JsonlStore:
    """A new trace; without a file for its answers they are not kept, and the run cannot be resumed.

    torn, torn_answers: what `reopen` found after the last whole line, and set aside
    """

    def __init__(self, trace: str | PathLike[str], answers: str | PathLike[str] | None, *, sync: bool = True) -> None:
        self._open(fspath(trace), None if answers is None else fspath(answers), sync=sync, create=True)
        try:
            for file in self._files():
                if file.size:
                    raise is_taken(file)
        except BaseException:
            self.close()
            raise

    @classmethod
    def reopen(
        cls, trace: str | PathLike[str], answers: str | PathLike[str] | None, *, sync: bool = True
    ) -> "JsonlStore":
        """Go on with a trace that was begun: its chain is checked, and a torn last line is set aside."""
        store = cls.__new__(cls)
        # A run that died early may have left no answers; without a trace there is nothing to go on with.
        store._open(fspath(trace), None if answers is None else fspath(answers), sync=sync, create=False)
        try:
            store._recover()
        except BaseException:
            store.close()
            raise
        return store

    def _open(self, trace: str, answers: str | None, *, sync: bool, create: bool) -> None:
        self.durable = sync
        self.torn: bytes | None = None
        self.torn_answers: bytes | None = None
        self._lock = Lock()
        self._beside: Beside | None = None
        self._run_id: str | None = None
        self._events_count = self._answers_count = 0
        self._answers: AppendFile | None = None
        self._trace = AppendFile(trace, sync=sync, create=create)
        try:
            if answers is not None:
                self._answers = AppendFile(answers, sync=sync, create=True)
        except BaseException:
            self._trace.close()
            raise

    def append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes] = ()) -> None:
        """Write a batch, and wait until it is durable."""
        check_batch(run_id, first_seq, events, answers)
        with self._lock:
            if self._run_id not in (None, run_id):
                raise TraceError(f"`{self._trace.path}` holds run `{self._run_id}`, and not `{run_id}`")
            check_next(run_id, self._events_count, first_seq)
            self._write(events, answers if self._answers is not None else ())
            self._run_id = run_id

    def _write(self, events: Sequence[bytes], answers: Sequence[bytes]) -> None:
        # Where one of the two failed, nothing is added to the other either: it would rest on what is lost.
        for file in self._files():
            file.require_sound()
        batches = [(file, lines) for file, lines in ((self._answers, answers), (self._trace, events)) if file and lines]
        before = [(file, file.size) for file, _ in batches]
        try:
            # Answers are written first: whoever is killed leaves no event behind that rests on an answer he lost.
            for file, lines in batches:
                file.write(lines)
            self._sync([file for file, _ in batches])
        except BaseException:
            for file, size in before:
                file.cut(size)
            raise
        self._answers_count += len(answers)
        self._events_count += len(events)

    def _sync(self, files: list[AppendFile]) -> None:
        """Make both files durable side by side, which takes little longer than one.

        Both are before anyone goes on. Should the power fail in this very moment, events may have reached the disk
        and not the answers they rest on: then the trace is ahead of the log, and says what the answers came to.
        """
        if len(files) < 2 or not self.durable:
            for file in files:
                file.make_durable()
            return
        if self._beside is None:
            self._beside = Beside()
        answers = self._beside.begin(files[0])
        try:
            files[1].make_durable()
        finally:
            self._beside.wait(answers)

    def events(self, run_id: str, since: int = 0) -> Iterator[bytes]:
        """The lines after the number `since`."""
        with self._lock:
            count = self._events_count if run_id == self._run_id else 0
        return self._read(self._trace, since, count, MAX_LINE_BYTES)

    def answers(self, run_id: str) -> Iterator[bytes]:
        """The answers, in order."""
        with self._lock:
            count = self._answers_count if self._run_id in (None, run_id) else 0
        return self._read(self._answers, 0, count, MAX_ANSWER_BYTES)

    def set_aside(self, after: int) -> None:
        """Move the events after a number to the file of what was torn: nothing that happened rests on them."""
        with self._lock:
            end, rest = 0, b""
            with self._trace.reader() as lines:
                for number, line in enumerate(read_lines(lines, MAX_LINE_BYTES), start=1):
                    if number <= after:
                        end += len(line)
                    else:
                        rest += line
            if rest:
                self._trace.set_aside(end, rest.removesuffix(b"\n"))
                self._events_count = after

    def runs(self) -> Iterator[str]:
        """The run, if it has begun."""
        with self._lock:
            return iter([self._run_id] if self._run_id is not None and self._events_count else [])

    def close(self) -> None:
        """Close both files."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.close()
        for file in self._files():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _files(self) -> list[AppendFile]:
        return [file for file in (self._trace, self._answers) if file is not None]

    def _read(self, file: AppendFile | None, since: int, count: int, longest: int) -> Iterator[bytes]:
        # Lines beyond the count belong to a batch that is being written.
        if file is None or since >= count:
            return
        with file.reader() as lines:
            for line in islice(read_lines(lines, longest), since, count):
                yield line.removesuffix(b"\n")

    def _recover(self) -> None:
        # Before it is believed: whoever wrote it may have been killed before it was durable.
        for file in self._files():
            file.settle()
        events = whole_events(self._trace)
        self.torn = events.set_aside(self._trace)
        self._events_count, self._run_id = events.count, events.run_id
        if self._answers is not None:
            answers = whole_answers(self._answers)
            self.torn_answers = answers.set_aside(self._answers)
            self._answers_count = answers.count
