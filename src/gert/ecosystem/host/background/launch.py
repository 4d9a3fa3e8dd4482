"""Start, resume or rerun a run in a process of its own: losing the surface that started it never harms the run.

The task goes to the process on its standard input, so that no secret is on a command line; one line comes back: the id
of the run once its first event is on record, or the error that prevented it.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert import errors
from gert.ecosystem.host.config.ledger_location import Database, database_for, ledger_of, open_ledger
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.redrive.rerun import RerunOptions
from gert.ecosystem.host.redrive.resume import ResumeOptions
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.process.helper import start_background
from gert.errors import Busy, GertError, UsageError
from gert.kernel.events.envelope import decode
from gert.kernel.events.runbook import RunStart
from gert.kernel.foundation.canonical import canonical, sha256_hex
from gert.kernel.foundation.text import has_visible

MODULE: Final = "gert.ecosystem.host.background"
REPORT: Final = 64 * 1024
"""Bytes that the report of a driver process may have."""
_HEX: Final = 24
_GIVEN: Final = {"mcp", "api", "cli"}
"""Sources of inputs that a caller gave."""
_MOST_REQUEST: Final = 200
_BETWEEN: Final = 0.1
_ATTEMPTS: Final = 300
"""How often, and how many seconds apart, gert looks for the first event of a run that another process starts."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver process does: execute a run, resume one, or rerun one from a step."""

    execute: RunOptions | None = None
    resume: ResumeOptions | None = None
    rerun: RerunOptions | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a driver process says once: the run it drives, or why it drives none."""

    run_id: str | None = None
    error: str | None = None
    message: str = ""
    hint: str | None = None


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a process of its own drives.

    pid: the process that drives it; None where the run was there already
    """

    run_id: str
    database: Database
    pid: int | None = None


async def start_run(
    options: RunOptions, environ: Mapping[str, str] | None = None, *, request_id: str | None = None, caller: str = ""
) -> Launched:
    """Start a run in a process of its own; an error that stops it before anything ran is raised here.

    request_id: a call that is repeated with the same id starts nothing, and returns the run of the first call
    caller: whose request ids these are
    """
    environ = os.environ if environ is None else environ
    approvals = "wait" if options.approvals == "terminal" else options.approvals
    options = msgspec.structs.replace(options, controlled=True, approvals=approvals)
    database = _database(options, environ)
    if request_id is None:
        return await _launch(Task(execute=options), database, environ)
    options = msgspec.structs.replace(options, run_id=run_id_for(request_id, caller))
    found = await _started(options, database, environ, request_id)
    if found is not None:
        return found
    try:
        return await _launch(Task(execute=options), database, environ)
    except GertError as problem:
        # The same request at the same time: the other one drives the run, perhaps before its first event is on record.
        for _ in range(_ATTEMPTS if isinstance(problem, Busy) else 1):
            found = await _started(options, database, environ, request_id)
            if found is not None:
                return found
            await asyncio.sleep(_BETWEEN)
        raise


async def resume_run(options: ResumeOptions, environ: Mapping[str, str] | None = None) -> Launched:
    """Resume a run in a process of its own; an error that prevents it is raised here, and leaves the run as it was."""
    environ = os.environ if environ is None else environ
    options = msgspec.structs.replace(options, controlled=True, approvals=options.approvals or "wait")
    return await _launch(Task(resume=options), options.own_ledger(environ), environ)


async def rerun_run(options: RerunOptions, environ: Mapping[str, str] | None = None) -> Launched:
    """Rerun a run from a step in a process of its own; an error that prevents it is raised here."""
    environ = os.environ if environ is None else environ
    options = msgspec.structs.replace(options, controlled=True, approvals=options.approvals or "wait")
    return await _launch(Task(rerun=options), options.own_ledger(environ), environ)


async def _launch(task: Task, database: Database, environ: Mapping[str, str]) -> Launched:
    command = [sys.executable, "-P", "-m", MODULE]
    pid, line = await asyncio.to_thread(
        start_background, command, environ, msgspec.json.encode(task, enc_hook=_encode), REPORT
    )
    try:
        report = msgspec.json.decode(line, type=Report)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise GertError("the process that drives the run ended before the run began") from None
    if report.run_id is None:
        raise _error(report)
    return Launched(run_id=report.run_id, database=database, pid=pid)


def _encode(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else str(value)


def _error(report: Report) -> GertError:
    kind = getattr(errors, report.error or "", GertError)
    try:
        return kind(report.message, hint=report.hint)
    except TypeError:
        return GertError(report.message, hint=report.hint)


def _database(options: RunOptions, environ: Mapping[str, str]) -> Database:
    """The ledger that a run will be recorded in."""
    named = database_for(options.db or None, options.dsn, environ)
    if named is not None:
        return named
    folder = os.path.dirname(os.path.abspath(options.file))
    return ledger_of(state_dir(options.state_dir, Workspace().project_root(folder), environ))


def run_id_for(request_id: str, caller: str) -> str:
    """The id of the run that a request starts: the same for the same request, so the ledger admits it once."""
    if not has_visible(request_id) or len(request_id) > _MOST_REQUEST:
        raise UsageError(f"expected a request id of 1 to {_MOST_REQUEST} characters")
    return f"request-{sha256_hex(canonical({'caller': caller, 'request_id': request_id}))[:_HEX]}"


async def _started(
    options: RunOptions, database: Database, environ: Mapping[str, str], request_id: str
) -> Launched | None:
    """The run that this request started before, if it did; UsageError where the id was used for something else."""
    run_id = options.run_id or ""
    if isinstance(database, str) and not os.path.exists(database):
        return None
    async with open_ledger(database, environ, read_only=True) as ledger:
        lines = await ledger.lines(run_id, limit=1)
    if not lines:
        return None
    started = decode(lines[0]).payload
    if not isinstance(started, RunStart) or started.start is None or not _is_same(options, started):
        raise UsageError(
            f"the request id `{request_id}` was used for another call", hint="use a new id for a new request"
        )
    return Launched(run_id=run_id, database=database)


def _is_same(options: RunOptions, started: RunStart) -> bool:
    """Whether a run was started with these options; inputs are compared as far as they are on record."""
    start = started.start
    if start is None or start.file != os.path.abspath(options.file):
        return False
    sources = {given.source for given in options.given.values()} | _GIVEN
    if {name for name, source in started.input_sources.items() if source in sources} != options.given.keys():
        return False
    public = {name: given.value for name, given in options.given.items() if name not in start.secret_inputs}
    return all(name in started.inputs and str(started.inputs[name]) == str(value) for name, value in public.items())
