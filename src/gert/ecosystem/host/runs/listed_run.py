"""One run of a ledger, with its status."""

from datetime import datetime
from typing import Final, Literal

import msgspec

from gert.ecosystem.approvals.tickets import TicketView
from gert.ecosystem.host.config.state_dir import RunFolder
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.host.runs.trial import is_trial
from gert.errors import TraceError
from gert.kernel.events.envelope import Envelope, parse_timestamp
from gert.kernel.events.runbook import Start
from gert.kernel.events.vocabulary import RunKind
from gert.kernel.ledger.record import Head
from gert.kernel.ledger.runbook_fold import OpenCall

ListedStatus = Literal[
    "running", "waiting", "cut-off", "abandoned", "completed", "failed", "error", "cancelled", "active", "paused",
    "in-doubt",
]  # fmt: skip
"""The status of a run; `active` and `paused` only for agent runs, `in-doubt` only for executions of runners."""

OPEN: Final = ("running", "waiting", "cut-off", "active", "paused", "in-doubt")
STATUSES: Final = (
    "running", "waiting", "cut-off", "active", "paused", "in-doubt",
    "ended", "completed", "failed", "error", "cancelled", "abandoned",
)  # fmt: skip


class ListedRun(msgspec.Struct, kw_only=True):
    """One run: its head, whether a process drives it, and what it was started with.

    start, end: the first event of a runbook run, and its `run_complete`, where they were read
    tickets: approval requests that are open, also those of agents that its steps wait for
    now: the time by the clock of the ledger, which decides whether they have expired
    """

    place: Place
    head: Head
    start: Envelope | None = None
    end: Envelope | None = None
    is_driven: bool = False
    started_with: Start | None = None
    tickets: tuple[TicketView, ...] = ()
    now: datetime | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.head.run_id

    @property
    def kind(self) -> RunKind:
        """What kind of run it is."""
        return self.head.kind

    @property
    def tenant(self) -> str | None:
        """The tenant the run belongs to, if it says so."""
        return self.head.tenant

    @property
    def trace(self) -> str | None:
        """The file of its mirror."""
        if self.started_with is None or self.kind != "runbook":
            return None
        if self.started_with.trace is not None or self.place.database is not None:
            return self.started_with.trace
        return RunFolder(self.place.state, self.run_id).trace

    @property
    def events(self) -> int:
        """How many events it has."""
        return self.head.count

    @property
    def last(self) -> str:
        """When its last event was written."""
        return self.head.updated_at

    @property
    def last_type(self) -> str:
        """The type of its last event."""
        return self.head.snapshot.last_type if self.head.snapshot is not None else ""

    @property
    def status(self) -> ListedStatus:
        """Its status; a run that no process drives and that waits for nothing is cut off."""
        found, execution = self.head.runbook, self.head.runner
        if execution is not None:
            return "cut-off" if execution.status == "running" and not self.is_driven else execution.status
        if found is None:
            return self.head.agent.status if self.head.agent is not None else "active"
        if found.ended is not None:
            return found.ended
        if self.is_driven:
            return "running"
        return "waiting" if self.tickets else "cut-off"

    @property
    def is_ready(self) -> bool:
        """Whether it waits for nothing but a resume: no process drives it, and every ticket is answered or expired."""
        return self.status == "waiting" and not any(map(self.is_open, self.tickets))

    def is_open(self, view: TicketView) -> bool:
        """Whether a ticket of it can still be answered, and is not."""
        return self.now is None or not view.is_due(self.now)

    def expired_at(self, view: TicketView) -> str | None:
        """When a ticket of it expired that is still to be applied; None where that is not so."""
        is_late = self.now is not None and view.status == "pending" and view.status_at(self.now) == "expired"
        return view.ticket.expires_at if is_late else None

    @property
    def in_doubt(self) -> tuple[OpenCall, ...]:
        """Calls without a result, of a run that no process drives."""
        found = self.head.runbook
        return found.in_doubt if found is not None and found.ended is None and not self.is_driven else ()

    @property
    def is_trial(self) -> bool:
        """Whether it is a run of `gert tool try`."""
        return self.start is not None and is_trial(self.start)

    @property
    def is_past_trial(self) -> bool:
        """Whether it is a run of `gert tool try` that needs no attention: lists leave it out."""
        return self.is_trial and self.status not in OPEN

    @property
    def started(self) -> datetime | None:
        """When it began."""
        try:
            return parse_timestamp(self.head.started_at) if self.head.started_at else None
        except TraceError:
            return None

    def is_of(self, status: str) -> bool:
        """Whether it has a status; `ended` includes abandoned runs."""
        return self.status not in OPEN if status == "ended" else self.status == status
