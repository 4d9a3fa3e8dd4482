"""The runs of a ledger, of every kind: list, find by id, and read."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final, Self

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.redrive.recorded_run import start_of
from gert.ecosystem.host.runs.find import find_run, no_such_run, require_run_id
from gert.ecosystem.host.runs.ledger_reader import Follower, LedgerReader
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.place import Place
from gert.errors import Busy, GertError, TraceError, Unavailable
from gert.kernel.events.envelope import decode
from gert.kernel.events.runbook import RunComplete
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.port import Ledger, OnUnreadable
from gert.kernel.ledger.record import Head, RunFilter

_MOST_LAST: Final = 64
"""Events after the end of a run: only notices that were sent."""
_MOST_WAITING: Final = 10_000


class Runs:
    """The runs of a ledger; closing it closes the ledger."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.reader = LedgerReader(place.ledger)

    def close(self) -> None:
        """Close the ledger."""
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def newest(
        self,
        since: datetime | None = None,
        tenant: str | None = None,
        on_unreadable: OnUnreadable = lambda _, __: None,
    ) -> Iterator[ListedRun]:
        """The runs that started since a time, the last written first.

        on_unreadable: called for each run that cannot be read
        """
        if not self.place.is_there:
            return
        heads = self.reader.heads(tenant=tenant, since=since, on_unreadable=on_unreadable)
        for entry in self._entries(heads, on_unreadable):
            if since is None or (entry.started is not None and entry.started >= since):
                yield entry

    def waiting(self, on_unreadable: OnUnreadable = lambda _, __: None) -> list[ListedRun]:
        """The runbook runs that wait for approvals and nothing else, the oldest first."""
        if not self.place.is_there:
            return []
        chosen = RunFilter(kind="runbook", status="waiting", limit=_MOST_WAITING)
        heads = self.reader.ask(lambda ledger: ledger.runs(chosen, on_unreadable))
        return sorted(
            self._entries(heads, on_unreadable), key=lambda entry: (entry.head.started_at or "", entry.run_id)
        )

    def find(self, named: str) -> str:
        """The id of the run of this name: its id, a unique prefix, or `last`."""
        if not self.place.is_there:
            require_run_id(named)
            raise no_such_run(named, self.place.name)
        return self.reader.ask(lambda ledger: find_run(ledger, named, self.place.name))

    def recent(self, prefix: str, limit: int) -> list[tuple[str, str]]:
        """The ids of the runs that were written to last, and the name and state of each; only heads are read."""
        if not self.place.is_there or (prefix and not is_run_id(prefix)):
            return []
        chosen = RunFilter(prefix=prefix or None, limit=limit)
        heads = self.reader.ask(lambda ledger: ledger.runs(chosen, lambda _, __: None))
        return [(head.run_id, _about(head)) for head in heads]

    def open_tickets(self, prefix: str, limit: int) -> list[tuple[str, str]]:
        """The ids of open tickets, and the run of each; only their rows are read."""
        if not self.place.is_there or (prefix and not is_run_id(prefix)):
            return []
        rows = self.reader.ask(lambda ledger: ledger.tickets("pending", prefix=prefix or None, limit=limit))
        return [(row.ticket_id, row.run_id) for row in rows]

    def entry(self, run_id: str) -> ListedRun:
        """One run; TraceError where there is none."""
        head = self.reader.head(run_id) if self.place.is_there else None
        if head is None:
            raise TraceError(f"there is no run `{run_id}` in `{self.place.name}`")
        return self._entry(head)

    def whole_entry(self, run_id: str) -> ListedRun:
        """One run with its last event, where it has ended."""
        entry = self.entry(run_id)
        if entry.kind == "runbook" and entry.head.runbook is not None and entry.head.runbook.ended is not None:
            last = self.reader.ask(lambda ledger: ledger.last_lines(run_id, _MOST_LAST))
            with suppress(TraceError):
                entry.end = next((event for event in map(decode, last) if event.type == RunComplete.type), None)
        return entry

    def lines(self, entry: ListedRun) -> Iterator[bytes]:
        """Its lines, without line breaks."""
        return self.follow(entry).lines()

    def follow(self, entry: ListedRun, since: int = 0) -> Follower:
        """Its lines after a number, and later those that have come since."""
        return Follower(entry.run_id, self.reader, since)

    def is_running(self, entry: ListedRun) -> bool:
        """Whether a process drives the run now."""
        return self.reader.is_held(entry.run_id)

    def _entries(self, heads: Iterable[Head], on_unreadable: OnUnreadable) -> Iterator[ListedRun]:
        for head in heads:
            try:
                yield self._entry(head)
            except (Busy, Unavailable):
                raise
            except GertError as problem:
                on_unreadable(head.run_id, problem)

    def _entry(self, head: Head) -> ListedRun:
        entry = ListedRun(place=self.place, head=head)
        found = head.runbook
        if head.runner is not None and not head.runner.is_recorded:
            entry.is_driven = self.reader.is_held(head.run_id)
        if found is None:
            return entry
        with suppress(GertError):
            [first] = self.reader.ask(lambda ledger: ledger.lines(head.run_id, 0, 1)) or [b""]
            entry.start = decode(first)
            _, entry.started_with = start_of(entry.start)
        if found.ended is None:
            entry.is_driven = self.reader.is_held(head.run_id)
            if found.tickets:
                entry.tickets = tuple(self.reader.ask(lambda ledger: Tickets(ledger).of_run(head.run_id)))
            for ticket_id in found.waits.values():
                entry.tickets += (self.reader.ask(partial(_ticket, ticket_id)),)
            if entry.tickets:
                entry.now = self.reader.ask(lambda ledger: ledger.time())
        return entry


async def _ticket(ticket_id: str, ledger: Ledger) -> TicketView:
    return await Tickets(ledger).get(ticket_id)


def _about(head: Head) -> str:
    found = head.runbook
    return f"{found.runbook} {found.ended or ''}".strip() if found is not None else head.kind
