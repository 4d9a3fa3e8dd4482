"""The resume journal: events are compared with the record, new ones are appended, a refusal appends nothing."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.memory_ledger import MemoryLedger

from gert.ecosystem.host.redrive.redrive import is_alike
from gert.ecosystem.host.run.record.journal import MOST_WAITING, Journal, RecordedAnswer
from gert.errors import IntegrityError
from gert.kernel.engine.requests import Emit, ToolAnswer
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import GENESIS, read_chain
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.principal import Principal
from gert.kernel.ledger.record import hash_answer

RUN = "run-1"
OPENING = Emit(says.RunResumed(actor="lou", host="h", gert_version="v", answered=1), None, Principal("human", "lou"))
END = Emit(says.RunComplete(status="completed", mode="real", duration="1s"), None, None)


def said(what: str, value: Any = None) -> Emit:
    return Emit(says.InputResolved(name=what, source="cli", value=value), None, None)


def recorded(*words: str, answers: Iterable[str] = ()) -> MemoryLedger:
    """A record of some events, on a clock of its own."""
    store, ticks = MemoryLedger(), iter(range(1_000_000))

    async def write() -> None:
        journal = Journal(RUN, store.port, clock=lambda: 1_000_000 * next(ticks))
        for key in answers:
            journal.log(RecordedAnswer(key, ToolAnswer()))
        for word in words:
            journal.say(said(word, word))
        await journal.settle()

    asyncio.run(write())
    return store


def names(store: MemoryLedger) -> list[str]:
    return [event.data.get("name", event.type) for event in map(decode, store.events(RUN))]


def test_what_is_said_again_is_not_written_again() -> None:
    store = recorded("a", "b")
    lines = list(store.events(RUN))

    async def go_on() -> None:
        journal = store.resumed(RUN, opening=[OPENING])
        for word in ("a", "b"):
            journal.say(said(word, word))
            assert journal.repeats
        journal.go_live()
        journal.say(said("c"))
        await journal.settle()

    asyncio.run(go_on())
    assert names(store) == ["a", "b", "run_resumed", "c"]
    assert list(store.events(RUN))[:2] == lines
    assert read_chain(store.events(RUN)).intact


@pytest.mark.parametrize(
    ("word", "value"), [("x", "x"), ("b", "other"), ("b", None)], ids=["another event", "another value", "no value"]
)
@pytest.mark.parametrize("loosely", [False, True], ids=["as it was", "with changes"])
def test_what_does_not_come_again_is_refused(word: str, value: str | None, loosely: bool) -> None:
    journal = recorded("a", "b").resumed(RUN, same=is_alike if loosely else None)
    journal.say(said("a", "a"))
    if loosely:
        with pytest.raises(IntegrityError, match="replay diverged at event 2"):
            journal.say(Emit(END.payload, None, None))
        return
    with pytest.raises(IntegrityError, match="replay diverged at event 2: `input_resolved` is recorded"):
        journal.say(said(word, value))


def test_an_event_that_comes_after_other_answers_is_refused() -> None:
    journal = recorded("a", answers=["k"]).resumed(RUN)
    with pytest.raises(IntegrityError, match="`input_resolved` is recorded after other answers"):
        journal.say(said("a", "a"))


def step(status: str, outputs: dict[str, Any], path: str = "s") -> Emit:
    return Emit(says.StepComplete(step_id="s", status=status, duration="1s", outputs=outputs), path, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("again", "repeats"),
    [
        pytest.param(step("success", {"a": 1}), True, id="the same"),
        pytest.param(step("success", {"a": 1, "more": 2}), True, id="an output more"),
        pytest.param(step("success", {}), True, id="an output less"),
        pytest.param(step("success", {"a": 2}), False, id="another value"),
        pytest.param(step("failed", {"a": 1}), False, id="another status"),
        pytest.param(step("success", {"a": 1}, "t"), False, id="another place"),
        pytest.param(END, False, id="another event"),
    ],
)
def test_with_changes_only_the_way_has_to_be_the_same(again: Emit, repeats: bool) -> None:
    store = MemoryLedger()

    async def write() -> None:
        journal = Journal(RUN, store.port)
        journal.say(step("success", {"a": 1}))
        await journal.settle()

    asyncio.run(write())
    journal = store.resumed(RUN, same=is_alike)
    if repeats:
        journal.say(again)
        assert journal.repeats
    else:
        with pytest.raises(IntegrityError):
            journal.say(again)


def test_before_it_is_live_nothing_is_written() -> None:
    """Whoever finds out that the run must not go on, finds it as it was."""
    store = recorded("a", answers=["k"])

    async def go_on() -> None:
        journal = store.resumed(RUN, opening=[OPENING])
        journal.log(RecordedAnswer("k", ToolAnswer()))
        journal.say(said("a", "a"))
        for number in range(MOST_WAITING + 1):
            journal.say(said(f"new-{number}"))
        journal.log(RecordedAnswer("new", ToolAnswer()))
        assert not journal.repeats
        assert not journal.is_full
        await journal.settle()

    asyncio.run(go_on())
    assert names(store) == ["a"]
    assert len(list(store.answers(RUN))) == 1


def test_who_goes_on_is_said_before_anything_new_and_once() -> None:
    store = recorded("a")

    async def go_on() -> None:
        journal = store.resumed(RUN, opening=[OPENING])
        journal.say(said("a", "a"))
        journal.say(said("b"))
        journal.go_live()
        journal.say(said("c"))
        await journal.settle()

    asyncio.run(go_on())
    assert names(store) == ["a", "run_resumed", "b", "c"]


def test_a_run_that_ends_by_its_record_alone_says_who_ended_it() -> None:
    store = recorded("a")

    async def go_on() -> None:
        journal = store.resumed(RUN, opening=[OPENING])
        journal.say(said("a", "a"))
        journal.say(END)
        await journal.settle()

    asyncio.run(go_on())
    assert names(store) == ["a", "run_resumed", "run_complete"]
    assert read_chain(store.events(RUN)).complete


def test_a_run_that_would_end_by_its_record_alone_can_be_refused() -> None:
    store = recorded("a")

    def refuse() -> None:
        raise IntegrityError("no")

    async def go_on() -> None:
        journal = store.resumed(RUN, opening=[OPENING])
        journal.on_end = refuse
        journal.say(said("a", "a"))
        with pytest.raises(IntegrityError):
            journal.say(END)
        await journal.settle()

    asyncio.run(go_on())
    assert names(store) == ["a"]


def test_an_answer_that_is_known_is_not_logged_again() -> None:
    store = recorded("a", answers=["k"])

    async def go_on() -> None:
        journal = store.resumed(RUN)
        journal.log(RecordedAnswer("k", ToolAnswer()))
        assert journal.repeats
        journal.say(said("a", "a"))
        journal.log(RecordedAnswer("l", ToolAnswer()))
        journal.go_live()
        await journal.settle()

    asyncio.run(go_on())
    assert len(list(store.answers(RUN))) == 2


def test_a_record_that_goes_further_than_its_answers_is_refused() -> None:
    store = recorded("a", "b", "c")
    journal = store.resumed(RUN, opening=[OPENING])
    journal.say(said("a", "a"))
    with pytest.raises(IntegrityError, match="2 events that its answers do not lead to"):
        journal.go_live()
    asyncio.run(journal.settle())
    assert names(store) == ["a", "b", "c"]


def test_the_first_new_event_names_the_answers_on_record() -> None:
    store = recorded("a", answers=["k"])

    async def go_on() -> None:
        journal = store.resumed(RUN, opening=[OPENING])
        journal.log(RecordedAnswer("k", ToolAnswer()))
        journal.say(said("a", "a"))
        journal.go_live()
        journal.log(RecordedAnswer("l", ToolAnswer()))
        journal.say(said("b"))
        await journal.settle()

    asyncio.run(go_on())
    first, resumed, second = map(decode, store.events(RUN))
    known, new = store.answers(RUN)
    one = hash_answer(GENESIS, known)
    assert (first.answers, resumed.answers, second.answers) == (f"1:{one}", None, f"2:{hash_answer(one, new)}")


def test_an_answer_without_an_event_is_named_by_the_event_of_the_resume() -> None:
    """A process that was killed after an answer was stored: the next event in the chain covers it."""
    store = recorded("a")

    async def killed() -> None:
        journal = store.resumed(RUN)
        journal.say(said("a", "a"))
        journal.go_live()
        journal.log(RecordedAnswer("k", ToolAnswer()))
        await journal.settle()

    async def go_on() -> None:
        journal = store.resumed(RUN, opening=[OPENING])
        journal.say(said("a", "a"))
        journal.log(RecordedAnswer("k", ToolAnswer()))
        journal.go_live()
        await journal.settle()

    asyncio.run(killed())
    assert (names(store), len(store.answers(RUN))) == (["a"], 1)
    asyncio.run(go_on())
    assert decode(store.events(RUN)[1]).answers == f"1:{store.head_of(RUN).answers_hash}"


def test_a_record_is_taken_as_a_whole_without_being_driven() -> None:
    store = recorded("a", "b", answers=["k", "l"])

    async def end() -> None:
        journal = store.resumed(RUN)
        journal.take_all()
        journal.say(END)
        await journal.settle()

    asyncio.run(end())
    assert names(store) == ["a", "b", "run_complete"]
    assert store.head_of(RUN).answers == 2
    assert read_chain(store.events(RUN)).complete


def test_what_the_host_says_of_a_run_is_taken_as_it_is() -> None:
    store = recorded("a")

    async def twice() -> None:
        for _ in range(3):
            journal = store.resumed(RUN, opening=[OPENING])
            journal.say(said("a", "a"))
            journal.go_live()
            await journal.settle()

    asyncio.run(twice())
    assert names(store) == ["a", "run_resumed", "run_resumed", "run_resumed"]
    assert read_chain(store.events(RUN)).intact
