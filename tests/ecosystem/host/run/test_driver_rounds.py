"""Questions put in rounds: whatever happens between two rounds, what is put is on record, and no answer is lost."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ecosystem.host.run.test_driver import (
    NONE,
    PATIENCE,
    RUN,
    Driven,
    Nobody,
    World,
    block,
    driven,
    forever,
    said,
    tool,
)
from tests.memory_ledger import MemoryLedger

from gert.ecosystem.host.run.driver.driver import CANCEL, Driver, Suspended
from gert.ecosystem.host.run.record.journal import read_answers
from gert.ecosystem.host.run.world.worlds import Detached
from gert.errors import TraceError
from gert.kernel.engine.requests import AnyAnswer, Emit, Request, RunLanes, Steps, ToolAnswer
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import decode
from gert.kernel.events.runbook import FinallyStart, RunCancelled, RunResumed
from gert.kernel.ledger.record import Batch, Expect, Write, Written

MANY = [1, 7, 8, 9, 16, 17, 50]


def announced(name: str, *, asks: int = 1) -> Steps[Any]:
    """Says what it is about to ask, asks, and says what it heard."""
    heard = []
    for number in range(asks):
        yield said(f"start {name}.{number}")
        answer = yield tool(f"{name}.{number}")
        heard.append(answer.failure.kind if answer.failure else answer.outputs.get("v"))
        yield said(f"done {name}.{number}", heard[-1])
    return heard


def told(run: Driven) -> list[tuple[str, Any]]:
    """What a run said, apart from stamps: between two rounds the clock goes on."""
    return [(event.type, event.data) for event in map(decode, run.lines)]


class Failing(MemoryLedger):
    """A ledger that may fail after so many batches."""

    def __init__(self, after: int | None = None) -> None:
        super().__init__()
        self.left = after

    def keep(self, batch: Batch) -> None:
        if self.left == 0:
            raise TraceError("the trace cannot be written: no space left on device")
        if self.left is not None:
            self.left -= 1

    def names(self) -> list[str]:
        return [str(decode(line).data.get("name")) for line in self.events(RUN)]


class Checking(World):
    """A world that is asked nothing that is not on record, with every answer it gave before to the same lane."""

    def __init__(
        self, store: MemoryLedger, answer: Callable[[Request[Any]], Awaitable[AnyAnswer]] | None = None
    ) -> None:
        super().__init__(answer)
        self._store = store

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        names = [decode(line).data.get("name") for line in self._store.events(RUN)]
        assert f"start {ask.key}" in names, f"`{ask.key}` is not announced"
        lane, _, number = ask.key.rpartition(".")
        logged = {entry.key for entry in read_answers(self._store.answers(RUN))}
        assert {f"{lane}.{each}" for each in range(int(number))} <= logged, f"answers before `{ask.key}` are not kept"
        return await super().answer(ask)


@pytest.fixture(params=["at once", "later"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the disk is waited for, where anything is under way."""
    if request.param != "at once":
        monkeypatch.setattr(MemoryLedger, "turns", 3)
    return str(request.param)


def some_turns(seed: int, values: int = 100) -> Callable[[Request[Any]], Awaitable[AnyAnswer]]:
    chance = random.Random(seed)

    async def answer(ask: Request[Any]) -> AnyAnswer:
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        return ToolAnswer(outputs={"v": chance.randrange(values)}, duration=0.5)

    return answer


