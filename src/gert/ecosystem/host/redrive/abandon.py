"""Abandon a run: end and seal its record, close its tickets and those of its agents, and call nothing.

The run is redriven on its recorded answers and cancelled where they end, so that every started step has an end. Where
that fails because the runbook has changed, the record is ended as it is.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import msgspec

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.ecosystem.host.config.keys.trace_keys import sealing_keys, signing_key
from gert.ecosystem.host.config.ledger_location import Database, masking_password, open_ledger
from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.config.settings import Settings
from gert.ecosystem.host.config.state_dir import RunFolder
from gert.ecosystem.host.config.telemetry import export_for
from gert.ecosystem.host.redrive.recorded_run import Record, RecordedRun, find_recorded, load_record, open_driven
from gert.ecosystem.host.redrive.redrive import RedriveJournal, Then, approval_check, redrive
from gert.ecosystem.host.redrive.resume import changes
from gert.ecosystem.host.run.driver.clock import RunClock
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.errors import Busy, GertError, IntegrityError, UsageError
from gert.kernel.engine.clock import format_seconds, format_wait, merge_intervals
from gert.kernel.engine.requests import AnyAnswer, CallExtension, CallTool, Emit, Request, failed_answer
from gert.kernel.events.runbook import ApprovalOutdated, Failure, RunCancelled, RunComplete
from gert.kernel.events.vocabulary import RunStatus
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.redaction import PLACEHOLDER
from gert.kernel.foundation.text import is_text
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Head
from gert.kernel.ledger.runbook_fold import ABANDONED

LONGEST_REASON: Final = 1000


class AbandonOptions(RecordedRun, frozen=True, kw_only=True):
    """The run to end, the reason, and who ends it."""

    reason: str


class Abandoned(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was ended.

    in_doubt: calls that were announced and have no result: they may have happened
    finally_steps: how many steps of `finally` were not run
    redriven: whether every step that had begun has its end on record
    warning: why the mirror or the witness is not complete, or a ticket of an agent stays open
    status: how it ended; where every answer was on record, as it would have ended anyway
    """

    run_id: str
    runbook: str
    events: int
    reason: str
    tickets: tuple[str, ...] = ()
    in_doubt: tuple[str, ...] = ()
    finally_steps: int = 0
    redriven: bool = True
    status: RunStatus = "cancelled"
    warning: str | None = None


async def abandon(options: AbandonOptions, environ: Mapping[str, str] | None = None) -> Abandoned:
    """End a run that is not running; an error that prevents it is raised, and leaves the run as it was."""
    environ = with_key_files(os.environ if environ is None else environ)
    reason = _reason(options)
    database = options.own_ledger(environ)
    async with AsyncExitStack() as held:
        run_id = await find_recorded(options.run_id, database, environ)
        ledger = await _open_with_lease(held, run_id, database, environ)
        record = await load_record(ledger, run_id, sealing_keys(environ), options.adopt)
        if record.report.completion is not None:
            raise UsageError(f"run `{record.run_id}` has ended", hint=f"`gert run show {record.run_id}` says how")
        tickets = [row.ticket_id for row in await ledger.tickets("pending", run_id=record.run_id)]
        head = await ledger.head(record.run_id)
        waits = head.runbook.waits.values() if head is not None and head.runbook is not None else ()
        ended = await _end(record, ledger, database, reason, environ)
    below = await _end_below(waits, database, options, environ)
    return msgspec.structs.replace(
        ended,
        tickets=(*tickets, *below.tickets),
        in_doubt=(*ended.in_doubt, *below.in_doubt),
        warning=ended.warning or below.warning,
    )


class _Below(msgspec.Struct, frozen=True):
    """The tickets that were closed below a run, calls in doubt, and why something there stays open."""

    tickets: tuple[str, ...] = ()
    in_doubt: tuple[str, ...] = ()
    warning: str | None = None


async def _end_below(
    waits: Collection[str], database: Database, options: AbandonOptions, environ: Mapping[str, str]
) -> _Below:
    """Close the open tickets that agents of the run waited for, and abandon the runs of runbooks that they called."""
    below = _Below()
    inner: list[str] = []
    if not waits:
        return below
    try:
        with masking_password(database):
            async with open_ledger(database, environ) as ledger:
                for ticket_id in waits:
                    view = await Tickets(ledger).get(ticket_id)
                    head = await ledger.head(view.run_id)
                    if head is not None and head.runbook is not None:
                        inner += [view.run_id] if head.runbook.ended is None else []
                    elif view.status == "pending":
                        await ledger.append(view.run_id, partial(_withdrawn, view, _reason(options)))
                        below = msgspec.structs.replace(below, tickets=(*below.tickets, ticket_id))
        for run_id in dict.fromkeys(inner):
            ended = await abandon(msgspec.structs.replace(options, run_id=run_id), environ)
            below = _Below(
                (*below.tickets, *ended.tickets), (*below.in_doubt, *ended.in_doubt), below.warning or ended.warning
            )
    except GertError as problem:
        return msgspec.structs.replace(below, warning=f"tickets of its agents stay open: {problem.message}")
    return below


def _withdrawn(view: TicketView, reason: str, head: Head, moment: str) -> Batch:
    request = view.ticket.request
    void = ApprovalOutdated(
        ticket_id=view.id, step_id=request.step_id, reason=reason, request_hash=request.request_hash
    )
    return build_batch(head, moment, head.tenant, [Entry(void)])


