"""Conducting a run: driven to its end or to where it waits, others told of it, and a scenario made of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gert.ecosystem.host.approvals.ticket_document import request_document
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.settings import notices_for
from gert.ecosystem.host.config.state_dir import state_dir, words_for_state
from gert.ecosystem.host.redrive.record import load_record
from gert.ecosystem.host.redrive.verify_recorded import Rehearing
from gert.ecosystem.host.run.call_binding import Binding
from gert.ecosystem.host.run.clock import RunClock
from gert.ecosystem.host.run.driver import Driver, Suspended
from gert.ecosystem.host.run.journal import Journal, Logged
from gert.ecosystem.host.run.options import Executed, Pending, Recorded, RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.rate_limit import claims_for
from gert.ecosystem.host.run.signals import TIMEOUT, Relay, interruptible, limited, relayed
from gert.ecosystem.host.run.worlds import World
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import Ask, AwaitApproval
from gert.kernel.engine.run import RunResult, run
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.ledger.port import Ledger
from gert.kernel.scenario.recording import listening

if TYPE_CHECKING:
    from gert.ecosystem.host.scenarios.record import Recording


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers a run.

    abort: ends at once what the world has started
    settle: called when the run has ended, and not while it waits
    binding: binds approvals to what would run
    """

    world: World
    abort: Callable[[], object] = lambda: None
    settle: Callable[[], Awaitable[object]] | None = None
    binding: Binding | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run needs to be conducted.

    timeout: seconds the run may still take
    recorded: answers that are known; `on_live` is called when they are used up
    clock: of a run that is resumed; any other begins now
    """

    options: RunOptions
    prepared: Prepared
    setup: Setup
    cast: Cast
    ledger: Ledger | None
    journal: Journal
    redactor: Redactor
    environ: Mapping[str, str]
    trace: str | None
    timeout: float | None
    relay: Relay | None = None
    recording: "Recording | None" = None
    recorded: Iterable[Logged] = ()
    on_live: Callable[[list[Ask[Any]]], object] | None = None
    clock: RunClock | None = None


class _Gate:
    """Keeps a cancellation from a run that is not past its record: there it would come where it never came before."""

    def __init__(self, stage: Stage) -> None:
        self._on_live = stage.on_live
        self._is_over = stage.on_live is not None and stage.timeout is not None and stage.timeout <= 0
        self._wish = TIMEOUT if self._is_over else None
        self.driver: Driver | None = None

    def open(self, announced: list[Ask[Any]]) -> None:
        """The record is used up; what was wished for comes before anything is asked."""
        on_live, self._on_live = self._on_live, None
        if on_live is not None:
            on_live(announced)
        if self._wish is not None and self.driver is not None:
            self.driver.cancel(self._wish)

    def cancel(self, reason: str) -> None:
        """Stop the run, or keep in mind that it is to be stopped."""
        if reason == TIMEOUT and self._is_over:
            return  # it was over before the run went on, and what runs by now is `finally`
        if self._on_live is None and self.driver is not None:
            self.driver.cancel(reason)
        else:
            self._wish = self._wish or reason


async def conduct(stage: Stage) -> Executed:
    """Drive a run; what it came to, or what it waits for."""
    with relayed(stage.relay) as relay:
        return await _conduct(stage, relay)


async def _conduct(stage: Stage, relay: Relay) -> Executed:
    pressed: list[int] = []
    result: RunResult | None = None
    pending: tuple[Pending, ...] = ()
    recorded = None
    gate = _Gate(stage)
    try:
        driver = Driver(
            stage.cast.world,
            stage.journal,
            max_parallel=stage.options.max_parallel,
            recorded=stage.recorded,
            on_recorded=Rehearing(stage.environ, stage.prepared.settings).hear,
            on_live=gate.open if stage.on_live is not None else None,
            # In a replay and in a dry run nothing is waited for: time passes as the answers say.
            clock=stage.clock or RunClock() if stage.setup.mode in ("real", "probe") else None,
            claim_of=claims_for(stage.setup.program) if stage.setup.mode == "real" else lambda _: None,
        )
        gate.driver = driver
        steps = run(stage.setup)
        if stage.recording is not None:
            steps = listening(steps, stage.recording.asks)
        try:
            with interruptible(gate, stage.cast.abort, relay) as pressed, limited(gate, stage.timeout):
                result = await driver.drive(steps)
        except Suspended as suspended:
            pending = tuple(_pending(stage, ask) for ask in suspended.asks)
        if result is not None:
            if stage.cast.settle is not None:
                await stage.cast.settle()
            await _tell(stage, result, relay)
            if stage.recording is not None:
                recorded = await _recorded(stage, stage.recording)
        await stage.journal.flush()
    finally:
        stage.journal.close()
    return Executed(
        run_id=stage.setup.run_id,
        runbook=stage.setup.program.runbook.meta.name,
        mode=stage.setup.mode,
        result=result,
        events=stage.journal.events,
        trace=stage.trace,
        db=stage.options.db,
        dsn=stage.prepared.database if isinstance(stage.prepared.database, Dsn) else None,
        interrupted=bool(pressed),
        scenario=recorded,
        pending=pending,
        state_words=_state_words(stage.prepared),
        warning=stage.journal.problem,
    )


async def _recorded(stage: Stage, recording: "Recording") -> Recorded | None:
    """The scenario of a run, made from its record."""
    if stage.ledger is None:
        return None
    record = await load_record(stage.ledger, stage.setup.run_id)
    return await recording.write(stage.setup, record.lines, record.answers)


def _state_words(prepared: Prepared) -> str:
    # Whoever goes on with the run does so from here, and the runbook may lie in another project.
    root = prepared.workspace.project_root(prepared.workspace.working)
    return words_for_state(prepared.state, state_dir(None, root, prepared.environ))


def _pending(stage: Stage, ask: Ask[Any]) -> Pending:
    if not isinstance(ask, AwaitApproval):
        return Pending("", ask.step_id, ask.path)
    return Pending(
        ask.ticket_id,
        ask.step_id,
        ask.path,
        _page(stage, ask.ticket_id),
        created=ask.created_at,
        expires_at=ask.expires_at,
        request=request_document(ask.request),
    )


def _page(stage: Stage, ticket_id: str) -> str | None:
    """Where a ticket can be answered in a browser."""
    said = stage.prepared.settings.approvals
    if said is None or said.listen is None:
        return None
    from gert.ecosystem.host.channels.settings import front_for  # seldom needed, and not small

    return front_for(stage.prepared.settings, stage.prepared.state).page_url(ticket_id)


async def _tell(stage: Stage, result: RunResult, relay: Relay) -> None:
    """Tell whoever wants to know of the outcome; nothing of it changes the run."""
    meta = stage.prepared.program.runbook.meta
    notices = notices_for(meta, stage.prepared.settings, result) if stage.setup.mode == "real" else []
    if not notices:
        return
    from gert.ecosystem.host.run.notifications import tell  # seldom needed, and not small

    await tell(
        notices,
        stage.journal,
        stage.setup,
        result,
        trace=stage.trace,
        environ=stage.environ,
        redactor=stage.redactor,
        relay=relay,
    )