# --- durable first


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("most", MANY)
@pytest.mark.parametrize("seed", range(3))
def test_no_question_is_put_before_it_is_announced_on_disk(most: int, seed: int) -> None:
    store = Failing()
    world = Checking(store, some_turns(seed))
    inner = block(*(announced(f"in{each}", asks=2) for each in range(12)))
    run = driven(
        block(*(announced(str(each), asks=3) for each in range(30)), inner), world, store=store, max_parallel=most
    )
    assert "internal" not in str(run.result)
    assert world.most <= most
    assert len(world.asked) == len(set(world.asked)) == 30 * 3 + 12 * 2
    assert read_chain(run.lines).break_count == 0


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("most", [8, 9, 50])
@pytest.mark.parametrize("after", range(8))
def test_a_disk_that_fills_up_between_two_rounds_stops_what_was_put_and_puts_no_more(after: int, most: int) -> None:
    store = Failing(after)
    world = Checking(store, some_turns(after))
    with pytest.raises(TraceError, match="no space left"):
        driven(block(*(announced(str(each), asks=8) for each in range(80))), world, store=store, max_parallel=most)
    assert world.open == 0
    # Every question follows a batch that was written, and no more than one round follows one batch.
    assert len(world.asked) <= most * after


# --- the same again


@st.composite
def wide_programs(draw: st.DrawFn) -> Callable[[], Steps[Any]]:
    """Blocks of many lanes, some of which wait for others or have blocks of their own."""
    shape = [
        (draw(st.integers(1, 3)), draw(st.booleans()) and draw(st.integers(2, 12)))
        for _ in range(draw(st.integers(6, 30)))
    ]
    after = tuple(
        draw(st.frozensets(st.integers(0, index - 1), max_size=1)) if index and draw(st.booleans()) else NONE
        for index in range(len(shape))
    )

    def one(name: str, asks: int, inner: int) -> Steps[Any]:
        heard = yield from announced(name, asks=asks)
        if inner:
            heard.append((yield from block(*(announced(f"{name}/{each}") for each in range(inner)))))
        return heard

    def run() -> Steps[Any]:
        lanes = tuple(one(str(index), asks, inner or 0) for index, (asks, inner) in enumerate(shape))
        heard = yield RunLanes(lanes, after)
        yield said("joined")
        return heard

    return run


class Some(World):
    """Answers some questions at once."""

    def __init__(self, seed: int, share: float) -> None:
        super().__init__(some_turns(seed))
        self._chance = random.Random(seed)
        self._share = share

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        return ToolAnswer(outputs={"v": "at once"}, duration=0.25) if self._chance.random() < self._share else None


@given(wide_programs(), st.integers(0, 10**6), st.sampled_from([0.0, 0.2]), st.sampled_from(MANY), st.data())
def test_a_wide_run_is_driven_again_from_its_log_or_a_part_of_it(
    program: Callable[[], Steps[Any]], seed: int, share: float, most: int, data: st.DataObject
) -> None:
    first = driven(program(), Some(seed, share), max_parallel=most)
    again = driven(program(), Nobody(), recorded=first.log, max_parallel=most)
    assert (again.result, told(again), again.log) == (first.result, told(first), first.log)
    cut = data.draw(st.integers(0, len(first.log)))
    resumed = driven(program(), Some(seed + 1, share), recorded=first.log[:cut], max_parallel=most)
    assert resumed.log[:cut] == first.log[:cut]
    assert told(driven(program(), Nobody(), recorded=resumed.log, max_parallel=most)) == told(resumed)


@given(wide_programs(), st.integers(0, 10**6), st.integers(0, 25), st.sampled_from(MANY))
def test_a_wide_run_that_is_cancelled_between_rounds_is_driven_again_to_the_same_lines(
    program: Callable[[], Steps[Any]], seed: int, when: int, most: int
) -> None:
    async def stop(driver: Driver) -> None:
        for _ in range(when):
            await asyncio.sleep(0)
        driver.cancel("stop")

    def run() -> Steps[Any]:
        heard = yield from program()
        yield Emit(FinallyStart(status="completed", step_count=10), None, None)
        last = yield from block(*(announced(f"finally{each}") for each in range(10)))
        yield Emit(RunCancelled(reason="told"), None, None)
        return heard, last

    first = driven(run(), Some(seed, 0.1), max_parallel=most, meanwhile=stop)
    again = driven(run(), Nobody(), recorded=first.log, max_parallel=most)
    assert (again.result, told(again), again.log) == (first.result, told(first), first.log)
    assert [entry.key for entry in first.log].count(CANCEL) <= 1


