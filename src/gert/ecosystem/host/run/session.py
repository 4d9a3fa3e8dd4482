"""One session of a run: this process drives it until it ends or waits, reports the outcome and records a scenario."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.approvals.ticket_document import request_document
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import ledger_arguments
from gert.ecosystem.host.config.settings import notices_for
from gert.ecosystem.host.config.state_dir import state_dir, state_dir_argument
from gert.ecosystem.host.config.variables import again_words
from gert.ecosystem.host.redrive.recorded_run import Opened, load_record
from gert.ecosystem.host.redrive.redrive import Then, approval_check, redrive
from gert.ecosystem.host.run.driver.clock import RunClock
from gert.ecosystem.host.run.driver.control import Control
from gert.ecosystem.host.run.driver.driver import OnRest, Suspended
from gert.ecosystem.host.run.driver.signals import TIMEOUT, Relay, interruptible, limited, relayed
from gert.ecosystem.host.run.options import Executed, Pending, Recorded
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer
from gert.ecosystem.host.run.record.rate_limit import claims_for
from gert.ecosystem.host.run.world.call_binding import Binding
from gert.ecosystem.host.run.world.worlds import World
from gert.errors import GertError, TraceError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AwaitApproval, CallExtension, CallTool, Emit, Request
from gert.kernel.engine.run import RunResult
from gert.kernel.events.runbook import StepWaiting
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.ledger.port import Ledger

if TYPE_CHECKING:
    from gert.ecosystem.host.scenarios.record_scenario import Recording


class LiveWorld(msgspec.Struct, frozen=True, kw_only=True):
    """The world of a run, and what ends with it.

    abort: ends at once what the world has started
    close: stops what the world keeps running between calls; called when this process stops driving the run
    attach: called with the ledger that the run is recorded in
    settle: called when the run has ended, and not while it waits
    binding: binds approvals to what would run
    redactor: masks everything that must not be shown
    knows: whether the outcome of an announced call is recorded elsewhere, or the call never began
    control: takes messages that control the run, where another process may send them
    on_rest: called with the keys of the open requests where no lane can go on without an answer
    """

    world: World
    redactor: Redactor
    abort: Callable[[], object] = lambda: None
    close: Callable[[], Awaitable[object]] | None = None
    attach: Callable[[Ledger], object] | None = None
    settle: Callable[[], Awaitable[object]] | None = None
    binding: Binding | None = None
    knows: Callable[[CallTool | CallExtension], bool] | None = None
    control: Control | None = None
    on_rest: OnRest | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Everything this process needs to drive a run.

    timeout: seconds the run may still take
    recorded: recorded answers, where the run is driven again; `on_live` is called when they are used up
    clock: of a run that is resumed; any other begins now
    """

    prepared: Prepared
    setup: Setup
    live: LiveWorld
    opened: Opened
    journal: Journal
    timeout: float | None
    relay: Relay | None = None
    recording: "Recording | None" = None
    recorded: Iterable[RecordedAnswer] | None = None
    on_live: Callable[[list[Request[Any]]], object] = lambda _: None
    clock: RunClock | None = None


class _Live(Then):
    """The live world takes over.

    A cancellation is kept back until then: within the record, it would come where it never came before.
    """

    def __init__(self, session: Session) -> None:
        self.world = session.live.world
        self.gate = session.live.control.gate if session.live.control is not None else None
        self.on_rest = session.live.on_rest
        self._on_live = session.on_live
        self._is_live = False
        # Its time was over before this session began.
        self._is_over = session.recorded is not None and session.timeout is not None and session.timeout <= 0
        self._reason = TIMEOUT if self._is_over else None

    def begin(self, announced: list[Request[Any]]) -> None:
        """Go live; a cancellation that was kept back comes before anything is requested."""
        self._is_live = True
        self._on_live(announced)
        if self._reason is not None and self.driver is not None:
            self.driver.cancel(self._reason)

    def cancel(self, reason: str, message_id: int | None = None) -> None:
        """Stop the run, or keep the cancellation back."""
        if reason == TIMEOUT and self._is_over:
            return  # what runs by now is `finally`
        if self._is_live and self.driver is not None:
            self.driver.cancel(reason, message_id)
        else:
            self._reason = self._reason or reason


class _Ended(msgspec.Struct):
    """How a session ended: with the result of the run, or with what it waits for."""

    result: RunResult | None = None
    pending: tuple[Pending, ...] = ()
    scenario: Recorded | None = None
    interrupted: bool = False


async def drive_run(session: Session) -> Executed:
    """Drive a run until it ends or waits."""
    with relayed(session.relay) as relay:
        try:
            ended = await _drive(session, relay)
            if ended.result is not None:
                await _finish(session, ended, ended.result, relay)
            await session.journal.flush()
        except TraceError as problem:
            problem.hint = await _resume_hint(session, problem.hint)
            raise
        finally:
            session.journal.close()
    prepared, setup = session.prepared, session.setup
    return Executed(
        run_id=setup.run_id,
        runbook=setup.program.runbook.meta.name,
        mode=setup.mode,
        result=ended.result,
        events=session.journal.events,
        trace=session.opened.trace,
        db=prepared.options.db,
        dsn=prepared.database if isinstance(prepared.database, Dsn) else None,
        interrupted=ended.interrupted,
        scenario=ended.scenario,
        pending=ended.pending,
        state_words=_state_words(prepared),
        input_words=_input_words(session),
        record=session.recording.folder if session.recording is not None else None,
        warning=session.journal.problem,
    )


