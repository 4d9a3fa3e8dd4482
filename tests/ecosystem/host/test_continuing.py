"""A journal that goes on: what was said is held against the record, what is new is added, a refusal adds nothing."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from gert.ecosystem.host.continuing import ContinuedJournal, is_one_batch
from gert.ecosystem.host.journal import MOST_WAITING, Journal, Logged
from gert.ecosystem.stores.memory import MemoryStore
from gert.errors import IntegrityError
from gert.kernel.engine.asks import Said, ToolAnswer
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.principal import Principal

RUN = "run-1"
OPENING = Said(says.RunResumed(actor="lou", host="h", gert_version="v", answered=1), None, Principal("human", "lou"))
END = Said(says.RunComplete(status="completed", mode="real", duration="1s"), None, None)


def said(what: str, value: Any = None) -> Said:
    return Said(says.InputResolved(name=what, source="cli", value=value), None, None)


def recorded(*words: str, answers: Iterable[str] = ()) -> MemoryStore:
    """A record of some events, on a clock of its own."""
    store, ticks = MemoryStore(), iter(range(1_000_000))

    async def write() -> None:
        journal = Journal(store, RUN, clock=lambda: 1_000_000 * next(ticks))
        for key in answers:
            journal.log(Logged(key, ToolAnswer()))
        for word in words:
            journal.say(said(word, word))
        await journal.settle()

    asyncio.run(write())
    return store


def names(store: MemoryStore) -> list[str]:
    return [event.data.get("name", event.type) for event in map(decode, store.events(RUN))]


def test_what_is_said_again_is_not_written_again() -> None:
    store = recorded("a", "b")
    lines = list(store.events(RUN))

    async def go_on() -> None:
        journal = ContinuedJournal(store, RUN, opening=OPENING)
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
    journal = ContinuedJournal(recorded("a", "b"), RUN, loosely=loosely)
    journal.say(said("a", "a"))
    if loosely:
        with pytest.raises(IntegrityError, match="event 2 does not come again"):
            journal.say(Said(END.payload, None, None))
        return
    with pytest.raises(IntegrityError, match="event 2 does not come again: `input_resolved` is recorded"):
        journal.say(said(word, value))


def step(status: str, outputs: dict[str, Any], path: str = "s") -> Said:
    return Said(says.StepComplete(step_id="s", status=status, duration="1s", outputs=outputs), path, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("again", "is_alike"),
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
def test_with_changes_only_the_way_has_to_be_the_same(again: Said, is_alike: bool) -> None:
    store = MemoryStore()

    async def write() -> None:
        journal = Journal(store, RUN)
        journal.say(step("success", {"a": 1}))
        await journal.settle()

    asyncio.run(write())
    journal = ContinuedJournal(store, RUN, loosely=True)
    if is_alike:
        journal.say(again)
        assert journal.repeats
    else:
        with pytest.raises(IntegrityError):
            journal.say(again)


def test_before_it_is_live_nothing_is_written() -> None:
    """Whoever finds out that the run must not go on, finds it as it was."""
    store = recorded("a", answers=["k"])

    async def go_on() -> None:
        journal = ContinuedJournal(store, RUN, opening=OPENING)
        journal.say(said("a", "a"))
        journal.log(Logged("k", ToolAnswer()))
        for number in range(MOST_WAITING + 1):
            journal.say(said(f"new-{number}"))
        journal.log(Logged("new", ToolAnswer()))
        assert not journal.repeats
        assert not journal.is_full
        await journal.settle()

    asyncio.run(go_on())
    assert names(store) == ["a"]
    assert len(list(store.answers(RUN))) == 1


def test_who_goes_on_is_said_before_anything_new_and_once() -> None:
    store = recorded("a")

    async def go_on() -> None:
        journal = ContinuedJournal(store, RUN, opening=OPENING)
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
        journal = ContinuedJournal(store, RUN, opening=OPENING)
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
        journal = ContinuedJournal(store, RUN, opening=OPENING)
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
        journal = ContinuedJournal(store, RUN)
        journal.log(Logged("k", ToolAnswer()))
        assert journal.repeats
        journal.say(said("a", "a"))
        journal.log(Logged("l", ToolAnswer()))
        journal.go_live()
        await journal.settle()

    asyncio.run(go_on())
    assert len(list(store.answers(RUN))) == 2


def test_what_the_answers_do_not_lead_to_is_told_and_can_be_forgotten() -> None:
    store = recorded("a", "b", "c")
    journal = ContinuedJournal(store, RUN, opening=OPENING)
    journal.say(said("a", "a"))
    assert [decode(line).data["name"] for line in journal.unsupported()] == ["b", "c"]
    journal.forget_rest()
    assert journal.unsupported() == []
    assert journal.events == 1


def test_what_the_host_says_of_a_run_is_taken_as_it_is() -> None:
    store = recorded("a")

    async def twice() -> None:
        for _ in range(3):
            journal = ContinuedJournal(store, RUN, opening=OPENING)
            journal.say(said("a", "a"))
            journal.go_live()
            await journal.settle()

    asyncio.run(twice())
    assert names(store) == ["a", "run_resumed", "run_resumed", "run_resumed"]
    assert read_chain(store.events(RUN)).intact


# --- what a loss of power can take


def start(path: str, kind: str = "tool") -> Said:
    return Said(says.StepStart(step_id=path, step_type=kind), path, None)


def complete(path: str) -> Said:
    return Said(says.StepComplete(step_id=path, status="success", duration="1s"), path, None)


@pytest.mark.parametrize(
    ("events", "is_one"),
    [
        pytest.param([], True, id="nothing"),
        pytest.param([complete("a"), start("b")], True, id="the end of a call, and the next one"),
        pytest.param([complete("a"), start("b"), complete("c"), start("d")], True, id="of two lanes"),
        pytest.param([start("x", "assert"), complete("x"), start("b")], True, id="a step that asks nobody"),
        pytest.param([start("b"), complete("b")], False, id="a call and its end"),
        pytest.param([start("m", "manual"), complete("m")], False, id="a question to people and its end"),
        pytest.param([complete("a"), start("b"), complete("c"), complete("b")], False, id="a call, and later its end"),
    ],
)  # fmt: skip
def test_of_a_call_only_the_end_or_the_beginning_can_be_lost(events: list[Said], is_one: bool) -> None:
    store = MemoryStore()

    async def write() -> None:
        journal = Journal(store, RUN)
        for each in events:
            journal.say(each)
        await journal.settle()

    asyncio.run(write())
    assert is_one_batch(store.events(RUN)) == is_one