# --- going on


def resumed(store: MemoryLedger, steps: Steps[Any], world: World, most: int) -> tuple[Any, list[str]]:
    """Go on with a run as `gert resume` does; what it came to, and the questions that were in doubt."""
    doubted: list[str] = []

    async def drive() -> Any:
        opening = Emit(RunResumed(actor="a", host="h", gert_version="g", answered=0), None, None)
        journal = store.resumed(RUN, opening=[opening])

        def on_live(asks: list[Request[Any]]) -> None:
            doubted.extend(ask.key for ask in asks)
            journal.go_live()

        driver = Driver(
            world, journal, max_parallel=most, recorded=list(read_answers(store.answers(RUN))), on_live=on_live
        )
        async with asyncio.timeout(PATIENCE):
            try:
                return await driver.drive(steps)
            finally:
                journal.close()

    return asyncio.run(drive()), doubted


class Killed(BaseException):
    """The process is gone."""


class Dying(Failing):
    """A store whose process is killed right after so many batches, with what it was asked by then."""

    def keep(self, batch: Batch) -> None:
        if self.left == 0:
            raise Killed
        super().keep(batch)


def killed_after(batches: int, most: int, steps: Steps[Any], seed: int) -> tuple[MemoryLedger, list[str]]:
    """A run that was killed; what is on record, and what had been put."""
    store = Dying(batches)
    world = Checking(store, some_turns(seed))
    with contextlib.suppress(Killed):
        driven(steps, world, store=store, max_parallel=most)
    return MemoryLedger.holding(RUN, store.events(RUN), store.answers(RUN)), world.asked


@pytest.mark.parametrize("most", [1, 8, 9, 50])
@pytest.mark.parametrize("batches", [1, 2, 3, 5, 8, 13])
def test_what_was_put_before_a_kill_between_rounds_is_in_doubt_and_what_was_not_is_not(batches: int, most: int) -> None:
    def steps() -> Steps[Any]:
        return block(*(announced(str(each), asks=2) for each in range(30)))

    store, put = killed_after(batches, most, steps(), batches)
    on_record = [str(decode(line).data.get("name")) for line in store.events(RUN)]
    answered = {entry.key for entry in read_answers(store.answers(RUN))}
    world = Checking(store, some_turns(1))
    result, doubted = resumed(store, steps(), world, most)
    assert set(put) - answered <= set(doubted)
    assert all(f"start {key}" in on_record for key in doubted)
    assert answered.isdisjoint(world.asked)
    assert all(len(heard) == 2 for heard in result)
    assert read_chain(store.events(RUN)).break_count == 0
    # Driven once more, it is all there, in the order it was written.
    again, nothing = resumed(store, steps(), Nobody(), most)
    assert (again, nothing) == (result, [])


# --- waiting for somebody


class Waits(World):
    """Waits for nobody: questions that begin with `w` stay open."""

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        if ask.key.startswith("w"):
            self.asked.append(ask.key)
            raise Detached
        return await super().answer(ask)


def suspended(steps: Steps[Any], world: World, store: MemoryLedger, **options: Any) -> list[str]:
    with pytest.raises(Suspended) as caught:
        driven(steps, world, store=store, **options)
    return sorted(ask.key for ask in caught.value.asks)


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("most", [8, 9, 50])
def test_a_run_is_set_aside_only_when_everything_else_is_done_and_kept(most: int) -> None:
    def lanes() -> Iterable[Steps[Any]]:
        return (announced(f"{'w' if each % 10 == 3 else 'x'}{each}", asks=2) for each in range(40))

    store = Failing()
    world = Waits(some_turns(5))
    waiting = suspended(block(*lanes()), world, store, max_parallel=most)
    logged = {entry.key for entry in read_answers(store.answers(RUN))}
    assert set(waiting) == {key for key in world.asked if key.startswith("w")}
    assert logged == {key for key in world.asked if key.startswith("x")}, "an answer was lost"
    if most > 4:
        assert len(waiting) == 4


