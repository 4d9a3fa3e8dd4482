"""The driver: what is written depends on the run and the order of answers alone, whatever happens on the way."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.memory_ledger import MemoryLedger
from tests.soak import examples

from gert.ecosystem.host.run.driver.driver import CANCEL, Driver
from gert.ecosystem.host.run.record.journal import MOST_WAITING, Journal, RecordedAnswer, read_answers
from gert.errors import InputError, IntegrityError, TraceError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import (
    AnyAnswer,
    CallTool,
    Emit,
    Pause,
    PauseAnswer,
    Request,
    RunLanes,
    Steps,
    ToolAnswer,
)
from gert.kernel.engine.run import run
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import MAX_LINE_BYTES, decode
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import Failure, InputResolved, RunCancelled, RunStart
from gert.kernel.foundation.canonical import digest
from gert.kernel.governance.contract import Contract
from gert.kernel.ledger.record import Batch
from gert.kernel.runbook.document import load
from gert.kernel.runbook.program import Program, ToolLookup

RUN = "run-1"
NONE: frozenset[int] = frozenset()
PATIENCE = 10.0
"""How long anything may take before it counts as hanging."""


def tool(key: str, timeout: float | None = None) -> CallTool:
    return CallTool(
        key=key, path=key, step_id=key, timeout=timeout, tool="t", action="a", inputs={}, contract=Contract()
    )


def said(what: str, value: Any = None) -> Emit:
    return Emit(InputResolved(name=what, source="cli", value=value), None, None)


def lane(name: str, *, asks: int = 1) -> Steps[Any]:
    """Asks, and says what it heard."""
    heard = []
    for number in range(asks):
        answer = yield tool(f"{name}.{number}")
        heard.append(answer.failure.kind if answer.failure else answer.outputs.get("v"))
        yield said(f"{name}.{number}", heard[-1])
    return heard


def block(*lanes: Steps[Any], after: tuple[frozenset[int], ...] | None = None) -> Steps[Any]:
    return (yield RunLanes(lanes, after or (NONE,) * len(lanes)))


class World:
    """Answers when it is told to, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Request[Any]], Awaitable[AnyAnswer]] | None = None) -> None:
        self.asked: list[str] = []
        self.most = 0
        self.open = 0
        self._answer = answer

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        return None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        self.asked.append(ask.key)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if self._answer is not None:
                return await self._answer(ask)
            return ToolAnswer(outputs={"v": ask.key}, duration=1.0)
        finally:
            self.open -= 1


class Immediate(World):
    """Answers at once."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        self.asked.append(ask.key)
        return ToolAnswer(outputs={"v": ask.key}, duration=1.0)


class Nobody(World):
    """A world that must not be asked."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        raise AssertionError(f"`{ask.key}` was asked")


class Driven:
    """What a run came to."""

    def __init__(self, result: Any, store: MemoryLedger) -> None:
        self.result = result
        self.lines = list(store.events(RUN))
        self.log = list(read_answers(store.answers(RUN)))

    @property
    def says(self) -> list[tuple[str, Any]]:
        return [(data["name"], data.get("value")) for line in self.lines for data in [decode(line).data]]


def driven(
    steps: Steps[Any],
    world: World,
    *,
    recorded: Iterable[RecordedAnswer] = (),
    max_parallel: int = 16,
    meanwhile: Callable[[Driver], Awaitable[object]] | None = None,
    store: MemoryLedger | None = None,
    on_rest: Callable[[list[str]], object] | None = None,
) -> Driven:
    """Drive on a clock that ticks with every event; `meanwhile` runs beside it."""
    kept = store or MemoryLedger()
    ticks = iter(range(10**9))

    async def drive() -> Any:
        journal = Journal(RUN, kept.port, clock=lambda: 1_772_280_000_000_000 + 1000 * next(ticks))
        driver = Driver(world, journal, max_parallel=max_parallel, recorded=recorded, on_rest=on_rest)
        beside = asyncio.ensure_future(meanwhile(driver)) if meanwhile is not None else None
        async with asyncio.timeout(PATIENCE):
            try:
                return await driver.drive(steps)
            finally:
                journal.close()
                if beside is not None:
                    beside.cancel()
                    await asyncio.gather(beside, return_exceptions=True)
                assert asyncio.all_tasks() == {asyncio.current_task()}, "something is still under way"

    result = asyncio.run(drive())
    return Driven(result, kept)