async def _resume_hint(session: Session, hint: str | None) -> str | None:
    """The hint of a ledger that failed, with the command that resumes the run where something of it is recorded."""
    ledger, run_id = session.opened.ledger, session.setup.run_id
    if hint is None or "resume the run" not in hint or ledger is None:
        return hint
    with suppress(GertError):
        if await ledger.head(run_id) is not None:
            where = ledger_arguments(session.prepared.database) or _state_words(session.prepared)
            return hint.replace("resume the run", f"`gert resume {run_id}{where}{_input_words(session)}`")
    return hint.replace("resume the run", "start the run again: nothing of it is recorded")


async def _drive(session: Session, relay: Relay) -> _Ended:
    prepared, setup = session.prepared, session.setup
    then = _Live(session)
    if session.live.attach is not None and session.opened.ledger is not None:
        session.live.attach(session.opened.ledger)
    with interruptible(then, session.live.abort, relay) as pressed, limited(then, session.timeout):
        watch = asyncio.create_task(session.live.control.watch(then)) if session.live.control is not None else None
        try:
            result = await redrive(
                setup,
                session.recorded,
                session.journal,
                then,
                lanes=prepared.options.max_parallel,
                verify=approval_check(prepared.verifier),
                # In a replay and in a dry run nothing is waited for: time passes as the answers say.
                clock=session.clock or RunClock() if setup.mode in ("real", "probe") else None,
                asks=session.recording.asks if session.recording is not None else None,
                claim_of=claims_for(setup.program) if setup.mode == "real" else lambda _: None,
            )
        except Suspended as suspended:
            return _Ended(pending=await _suspend(session, suspended), interrupted=bool(pressed))
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
            if session.live.close is not None:
                await session.live.close()
    return _Ended(result, interrupted=bool(pressed))


async def _finish(session: Session, ended: _Ended, result: RunResult, relay: Relay) -> None:
    """Close what the run has opened, report its outcome, and make a scenario of it where one is wanted."""
    if session.live.settle is not None:
        await session.live.settle()
    await _notify(session, result, relay)
    if session.recording is not None and session.opened.ledger is not None:
        record = await load_record(session.opened.ledger, session.setup.run_id)
        ended.scenario = await session.recording.write(session.setup, record.lines, record.answers)


def _state_words(prepared: Prepared) -> str:
    # The run is resumed from here, and the runbook may lie in another project.
    root = prepared.workspace.project_root(prepared.workspace.working)
    return state_dir_argument(prepared.state, state_dir(None, root, prepared.environ))


def _input_words(session: Session) -> str:
    """The options that a resume needs for secrets that were given: their values are not recorded."""
    setup, given = session.setup, session.prepared.options.given
    files = {name: each.file for name, each in given.items() if each.file is not None}
    return again_words(setup.secret_inputs, setup.started.input_sources, files)


async def _suspend(session: Session, suspended: Suspended) -> tuple[Pending, ...]:
    """Record which steps wait for tickets of other runs, unless nothing is new; return what the run waits for."""
    ledger, prepared = session.opened.ledger, session.prepared
    views: dict[str, TicketView] = {}
    if ledger is not None:
        views = {key: await Tickets(ledger).get(ticket_id) for key, ticket_id in suspended.tickets.items()}
    if not session.journal.repeats:
        for ask in suspended.asks:
            if ask.key in views:
                view = views[ask.key]
                waits = StepWaiting(step_id=ask.step_id, ticket_id=view.id, run_id=view.run_id)
                session.journal.say(Emit(waits, ask.path, None))
        await session.journal.settle()
    pending = [_pending(prepared, ask, views.get(ask.key)) for ask in suspended.asks]
    return tuple([await _with_notes(each, ledger) for each in pending])


async def _with_notes(pending: Pending, ledger: Ledger | None) -> Pending:
    if ledger is None or not pending.ticket_id:
        return pending
    try:
        view = await Tickets(ledger).get(pending.ticket_id)
    except UsageError:  # a part of the program that embeds gert keeps its tickets elsewhere
        return pending
    return msgspec.structs.replace(pending, notes=view.notes)


def _pending(prepared: Prepared, ask: Request[Any], view: "TicketView | None") -> Pending:
    if view is not None:
        return Pending(
            view.id,
            ask.step_id,
            ask.path,
            _page(prepared, view.id),
            created=view.ticket.created_at,
            expires_at=view.ticket.expires_at,
            request=request_document(view.ticket.request),
        )
    if not isinstance(ask, AwaitApproval):
        return Pending("", ask.step_id, ask.path)
    return Pending(
        ask.ticket_id,
        ask.step_id,
        ask.path,
        _page(prepared, ask.ticket_id),
        created=ask.created_at,
        expires_at=ask.expires_at,
        request=request_document(ask.request),
    )


def _page(prepared: Prepared, ticket_id: str) -> str | None:
    """The address of the page on which a ticket can be answered."""
    said = prepared.settings.approvals
    if said is None or said.listen is None:
        return None
    from gert.ecosystem.host.channels.channels_for import page_urls_for  # seldom needed, and not small

    return page_urls_for(prepared.settings, prepared.state).page_url(ticket_id)


async def _notify(session: Session, result: RunResult, relay: Relay) -> None:
    """Send the notices of the outcome; none of them changes the run."""
    prepared, setup = session.prepared, session.setup
    notices = notices_for(prepared.program.runbook.meta, prepared.settings, result) if setup.mode == "real" else []
    if not notices:
        return
    from gert.ecosystem.host.run.notifications import record_notices  # seldom needed, and not small

    await record_notices(
        notices,
        session.journal,
        setup,
        result,
        trace=session.opened.trace,
        environ=prepared.environ,
        redactor=session.live.redactor,
        relay=relay,
    )
