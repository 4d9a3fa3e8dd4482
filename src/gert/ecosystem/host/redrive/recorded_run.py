"""The record of a run: opened for a new run, or loaded from a ledger to be driven again."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import field

from gert.ecosystem.host.config.ledger_location import (
    Database,
    database_for,
    ledger_name,
    ledger_of,
    make_ledger_folder,
    masking_password,
    open_ledger,
)
from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.config.state_dir import RunFolder, state_dir
from gert.ecosystem.host.config.telemetry import export_for
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.record.journal import RecordedAnswer, read_answers
from gert.ecosystem.host.run.record.lease import hold_lease
from gert.ecosystem.host.runs.find import find_run, require_run_id
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import IntegrityError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import GivenInput, ResolvedInputs
from gert.kernel.events.chain import ChainReport, read_chain
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.runbook import RunAdopted, RunStart, Start
from gert.kernel.events.vocabulary import ApprovalMode
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.foundation.signature import Keys
from gert.kernel.ledger.head_seal import ADOPT_HINT, adoption
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Head

_PAGE: Final = 1000
_NO_KEYS: Final = Keys()
_TAKEN: Final = (
    "file", "policies", "config", "evidence", "approvals", "break_glass", "max_parallel", "timeout", "witness",
)  # fmt: skip
"""Options that a run which is driven again takes from its record."""


class Adopt(NamedTuple):
    """Who continues a run that is not sealed, and why."""

    actor: str
    reason: str


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to drive again, as options name it.

    run_id: the id of the run, a unique prefix of it, or `last`
    actor: who drives it again (default: the current user)
    adopt_unsealed: why a run that is not sealed is continued with a signing key
    """

    run_id: str
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None
    actor: str | None = None
    adopt_unsealed: str | None = None

    @property
    def adopt(self) -> Adopt | None:
        """The adoption of an unsealed run, if there is a reason for it."""
        return None if self.adopt_unsealed is None else Adopt(self.actor or user_name(), self.adopt_unsealed)

    def own_ledger(self, environ: Mapping[str, str]) -> Database:
        """The ledger of the run: the one that is named, or that of the state directory; refused if another user's."""
        require_run_id(self.run_id)
        database = database_for(self.db, self.dsn, environ)
        if database is None:
            database = ledger_of(state_dir(self.state_dir, Workspace().project_root(os.getcwd()), environ))
        _require_own(database, self.run_id)
        return database


class RedriveOptions(RecordedRun, frozen=True, kw_only=True):
    """A run whose recorded answers are taken first, and how it goes on.

    given: secret inputs that cannot be resolved again
    allow_changed: use the runbook, tools and policies as they are now, although they have changed
    witness: the file or URL that sealed heads are appended to, in place of the one in settings
    controlled, steps: as in `RunOptions`
    """

    given: Mapping[str, GivenInput] = field(default_factory=dict)
    allow_changed: bool = False
    approvals: ApprovalMode | None = None
    witness: str | None = None
    sync: bool = True
    controlled: bool = False
    steps: bool = False

    def run_options(self, record: "Record", /, **others: Any) -> RunOptions:
        """The options of the run that goes on: those of the record, unless they are given here or in `others`."""
        return record.options(
            given=self.given,
            db=self.db,
            dsn=self.dsn,
            sync=self.sync,
            witness=self.witness or record.start.witness,
            approvals=self.approvals or record.start.approvals,
            controlled=self.controlled,
            steps=self.steps,
            **others,
        )


class Opened(msgspec.Struct, frozen=True):
    """Where a run is recorded: in a ledger, a mirror, both or neither."""

    ledger: Ledger | None = None
    mirror: Mirror | None = None
    trace: str | None = None