# --- the same again


@st.composite
def programs(draw: st.DrawFn, name: str = "r", depth: int = 2) -> Callable[[], Steps[Any]]:
    """A program of asks, words and blocks; made anew each time it is called."""
    parts: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["ask", "say", "block", "ask"] if depth else ["ask", "say"]))
        if kind == "block":
            lanes = [draw(programs(f"{name}.{number}.{each}", depth - 1)) for each in range(draw(st.integers(0, 4)))]
            after = tuple(
                draw(st.frozensets(st.integers(0, index - 1), max_size=1)) if index else NONE
                for index in range(len(lanes))
            )
            parts.append((lanes, after))
        else:
            parts.append((kind, f"{name}.{number}"))

    def run() -> Steps[Any]:
        heard = []
        for first, second in parts:
            if first == "ask":
                answer = yield tool(second)
                heard.append(answer.outputs.get("v"))
                yield said(second, heard[-1])
            elif first == "say":
                yield said(second)
            else:
                heard.append((yield RunLanes(tuple(each() for each in first), second)))
                yield said(name, len(first))
        return heard

    return run


def delays(seed: int, share: float) -> World:
    """A world whose answers come in any order; some at once."""
    chance = random.Random(seed)

    async def answer(ask: Request[Any]) -> AnyAnswer:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            await asyncio.sleep(0.001)
        return ToolAnswer(outputs={"v": chance.randrange(100)}, duration=0.5)

    class Some(World):
        def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
            at_once = chance.random() < share
            return ToolAnswer(outputs={"v": chance.randrange(100)}, duration=0.25) if at_once else None

    return Some(answer)


@settings(max_examples=examples(20))
@given(programs(), st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 4), st.data())
def test_a_run_that_is_driven_again_from_its_log_writes_the_same_lines(
    program: Callable[[], Steps[Any]], seed: int, share: float, most: int, data: st.DataObject
) -> None:
    first = driven(program(), delays(seed, share), max_parallel=most)
    again = driven(program(), Nobody(), recorded=first.log, max_parallel=most)
    assert (again.result, again.lines, again.log) == (first.result, first.lines, first.log)
    # From a part of the log, the beginning is the same, and the rest is live.
    cut = data.draw(st.integers(0, len(first.log)))
    resumed = driven(program(), delays(seed + 1, share), recorded=first.log[:cut], max_parallel=most)
    assert resumed.log[:cut] == first.log[:cut]
    assert sorted(each.key for each in resumed.log) == sorted(each.key for each in first.log)
    third = driven(program(), Nobody(), recorded=resumed.log, max_parallel=most)
    assert third.lines == resumed.lines


@settings(max_examples=examples(20))
@given(programs(), st.integers(0, 10**6), st.integers(0, 12), st.integers(1, 3))
def test_a_run_that_was_cancelled_is_driven_again_to_the_same_lines(
    program: Callable[[], Steps[Any]], seed: int, when: int, most: int
) -> None:
    async def stop(driver: Driver) -> None:
        for _ in range(when):
            await asyncio.sleep(0)
        driver.cancel("stop")

    def run() -> Steps[Any]:
        heard = yield from program()
        yield Emit(RunCancelled(reason="told"), None, None)
        answer = yield tool("finally")
        yield said("finally", answer.failure is None)
        return heard

    first = driven(run(), delays(seed, 0.1), max_parallel=most, meanwhile=stop)
    again = driven(run(), Nobody(), recorded=first.log, max_parallel=most)
    assert (again.result, again.lines, again.log) == (first.result, first.lines, first.log)


def test_answers_are_taken_in_the_order_they_came() -> None:
    async def answer(ask: Request[Any]) -> AnyAnswer:
        for _ in range({"a": 5, "b": 1, "c": 3}[ask.key[0]]):
            await asyncio.sleep(0)
        return ToolAnswer(outputs={"v": ask.key}, duration=1.0)

    run = driven(block(lane("a"), lane("b"), lane("c")), World(answer))
    assert [each.key for each in run.log] == ["b.0", "c.0", "a.0"]
    assert run.result == (["a.0"], ["b.0"], ["c.0"])