def test_an_answer_that_comes_while_the_disk_is_waited_for_is_not_lost_when_the_run_is_set_aside() -> None:
    come = asyncio.Event()

    class Slow(Failing):
        """Lets the slow tool answer while the end of the quick one is being written."""

        async def append(
            self, run_id: str, write: Write, *, expects: Sequence[Expect] = (), adopt: bool = False
        ) -> Written:
            written = await super().append(run_id, write, expects=expects, adopt=adopt)
            if any(b"done quick" in event.line for event in written.batch.events):
                come.set()
                for _ in range(5):
                    await asyncio.sleep(0)
            return written

    store = Slow()

    async def answer(ask: Request[Any]) -> AnyAnswer:
        if ask.key == "slow.0":
            await come.wait()
        return ToolAnswer(outputs={"v": 1}, duration=1.0)

    waiting = suspended(block(announced("w"), announced("slow"), announced("quick")), Waits(answer), store)
    assert waiting == ["w.0"]
    assert {entry.key for entry in read_answers(store.answers(RUN))} == {"slow.0", "quick.0"}
    assert "done slow.0" in store.names()


def test_a_world_that_leaves_a_question_open_when_it_is_cancelled_does_not_keep_the_run_from_ending() -> None:
    async def leaves(ask: Request[Any]) -> AnyAnswer:
        try:
            return await forever(ask)
        except asyncio.CancelledError:
            raise Detached from None

    world = World(leaves)

    async def stop(driver: Driver) -> None:
        while len(world.asked) < 2:
            await asyncio.sleep(0)
        driver.cancel("stop")

    run = driven(block(announced("a"), announced("b")), world, meanwhile=stop)
    assert run.result == (["cancelled"], ["cancelled"])


# --- what goes wrong


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("which", [0, 7, 8, 9, 19])
def test_a_lane_that_raises_between_rounds_ends_what_was_put(which: int) -> None:
    def bad() -> Steps[Any]:
        yield said("bad")
        raise ZeroDivisionError("a bug in the run")

    store = Failing()
    world = Checking(store, forever)
    lanes = [announced(str(each)) for each in range(20)]
    lanes[which] = bad()
    with pytest.raises(ZeroDivisionError):
        driven(block(*lanes), world, store=store, max_parallel=50)
    assert world.open == 0
    assert "bad" in store.names()


@pytest.mark.usefixtures("disk")
def test_questions_of_every_round_have_their_own_time() -> None:
    def timed(name: str) -> Steps[Any]:
        yield said(f"start {name}.0")
        answer = yield tool(f"{name}.0", 0.05)
        return answer.failure.kind if answer.failure else None

    store = Failing()
    world = Checking(store, forever)
    run = driven(block(*(timed(str(each)) for each in range(20))), world, store=store, max_parallel=50)
    assert run.result == ("timeout",) * 20
    assert world.open == 0


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("most", [8, 9, 50])
def test_a_cancellation_between_rounds_starts_no_request_and_answers_every_one(most: int) -> None:
    store = Failing()
    world = Checking(store, forever)

    async def stop(driver: Driver) -> None:
        while not world.asked:
            await asyncio.sleep(0)
        driver.cancel("stop")

    run = driven(
        block(*(announced(str(each)) for each in range(60))), world, store=store, max_parallel=most, meanwhile=stop
    )
    assert set(map(str, run.result)) <= {"['cancelled']", "None"}
    assert len(world.asked) == 8
    again = driven(block(*(announced(str(each)) for each in range(60))), Nobody(), recorded=run.log, max_parallel=most)
    assert (again.result, told(again), again.log) == (run.result, told(run), run.log)