async def open_record(held: AsyncExitStack, prepared: Prepared, setup: Setup) -> Opened:
    """Open the record of a new run. Every real run has one; others only where one is requested."""
    ledger, path = None, prepared.options.trace
    if setup.mode == "real" or prepared.database is not None:
        if prepared.database is None:
            make_ledger_folder(prepared.state)
        sync, environ = prepared.options.sync, prepared.environ
        ledger = await open_driven(held, setup.run_id, prepared.ledger, environ, sync=sync)
        ledger.witness = prepared.witness
        if setup.mode in ("real", "probe"):
            ledger.export = export_for(prepared.settings.telemetry, environ)
        if path is None and prepared.database is None:
            folder = RunFolder(prepared.state, setup.run_id)
            folder.create()
            path = folder.trace
    if path is None:
        return Opened(ledger)
    mirror = Mirror.begin(os.path.abspath(path))
    held.callback(mirror.close)
    return Opened(ledger, mirror, path)


async def open_driven(
    held: AsyncExitStack,
    run_id: str,
    database: Database,
    environ: Mapping[str, str],
    *,
    sync: bool = True,
) -> Ledger:
    """Open a ledger and take the lease of a run, both until the stack is closed."""
    with masking_password(database):
        ledger = await held.enter_async_context(open_ledger(database, environ, sync=sync))
        await held.enter_async_context(hold_lease(ledger, run_id))
    return ledger


async def find_recorded(named: str, database: Database, environ: Mapping[str, str]) -> str:
    """The id of a runbook run in a ledger, which is only looked at; UsageError where it is not there."""
    with masking_password(database):
        async with open_ledger(database, environ, read_only=True) as ledger:
            run_id = await find_run(ledger, named, ledger_name(database))
            await _require_runbook(ledger, run_id)
    return run_id