def test_a_run_that_rests_says_what_it_waits_for_in_the_order_of_lanes() -> None:
    release, rests = asyncio.Event(), list[list[str]]()

    async def answer(ask: Request[Any]) -> AnyAnswer:
        if ask.key not in ("a.0", "c.0"):
            await release.wait()
        return ToolAnswer(outputs={"v": ask.key})

    def on_rest(keys: list[str]) -> None:
        rests.append(keys)
        if keys == ["a.1", "b.0", "c.1"]:
            release.set()

    steps = block(block(lane("a", asks=2), lane("b")), lane("c", asks=2))
    driven(steps, World(answer), on_rest=on_rest)
    assert ["a.1", "b.0", "c.1"] in rests


def test_where_answers_come_at_once_lanes_run_in_the_order_they_are_written() -> None:
    run = driven(block(lane("a", asks=2), lane("b", asks=2)), Immediate())
    assert [name for name, _ in run.says] == ["a.0", "a.1", "b.0", "b.1"]
    assert all(each.at_once for each in run.log)


def test_the_chain_of_what_was_written_holds() -> None:
    run = driven(block(*(lane(str(i), asks=3) for i in range(5))), delays(7, 0.2))
    assert read_chain(run.lines).break_count == 0


# --- logs


def logged(*keys: str, at_once: bool = False) -> list[RecordedAnswer]:
    return [RecordedAnswer(key, ToolAnswer(outputs={"v": f"log {key}"}, duration=1.0), at_once) for key in keys]


@pytest.mark.parametrize(
    ("recorded", "key"),
    [
        pytest.param(logged("other"), "other", id="an answer to a question the run does not ask"),
        pytest.param(logged("a.0", "a.0"), "a.0", id="two answers to one question"),
        pytest.param(logged("a.1"), "a.1", id="an answer to a later question"),
        pytest.param(logged("other", at_once=True), "other", id="an answer at once to nothing that is asked"),
        pytest.param(logged("b.0", "a.0", "b.0"), "b.0", id="an answer that came before"),
    ],
)
def test_a_log_that_does_not_fit_is_refused(recorded: list[RecordedAnswer], key: str) -> None:
    with pytest.raises(IntegrityError, match=f"replay diverged at event .*: an answer to `{key}` is recorded"):
        driven(block(lane("a", asks=2), lane("b", asks=2)), World(), recorded=recorded)


def test_a_log_that_is_shorter_than_the_run_is_taken_first_and_the_rest_is_asked() -> None:
    world = World()
    run = driven(lane("a", asks=3), world, recorded=logged("a.0", "a.1"))
    assert run.result == ["log a.0", "log a.1", "a.2"]
    assert world.asked == ["a.2"]
    assert [each.key for each in run.log] == ["a.0", "a.1", "a.2"]


def test_questions_of_several_lanes_at_the_end_of_a_log_are_all_asked() -> None:
    world = World()
    run = driven(block(lane("a"), lane("b"), lane("c")), world, recorded=logged("b.0"))
    assert sorted(world.asked) == ["a.0", "c.0"]
    assert run.result == (["a.0"], ["log b.0"], ["c.0"])


def test_a_complete_log_makes_no_live_request() -> None:
    run = driven(lane("a", asks=2), Nobody(), recorded=logged("a.0", "a.1"))
    assert run.result == ["log a.0", "log a.1"]


# --- cancelling


async def forever(ask: Request[Any]) -> AnyAnswer:
    await asyncio.Event().wait()
    raise AssertionError


def once_asked(world: World, *keys: str) -> Callable[[Driver], Awaitable[object]]:
    """Cancel as soon as these questions are open."""

    async def stop(driver: Driver) -> None:
        while not set(keys) <= set(world.asked):
            await asyncio.sleep(0)
        driver.cancel("stop")

    return stop


def with_finally(steps: Steps[Any], name: str = "after") -> Steps[Any]:
    """A run as the engine makes it: it says that it was cancelled, then asks what it always asks."""
    heard = yield from steps
    yield Emit(RunCancelled(reason="stop"), None, None)
    last = yield from lane(name)
    return heard, last


def test_a_cancellation_before_the_first_question_leaves_the_world_alone() -> None:
    world = World()

    def meanwhile(driver: Driver) -> Awaitable[object]:
        driver.cancel("stop")
        return asyncio.sleep(0)

    run = driven(lane("a", asks=2), world, meanwhile=meanwhile)
    assert run.result == ["cancelled", "cancelled"]
    assert world.asked == []


