"""Which runs there are and how they stand: from the ends of their records alone (DECISIONS 58).

A runbook run stands as its first and last lines say; an agent run as its snapshot does, which the ledger keeps.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from io import FileIO
from types import TracebackType
from typing import Final, Self

from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.host.approvals import tickets_in
from gert.ecosystem.host.archive import Archive
from gert.ecosystem.host.files import read_bounded
from gert.ecosystem.host.following import Following
from gert.ecosystem.host.ledger import first_line, last_lines, open_file
from gert.ecosystem.host.run_entry import ABANDONED, Entry, Place, Standing
from gert.ecosystem.host.runs import RunFolder, known_runs
from gert.ecosystem.host.state import MAX_STATE_BYTES, decode_state
from gert.errors import GertError, TraceError, Unavailable, UsageError
from gert.kernel.agent.ledger import Head
from gert.kernel.events.chain import AFTER_COMPLETE
from gert.kernel.events.doubts import calls_in_doubt
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.runbook import ApprovalOutdated, ApprovalResolved, RunComplete
from gert.kernel.events.summary import RunSummary
from gert.kernel.foundation.names import is_run_id, is_safe_name
from gert.kernel.foundation.text import printable

if sys.platform != "win32":
    import fcntl

_MOST_NAMED: Final = 5
_CLOSING: Final = tuple(f'"type":"{each.type}"'.encode() for each in (ApprovalResolved, ApprovalOutdated))
"""How the events look after which a run does not wait for a ticket any more."""


class Runs:
    """The runs of a place; closing lets go of its ledger.

    problems: folders and runs that cannot be read, and why
    """

    def __init__(self, place: Place, environ: Mapping[str, str]) -> None:
        self.place = place
        self.problems: list[str] = []
        self._environ = environ
        self.archive = Archive(place.database) if place.database is not None else None
        self._tickets: dict[str, dict[str, list[TicketFile]]] = {}

    def close(self) -> None:
        """Let go of the ledger."""
        if self.archive is not None:
            self.archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ids(self) -> list[str]:
        """Every run, by id."""
        if self.archive is not None:
            return sorted(head.run_id for head in self.archive.heads())
        return known_runs(self.place.state)

    def newest(self, since: datetime | None = None, tenant: str | None = None) -> Iterator[Entry]:
        """The runs that began since, the newest first; what is no run is passed over, and noted.

        Those of a ledger come by when they were last written to: an agent may go on for months.
        """
        for run_id, read in self._read_newest(since, tenant):
            try:
                entry = read()
            except Unavailable:
                raise
            except GertError as problem:
                self.problems.append(f"`{run_id}`: {problem.message}")
                continue
            if since is None or (entry.started is not None and entry.started >= since):
                yield entry

    def find(self, start: str) -> str:
        """The id that begins like this, if only one does."""
        if not (is_safe_name if self.archive is None else is_run_id)(start):
            raise UsageError(f"`{printable(start)}` is not a run id", hint="`gert run list` shows them")
        if self.archive is not None and self.archive.head(start) is not None:
            return start
        found = [each for each in self.ids() if each.startswith(start)]
        if start in found or len(found) == 1:
            return start if start in found else found[0]
        if not found:
            raise UsageError(
                f"there is no run `{start}` in `{self.place.name}`",
                hint="`gert run list` shows what there is; --state-dir, --db or --dsn say where else to look",
            )
        named = ", ".join(f"`{each}`" for each in found[-_MOST_NAMED:])
        raise UsageError(f"`{start}` may be {len(found)} runs", hint=f"write more of it: {named}")

    def entry(self, run_id: str) -> Entry:
        """How a run stands; TraceError or IntegrityError where there is none."""
        if self.archive is None:
            return self._stands(self._kept(run_id))
        head = self.archive.head(run_id)
        if head is None:
            raise TraceError(f"there is no run `{run_id}` in `{self.place.name}`")
        return self._recorded(head)

    def whole_entry(self, run_id: str) -> Entry:
        """How a run stands, and of one that nobody drives, which calls are in doubt: its record is read for them."""
        entry = self.entry(run_id)
        if entry.kind == "runbook" and entry.standing in ("waiting", "cut-off"):
            entry.in_doubt = tuple(calls_in_doubt(_events(self.lines(entry))))
        return entry

    def is_running(self, entry: Entry) -> bool:
        """Whether a process drives it: that one holds its lock, or its lease where machines share a ledger."""
        if self.place.dsn is not None and self.archive is not None:
            return self.archive.is_held(entry.run_id)
        lock = entry.trace if self.place.db is None else f"{self.place.db}-{entry.run_id}.lock"
        return lock is not None and _is_held(lock)

    def lines(self, entry: Entry) -> Iterator[bytes]:
        """Its whole lines, without line breaks."""
        return self.follow(entry).lines()

    def follow(self, entry: Entry, since: int = 0) -> Following:
        """Its lines after a number, and later those that have come since."""
        return Following(entry.run_id, self.archive, entry.trace, since)

    # --- reading

    def _read_newest(self, since: datetime | None, tenant: str | None) -> Iterator[tuple[str, Callable[[], Entry]]]:
        if self.archive is not None:
            for head in self.archive.heads(tenant=tenant, since=since):
                yield head.run_id, partial(self._recorded, head)
        elif tenant is None:  # the runs of a state directory belong to nobody else
            for run_id in reversed(self.ids()):
                began = moment_of(run_id)
                if since is None or began is None or began >= since:
                    yield run_id, partial(self.entry, run_id)

    def _stands(self, entry: Entry) -> Entry:
        if entry.end is not None:
            entry.standing = _ended(entry.end)
            return entry
        entry.tickets = tuple(self._unheard(entry))
        if self.is_running(entry):
            entry.standing = "running"
        elif entry.tickets:
            entry.standing = "waiting"
        return entry

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

    def _recorded(self, head: Head) -> Entry:
        assert self.archive is not None  # noqa: S101 - only called where there is one
        entry = Entry(run_id=head.run_id, place=self.place, trace=None, head=head)
        entry.events, entry.last = head.count, head.updated_at
        if head.snapshot is not None:
            entry.standing, entry.last_type = head.snapshot.status, head.snapshot.last_type
            return entry
        data = self.archive.state(head.run_id)
        if data is not None:
            with suppress(GertError):
                entry.state = decode_state(data, head.run_id)
        _take_ends(entry, *self.archive.ends(head))
        return self._stands(entry)

    def _unheard(self, entry: Entry) -> list[TicketFile]:
        """The tickets of a run that are open, without those it has resolved or found outdated."""
        mine = self._by_run(entry.tickets_at).get(entry.run_id, [])
        if not mine:
            return []
        closed = {_ticket_of(line) for line in self.lines(entry) if any(each in line[:512] for each in _CLOSING)}
        return [file for file in mine if file.id not in closed]

    def _by_run(self, state: str) -> dict[str, list[TicketFile]]:
        """The tickets of a state directory by run, read once and only where a run might wait."""
        by_run = self._tickets.get(state)
        if by_run is None:
            by_run = self._tickets[state] = {}
            tickets = tickets_in(state, self._environ)
            noted: Callable[[GertError], object] = lambda problem: self.problems.append(problem.message)  # noqa: E731
            for file in tickets.all("pending", "approved", "rejected", "expired", on_problem=noted):
                by_run.setdefault(file.run.run_id, []).append(file)
        return by_run


def _events(lines: Iterator[bytes]) -> Iterator[Envelope]:
    """What can be read; the rest is for whoever verifies."""
    for line in lines:
        with suppress(TraceError):
            yield decode(line)


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
        entry.last_type = entry.last_type or event.type
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
