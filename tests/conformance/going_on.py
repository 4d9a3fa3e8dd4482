"""Runs that are stopped, cut off and gone on with, in memory: what a host does around the driver, and nothing else."""

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

from tests.conformance.runs import NOON
from tests.conformance.test_replay import by_place
from tests.memory_ledger import MemoryLedger

from gert.ecosystem.host.redrive.reconcile import Reconciled, reconcile_calls
from gert.ecosystem.host.run.driver.driver import Driver
from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer, read_answers
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.run.world.worlds import World
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AnyAnswer, Emit, Request
from gert.kernel.engine.run import RunResult, run
from gert.kernel.events.runbook import RunResumed
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.redaction import Redactor

LOU = Principal("human", "lou")
RESUMED = Emit(RunResumed(actor="lou", host="h", gert_version="v", answered=1), None, LOU)
OF_THE_HOST = frozenset({"run_resumed", "run_forked", "step_reconciled"})


class Batches(MemoryLedger):
    """A ledger that a process can be cut off from: a batch is there as a whole, or not at all."""

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """How many events and answers there were after each batch."""
        return [(batch.head.count, batch.head.answers) for batch in self.batches]

    def until(self, run_id: str, events: int, answers: int) -> MemoryLedger:
        """A ledger with the beginning of what is in this one."""
        return MemoryLedger.holding(run_id, self.events(run_id)[:events], self.answers(run_id)[:answers])


class Stopped:
    """A world in which somebody stops the run while so many questions have been put."""

    def __init__(self, world: World, after: int, *, within: bool) -> None:
        self._world = world
        self._left = after
        self._within = within
        self.driver: Driver | None = None

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """As the world has it."""
        return self._world.immediate(ask)

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """As the world has it; whoever answers may be the one who stops the run, or somebody beside."""
        self._left -= 1
        if self._left == 0 and self.driver is not None:
            if self._within:
                self.driver.cancel("stopped")
            else:
                asyncio.get_running_loop().call_soon(self.driver.cancel, "stopped")
        return await self._world.answer(ask)


def driven(
    setup: Setup,
    world: World,
    store: MemoryLedger,
    lanes: int,
    *,
    recorded: Iterable[RecordedAnswer] = (),
    **options: Any,
) -> RunResult:
    """Drive a run on a clock that ticks with every event."""
    ticks = itertools.count()

    async def drive() -> RunResult:
        journal = options.pop("journal", None) or Journal(
            setup.run_id, store.port, clock=lambda: NOON + 1000 * next(ticks)
        )
        driver = Driver(world, journal, max_parallel=lanes, recorded=recorded, **options)
        if isinstance(world, Stopped):
            world.driver = driver
        return await driver.drive(run(setup))

    return asyncio.run(drive())


def gone_on(setup: Setup, world: World, store: MemoryLedger, lanes: int) -> RunResult:
    """Go on with a run that was cut off; calls that may have happened are made again."""
    journal = store.resumed(setup.run_id, opening=[RESUMED], clock=lambda: NOON)
    reconciled = Reconciled(world, Sanitizer(Redactor()))

    def go_live(announced: list[Request[Any]]) -> None:
        choices = reconcile_calls(announced, {"*": "retry"})
        journal.go_live()
        for choice in choices:
            journal.say(Emit(choice.event, choice.path, None))
        reconciled.settled = {choice.key: choice for choice in choices}

    journal.on_end = lambda: go_live([])
    answers = list(read_answers(store.answers(setup.run_id)))
    return driven(setup, reconciled, store, lanes, recorded=answers, journal=journal, on_live=go_live)


def told(lines: Iterable[bytes]) -> dict[str | None, list[dict[str, Any]]]:
    """What the engine said at each place, in order; what the host said of going on is not part of it."""
    places = by_place(list(lines))
    kept = {path: [each for each in said if each["type"] not in OF_THE_HOST] for path, said in places.items()}
    return {path: said for path, said in kept.items() if said}
