"""Replaying a scenario: a world that answers from a script, and starts and opens nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gert.ecosystem.host.run.driver.driver import Driver
from gert.ecosystem.host.run.driver.signals import limited
from gert.ecosystem.host.run.record.journal import RecordedAnswer, without_references
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.scenarios.folders import Loaded
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AnyAnswer, Emit, Request
from gert.kernel.engine.run import RunResult, run
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.ledger.record import Claim
from gert.kernel.runbook.documents.scenario import Scenario
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.scenario.script import Script


class Replay:
    """A world that answers at once, from a script; lanes so run in the order they are declared."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._intake = Sanitizer(Redactor())
        self._taken: dict[int, tuple[AnyAnswer, AnyAnswer]] = {}

    def immediate(self, ask: Request[Any]) -> AnyAnswer:
        """The next answer, taken in like any other: what a contract calls secret is not kept here either."""
        answer = self._script.answer(ask)
        # One answer may stand for thousands of calls; a script keeps those, so their identity can name them.
        known = self._taken.get(id(answer))
        if known is None or known[0] is not answer:
            known = self._taken[id(answer)] = (answer, self._intake.take(answer, ask))
        return known[1]

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """The same, for those who wait."""
        return self.immediate(ask)


class Tape:
    """Keeps nothing of a run but what is seen of it."""

    is_full = False
    repeats = False

    def __init__(self, seen: RunObservation, *, has_secrets: bool = False) -> None:
        self.seen = seen
        self._has_secrets = has_secrets

    @property
    def events(self) -> int:
        """How many events were said."""
        return self.seen.events

    def say(self, said: Emit) -> None:
        """See it."""
        payload = without_references(said.payload) if self._has_secrets else said.payload
        self.seen.take(payload, said.path)

    def log(self, entry: RecordedAnswer) -> None:
        """Answers are in the scenario already."""

    async def confirm(self) -> None:
        """A replay has no ledger, and no other driver."""

    async def settle(self, claims: Sequence[Claim] = ()) -> Mapping[str, int]:
        """There is nothing to wait for, and no limit to claim."""
        return {}


class Replayed(msgspec.Struct, frozen=True):
    """What a replay led to.

    missing: requests without an answer, in words
    unused: answers that were not requested
    approved_by_default: steps that needed an approval the scenario says nothing about
    timed_out: whether it was stopped because its time was over, wherever it was by then
    """

    result: RunResult
    seen: RunObservation
    missing: list[str]
    unused: list[str]
    approved_by_default: list[str]
    timed_out: bool = False


class _Clock:
    """Stops a replay whose time is over, and knows that it did: what it says of itself may be the scenario's word."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.is_over = False

    def cancel(self, reason: str) -> None:
        """Stop what is under way, also in `finally`: a replay changes nothing that would have to be put right."""
        self.is_over = True
        self._driver.cancel(reason, even_finally=True)


def script_for(scenario: Scenario, setup: Setup) -> Script:
    """The script of a scenario, for one run."""
    return Script(scenario, setup.program, setup.actor)


async def replay(loaded: Loaded, setup: Setup, timeout: float | None = None) -> Replayed:
    """Run a runbook on a scenario; a run that takes longer than the timeout is cancelled."""
    script = script_for(loaded.scenario, setup)
    seen = RunObservation(loaded.expected.expected_events if loaded.expected is not None else ())
    driver = Driver(Replay(script), Tape(seen, has_secrets=bool(setup.secret_inputs)))
    clock = _Clock(driver)
    with limited(clock, timeout):
        result = await driver.drive(run(setup))
    return Replayed(result, seen, script.missing, list(script.unused()), script.approved_by_default, clock.is_over)