class _Cancel(Then):
    """Ends a run where its recorded answers end: it is cancelled, and every request is answered with that.

    in_doubt: calls that were announced and have no recorded answer
    """

    def __init__(self, reason: str, journal: RedriveJournal) -> None:
        self.world = self
        self._failure = Failure("cancelled", reason)
        self._journal = journal
        self.in_doubt: list[str] = []

    def begin(self, announced: list[Request[Any]]) -> None:
        """Cancel the run."""
        self._journal.go_live()
        self.in_doubt = [ask.path for ask in announced if isinstance(ask, CallTool | CallExtension)]
        if self.driver is not None:
            self.driver.cancel(self._failure.message)

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """No request is answered at once."""
        return None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Requests of `finally` are answered with the cancellation, too: nothing is called."""
        return failed_answer(ask, self._failure)


async def _end(
    record: Record, ledger: Ledger, database: Database, reason: str, environ: Mapping[str, str]
) -> Abandoned:
    """Redrive a run and cancel it where its answers end; if it diverges, end its record as it is."""
    prepared = _prepared(record, environ)
    settings = Settings(witness=record.start.witness) if prepared is None else prepared.settings
    if settings.witness is not None:
        from gert.ecosystem.host.config.witness import attach_witness  # most runs have no witness

        await attach_witness(ledger, record.run_id, database, settings, environ)
    ledger.export = export_for(settings.telemetry, environ)
    if prepared is not None:
        journal = _journal(record, ledger, environ)
        inputs = record.resolved(dict.fromkeys(record.start.secret_inputs, PLACEHOLDER))
        then = _Cancel(reason, journal)
        try:
            result = await redrive(
                record.setup(prepared, inputs),
                record.logged,
                journal,
                then,
                lanes=record.start.max_parallel,
                verify=approval_check(prepared.verifier),
                clock=RunClock(record.lines),
            )
            await journal.flush()
            return Abandoned(
                run_id=record.run_id,
                runbook=record.started.runbook,
                events=journal.events,
                reason=reason,
                in_doubt=tuple(then.in_doubt),
                finally_steps=len(prepared.program.runbook.finally_),
                status=result.status,
                warning=journal.problem,
            )
        except IntegrityError:
            if not journal.repeats:
                raise
        finally:
            journal.close()
    journal = _journal(record, ledger, environ)
    await _close(record, journal, reason)
    return Abandoned(
        run_id=record.run_id,
        runbook=record.started.runbook,
        events=journal.events,
        reason=reason,
        redriven=False,
        warning=journal.problem,
    )


def _prepared(record: Record, environ: Mapping[str, str]) -> Prepared | None:
    """The program of a run, if it has not changed since the run started."""
    try:
        # As a dry run: nothing will be called, so no secret has to be there.
        prepared = Prepared(record.options(mode="dry-run"), environ)
    except GertError:
        return None
    return None if any(changes(prepared, record)) else prepared


def _journal(record: Record, ledger: Ledger, environ: Mapping[str, str]) -> RedriveJournal:
    path = record.start.trace or RunFolder(record.start.state_dir or "", record.run_id).trace
    mirror = Mirror.complete(path, record.lines) if os.path.exists(path) else None
    key, has_secrets = signing_key(environ), bool(record.start.secret_inputs)
    adopted = record.adopted
    return RedriveJournal(
        record.run_id,
        record.lines,
        record.answers,
        ledger,
        mirror=mirror,
        opening=[] if adopted is None else [Emit(adopted, None, Principal("human", adopted.actor))],
        adopt=adopted is not None,
        key=key,
        has_secrets=has_secrets,
    )


async def _close(record: Record, journal: RedriveJournal, reason: str) -> None:
    """End the record after everything that is on it."""
    clock = RunClock(record.lines)
    complete = RunComplete(
        status="cancelled",
        mode=record.started.mode,
        duration=format_seconds(clock.age),
        waited=format_wait(sum(end - begin for begin, end in merge_intervals(clock.idle()))),
        failure=Failure("cancelled", reason),
    )
    try:
        journal.take_all()
        for payload in (RunCancelled(reason=reason), complete):
            journal.say(Emit(payload, None, None))
        await journal.settle()
        await journal.flush()
    finally:
        journal.close()


def _reason(options: AbandonOptions) -> str:
    who, why = (" ".join(text.split())[:LONGEST_REASON] for text in (options.actor or user_name(), options.reason))
    if not why:
        raise UsageError("`--reason` needs a reason", hint="it is recorded, and shown with the run")
    for option, text in (("--reason", why), ("--as", who)):
        if not is_text(text):
            raise UsageError(f"{option} is not UTF-8 text")
    return f"{ABANDONED}{why} (by {who})"


async def _open_with_lease(held: AsyncExitStack, run_id: str, database: Database, environ: Mapping[str, str]) -> Ledger:
    """The ledger with the lease of the run, unless a process drives it."""
    try:
        return await open_driven(held, run_id, database, environ)
    except Busy:
        raise UsageError(
            f"run `{run_id}` is running", hint="Ctrl-C, or SIGTERM to its process, stops it and runs its `finally`"
        ) from None
