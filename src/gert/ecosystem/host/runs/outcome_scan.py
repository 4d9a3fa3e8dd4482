"""Read the outcomes of runs from traces and ledgers: in one pass, in large chunks, in bounded memory.

Nothing is verified. A trace that cannot be read does not prevent others from being read.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import FileIO
from itertools import chain, filterfalse
from typing import Final

import msgspec

from gert.ecosystem.host.config.ledger_location import Database, database_for, ledger_name, ledger_of, require_ledger
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.runs.ledger_reader import LedgerReader
from gert.ecosystem.host.runs.traces import as_document
from gert.ecosystem.host.runs.trial import is_trial, may_be_trial
from gert.errors import InputError, TraceError, Unavailable, UsageError
from gert.kernel.events.agent import RunStarted
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, decode, parse_timestamp
from gert.kernel.events.outcomes import Selection
from gert.kernel.events.runner import PlanCreated
from gert.kernel.events.summary import LONGEST_TEXT, RunSummary, is_irrelevant, without_item
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.text import os_reason
from gert.kernel.ledger.record import Head
from gert.kernel.ledger.runbook_fold import RunbookSnapshot

TRACE_SUFFIX: Final = ".jsonl"
MOST_SKIPPED: Final = 1000
"""Skipped files that are remembered by name; all are counted."""

MOST_NAMES: Final = 500
TRIAL: Final = "trial"
"""Why a run of `gert tool try` is not selected."""

_CHUNK: Final = 1 << 20
_DATABASE: Final = b"SQLite format 3\x00"
# Non-blocking: opening a pipe without a writer would not return.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Sources(msgspec.Struct, frozen=True):
    """The traces and ledgers to read.

    paths: files, and folders with everything below them
    databases: SQLite files, and ledgers on Postgres
    """

    paths: tuple[str, ...] = ()
    databases: tuple[Database, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the traces and ledgers, for messages."""
        return (*self.paths, *map(ledger_name, self.databases))


def sources_for(
    paths: Sequence[str],
    db: str | None,
    chosen_state: str | None,
    working: str,
    environ: Mapping[str, str],
    dsn: str | None = None,
) -> Sources:
    """The traces and ledgers that were named (default: the ledger of the state directory)."""
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no file or folder `{path}`")
    database = database_for(db, dsn, environ)
    if db is not None:
        require_ledger(db)
    ledgers = () if database is None else (database,)
    if chosen_state:
        ledgers = (*ledgers, ledger_of(os.path.abspath(chosen_state)))
    if paths or ledgers:
        return Sources(tuple(paths), ledgers)
    return Sources((), (ledger_of(state_dir(None, Workspace(working).project_root(working), environ)),))


class Skipped(msgspec.Struct, frozen=True):
    """A file that was not counted, or not all of it, and why."""

    file: str
    reason: str


