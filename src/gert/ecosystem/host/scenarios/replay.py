"""Replay a scenario: a redrive of a new run whose requests a script answers; nothing is started or opened.

`gert test` and `gert diff` use it. A scenario has no recorded answers: it names them by tool, step or input, so the
script finds the answer to each request, and there is no record to compare events with.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gert.ecosystem.host.redrive.redrive import Then, redrive
from gert.ecosystem.host.run.driver.signals import limited
from gert.ecosystem.host.run.record.journal import RecordedAnswer, without_references
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.scenarios.folders import Loaded
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AnyAnswer, Emit, Request
from gert.kernel.engine.run import RunResult
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
        # One answer may serve thousands of calls; the script keeps it alive, so its identity is a valid key.
        known = self._taken.get(id(answer))
        if known is None or known[0] is not answer:
            known = self._taken[id(answer)] = (answer, self._intake.take(answer, ask))
        return known[1]

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """The same, as a coroutine."""
        return self.immediate(ask)


class ReplayJournal:
    """Records nothing; passes each event to the observation of the run."""

    is_full = False
    repeats = False

    def __init__(self, seen: RunObservation, *, has_secrets: bool = False) -> None:
        self.seen = seen
        self._has_secrets = has_secrets

    @property
    def events(self) -> int:
        """How many events were emitted."""
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

    missing: requests without an answer, as text
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


class _Script(Then):
    """Answers every request of a new run from a script, and cancels the run when its time is over.

    timed_out: whether it was cancelled; the result of the run may be what the scenario says
    """

    def __init__(self, script: Script) -> None:
        self.world = Replay(script)
        self.timed_out = False

    def begin(self, announced: list[Request[Any]]) -> None:
        """Nothing is recorded: the script answers from the first request on."""

    def cancel(self, reason: str) -> None:
        """Cancel the run, also in `finally`: a replay changes nothing that would have to be cleaned up."""
        self.timed_out = True
        if self.driver is not None:
            self.driver.cancel(reason, even_finally=True)


def script_for(scenario: Scenario, setup: Setup) -> Script:
    """The script of a scenario, for one run."""
    return Script(scenario, setup.program, setup.actor)


async def replay(loaded: Loaded, setup: Setup, timeout: float | None = None) -> Replayed:
    """Run a runbook on a scenario; a run that takes longer than the timeout is cancelled."""
    script = script_for(loaded.scenario, setup)
    wanted = loaded.expected.expected_events if loaded.expected is not None else ()
    seen = RunObservation(wanted, setup.program, setup.policies)
    journal, then = ReplayJournal(seen, has_secrets=bool(setup.secret_inputs)), _Script(script)
    with limited(then, timeout):
        result = await redrive(setup, None, journal, then)
    return Replayed(result, seen, script.missing, list(script.unused()), script.approved_by_default, then.timed_out)