def test_a_cancellation_answers_every_open_question() -> None:
    world = World(forever)
    run = driven(block(lane("a", asks=2), lane("b")), world, meanwhile=once_asked(world, "a.0", "b.0"))
    assert run.result == (["cancelled", "cancelled"], ["cancelled"])
    assert sorted(world.asked) == ["a.0", "b.0"]
    assert run.log[0].key == CANCEL


def test_a_question_that_is_cancelled_took_as_long_as_it_was_open() -> None:
    world = World(forever)

    async def stop(driver: Driver) -> None:
        await asyncio.sleep(0.02)
        driver.cancel("stop")

    run = driven(lane("a"), world, meanwhile=stop)
    [asked] = [entry.answer for entry in run.log if entry.key == "a.0"]
    assert asked.failure == Failure("cancelled", "stop")
    assert asked.duration >= 0.02


def test_a_cancellation_together_with_an_answer_leaves_the_next_question_unasked() -> None:
    driver_of: list[Driver] = []

    async def answer(ask: Request[Any]) -> AnyAnswer:
        if ask.key == "a.0":
            # Both arrive before the driver looks up: first the answer, then the cancellation.
            asyncio.get_running_loop().call_soon(driver_of[0].cancel, "stop")
            return ToolAnswer(outputs={"v": 1}, duration=1.0)
        return await forever(ask)

    async def keep(driver: Driver) -> None:
        driver_of.append(driver)

    world = World(answer)
    run = driven(lane("a", asks=2), world, meanwhile=keep)
    assert run.result == [1, "cancelled"]
    assert world.asked == ["a.0"]


def test_a_log_that_ends_with_the_cancellation_cancels_what_was_open() -> None:
    world = World()
    cancel = RecordedAnswer(CANCEL, PauseAnswer(failure=Failure("cancelled", "stop")))
    run = driven(block(lane("a"), lane("b", asks=2)), world, recorded=[*logged("b.0"), cancel])
    assert run.result == (["cancelled"], ["log b.0", "cancelled"])
    assert world.asked == []


def test_lanes_that_wait_for_a_place_never_begin() -> None:
    world = World(forever)
    run = driven(
        block(*(lane(str(i)) for i in range(10))), world, max_parallel=2, meanwhile=once_asked(world, "0.0", "1.0")
    )
    assert run.result == (["cancelled"], ["cancelled"], *[None] * 8)
    assert sorted(world.asked) == ["0.0", "1.0"]


def test_a_block_that_is_forked_after_the_cancellation_never_begins() -> None:
    def run() -> Steps[Any]:
        first = yield from lane("a")
        second = yield from block(lane("b"), lane("c"))
        return first, second

    world = World(forever)
    made = driven(run(), world, meanwhile=once_asked(world, "a.0"))
    # A lane that has a place begins, and hears of the cancellation from its first question.
    assert made.result[0] == ["cancelled"]
    assert all(each in (None, ["cancelled"]) for each in made.result[1])
    assert world.asked == ["a.0"]


def test_finally_is_asked_live_after_a_cancellation() -> None:
    async def answer(ask: Request[Any]) -> AnyAnswer:
        return ToolAnswer(outputs={"v": "live"}, duration=1.0) if ask.key == "after.0" else await forever(ask)

    world = World(answer)
    run = driven(with_finally(lane("a")), world, meanwhile=once_asked(world, "a.0"))
    assert run.result == (["cancelled"], ["live"])


def test_a_second_cancellation_before_the_run_knows_of_the_first_changes_nothing() -> None:
    world = World(forever)

    async def twice(driver: Driver) -> None:
        await once_asked(world, "a")(driver)
        driver.cancel("second")

    def run() -> Steps[Any]:
        answer = yield tool("a")
        return answer.failure.message

    made = driven(run(), world, meanwhile=twice)
    assert made.result == "stop"
    assert [each.key for each in made.log].count(CANCEL) == 1


def test_a_second_cancellation_reaches_finally() -> None:
    world = World(forever)

    async def twice(driver: Driver) -> None:
        await once_asked(world, "a.0")(driver)
        await once_asked(world, "after.0")(driver)

    made = driven(with_finally(lane("a")), world, meanwhile=twice)
    assert made.result == (["cancelled"], ["cancelled"])
    assert [each.key for each in made.log].count(CANCEL) == 2