class Record(msgspec.Struct, frozen=True):
    """A run as it is on record.

    started, start: its first event: who started it and with what
    started_at: when it began
    documents: what it was started with, by path
    private: what was kept beside the run when it began
    adopted: the event to append first, where the run is not sealed and is adopted
    """

    run_id: str
    started: RunStart
    start: Start
    started_at: str
    lines: Sequence[bytes]
    answers: Sequence[bytes]
    report: ChainReport
    documents: Mapping[str, bytes]
    private: bytes | None = None
    adopted: RunAdopted | None = None

    @property
    def logged(self) -> list[RecordedAnswer]:
        """The recorded answers; IntegrityError where one cannot be read."""
        return read_answers(self.answers)

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs that are on record: those that are not secret."""
        return {name: value for name, value in self.started.inputs.items() if name not in self.start.secret_inputs}

    @property
    def secret_sources(self) -> dict[str, str]:
        """Where the inputs came from that are secret: each is resolved again in the same way."""
        return {name: self.started.input_sources[name] for name in self.start.secret_inputs}

    def resolved(self, secrets: dict[str, str]) -> ResolvedInputs:
        """All inputs, given the values of those that are secret."""
        values = {**self.inputs, **{name: secret_ref(name) for name in secrets}}
        ordered = {name: values[name] for name in self.started.input_sources if name in values}
        return ResolvedInputs(ordered, self.started.input_sources, secrets)

    def options(self, **others: Any) -> RunOptions:
        """The options that the run was started with, overridden by others."""
        taken = {name: getattr(self.start, name) for name in _TAKEN}
        return RunOptions(**{**taken, "mode": self.started.mode, **others})

    def setup(self, prepared: Prepared, inputs: ResolvedInputs) -> Setup:
        """The run, as the engine is given it again."""
        return Setup(
            program=prepared.program,
            run_id=self.run_id,
            started=msgspec.structs.replace(
                self.started,
                runbook_hash=prepared.checked.document.digest,
                policy_hashes=prepared.floor.digests,
                inputs=inputs.values,
            ),
            policies=tuple(prepared.floor.policies),
            secret_inputs=frozenset(inputs.secrets),
            groups=prepared.groups,
            break_glass=self.start.break_glass,
            recent=self.start.recent,
        )


def start_of(event: Envelope) -> tuple[RunStart, Start]:
    """What a run was started with, as its first event says; UsageError where it does not."""
    started = event.payload
    if not isinstance(started, RunStart) or started.start is None:
        raise UsageError(f"run `{event.run_id}` does not say how it was started", hint="run it with `gert exec`")
    return started, started.start


async def load_record(ledger: Ledger, run_id: str, keys: Keys = _NO_KEYS, adopt: Adopt | None = None) -> Record:
    """The whole record of a runbook run; refused where verification of the run finds it changed.

    keys: where there are any, the run has to be sealed by one of them, or is adopted
    """
    head = await _require_runbook(ledger, run_id)
    adopted = _adopted(head, keys, adopt)
    for check in (await verify_run(ledger, run_id, keys if adopted is None else _NO_KEYS)).failures:
        raise IntegrityError(
            f"the record of run `{run_id}` was changed: {check.reason}", hint="`gert run verify-ledger` says more"
        )
    lines = [line async for line in ledger.stream(run_id)]
    answers: list[bytes] = []
    while page := await ledger.answers(run_id, len(answers), _PAGE):
        answers += page
    first = decode(lines[0])
    started, start = start_of(first)
    stored = await ledger.documents(list(start.documents.values()))
    documents = {path: stored[digest] for path, digest in start.documents.items() if digest in stored}
    private = await ledger.private(run_id)
    report = read_chain(lines)
    return Record(run_id, started, start, first.timestamp, lines, answers, report, documents, private, adopted)


def _adopted(head: Head, keys: Keys, adopt: Adopt | None) -> RunAdopted | None:
    """The adoption of an unsealed run; refused where there is nothing to adopt, and where a run needs it."""
    if adopt is None:
        if len(keys) and head.seal is None:
            raise IntegrityError(f"run `{head.run_id}` is not sealed, and a signing key is configured", hint=ADOPT_HINT)
        return None
    reason = " ".join(adopt.reason.split())
    if not reason:
        raise UsageError("`--adopt-unsealed` needs a reason", hint="it is recorded in the run")
    if not len(keys):
        raise UsageError(
            "`--adopt-unsealed` needs a signing key: without one, no run is sealed",
            hint="set GERT_TRACE_SIGNING_KEY, or leave out --adopt-unsealed",
        )
    if head.seal is not None:
        raise UsageError(f"run `{head.run_id}` is sealed: there is nothing to adopt", hint="leave out --adopt-unsealed")
    return adoption(head, adopt.actor, reason)


async def _require_runbook(ledger: Ledger, run_id: str) -> Head:
    """The head of a runbook run; UsageError where it is not there, or is another kind of run."""
    head = await ledger.head(run_id)
    if head is None:
        raise UsageError(f"there is no run `{run_id}`", hint="`gert run list` shows the runs of this ledger")
    if head.kind != "runbook":
        raise UsageError(f"run `{run_id}` is {_KINDS[head.kind]}", hint=_NOT_RESUMED[head.kind])
    return head


_KINDS: Final = {"agent": "an agent run", "runner": "the execution of a plan"}
_NOT_RESUMED: Final = {
    "agent": "an agent replays its own steps when it is run",
    "runner": "a plan is executed once; `gert runner recover` reports its state",
}


def _require_own(database: Database, run_id: str) -> None:
    """Refuse the ledger of another user: a run is resumed with the permissions of the user who started it."""
    if not isinstance(database, str) or os.name != "posix":
        return
    try:
        owner = os.stat(database).st_uid
    except FileNotFoundError:
        hint = "--state-dir, --db or --dsn say where else to look"
        raise UsageError(f"there is no run `{run_id}`: there is no ledger `{database}`", hint=hint) from None
    except OSError:
        owner = None
    if owner is None or os.geteuid() not in (0, owner):
        raise UsageError(
            f"the runs in `{database}` were not started by you, and only the user who started one can resume it",
            hint="`gert approve` and `gert reject` answer its tickets",
        )
