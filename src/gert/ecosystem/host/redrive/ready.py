"""Resume every run that waits for nothing but a resume: its tickets are answered or expired, and no process drives it.

Each run is attempted once, one after the other. The lease decides which of two processes resumes a run.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from gert.ecosystem.approvals.drop_box import DropBox
from gert.ecosystem.approvals.signatures import NO_KEYS
from gert.ecosystem.host.config.settings import settings_for
from gert.ecosystem.host.config.variables import again_words_of
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.redrive.resume import ResumeOptions, resume
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.listing import Runs
from gert.errors import Busy, GertError, InputError

NotDriven: TypeAlias = Literal["busy", "skipped", "error"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run that was ready.

    executed: its result, where this process drove it
    status: why there is none: another process resumed it, it cannot be resumed here, or resuming it failed
    problem: the error, where it failed or was skipped
    """

    run_id: str
    runbook: str | None = None
    executed: Executed | None = None
    status: NotDriven | None = None
    problem: GertError | None = None


def resume_ready(
    runs: Runs, options: ResumeOptions, environ: Mapping[str, str], observers: Iterable[Observer] = ()
) -> Iterator[Attempt]:
    """Resume the runs that are ready, the oldest first; it ends after one that is interrupted.

    options: those of each run; approvals that it needs next are requested by tickets, and it is detached
    """
    unreadable: dict[str, GertError] = {}
    found = runs.waiting(unreadable.__setitem__)
    for run_id, problem in unreadable.items():
        yield Attempt(run_id=run_id, status="skipped", problem=problem)
    if found:
        # Whose ledger it is holds for all of its runs.
        msgspec.structs.replace(options, run_id=found[0].run_id).own_ledger(environ)
    for entry in found:
        try:
            if entry.is_driven or not _is_ready(entry, environ):
                continue
        except GertError as problem:
            yield Attempt(run_id=entry.run_id, runbook=_name(entry), status="skipped", problem=problem)
            continue
        attempt = _attempt(runs, entry, options, environ, observers)
        yield attempt
        if attempt.executed is not None and attempt.executed.interrupted:
            return


def _is_ready(entry: ListedRun, environ: Mapping[str, str]) -> bool:
    """Whether every ticket is answered or expired; an answer may lie in the drop box of its project."""
    left = [view for view in entry.tickets if entry.is_open(view)]
    start = entry.started_with
    if not left or start is None:
        return not left
    folder = os.path.dirname(os.path.abspath(start.file))
    said = settings_for(Workspace(), folder, start.config, environ, files=(start.file,)).approvals
    if said is None or said.drop_box is None:
        return False
    box = DropBox(said.drop_box, NO_KEYS)
    return all(box.holds(view.id) for view in left)


def _attempt(
    runs: Runs, entry: ListedRun, options: ResumeOptions, environ: Mapping[str, str], observers: Iterable[Observer]
) -> Attempt:
    named = Attempt(run_id=entry.run_id, runbook=_name(entry))
    start = entry.started_with
    if start is not None and not os.path.isdir(start.working):
        gone = GertError(f"its folder `{start.working}` is not on this machine", hint="resume it where it was started")
        return msgspec.structs.replace(named, status="skipped", problem=gone)
    chosen = msgspec.structs.replace(options, run_id=entry.run_id, approvals="detach")
    try:
        if not _is_same(runs, entry):
            return msgspec.structs.replace(named, status="busy")
        executed = asyncio.run(resume(chosen, observers=observers, environ=environ))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except Busy:
        return msgspec.structs.replace(named, status="busy")
    except GertError as problem:
        # Another process may have resumed it in the meantime, and it has ended by now.
        if not _is_same(runs, entry):
            return msgspec.structs.replace(named, status="busy")
        words = again_words_of(entry.start)
        if words and isinstance(problem, InputError):
            # One command resumes many runs, so it takes no inputs.
            alone = f"`gert resume {entry.run_id}{entry.place.words}{words}`"
            problem.hint = f"{alone} resumes it; with `from: env` the environment can give the input"
        return msgspec.structs.replace(named, status="error", problem=problem)
    return msgspec.structs.replace(named, executed=executed)


def _is_same(runs: Runs, entry: ListedRun) -> bool:
    """Whether a run is as it was found: nothing was recorded since, and no process drives it."""
    now = runs.entry(entry.run_id)
    return now.events == entry.events and not now.is_driven


def _name(entry: ListedRun) -> str | None:
    return entry.head.runbook.runbook if entry.head.runbook is not None else None