def test_a_cancellation_after_the_last_answer_changes_nothing() -> None:
    def run(driver: list[Driver]) -> Steps[Any]:
        heard = yield from lane("a")
        driver[0].cancel("too late")
        yield said("end")
        return heard

    found: list[Driver] = []

    async def keep(driver: Driver) -> None:
        found.append(driver)

    assert driven(run(found), World(), meanwhile=keep).result == ["a.0"]


def test_a_world_that_answers_although_it_is_cancelled_is_heard() -> None:
    async def stubborn(ask: Request[Any]) -> AnyAnswer:
        try:
            return await forever(ask)
        except asyncio.CancelledError:
            return ToolAnswer(outputs={"v": "done anyway"}, duration=1.0)

    world = World(stubborn)
    assert driven(lane("a"), world, meanwhile=once_asked(world, "a.0")).result == ["done anyway"]


def test_an_answer_that_cancels_the_run_itself_is_taken_once_and_driven_again_to_the_same_lines() -> None:
    found: list[Driver] = []

    async def keep(driver: Driver) -> None:
        found.append(driver)

    async def last_word(ask: Request[Any]) -> AnyAnswer:
        if ask.key != "a.0":
            return await forever(ask)
        found[0].cancel("enough")
        return ToolAnswer(outputs={"v": "done"}, duration=1.0)

    def run() -> Steps[Any]:
        return block(lane("a"), lane("b"))

    made = driven(run(), World(last_word), meanwhile=keep)
    assert made.result == (["done"], ["cancelled"])
    assert [each.key for each in made.log].count("a.0") == 1
    again = driven(run(), Nobody(), recorded=made.log)
    assert (again.result, again.lines) == (made.result, made.lines)


# --- answers that are none


def heard_from(world: World, timeout: float | None = None) -> AnyAnswer:
    def run() -> Steps[Any]:
        return (yield tool("a", timeout))

    answer: AnyAnswer = driven(run(), world).result
    return answer


def raising(error: BaseException) -> World:
    async def answer(ask: Request[Any]) -> AnyAnswer:
        raise error

    return World(answer)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        pytest.param(InputError("no such host"), "transport", "no such host", id="an expected failure"),
        pytest.param(TraceError("odd"), "transport", "odd", id="even one about traces"),
        pytest.param(ZeroDivisionError("x"), "internal", "ZeroDivisionError: x", id="a bug"),
        pytest.param(KeyError("k"), "internal", "KeyError: 'k'", id="a missing key"),
        pytest.param(RecursionError(), "internal", "RecursionError: ", id="too much recursion"),
        pytest.param(OSError(5, "disk on fire"), "internal", "OSError: [Errno 5] disk on fire", id="the system"),
    ],
)
def test_a_world_that_raises(error: BaseException, kind: str, message: str) -> None:
    answer = heard_from(raising(error))
    assert answer.failure == Failure(kind, message)  # type: ignore[arg-type]
    assert isinstance(answer, ToolAnswer)


def test_a_timeout_of_the_world_itself_does_not_pass_for_the_steps_own() -> None:
    failure = heard_from(raising(TimeoutError("connect timed out"))).failure
    assert failure is not None
    assert "within 0s" not in failure.message


def test_a_question_that_takes_too_long_is_answered_with_a_timeout() -> None:
    world = World(forever)
    answer = heard_from(world, timeout=0.01)
    assert answer.failure == Failure("timeout", "no answer within 10ms")
    assert world.open == 0


def test_an_answer_within_its_time_is_taken() -> None:
    assert heard_from(World(), timeout=PATIENCE).failure is None


def test_an_answer_without_a_duration_gets_one() -> None:
    async def slow(ask: Request[Any]) -> AnyAnswer:
        await asyncio.sleep(0.02)
        return ToolAnswer()

    assert heard_from(World(slow)).duration >= 0.01


def test_an_answer_keeps_the_duration_it_says() -> None:
    assert heard_from(World()).duration == 1.0


def test_a_run_that_raises_ends_the_drive_and_what_is_under_way() -> None:
    def bad() -> Steps[Any]:
        yield from lane("quick")
        raise ZeroDivisionError("a bug in the run")

    async def answer(ask: Request[Any]) -> AnyAnswer:
        return ToolAnswer(duration=1.0) if ask.key == "quick.0" else await forever(ask)

    world = World(answer)
    with pytest.raises(ZeroDivisionError):
        driven(block(lane("slow"), bad()), world)
    assert world.open == 0


