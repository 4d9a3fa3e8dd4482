"""The output of running steps: written in batches, bounded, and dropped with the answer."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from tests.memory_ledger import MemoryLedger

from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer, path_of
from gert.ecosystem.host.run.record.live_output import EVERY, QUICK, LiveOutput
from gert.errors import Unavailable
from gert.kernel.engine.requests import Emit, ToolAnswer
from gert.kernel.events import runbook as says
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import MAX_OUTPUT, Output

RUN = "run-1"


class Noting:
    """A ledger that notes what is written, or refuses it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.writes: list[list[Output]] = []
        self._fails = fails

    async def write_output(self, run_id: str, pieces: Sequence[Output]) -> None:
        assert run_id == RUN
        if self._fails:
            raise Unavailable("the server is gone")
        self.writes.append(list(pieces))

    @property
    def port(self) -> Ledger:
        return cast("Ledger", self)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def flushed(live: LiveOutput) -> None:
    """As the timer does, and wait for the write."""
    live._flush()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_output_of_a_step_is_written_together_once_it_has_run_for_a_while() -> None:
    async def work() -> None:
        clock, ledger = Clock(), Noting()
        live = LiveOutput(RUN, clock=clock)
        live.begin(ledger.port)
        live.printed("a", "stdout", "one\n")
        flushed(live)
        await turn()
        assert ledger.writes == []
        clock.now = QUICK
        live.printed("a", "stdout", "two\n")
        live.printed("a", "stderr", "bad\n")
        flushed(live)
        await turn()
        assert ledger.writes == [[Output("a", "stdout", "one\ntwo\n"), Output("a", "stderr", "bad\n")]]
        assert (live.ended("a"), live.ended("a")) == (["a"], [])
        live.close()

    asyncio.run(work())


def test_a_timer_writes() -> None:
    async def work() -> list[list[Output]]:
        ledger = Noting()
        live = LiveOutput(RUN)
        live.begin(ledger.port)
        live.printed("a", "stdout", "x")
        await asyncio.sleep(QUICK + 3 * EVERY)
        live.close()
        return ledger.writes

    assert asyncio.run(work()) == [[Output("a", "stdout", "x")]]


def test_a_step_that_has_ended_is_not_written_any_more() -> None:
    async def work() -> None:
        clock, ledger = Clock(), Noting()
        live = LiveOutput(RUN, clock=clock)
        live.begin(ledger.port)
        live.printed("a", "stdout", "x")
        clock.now = 9.0
        assert live.ended("a") == []
        flushed(live)
        await turn()
        assert ledger.writes == []
        live.close()

    asyncio.run(work())


def test_what_waits_is_bounded() -> None:
    async def work() -> list[list[Output]]:
        clock, ledger = Clock(), Noting()
        live = LiveOutput(RUN, clock=clock)
        live.begin(ledger.port)
        for number in range(100):
            live.printed("a", ("stdout", "stderr")[number % 2], str(number % 10) * 8000)
        live.printed("b", "stdout", "x" * (3 * MAX_OUTPUT) + "end")
        clock.now = 9.0
        flushed(live)
        await turn()
        live.close()
        return ledger.writes

    [pieces] = asyncio.run(work())
    assert sum(len(piece.text) for piece in pieces if piece.key == "a") <= MAX_OUTPUT
    [last] = [piece.text for piece in pieces if piece.key == "b"]
    assert (len(last), last[-3:]) == (MAX_OUTPUT, "end")


def test_a_ledger_that_cannot_be_written_does_not_stop_the_run() -> None:
    async def work() -> None:
        clock = Clock()
        live = LiveOutput(RUN, clock=clock)
        live.begin(Noting(fails=True).port)
        live.printed("a", "stdout", "x")
        clock.now = 9.0
        flushed(live)
        await turn()
        live.close()

    asyncio.run(work())


def test_the_journal_drops_the_output_with_the_answer() -> None:
    async def work() -> MemoryLedger:
        ledger = MemoryLedger()
        live = LiveOutput(RUN, ["a/b[0]"])
        journal = Journal(RUN, ledger.port, live=live)
        journal.say(Emit(says.InputResolved(name="x", source="cli"), None, None))
        journal.log(RecordedAnswer("other", ToolAnswer()))
        journal.log(RecordedAnswer("a~2/b[0]#3", ToolAnswer(stdout="x")))
        await journal.settle()
        journal.close()
        return ledger

    [batch] = asyncio.run(work()).batches
    assert list(batch.finished) == ["a/b[0]"]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a", "a"),
        ("a#2", "a"),
        ("a~2", "a"),
        ("a~2#3", "a"),
        ("r/1/a", "r/1/a"),
        ("r~2/1/a~3#4", "r/1/a"),
        ("each[x]/a#2", "each[x]/a"),
        ("parallel#1/0/a#2", "parallel#1/0/a"),
    ],
)
def test_the_path_of_a_request(key: str, path: str) -> None:
    assert path_of(key) == path
