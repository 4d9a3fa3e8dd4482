"""Conducting a run: driven to its end or to where it waits, others told of it, and a scenario made of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gert.ecosystem.host.driver import Driver, Suspended
from gert.ecosystem.host.journal import Journal, Logged
from gert.ecosystem.host.options import Executed, Pending, RunOptions
from gert.ecosystem.host.prepare import Prepared
from gert.ecosystem.host.settings import notices_for
from gert.ecosystem.host.stopping import Relay, interruptible, limited
from gert.ecosystem.host.worlds import World
from gert.ecosystem.stores.port import Store
from gert.kernel.engine.asks import Ask, AwaitApproval
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.run import RunResult, run
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.scenario.recording import listening

if TYPE_CHECKING:
    from gert.ecosystem.host.scenarios.record import Recording


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers a run.

    abort: ends at once what the world has started
    settle: called when the run has ended, and not while it waits
    """

    world: World
    abort: Callable[[], object] = lambda: None
    settle: Callable[[], Awaitable[object]] | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run needs to be conducted.

    timeout: seconds the run may still take
    recorded: answers that are known; `on_live` is called when they are used up
    """

    options: RunOptions
    prepared: Prepared
    setup: Setup
    cast: Cast
    store: Store
    journal: Journal
    redactor: Redactor
    environ: Mapping[str, str]
    trace: str | None
    timeout: float | None
    relay: Relay | None = None
    recording: "Recording | None" = None
    recorded: Iterable[Logged] = ()
    on_live: Callable[[list[Ask[Any]]], object] | None = None


async def conduct(stage: Stage) -> Executed:
    """Drive a run; what it came to, or what it waits for."""
    pressed: list[bool] = []
    result: RunResult | None = None
    pending: tuple[Pending, ...] = ()
    recorded = None
    try:
        driver = Driver(
            stage.cast.world,
            stage.journal,
            max_parallel=stage.options.max_parallel,
            recorded=stage.recorded,
            on_live=stage.on_live,
        )
        steps = run(stage.setup)
        if stage.recording is not None:
            steps = listening(steps, stage.recording.asks)
        try:
            with interruptible(driver, stage.cast.abort, stage.relay) as pressed, limited(driver, stage.timeout):
                if stage.timeout is not None and stage.timeout <= 0:
                    driver.cancel("timeout")  # at once: nothing more begins
                result = await driver.drive(steps)
        except Suspended as suspended:
            pending = tuple(_pending(ask) for ask in suspended.asks)
        if result is not None:
            if stage.cast.settle is not None:
                await stage.cast.settle()
            await _tell(stage, result)
            if stage.recording is not None:
                recorded = await stage.recording.write(stage.setup, stage.store)
    finally:
        stage.journal.close()
        stage.store.close()
    return Executed(
        run_id=stage.setup.run_id,
        runbook=stage.setup.program.runbook.meta.name,
        mode=stage.setup.mode,
        result=result,
        events=stage.journal.events,
        trace=stage.trace,
        db=stage.options.db,
        interrupted=bool(pressed),
        scenario=recorded,
        pending=pending,
    )


def _pending(ask: Ask[Any]) -> Pending:
    return Pending(ask.ticket_id if isinstance(ask, AwaitApproval) else "", ask.step_id)


async def _tell(stage: Stage, result: RunResult) -> None:
    """Tell whoever wants to know of the outcome; nothing of it changes the run."""
    meta = stage.prepared.program.runbook.meta
    notices = notices_for(meta, stage.prepared.settings, result) if stage.setup.mode == "real" else []
    if not notices:
        return
    from gert.ecosystem.host.notices import tell  # seldom needed, and not small

    await tell(
        notices,
        stage.journal,
        stage.setup,
        result,
        trace=stage.trace,
        environ=stage.environ,
        redactor=stage.redactor,
        relay=stage.relay,
    )