# --- bounds


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_questions_are_open_than_may_be(most: int) -> None:
    async def answer(ask: Request[Any]) -> AnyAnswer:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return ToolAnswer(outputs={"v": 1}, duration=1.0)

    world = World(answer)
    nested = block(*(block(*(lane(f"{i}{j}", asks=2) for j in range(3))) for i in range(4)))
    driven(nested, world, max_parallel=most)
    assert world.most == most


def test_one_place_is_enough_for_blocks_inside_blocks() -> None:
    steps = lane("x")
    for level in range(30):
        steps = block(lane(f"l{level}"), steps)
    assert driven(steps, World(), max_parallel=1).result is not None


def test_a_thousand_lanes() -> None:
    run = driven(block(*(lane(str(i)) for i in range(1000))), World())
    assert [each for (each,) in run.result] == [f"{i}.0" for i in range(1000)]
    assert len(run.lines) == 1000


def test_a_run_that_says_a_great_deal_without_asking_is_written_on_the_way() -> None:
    def run() -> Steps[Any]:
        for number in range(5 * MOST_WAITING):
            yield said(str(number))

    store = MemoryLedger()
    made = driven(run(), World(), store=store)
    assert [name for name, _ in made.says] == [str(number) for number in range(5 * MOST_WAITING)]
    assert max(len(batch.events) for batch in store.batches) <= 2 * MOST_WAITING


def test_a_run_that_only_talks_can_be_cancelled_by_its_next_question() -> None:
    def run() -> Steps[Any]:
        for number in range(3 * MOST_WAITING):
            yield said(str(number))
        return (yield from lane("a"))

    async def at_once(driver: Driver) -> None:
        driver.cancel("stop")

    world = World()
    assert driven(run(), world, meanwhile=at_once).result == ["cancelled"]
    assert world.asked == []


# --- what cannot be written


LONG = "x" * (MAX_LINE_BYTES + 1)


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long cannot be left out."""

    def refuse(payload: Payload, longest: int) -> Payload:
        raise TraceError("the event is too large to be written")

    monkeypatch.setattr("gert.ecosystem.host.run.record.journal.shortened", refuse)


def test_something_too_long_for_a_line_is_written_by_its_digest() -> None:
    def run() -> Steps[Any]:
        yield said("long", LONG)
        yield said("nested", {"deep": [LONG, "short"]})
        return "done"

    done = driven(run(), World())
    assert done.result == "done"
    first, second = (decode(line).data["value"] for line in done.lines)
    size = len(LONG) + 2
    assert first == f"[{size} bytes, {digest(msgspec.json.encode(LONG))}]"
    assert second == {"deep": [first, "short"]}


@pytest.mark.usefixtures("unwritable")
def test_an_event_that_is_too_large_raises_where_it_was_emitted() -> None:
    def run() -> Steps[Any]:
        try:
            yield said("huge", LONG)
        except TraceError as error:
            yield said("caught", error.message)
        return (yield from lane("a"))

    made = driven(run(), World())
    assert [name for name, _ in made.says] == ["caught", "a.0"]
    assert "too large" in made.says[0][1]
    assert read_chain(made.lines).break_count == 0


@pytest.mark.usefixtures("unwritable")
@pytest.mark.parametrize("then", ["ask", "fork", "return", "huge again"])
def test_after_something_too_large_the_lane_goes_on_with(then: str) -> None:
    def run() -> Steps[Any]:
        try:
            yield said("huge", LONG)
        except TraceError:
            if then == "ask":
                return (yield from lane("a"))
            if then == "fork":
                return (yield from block(lane("a")))
            if then == "huge again":
                try:
                    yield said("huge", LONG)
                except TraceError:
                    return "twice"
        return "returned"

    wanted = {"ask": ["a.0"], "fork": (["a.0"],), "return": "returned", "huge again": "twice"}
    assert driven(run(), World()).result == wanted[then]


def test_a_step_with_inputs_too_large_for_a_line_runs_and_is_announced_by_their_digests() -> None:
    tool_file = b"""
apiVersion: tool/v0
meta: {name: t}
contract: {effects: [], writes: []}
actions: {go: {argv: [t]}}
"""
    runbook = b"""
