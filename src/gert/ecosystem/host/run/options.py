"""The options of a run, and its result."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import field

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import Database
from gert.ecosystem.host.config.settings import Settings, trace_file
from gert.ecosystem.host.run.driver.driver import MAX_PARALLEL
from gert.ecosystem.host.run.world.worlds import PROBED_EFFECTS
from gert.kernel.engine.inputs import GivenInput
from gert.kernel.engine.run import RunResult
from gert.kernel.events.runbook import DeniedStep, Failure, Outcome
from gert.kernel.events.vocabulary import ApprovalMode, RunMode, RunStatus
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import path_text

MODES: Final[tuple[RunMode, ...]] = ("real", "dry-run", "probe", "replay")


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller requests of a run; times are in seconds.

    trace, db, dsn: where it is recorded: in a file, a SQLite database, or a ledger on Postgres, whose address may be
        `env:NAME` for a variable that holds it
    sync: whether events are on disk before the next request is put to the world
    scenario: the folder or the name of the scenario that answers in a replay
    record: the folder a scenario of this run is written to
    config: a file of settings beside those of the project
    approvals: who is asked for approval, and whether the run waits: at the terminal, elsewhere while it waits, or
        elsewhere while it is detached
    break_glass: the reason for overriding governance in an emergency, where rules allow that
    controlled: messages in the inbox of the run may cancel it and give evidence; no person is at the console
    steps: a controlled run waits for a message before every call
    run_id: the id of the run, where the caller chooses it
    principal: the actor, where it is an agent
    require_signed: approvals need a signature, even if no policy requires one
    """

    file: str
    given: Mapping[str, GivenInput] = field(default_factory=dict)
    mode: RunMode = "real"
    actor: str | None = None
    trace: str | None = None
    db: str | None = None
    dsn: str | None = None
    state_dir: str | None = None
    sync: bool = True
    policies: tuple[str, ...] = ()
    evidence: str | None = None
    scenario: str | None = None
    record: str | None = None
    config: str | None = None
    approvals: ApprovalMode = "terminal"
    break_glass: str | None = None
    witness: str | None = None
    max_parallel: int = MAX_PARALLEL
    timeout: float | None = None
    probe_effects: frozenset[str] = PROBED_EFFECTS
    controlled: bool = False
    steps: bool = False
    run_id: str | None = None
    principal: Principal | None = None
    require_signed: bool = False


def with_trace_file(options: RunOptions, settings: Settings, runbook: str, run_id: str) -> RunOptions:
    """Set the trace file to one in the configured folder, unless the caller chose where to record the run."""
    if options.mode != "real" or options.trace or options.db or options.dsn or settings.traces_dir is None:
        return options
    return msgspec.structs.replace(options, trace=trace_file(settings.traces_dir, runbook, run_id))


class Pending(msgspec.Struct, frozen=True):
    """What a detached run waits for.

    path: where in the run the step is
    request: what is asked for, as machines read it
    page: where it can be answered in a browser
    notes: what went wrong with it, such as a request that a channel did not deliver
    """

    ticket_id: str
    step_id: str
    path: str
    page: str | None = None
    created: str | None = None
    expires_at: str | None = None
    request: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The open ticket as machines read it."""
        return {
            "ticket_id": self.ticket_id,
            "status": "pending",
            "created": self.created,
            "expires_at": self.expires_at,
            "step_id": self.step_id,
            "path": self.path,
            **self.request,
            "page": self.page,
            "notes": list(self.notes),
        }


class Recorded(msgspec.Struct, frozen=True):
    """A scenario of a run: its folder, and why it does not replay to the same, if it does not.

    problem: why it was not recorded; then there is nothing in the folder
    """

    folder: str
    differs: str | None = None
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The scenario as machines read it."""
        problem = {"problem": self.problem} if self.problem is not None else {}
        return {"folder": self.folder, "differs": self.differs, **problem}


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended or was detached: its id, its result, and where it is recorded.

    result: how it ended; none while it waits
    pending: what it waits for
    state_words: the option that names its state directory on a command line, where it is needed
    input_words: the options that give its secret inputs again, where they were given
    record: the folder that a scenario of the run is written to when it has ended
    warning: why its mirror is not complete or was written again
    """

    run_id: str
    runbook: str
    mode: RunMode
    result: RunResult | None
    events: int
    trace: str | None
    db: str | None
    interrupted: bool
    dsn: Dsn | None = None
    scenario: Recorded | None = None
    pending: tuple[Pending, ...] = ()
    state_words: str = ""
    input_words: str = ""
    record: str | None = None
    warning: str | None = None

    @property
    def database(self) -> Database | None:
        """The database it is recorded in, if it is in one."""
        return self.dsn if self.dsn is not None else self.db

    @property
    def status(self) -> RunStatus | Literal["waiting"]:
        """How it ended, or that it waits."""
        return self.result.status if self.result is not None else "waiting"

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome."""
        return self.result.outcome if self.result is not None else None

    @property
    def failure(self) -> Failure | None:
        """Why it did not complete."""
        return self.result.failure if self.result is not None else None

    @property
    def failed_step(self) -> str | None:
        """The step that failed first."""
        return self.result.failed_step if self.result is not None else None

    @property
    def duration(self) -> float:
        """Seconds it took; 0 while it waits."""
        return self.result.duration if self.result is not None else 0.0

    @property
    def reachable_outcomes(self) -> tuple[Outcome, ...]:
        """Every outcome a dry run found."""
        return self.result.reachable_outcomes if self.result is not None else ()

    @property
    def denied(self) -> tuple[DeniedStep, ...]:
        """The steps that policy denies on ways a dry run or a probe explored."""
        return self.result.denied if self.result is not None else ()

    def as_json(self) -> dict[str, Any]:
        """The result as machines read it."""
        said: dict[str, Any] = {
            "status": "waiting",
            "pending": [each.as_json() for each in self.pending],
            "warnings": [
                f"request for approval of `{path_text(each.path)}`: {note}"
                for each in self.pending
                for note in each.notes
            ],
        }
        if self.result is not None:
            said = masked(msgspec.to_builtins(self.result, enc_hook=str))
            said["duration"], said["waited"] = round(self.result.duration, 3), round(self.result.waited, 3)
        return {
            "run_id": self.run_id,
            "runbook_name": self.runbook,
            "mode": self.mode,
            **{name: value for name, value in said.items() if value not in (None, [], ())},
            "events": self.events,
            "trace": self.trace,
            "db": self.db,
            **({"dsn": self.dsn.name} if self.dsn is not None else {}),
            **({"scenario": self.scenario.as_json()} if self.scenario is not None else {}),
            **({"warning": self.warning} if self.warning is not None else {}),
        }
