"""What the screen can do: every action is one call of a host use case, and has a command of the same effect."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gert.ecosystem.host.approvals.respond import Given, TicketView, Verdict, respond
from gert.ecosystem.host.approvals.ticket_ledger import NoLedger, open_tickets
from gert.ecosystem.host.background.launch import Launched, rerun_run, resume_run, start_run
from gert.ecosystem.host.background.messages import Sender, advance_run, cancel_run, give_evidence
from gert.ecosystem.host.operations.catalogue import Catalogue, Listed
from gert.ecosystem.host.policy.explain_runbook import Explained, explain_file
from gert.ecosystem.host.redrive.rerun import RerunOptions
from gert.ecosystem.host.redrive.resume import ResumeOptions
from gert.ecosystem.host.run.options import MODES, RunOptions
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.place import Place, place_for
from gert.kernel.engine.inputs import GivenInput
from gert.kernel.events.vocabulary import RunMode

MOST_RUNS = 200
NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Desk(msgspec.Struct, kw_only=True):
    """Where the screen works: a folder, a ledger, and the person in front of it.

    read_only: nothing is started, answered or cancelled
    steps: runs that are started here wait before every call
    """

    root: str
    environ: Mapping[str, str]
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None
    actor: str | None = None
    key: str | None = None
    policies: tuple[str, ...] = ()
    read_only: bool = False
    steps: bool = False
    catalogue: Any = None
    temporary: list[str] = msgspec.field(default_factory=list)

    @property
    def modes(self) -> tuple[RunMode, ...]:
        """How runs may be started here; those that reach nothing where nothing may be started."""
        return ("dry-run", "replay") if self.read_only else MODES

    @property
    def place(self) -> Place:
        """Where runs are recorded: as `gert exec` of a runbook of the folder records them."""
        # The first run creates a ledger that is not there; where nothing may be started, the name is wrong.
        is_new = self.db is not None and not self.read_only and not os.path.exists(self.db)
        db, folder = None if is_new else self.db, os.path.realpath(self.root)
        found = place_for(self.state_dir, db, self.environ, self.dsn, folder)
        return Place(found.state, self.db, None, found.here) if is_new else found

    # --- looking

    def runbooks(self) -> list[Listed]:
        """The runbooks of the folder."""
        if self.catalogue is None:
            self.catalogue = Catalogue(os.path.realpath(self.root))
        found: list[Listed] = self.catalogue.runbooks()
        return found

    def runs(self) -> list[ListedRun]:
        """The newest runs of the ledger, without ended runs of `gert tool try`."""
        with Runs(self.place) as runs:
            shown = (entry for entry in runs.newest() if not entry.is_past_trial)
            return [entry for _, entry in zip(range(MOST_RUNS), shown, strict=False)]

    def tickets(self) -> list[TicketView]:
        """The open tickets, oldest first."""

        async def read() -> list[TicketView]:
            try:
                async with open_tickets(self.place, self.environ) as tickets:
                    return await tickets.all("pending")
            except NoLedger:
                return []

        return asyncio.run(read())

    def find(self, run_id: str) -> str:
        """The id of the run with this prefix."""
        with Runs(self.place) as runs:
            return runs.find(run_id)

    def explain(self, file: str) -> Explained:
        """The contract, risk and decision of each step."""
        return explain_file(file, None, self.policies)

    # --- acting

    async def start(
        self, file: str, values: Mapping[str, str], mode: RunMode, scenario: str | None = None
    ) -> tuple[Launched, Place]:
        """Start a run in a process of its own; unless it is real, it is recorded in a temporary ledger."""
        place = self.place
        db = self.db
        if mode != "real":
            self.temporary.append(tempfile.mkdtemp(prefix="gert-tui-"))
            db = os.path.join(self.temporary[-1], "runs.db")
            place = Place(place.state, db, None, place.here)
        options = RunOptions(
            file=file,
            given=_given(values),
            mode=mode,
            scenario=scenario,
            actor=self.actor,
            state_dir=self.state_dir,
            db=db,
            dsn=self.dsn if mode == "real" else None,
            policies=self.policies,
            steps=self.steps and mode == "real",
        )
        return await start_run(options, self.environ), place

    async def resume(self, place: Place, run_id: str, secrets: Mapping[str, str] = NONE) -> Launched:
        """Resume a run in a process of its own.

        secrets: secret inputs that cannot be resolved again
        """
        given = _given(secrets)
        options = ResumeOptions(run_id=run_id, given=given, **self._where(place), actor=self.actor, steps=self.steps)
        return await resume_run(options, self.environ)

    async def rerun(self, place: Place, run_id: str, step: str, secrets: Mapping[str, str] = NONE) -> Launched:
        """Start a new run from a step of an earlier one, in a process of its own."""
        where, given = self._where(place), _given(secrets)
        options = RerunOptions(run_id=run_id, step=step, given=given, **where, actor=self.actor, steps=self.steps)
        return await rerun_run(options, self.environ)

    def _where(self, place: Place) -> dict[str, Any]:
        """The ledger of a run, as options name it."""
        dsn = self.dsn if place.dsn is not None else None
        return {"state_dir": None if place.database is not None else place.state, "db": place.db, "dsn": dsn}

    def is_temporary(self, place: Place) -> bool:
        """Whether the ledger is a temporary one, which is gone when the screen is closed."""
        return place.db is not None and os.path.dirname(place.db) in self.temporary

    def close(self) -> None:
        """Remove the temporary ledgers."""
        for folder in self.temporary:
            shutil.rmtree(folder, ignore_errors=True)

    async def respond(self, verdict: Verdict) -> Given:
        """Respond to a ticket."""
        return await respond(verdict, self.place, self.environ)

    def _sender(self, place: Place) -> Sender:
        return Sender(database=place.ledger, by=self.actor, key=self.key)

    async def cancel(self, place: Place, run_id: str) -> None:
        """Stop a run in order."""
        await cancel_run(self._sender(place), run_id, self.environ, "stopped from the screen")

    async def advance(self, place: Place, run_id: str, path: str) -> None:
        """Let a call begin."""
        await advance_run(self._sender(place), run_id, self.environ, path)

    async def give_evidence(
        self, place: Place, run_id: str, path: str, evidence: Mapping[str, Any] | None, reject: str | None
    ) -> None:
        """Give evidence of a manual step, or reject it."""
        await give_evidence(self._sender(place), run_id, path, self.environ, evidence, reject)


def _given(values: Mapping[str, str]) -> dict[str, GivenInput]:
    return {name: GivenInput(value) for name, value in values.items()}