apiVersion: kernel/v0
meta: {name: b, inputs: {big: {type: string}}}
tools: [t]
steps:
  - {id: a, type: tool, tool: t, inputs: {a: "{{ .big }}", b: "{{ .big }}", c: "{{ .big }}", d: "{{ .big }}"}}
  - {type: end, outcome: {category: resolved, code: x}}
finally:
  - {id: last, type: tool, tool: t}
"""
    lookup = ToolLookup("t", (), "t.tool.yaml", load(tool_file, kind="tool"))
    setup = Setup(
        program=Program(load(runbook, kind="runbook").model, {"t": lookup}),
        run_id=RUN,
        started=RunStart(
            runbook="b",
            runbook_hash="h",
            mode="real",
            actor="alice",
            host="h",
            gert_version="g",
            inputs={"big": "x" * (MAX_LINE_BYTES // 4)},
        ),
    )
    world = World()
    made = driven(run(setup), world)
    assert made.result.status == "completed"
    assert world.asked == ["a", "finally/last"]
    (start,) = (event for line in made.lines if (event := decode(line)).type == "step_start" and event.path == "a")
    assert all(value.endswith("]") and "bytes, sha256:" in value for value in start.data["inputs"].values())
    assert decode(made.lines[-1]).type == "run_complete"
    assert read_chain(made.lines).break_count == 0


@pytest.mark.usefixtures("unwritable")
def test_an_uncaught_event_that_is_too_large_ends_the_drive() -> None:
    def run() -> Steps[Any]:
        yield said("huge", LONG)

    with pytest.raises(TraceError, match="too large"):
        driven(run(), World())


class FullDisk(MemoryLedger):
    """A ledger whose disk is full after so many batches."""

    def __init__(self, after: int, turns: int) -> None:
        super().__init__()
        self.left = after
        self.turns = turns

    def keep(self, batch: Batch) -> None:
        if self.left == 0:
            raise TraceError("the trace cannot be written: no space left on device")
        self.left -= 1


@pytest.mark.parametrize("turns", [0, 3], ids=["at once", "later"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_disk_that_is_full_ends_the_drive_and_what_is_under_way(after: int, turns: int) -> None:
    async def answer(ask: Request[Any]) -> AnyAnswer:
        return await forever(ask) if ask.key.startswith("slow") else ToolAnswer(outputs={"v": 1}, duration=1.0)

    def begin() -> Steps[Any]:
        yield said("begin")
        return (yield from block(lane("slow"), lane("quick", asks=5)))

    world = World(answer)
    store = FullDisk(after, turns)
    with pytest.raises(TraceError, match="no space left"):
        driven(begin(), world, store=store)
    assert world.open == 0
    # Nothing was asked that was not announced on disk: each question follows a batch that was written.
    assert len([key for key in world.asked if key.startswith("quick")]) <= after


def test_a_slow_disk_is_waited_for_beside_what_is_under_way() -> None:
    """A tool that runs goes on while an append is waited for."""
    turned = 0

    async def answer(ask: Request[Any]) -> AnyAnswer:
        nonlocal turned
        while ask.key == "slow.0" and turned < 20:
            turned += 1
            await asyncio.sleep(0)
        return ToolAnswer(duration=1.0)

    store = MemoryLedger()
    store.turns = 10
    driven(block(lane("slow"), lane("quick", asks=3)), World(answer), store=store)
    assert turned == 20
    assert len(store.batches) < 6


def test_pauses_and_tools_get_answers_of_their_own_kind() -> None:
    def run() -> Steps[Any]:
        return (yield Pause(key="p", path="p", step_id="p", seconds=1.0))

    assert isinstance(driven(run(), raising(KeyError("x"))).result, PauseAnswer)


def test_a_lane_that_asks_nothing_hears_of_a_cancellation_and_is_driven_again_to_the_same_lines() -> None:
    def endless() -> Steps[Any]:
        for number in range(1_000_000):
            stop = yield said("turn", number)
            if stop is not None:
                yield Emit(RunCancelled(reason=stop.message), None, None)
                return number
        return None

    async def stop(driver: Driver) -> None:
        driver.cancel("stop")

    first = driven(endless(), World(), meanwhile=stop)
    assert first.result is not None
    assert [entry.key for entry in first.log] == [CANCEL]
    again = driven(endless(), Nobody(), recorded=first.log)
    assert (again.result, again.lines, again.log) == (first.result, first.lines, first.log)
