"""A run as it stands, and the places where runs are kept."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

import msgspec

from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.host.database import Database, database_for, name_of, require_ledger, words_for
from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.host.dsn import Dsn
from gert.ecosystem.host.runs import state_dir, words_for_state
from gert.ecosystem.host.state import RunState
from gert.errors import TraceError
from gert.kernel.agent.ledger import Head
from gert.kernel.events.doubts import Doubtful
from gert.kernel.events.envelope import Envelope, parse_timestamp
from gert.kernel.events.summary import RunSummary

ABANDONED: Final = "abandoned: "
"""How the reason of a cancellation begins that `gert run abandon` asked for."""

Standing = Literal[
    "running", "waiting", "cut-off", "abandoned", "completed", "failed", "error", "cancelled", "active", "paused"
]  # fmt: skip
"""How a run stands; `active` and `paused` are agent runs only."""

OPEN: Final = ("running", "waiting", "cut-off", "active", "paused")
STATUSES: Final = (
    "running", "waiting", "cut-off", "active", "paused",
    "ended", "completed", "failed", "error", "cancelled", "abandoned",
)  # fmt: skip


class Place(msgspec.Struct, frozen=True):
    """Where runs are kept: a state directory, and in place of its runs a ledger, in a file or on Postgres.

    here: the state directory that is meant without a word
    """

    state: str
    db: str | None = None
    dsn: Dsn | None = None
    here: str = ""

    @property
    def database(self) -> Database | None:
        """The ledger, where there is one."""
        return self.dsn if self.dsn is not None else self.db

    @property
    def name(self) -> str:
        """The place as people know it."""
        return name_of(self.database) if self.database is not None else os.path.join(self.state, "runs")

    @property
    def words(self) -> str:
        """What says on a command line that this place is meant, where it has to be said; never a password."""
        return words_for(self.database) or words_for_state(self.state, self.here)


class Entry(msgspec.Struct, kw_only=True):
    """One run as it stands.

    start, end: the first event of a runbook run, and its `run_complete`
    head: the end of the run as a ledger keeps it
    state: what it was started with, where that is known
    tickets: requests for approval that the run has not heard the answer of
    in_doubt: calls nobody knows the result of, where somebody has looked for them
    """

    run_id: str
    place: Place
    trace: str | None
    head: Head | None = None
    start: Envelope | None = None
    end: Envelope | None = None
    state: RunState | None = None
    events: int = 0
    last: str | None = None
    last_type: str | None = None
    standing: Standing = "cut-off"
    tickets: tuple[TicketFile, ...] = ()
    in_doubt: tuple[Doubtful, ...] = ()

    @property
    def tickets_at(self) -> str:
        """The state directory of its tickets: the one that was chosen, or the one it was started with."""
        said = self.state.state_dir if self.state is not None else None
        return said if said is not None and self.place.state == self.place.here else self.place.state

    @property
    def kind(self) -> Literal["runbook", "agent"]:
        """What the run is one of; only an agent run has a snapshot."""
        return "agent" if self.head is not None and self.head.snapshot is not None else "runbook"

    @property
    def tenant(self) -> str | None:
        """Whose run it is, where that is said."""
        return self.head.tenant if self.head is not None else None

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
        """When it began, where that can be read."""
        moment = self.state.started if self.state is not None else ""
        if self.head is not None and self.head.started_at:
            moment = self.head.started_at
        elif self.start is not None:
            moment = self.start.timestamp
        try:
            return parse_timestamp(moment) if moment else None
        except TraceError:
            return None

    def is_of(self, status: str) -> bool:
        """Whether it stands so; one that was abandoned has ended, too."""
        return self.standing not in OPEN if status == "ended" else self.standing == status


def place_for(chosen: str | None, db: str | None, environ: Mapping[str, str], dsn: str | None = None) -> Place:
    """Where to look: the state directory of the working folder unless another is chosen, or a ledger."""
    database = database_for(db, dsn, environ)
    if db is not None:
        require_ledger(db)
    address = database if isinstance(database, Dsn) else None
    working = os.getcwd()
    root = Workspace(working).project_root(working)
    return Place(state_dir(chosen, root, environ), db, address, state_dir(None, root, environ))
