"""Making a scenario of a recorded run: it is driven again on its own answers, to collect the requests they answer."""

import os
from collections.abc import Mapping
from typing import Any

from gert.ecosystem.host.config.files import is_file
from gert.ecosystem.host.config.ledger_location import ledger_of, open_ledger
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.redrive.recorded_run import Record, load_record
from gert.ecosystem.host.redrive.redrive import RedriveJournal, Same, Then, is_alike, redrive
from gert.ecosystem.host.run.options import Recorded, RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.runs.find import find_run, require_run_id
from gert.ecosystem.host.runs.traces import open_trace
from gert.ecosystem.host.scenarios.folders import TRACE_FILE, scenario_folder
from gert.ecosystem.host.scenarios.record_scenario import Recording
from gert.ecosystem.host.scenarios.scaffold import require_free
from gert.errors import DocumentError, GertError, IntegrityError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import Request
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.foundation.redaction import PLACEHOLDER


async def find_record(
    run_id: str | None, trace: str | None, runbook: str, chosen: str | None, environ: Mapping[str, str]
) -> Record:
    """The record of a run, by its id or by its trace, in the ledger of the state directory."""
    root = Workspace().project_root(os.path.dirname(os.path.abspath(runbook)))
    database = ledger_of(state_dir(chosen, root, environ))
    if trace is not None:
        run_id = _run_in(os.path.join(trace, TRACE_FILE) if os.path.isdir(trace) else trace)
    run_id = run_id or ""
    require_run_id(run_id)
    if not is_file(database):
        raise UsageError(f"there is no run `{run_id}` in `{database}`", hint="name its state folder with --state-dir")
    async with open_ledger(database, environ, read_only=True) as ledger:
        return await load_record(ledger, await find_run(ledger, run_id, database))


async def retrace(
    runbook: str, name: str, record: Record, environ: Mapping[str, str], *, force: bool = False
) -> Recorded:
    """Make a scenario of a run; refuse a changed runbook unless forced, and a run that has not ended."""
    target = scenario_folder(runbook, name)
    require_free(target)
    if record.started.mode != "real":
        raise UsageError(f"a {record.started.mode} has no answers of the world to record")
    if record.report.completion is None:
        raise UsageError(f"run `{record.run_id}` has not ended", hint="a scenario needs to know how it ends")
    setup = _setup(runbook, record, environ)
    if setup.started.runbook_hash != record.started.runbook_hash and not force:
        raise UsageError(
            f"the runbook has changed since run `{record.run_id}`",
            hint="--force creates the scenario anyway, if the run still takes the same path",
        )
    recording = Recording(target.path, runbook)
    recording.asks = await _collect_asks(setup, record, _is_at_same_path if force else is_alike)
    recorded = await recording.write(setup, record.lines, record.answers)
    if not recording.is_written:
        raise UsageError(f"run `{record.run_id}` makes no scenario: {recorded.problem}")
    return recorded


class _Refuse(Then):
    """Refuses a run that requests more than its record answers."""

    def begin(self, announced: list[Request[Any]]) -> None:
        """Name the first request that has no answer."""
        missing = self.driver.unanswered[0].path if self.driver is not None else ""
        raise IntegrityError(
            f"`{missing}` has no recorded answer",
            hint="the runbook, its tools or its policies are not those the run was recorded with",
        )


async def _collect_asks(setup: Setup, record: Record, same: Same) -> dict[str, Request[Any]]:
    """The requests of a run that is driven again, by key."""
    journal = RedriveJournal(record.run_id, record.lines, record.answers, same=same)
    asks: dict[str, Request[Any]] = {}
    try:
        await redrive(setup, record.logged, journal, _Refuse(), lanes=record.start.max_parallel, asks=asks)
    except IntegrityError as problem:
        raise UsageError(f"the run does not go the same way again: {problem.message}", hint=problem.hint) from None
    return asks


def _is_at_same_path(recorded: Envelope, again: Envelope) -> bool:
    """Whether an event repeats another one in a run of a changed runbook, with any result."""
    return (recorded.type, recorded.path) == (again.type, again.path)


def _setup(runbook: str, record: Record, environ: Mapping[str, str]) -> Setup:
    options = RunOptions(
        file=runbook,
        mode="replay",
        scenario=record.run_id,
        actor=record.started.actor,
        policies=record.start.policies,
    )
    inputs = record.resolved(dict.fromkeys(record.start.secret_inputs, PLACEHOLDER))
    return record.setup(Prepared(options, environ), inputs)


def _run_in(trace: str) -> str:
    try:
        first = next(iter(open_trace(trace, None, None).lines()), b"")
        return decode(first.removesuffix(b"\n")).run_id
    except UsageError:
        raise
    except GertError as problem:
        raise DocumentError(f"`{trace}` cannot be read: {problem.message}") from None