class Scan:
    """Reads the selected runs, and counts everything else.

    traces: files and runs in databases that were read
    skipped: files that hold no run, or cannot be read
    passed_over: runs that are not selected, by reason
    unreadable: lines that are no events, without a torn last line
    on_read: called with the number of bytes of each read
    """

    def __init__(self, selection: Selection, on_read: Callable[[int], object] | None = None) -> None:
        self._selection = selection
        self._on_read = on_read
        self.traces = 0
        self.skipped: list[Skipped] = []
        self.skipped_count = 0
        self.passed_over: Counter[str] = Counter()
        self.other_runbooks: set[str] = set()
        self.unreadable = 0
        self._passed: set[str] = set()
        self._files_read: set[tuple[int, int]] = set()

    def runs(self, sources: Sources) -> Iterator[RunSummary]:
        """The runs as they are read; a copied trace is read again."""
        for path in sources.paths:
            # The configured folder is there once something was written to it.
            if os.path.lexists(path):
                yield from self._in_files(self._below(path) if os.path.isdir(path) else (path,))
        for database in sources.databases:
            yield from self._in_database(database)

    def _in_files(self, files: Iterable[str]) -> Iterator[RunSummary]:
        for file in files:
            run = None
            with self._skipping(file), FileIO(file, opener=lambda path, _: os.open(path, _FLAGS)) as opened:
                if self._is_new(opened):
                    run = self._summary(self._batches(opened), file)
            if run is not None:
                yield run

    def _in_database(self, database: Database) -> Iterator[RunSummary]:
        name = ledger_name(database)
        if isinstance(database, str) and not os.path.exists(database):
            return
        with as_document(), LedgerReader(database) as reader:
            for head in reader.heads(
                on_unreadable=lambda run_id, problem: self._skip(f"{name}: {run_id}", problem.message)
            ):
                if head.runbook is not None:
                    with self._skipping(f"{name}: {head.run_id}"):
                        run = self._select(_summary_of(head, head.runbook, name), partial(_start_of, reader, head))
                        if run is not None:
                            yield run

    def _summary(self, batches: Iterator[list[bytes]], trace: str) -> RunSummary | None:
        """The run of a trace; of one that is not selected, only the first event is read."""
        first = next(batches, None)
        if first is None:
            raise TraceError("it is empty")
        start = _first_event(first[0])
        if start.type in (RunStarted.type, PlanCreated.type):
            return None  # a ledger may hold runs of agents and runners as well, and those have no outcome
        run = self._select(RunSummary.begin(start, trace), lambda: start)
        if run is not None:
            self._take(run, start, chain((first[1:],), batches))
        return run

    def _select(self, run: RunSummary, start: Callable[[], Envelope]) -> RunSummary | None:
        """The run, if it is selected; others are counted by reason. Its first event is read only where it has to be."""
        self.traces += 1
        objection: str | None = self._selection.objection(run)
        if objection is None and may_be_trial(run.runbook) and is_trial(start()):
            objection = TRIAL
        if objection is not None:
            self._pass_over(run, objection)
            return None
        return run

    def _take(self, run: RunSummary, start: Envelope, batches: Iterable[list[bytes]]) -> None:
        last = torn = None
        others = 0
        for batch in batches:
            for line in filterfalse(is_irrelevant, batch):
                try:
                    event = decode(line)
                except TraceError:
                    self.unreadable += 1
                    torn = line
                    continue
                if event.run_id == start.run_id:
                    run.take(event)
                else:
                    others += 1
            last = batch[-1] if batch else last
        self.unreadable -= torn is not None and torn is last
        if others:
            self._skip(run.trace, "it also holds events of another run, which do not count")

    def _pass_over(self, run: RunSummary, objection: str) -> None:
        if run.run_id in self._passed:
            return
        self._passed.add(run.run_id)
        self.passed_over[objection] += 1
        if objection == "runbook" and len(self.other_runbooks) < MOST_NAMES:
            self.other_runbooks.add(run.runbook)

    def _batches(self, file: FileIO) -> Iterator[list[bytes]]:
        """The lines of a file, many at a time; of one that is too long, only enough to see that it is."""
        rest = b""
        while chunk := file.read(_CHUNK):
            if self._on_read is not None:
                self._on_read(len(chunk))
            lines = chunk.split(b"\n")
            if len(rest) <= MAX_LINE_BYTES:
                rest = (rest + lines[0])[: MAX_LINE_BYTES + 1] if rest else lines[0]
            if len(lines) > 1:
                lines[0], rest = rest, lines.pop()
                yield lines
        if rest:
            yield [rest]

    def _below(self, folder: str) -> Iterator[str]:
        """Every file below a folder that may be a trace, in a stable order; a folder that is linked twice once."""
        seen: set[tuple[int, int]] = set()
        # A list, and no recursion: folders may be nested deeper than Python likes.
        folders = [folder]
        while folders:
            where = folders.pop()
            try:
                found = os.stat(where)
                names = sorted(os.listdir(where)) if (found.st_dev, found.st_ino) not in seen else []
            except OSError as problem:
                self._skip(where, _why(problem))
                continue
            seen.add((found.st_dev, found.st_ino))
            paths = [os.path.join(where, name) for name in names]
            inside = {path for path in paths if os.path.isdir(path)}
            yield from (path for path in paths if path.endswith(TRACE_SUFFIX) and path not in inside)
            folders += sorted(inside, reverse=True)

    def _is_new(self, file: FileIO) -> bool:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise TraceError("it is not a regular file")
        # The folder for traces may lie in the state directory, and one file may have two names.
        new = (found.st_dev, found.st_ino) not in self._files_read
        self._files_read.add((found.st_dev, found.st_ino))
        return new

    @contextmanager
    def _skipping(self, file: str) -> Iterator[None]:
        try:
            yield
        except Unavailable:
            raise  # the whole ledger is gone
        except TraceError as error:
            self._skip(file, error.message)
        except OSError as problem:
            self._skip(file, _why(problem))

    def _skip(self, file: str, reason: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(Skipped(file, reason))


def _start_of(reader: LedgerReader, head: Head) -> Envelope:
    return decode(next(reader.lines(head.run_id, 0), b""))


def _summary_of(head: Head, found: RunbookSnapshot, ledger: str) -> RunSummary:
    """The summary of a run from the snapshot in its head: no event is read."""
    category, code = found.outcome or (None, None)
    run = RunSummary(
        run_id=head.run_id,
        runbook=found.runbook[:LONGEST_TEXT] or "(unnamed)",
        started=parse_timestamp(head.started_at),
        mode=found.mode,
        actor=found.actor[:LONGEST_TEXT],
        trace=ledger,
        status="cancelled" if found.ended == "abandoned" else found.ended,
        category=category,
        code=code and code[:LONGEST_TEXT],
        seconds=_seconds(found.duration),
        waited=_seconds(found.waited or "0s"),
        failure_kind=found.failure_kind,
        failed_step=found.failed_step,
    )
    for counts, tally in ((found.violations, run.violations), (found.overrides, run.break_glass)):
        for name, times in counts.items():
            kind, _, step = name.rpartition(" ")
            tally.add((kind, without_item(step)), times)
    return run


def _seconds(duration: str) -> float | None:
    try:
        return parse_duration(duration).total_seconds()
    except InputError:
        return None


def _first_event(line: bytes) -> Envelope:
    if line.startswith(_DATABASE):
        raise TraceError("it is a database: read it with `--db`")
    try:
        return decode(line)
    except TraceError:
        raise TraceError("its first line is not an event") from None


def _why(problem: OSError) -> str:
    return f"it cannot be read: {os_reason(problem)}"
