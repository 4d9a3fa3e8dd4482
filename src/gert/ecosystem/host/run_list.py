"""Which runs there are and how they stand: from the first and the last lines of their traces alone (DECISIONS 58)."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from typing import Final, Literal

import msgspec

from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.host.approvals import tickets_in
from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.host.files import is_file, read_bounded
from gert.ecosystem.host.ledger import Ledger, first_line, last_lines, open_file
from gert.ecosystem.host.runs import RunFolder, known_runs, state_dir
from gert.ecosystem.host.state import MAX_STATE_BYTES, RunState, decode_state
from gert.ecosystem.stores.append_file import read_lines
from gert.errors import GertError, TraceError, UsageError
from gert.kernel.events.chain import AFTER_COMPLETE
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, decode, parse_timestamp
from gert.kernel.events.runbook import ApprovalResolved, RunComplete
from gert.kernel.events.summary import RunSummary
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import printable

if sys.platform != "win32":
    import fcntl

ABANDONED: Final = "abandoned: "
"""How the reason of a cancellation begins that `gert run abandon` asked for."""

Standing = Literal["running", "waiting", "cut-off", "abandoned", "completed", "failed", "error", "cancelled"]
OPEN: Final = ("running", "waiting", "cut-off")
STATUSES: Final = ("running", "waiting", "ended", "cut-off", "abandoned")
_MOST_NAMED: Final = 5
_RESOLVED: Final = f'"type":"{ApprovalResolved.type}"'.encode()


class Place(msgspec.Struct, frozen=True):
    """Where runs are kept: a state directory, and in place of its runs a database."""

    state: str
    db: str | None = None

    @property
    def name(self) -> str:
        """The place as people know it."""
        return self.db if self.db is not None else os.path.join(self.state, "runs")


class Entry(msgspec.Struct, kw_only=True):
    """One run as it stands.

    start, end: its first event, and its `run_complete`
    state: what it was started with, where that is known
    tickets: requests for approval that the run has not heard the answer of
    """

    run_id: str
    place: Place
    trace: str | None
    start: Envelope | None = None
    end: Envelope | None = None
    state: RunState | None = None
    events: int = 0
    last: str | None = None
    standing: Standing = "cut-off"
    tickets: tuple[TicketFile, ...] = ()

    @property
    def summary(self) -> RunSummary | None:
        """What it came to, as far as its first and last events say."""
        if self.start is None:
            return None
        summary = RunSummary.begin(self.start, self.trace or "")
        if self.end is not None:
            summary.take(self.end)
        return summary

    @property
    def started(self) -> datetime | None:
        """When it began."""
        moment = self.start.timestamp if self.start is not None else self.state.started if self.state else None
        return parse_timestamp(moment) if moment is not None else None

    def is_of(self, status: str) -> bool:
        """Whether it stands so; one that was abandoned has ended, too."""
        return self.standing not in OPEN if status == "ended" else self.standing == status


def place_for(chosen: str | None, db: str | None, environ: Mapping[str, str]) -> Place:
    """Where to look: the state directory of the working folder unless another is chosen, or a database."""
    if db is not None and not is_file(db):
        raise UsageError(f"there is no file `{db}`")
    working = os.getcwd()
    return Place(state_dir(chosen, Workspace(working).project_root(working), environ), db)


class Runs:
    """The runs of a place.

    problems: folders and runs that cannot be read, and why
    """

    def __init__(self, place: Place, environ: Mapping[str, str]) -> None:
        self.place = place
        self.problems: list[str] = []
        self._environ = environ
        self._ledger = Ledger(place.db) if place.db is not None else None
        self._tickets: dict[str, list[TicketFile]] | None = None

    def ids(self) -> list[str]:
        """Every run, by id."""
        return list(self._ledger.runs()) if self._ledger is not None else known_runs(self.place.state)

    def newest(self, since: datetime | None = None) -> Iterator[Entry]:
        """The runs that began since, the newest first; what is no run is passed over, and noted."""
        for run_id in reversed(self.ids()):
            began = moment_of(run_id)
            if since is not None and began is not None and began < since:
                continue
            try:
                entry = self.entry(run_id)
            except GertError as problem:
                self.problems.append(f"`{run_id}`: {problem.message}")
                continue
            if since is None or (entry.started is not None and entry.started >= since):
                yield entry

    def find(self, start: str) -> str:
        """The id that begins like this, if only one does."""
        if not is_safe_name(start):
            raise UsageError(f"`{printable(start)}` is not a run id", hint="`gert run list` shows them")
        found = [each for each in self.ids() if each.startswith(start)]
        if start in found or len(found) == 1:
            return start if start in found else found[0]
        if not found:
            raise UsageError(
                f"there is no run `{start}` in `{self.place.name}`",
                hint="`gert run list` shows what there is; --state-dir or --db say where else to look",
            )
        named = ", ".join(f"`{each}`" for each in found[-_MOST_NAMED:])
        raise UsageError(f"`{start}` may be {len(found)} runs", hint=f"write more of it: {named}")

    def entry(self, run_id: str) -> Entry:
        """How a run stands; TraceError or IntegrityError where there is none."""
        entry = self._recorded(run_id) if self._ledger is not None else self._kept(run_id)
        if entry.end is not None:
            entry.standing = _ended(entry.end)
            return entry
        entry.tickets = tuple(self._unheard(entry))
        if self.is_running(entry):
            entry.standing = "running"
        elif entry.tickets:
            entry.standing = "waiting"
        return entry

    def is_running(self, entry: Entry) -> bool:
        """Whether a process drives it: that one holds its lock."""
        lock = entry.trace if self.place.db is None else f"{self.place.db}-{entry.run_id}.lock"
        return lock is not None and _is_held(lock)

    def lines(self, entry: Entry) -> Iterator[bytes]:
        """Its whole lines, without line breaks."""
        return self.follow(entry).lines()

    def follow(self, entry: Entry) -> "Following":
        """Its lines, and later those that have come since."""
        return Following(entry.run_id, self._ledger, entry.trace)

    # --- reading

    def _kept(self, run_id: str) -> Entry:
        folder = RunFolder(self.place.state, run_id)
        state = None
        if os.path.exists(folder.state):
            with suppress(GertError):
                state = decode_state(read_bounded(folder.state, MAX_STATE_BYTES), folder.state)
        trace = state.trace if state is not None and state.trace is not None else folder.trace
        entry = Entry(run_id=run_id, place=self.place, trace=trace, state=state)
        try:
            with open_file(trace) as file:
                _read_ends(entry, file)
        except TraceError:
            if state is None:
                raise
        return entry

    def _recorded(self, run_id: str) -> Entry:
        assert self._ledger is not None  # noqa: S101 - only called where there is one
        state = None
        data = self._ledger.state(run_id)
        if data is not None:
            with suppress(GertError):
                state = decode_state(data, run_id)
        entry = Entry(run_id=run_id, place=self.place, trace=None, state=state)
        _take_ends(entry, next(self._ledger.events(run_id), b""), self._ledger.last_lines(run_id))
        return entry

    def _unheard(self, entry: Entry) -> list[TicketFile]:
        """The tickets of a run, without those whose answer it has heard."""
        mine = self._by_run().get(entry.run_id, [])
        if not mine:
            return []
        heard = {_ticket_of(line) for line in self.lines(entry) if _RESOLVED in line[:512]}
        return [file for file in mine if file.id not in heard]

    def _by_run(self) -> dict[str, list[TicketFile]]:
        """Tickets by run, read once and only where a run might wait."""
        if self._tickets is None:
            self._tickets = {}
            tickets = tickets_in(self.place.state, self._environ)
            noted: Callable[[GertError], object] = lambda problem: self.problems.append(problem.message)  # noqa: E731
            for file in tickets.all("pending", "approved", "rejected", "expired", on_problem=noted):
                self._tickets.setdefault(file.run.run_id, []).append(file)
        return self._tickets


class Following:
    """Reads a run from where it was read last."""

    def __init__(self, run_id: str, ledger: Ledger | None, trace: str | None) -> None:
        self._run_id = run_id
        self._ledger = ledger
        self._trace = trace
        self._seen = 0
        self._offset = 0

    def lines(self) -> Iterator[bytes]:
        """The whole lines nobody has seen here yet; one that is being written comes the next time."""
        if self._ledger is not None:
            for line in self._ledger.events(self._run_id, self._seen):
                self._seen += 1
                yield line
        elif self._trace is not None and os.path.exists(self._trace):
            with open_file(self._trace) as file, open(file.fileno(), "rb", closefd=False) as lines:
                lines.seek(self._offset)
                for line in read_lines(lines, MAX_LINE_BYTES):
                    if not line.endswith(b"\n"):
                        return
                    self._offset = lines.tell()
                    yield line.removesuffix(b"\n")


def moment_of(run_id: str) -> datetime | None:
    """When a run began, as its id says; none for an id gert did not make."""
    try:
        return datetime.strptime(run_id[:19], "%Y%m%d-%H%M%S-%f").replace(tzinfo=UTC)
    except ValueError:
        return None


def _read_ends(entry: Entry, file: FileIO) -> None:
    _take_ends(entry, first_line(file), last_lines(file))


def _take_ends(entry: Entry, first: bytes, last: list[bytes]) -> None:
    """What the first line and the last ones say; a torn or foreign line says nothing."""
    if first:
        start = decode(first)
        RunSummary.begin(start)
        entry.start = start
    for line in last:
        try:
            event = decode(line)
        except TraceError:
            continue
        if not entry.events:
            entry.events, entry.last = event.seq, event.timestamp
        if event.type == RunComplete.type:
            entry.end = event
        if event.type not in AFTER_COMPLETE:
            return


def _ended(end: Envelope) -> Standing:
    status, failure = end.data.get("status"), end.data.get("failure")
    message = failure.get("message") if isinstance(failure, dict) else None
    if status == "cancelled" and isinstance(message, str) and message.startswith(ABANDONED):
        return "abandoned"
    return status if status in ("completed", "failed", "cancelled") else "error"


def _ticket_of(line: bytes) -> str | None:
    with suppress(TraceError):
        return decode(line).data.get("ticket_id")
    return None


def _is_held(path: str) -> bool:
    """Whether somebody holds a file as a lock. Looked at for a moment only: whoever wants it must not be kept out."""
    if sys.platform == "win32":
        return False
    try:
        with open_file(path) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (TraceError, OSError):
        return False
    return False
