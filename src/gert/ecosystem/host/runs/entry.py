"""One run of a ledger with its status, and the location of its ledger."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

import msgspec

from gert.ecosystem.approvals.tickets import TicketView
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import (
    Database,
    database_for,
    ledger_arguments,
    ledger_name,
    ledger_of,
    require_ledger,
)
from gert.ecosystem.host.config.state_dir import RunFolder, state_dir, state_dir_argument
from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import TraceError
from gert.kernel.events.envelope import Envelope, parse_timestamp
from gert.kernel.events.runbook import Start
from gert.kernel.events.vocabulary import RunKind
from gert.kernel.ledger.record import Head
from gert.kernel.ledger.runbook_fold import OpenCall

EntryStatus = Literal[
    "running", "waiting", "cut-off", "abandoned", "completed", "failed", "error", "cancelled", "active", "paused",
    "in-doubt",
]  # fmt: skip
"""The status of a run; `active` and `paused` only for agent runs, `in-doubt` only for executions of runners."""

OPEN: Final = ("running", "waiting", "cut-off", "active", "paused", "in-doubt")
STATUSES: Final = (
    "running", "waiting", "cut-off", "active", "paused", "in-doubt",
    "ended", "completed", "failed", "error", "cancelled", "abandoned",
)  # fmt: skip


class Place(msgspec.Struct, frozen=True):
    """The location of runs: a state directory, or a ledger in a file or on Postgres.

    here: the default state directory
    """

    state: str
    db: str | None = None
    dsn: Dsn | None = None
    here: str = ""

    @property
    def database(self) -> Database | None:
        """The ledger that was named, if any."""
        return self.dsn if self.dsn is not None else self.db

    @property
    def ledger(self) -> Database:
        """The ledger that was named, or that of the state directory."""
        return self.database if self.database is not None else ledger_of(self.state)

    @property
    def is_there(self) -> bool:
        """Whether there is a ledger; a state directory has none before its first run."""
        return not isinstance(self.ledger, str) or os.path.exists(self.ledger)

    @property
    def name(self) -> str:
        """The name of the location, for messages."""
        return ledger_name(self.database) if self.database is not None else os.path.join(self.state, "runs")

    @property
    def words(self) -> str:
        """The options that name this location on a command line, if they are needed; never a password."""
        return ledger_arguments(self.database) or state_dir_argument(self.state, self.here)


class Entry(msgspec.Struct, kw_only=True):
    """One run: its head, whether a process drives it, and what it was started with.

    start, end: the first event of a runbook run, and its `run_complete`, where they were read
    tickets: approval requests that are open
    """

    place: Place
    head: Head
    start: Envelope | None = None
    end: Envelope | None = None
    is_driven: bool = False
    started_with: Start | None = None
    tickets: tuple[TicketView, ...] = ()

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
    def status(self) -> EntryStatus:
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
    def in_doubt(self) -> tuple[OpenCall, ...]:
        """Calls without a result, of a run that no process drives."""
        found = self.head.runbook
        return found.open if found is not None and found.ended is None and not self.is_driven else ()

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


def place_for(chosen: str | None, db: str | None, environ: Mapping[str, str], dsn: str | None = None) -> Place:
    """The location that options name (default: the state directory of the working folder)."""
    database = database_for(db, dsn, environ)
    if db is not None:
        require_ledger(db)
    address = database if isinstance(database, Dsn) else None
    working = os.getcwd()
    root = Workspace(working).project_root(working)
    return Place(state_dir(chosen, root, environ), db, address, state_dir(None, root, environ))
