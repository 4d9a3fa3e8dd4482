"""Ending a run that nobody goes on with: its record is closed and sealed, its tickets too, and the world is not asked.

The run is driven again on its recorded answers and told to stop where they end, so that every step that had begun has
an end. Where that cannot be done, because the runbook is not what it was, the record is closed as it stands.
"""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.key_files import with_key_files
from gert.ecosystem.host.config.ledger_location import Database
from gert.ecosystem.host.config.state_dir import RunFolder
from gert.ecosystem.host.config.trace_keys import sealing_keys, signing_key
from gert.ecosystem.host.redrive.record import Record, load_record, open_driven
from gert.ecosystem.host.redrive.resume import ResumeOptions, changes, ledger_for
from gert.ecosystem.host.redrive.resume_journal import ResumeJournal
from gert.ecosystem.host.redrive.verify_recorded import Rehearing
from gert.ecosystem.host.run.clock import RunClock
from gert.ecosystem.host.run.driver import Driver
from gert.ecosystem.host.run.journal import read_answers
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared, user_name
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.errors import Busy, GertError, IntegrityError, UsageError
from gert.kernel.engine.clock import merged, written, written_wait
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AnyAnswer, Ask, CallExtension, CallTool, Said, answer_with
from gert.kernel.engine.run import run
from gert.kernel.events.runbook import Failure, RunCancelled, RunComplete
from gert.kernel.events.vocabulary import RunStatus
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.runbook_fold import ABANDONED

LONGEST_REASON: Final = 1000


class AbandonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which run ends, why, and who says so."""

    run_id: str
    reason: str
    actor: str | None = None
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None


class Abandoned(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was ended.

    in_doubt: calls that were announced and have no result; nobody knows whether they happened
    finally_steps: how many steps of `finally` were not run
    redriven: whether every step that had begun has its end on record
    status: how it ended; where every answer was on record, as it would have anyway
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


async def abandon(options: AbandonOptions, environ: Mapping[str, str] | None = None) -> Abandoned:
    """End a run that is not running; what keeps it from ending is raised, and nothing is changed by it."""
    environ = with_key_files(os.environ if environ is None else environ)
    reason = _worded(options)
    found = ResumeOptions(run_id=options.run_id, state_dir=options.state_dir, db=options.db, dsn=options.dsn)
    database = ledger_for(found, environ)
    async with AsyncExitStack() as held:
        ledger = await _driven(held, options.run_id, database, environ)
        record = await load_record(ledger, options.run_id, sealing_keys(environ))
        state = record.state
        if record.report.completion is not None:
            raise UsageError(f"run `{state.run_id}` has ended", hint=f"`gert run show {state.run_id}` says how")
        tickets = [row.ticket_id for row in await ledger.tickets("pending", run_id=state.run_id)]
        key = signing_key(environ)
        ending = _Ending(record, ledger, reason)
        program = await ending.drive(environ, key)
        if program is None:
            await ending.close(key)
    return Abandoned(
        run_id=state.run_id,
        runbook=state.runbook,
        events=ending.events,
        reason=reason,
        tickets=tuple(tickets),
        in_doubt=tuple(ending.in_doubt),
        finally_steps=len(program.program.runbook.finally_) if program is not None else 0,
        redriven=program is not None,
        status=ending.status,
    )


class _Ending:
    """One run on its way to its end."""

    def __init__(self, record: Record, ledger: Ledger, reason: str) -> None:
        self._record = record
        self._state = record.state
        self._ledger = ledger
        self._reason = reason
        self._clock = RunClock(record.lines)
        self.events = 0
        self.in_doubt: list[str] = []
        self.status: RunStatus = "cancelled"

    async def drive(self, environ: Mapping[str, str], key: Any) -> Setup | None:
        """Drive the run again and stop it where its answers end; none where it does not go the same way."""
        prepared = self._prepared(environ)
        if prepared is None:
            return None
        setup = self._setup(prepared)
        journal = self._journal(key, has_secrets=bool(setup.secret_inputs))
        driver = Driver(
            _Nobody(self._reason),
            journal,
            max_parallel=self._state.max_parallel,
            recorded=read_answers(self._record.answers),
            on_recorded=Rehearing(environ, prepared.database).hear,
            on_live=lambda announced: self._stop(driver, journal, announced),
            clock=self._clock,
        )
        try:
            self.status = (await driver.drive(run(setup))).status
        except IntegrityError:
            if not journal.repeats:
                raise
            return None
        finally:
            journal.close()
        self.events = journal.events
        return setup

    def _stop(self, driver: Driver, journal: ResumeJournal, announced: list[Ask[Any]]) -> None:
        journal.go_live()
        self.in_doubt = [ask.path for ask in announced if isinstance(ask, CallTool | CallExtension)]
        driver.cancel(self._reason)

    def _prepared(self, environ: Mapping[str, str]) -> Prepared | None:
        state = self._state
        # As a dry run: nothing will be called, so no secret has to be there.
        options = RunOptions(file=state.file, mode="dry-run", policies=state.policies, config=state.config)
        try:
            prepared = Prepared(options, environ)
        except GertError:
            return None
        return None if any(changes(prepared, state)) else prepared

    def _setup(self, prepared: Prepared) -> Setup:
        state = self._state
        values = {**state.inputs, **{name: secret_ref(name) for name in state.secret_inputs}}
        return Setup(
            program=prepared.program,
            run_id=state.run_id,
            runbook_hash=state.runbook_hash,
            mode=state.mode,
            actor=state.actor,
            host=state.host,
            gert_version=state.gert_version,
            policies=tuple(prepared.floor.policies),
            policy_hashes=prepared.floor.digests,
            inputs={name: values[name] for name in state.input_sources if name in values},
            input_sources=state.input_sources,
            secret_inputs=frozenset(state.secret_inputs),
            groups=prepared.groups,
            break_glass=state.break_glass,
            recent=state.recent,
            parent_run_id=state.parent_run_id,
            start=state.start,
        )

    def _journal(self, key: Any, *, has_secrets: bool = False) -> ResumeJournal:
        record = self._record
        path = self._state.trace or RunFolder(self._state.state_dir or "", self._state.run_id).trace
        mirror = Mirror.complete(path, record.lines) if os.path.exists(path) else None
        return ResumeJournal(
            self._state.run_id,
            record.lines,
            record.answers,
            self._ledger,
            mirror=mirror,
            key=key,
            has_secrets=has_secrets,
        )

    async def close(self, key: Any) -> None:
        """End the record after everything that is on it."""
        journal = self._journal(key)
        try:
            journal.take_all()
            for payload in (RunCancelled(reason=self._reason), self._complete()):
                journal.say(Said(payload, None, None))
            await journal.settle()
        finally:
            journal.close()
        self.events = journal.events

    def _complete(self) -> RunComplete:
        return RunComplete(
            status="cancelled",
            mode=self._state.mode,
            duration=written(self._clock.age),
            waited=written_wait(sum(end - begin for begin, end in merged(self._clock.idle()))),
            failure=Failure("cancelled", self._reason),
        )


class _Nobody:
    """A world that is not asked: every question is answered with the end of the run."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def immediate(self, ask: Ask[Any]) -> AnyAnswer | None:
        """Nothing is known at once."""
        return None

    async def answer(self, ask: Ask[Any]) -> AnyAnswer:
        """Where the run has heard that it ends, its `finally` asks, and nothing is called."""
        return answer_with(ask, Failure("cancelled", self._reason))


def _worded(options: AbandonOptions) -> str:
    who, why = (" ".join(text.split())[:LONGEST_REASON] for text in (options.actor or user_name(), options.reason))
    if not why:
        raise UsageError("`--reason` needs a reason", hint="it is recorded, and shown to whoever asks about the run")
    for option, text in (("--reason", why), ("--as", who)):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{option} is not UTF-8 text") from None
    return f"{ABANDONED}{why} (by {who})"


async def _driven(held: AsyncExitStack, run_id: str, database: Database, environ: Mapping[str, str]) -> Ledger:
    """The ledger with the lease of the run, unless a process drives it."""
    try:
        return await open_driven(held, run_id, database, environ)
    except Busy:
        raise UsageError(
            f"run `{run_id}` is running", hint="Ctrl-C, or SIGTERM to its process, stops it and runs its `finally`"
        ) from None
