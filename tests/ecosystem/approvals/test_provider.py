"""The provider of runs that wait for people, or leave and come back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import (
    BOB_KEY,
    REQUEST,
    RUN,
    Clock,
    asking,
    no,
    path_of,
    signed,
    submitting,
    tickets,
    waiting,
    yes,
)

from gert.ecosystem.approvals.notify import Channels
from gert.ecosystem.approvals.port import ApprovalProvider, Channel, StillOpen
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.approvals.tickets import Tickets
from gert.errors import UsageError
from gert.kernel.engine.approval_rules import Ticket, tally
from gert.kernel.engine.requests import ApprovalAnswer, TicketAnswer


class Heard:
    """A channel that remembers, and says what it is made to say."""

    def __init__(self, name: str = "chat", *, announces: Any = None, listens: Any = None) -> None:
        self.name = name
        self.told: list[TicketFile] = []
        self.listeners = 0
        self.most = 0
        self.times = 0
        self._announces = announces
        self._listens = listens

    async def announce(self, ticket: TicketFile) -> str | None:
        self.told.append(ticket)
        if isinstance(self._announces, Exception):
            raise self._announces
        if self._announces == "hang":
            await asyncio.Event().wait()
        result: str | None = self._announces
        return result

    def listening(self, tickets: Tickets) -> AbstractAsyncContextManager[None]:
        return self._listening(tickets)

    @asynccontextmanager
    async def _listening(self, store: Tickets) -> AsyncIterator[None]:
        if isinstance(self._listens, Exception):
            raise self._listens
        self.listeners += 1
        self.times += 1
        self.most = max(self.most, self.listeners)
        task = asyncio.create_task(self._listens(store)) if self._listens is not None else None
        try:
            yield
        finally:
            self.listeners -= 1
            if task is not None:
                await task


def provider(store: Tickets, *channels: Channel, detach: bool = False) -> TicketApprovals:
    return TicketApprovals(store, RUN, channels=channels, detach=detach)


def submitted(asks: ApprovalProvider, **changes: Any) -> TicketAnswer:
    return asyncio.run(asks.submit(submitting(asking(**changes))))


def answered(asks: ApprovalProvider, ticket: TicketAnswer, **changes: Any) -> ApprovalAnswer:
    async def wait() -> ApprovalAnswer:
        async with asyncio.timeout(30):
            return await asks.wait(waiting(ticket.ticket_id, asking(**changes)))

    return asyncio.run(wait())


def approved(ticket: TicketAnswer, answer: ApprovalAnswer, **changes: Any) -> bool:
    """What the kernel makes of it."""
    asked = Ticket(
        id=ticket.ticket_id,
        request=asking(**changes),
        created_at=ticket.created_at,
        expires_at=ticket.expires_at,
    )
    by = tally(asked, answer.responses).resolved_by
    return answer.failure is None and by is not None and by.approved


# --- submitting


def test_a_ticket_is_given_at_once(tmp_path: Path) -> None:
    ticket = submitted(provider(tickets(tmp_path)))
    assert ticket.ticket_id.startswith("run-1-")
    assert (ticket.method, ticket.failure) == ("ticket", None)
    assert (ticket.created_at, ticket.expires_at) == ("2026-01-02T12:00:00.000000Z", "2026-01-02T12:30:00.000000Z")


def test_a_run_that_was_killed_before_it_knew_its_ticket_gets_the_same(tmp_path: Path) -> None:
    clock = Clock()
    first = submitted(provider(tickets(tmp_path, clock)))
    clock.forward(minutes=3)
    assert submitted(provider(tickets(tmp_path, clock))) == first


def test_people_are_told_over_every_channel(tmp_path: Path) -> None:
    one, two = Heard("one"), Heard("two")
    ticket = submitted(provider(tickets(tmp_path), one, two))
    assert [each.id for each in one.told + two.told] == [ticket.ticket_id] * 2


@pytest.mark.parametrize(
    ("announces", "note"),
    [
        pytest.param("no such room", "chat: no such room", id="a failure it knows"),
        pytest.param(UsageError("bad address"), "chat: nobody was told: bad address", id="an error of ours"),
        pytest.param(RuntimeError("token=abc"), "chat: nobody was told: RuntimeError", id="an error of somebody"),
        pytest.param("hang", "chat: nobody was told within 0.05 s", id="no end"),
    ],
)
def test_a_channel_that_fails_is_a_note_and_no_failure(tmp_path: Path, announces: Any, note: str) -> None:
    store = tickets(tmp_path)
    bad, good = Heard(announces=announces), Heard("good")
    file = store.open(REQUEST, RUN, "ticket")
    asyncio.run(Channels(store, (bad, good), limit=0.05).announce(file))
    assert store.get(file.id).notes == (note,)
    assert len(good.told) == 1


def test_without_a_key_nobody_is_asked_to_sign(tmp_path: Path) -> None:
    store = Tickets(str(tmp_path / "approvals"), Clock())
    ticket = submitted(provider(store), require_signed_approvals=True)
    assert ticket.failure is not None
    assert ticket.failure.kind == "denied"
    assert "no key to verify them with is set" in ticket.failure.message
    assert store.all() == []


def test_another_request_under_the_same_question_is_asked_anew(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    before = submitted(provider(store))
    store.answer(before.ticket_id, yes())
    ticket = submitted(provider(store), request_hash="sha256:other")
    assert ticket.failure is None
    assert store.get(ticket.ticket_id).status == "pending"


# --- waiting


def test_what_was_said_before_is_there_at_once(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    ticket = submitted(provider(store))
    store.answer(ticket.ticket_id, yes())
    answer = answered(provider(store, detach=True), ticket)
    assert [each.approver for each in answer.responses] == ["bob"]
    assert approved(ticket, answer)


@pytest.mark.parametrize("said", [None, "an objection", "too few"])
def test_a_run_that_does_not_wait_leaves_the_ticket_open(tmp_path: Path, said: str | None) -> None:
    store = tickets(tmp_path)
    ticket = submitted(provider(store), min_approvers=2)
    if said is not None:
        store.answer(ticket.ticket_id, yes("bob" if said == "too few" else ""))
    with pytest.raises(StillOpen) as left:
        answered(provider(store, detach=True), ticket, min_approvers=2)
    assert left.value.ticket_id == ticket.ticket_id
    assert store.get(ticket.ticket_id).status == "pending"


def test_a_run_that_waits_hears_an_answer_from_another_process(tmp_path: Path) -> None:
    store, elsewhere = tickets(tmp_path), tickets(tmp_path)
    ticket = submitted(provider(store), min_approvers=2)

    async def run() -> ApprovalAnswer:
        asks = provider(store)
        wait = asyncio.create_task(asks.wait(waiting(ticket.ticket_id, asking(min_approvers=2))))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(elsewhere.answer, ticket.ticket_id, yes("bob"))
        await asyncio.sleep(0.05)
        assert not wait.done()
        await asyncio.to_thread(elsewhere.answer, ticket.ticket_id, yes("eve"))
        async with asyncio.timeout(30):
            return await wait

    answer = asyncio.run(run())
    assert approved(ticket, answer, min_approvers=2)


def test_a_channel_deposits_answers_and_listens_once_for_all_lanes(tmp_path: Path) -> None:
    store = tickets(tmp_path)

    async def collect(given: Tickets) -> None:
        for file in given.all("pending"):
            await asyncio.to_thread(given.answer, file.id, yes())

    chat = Heard(listens=collect)
    asks = provider(store, chat)

    async def run() -> list[ApprovalAnswer]:
        given = [await asks.submit(submitting(key=f"k{each}")) for each in range(3)]
        async with asyncio.timeout(30):
            return await asyncio.gather(*(asks.wait(waiting(each.ticket_id)) for each in given))

    answers = asyncio.run(run())
    assert [each.responses[0].approver for each in answers] == ["bob"] * 3
    assert (chat.most, chat.listeners, chat.times) == (1, 0, 1)


def test_a_channel_that_cannot_listen_is_a_note(tmp_path: Path) -> None:
    store = tickets(tmp_path)

    async def collect(given: Tickets) -> None:
        await asyncio.to_thread(given.answer, ticket.ticket_id, yes())

    asks = provider(store, Heard("bad", listens=OSError("in use")), Heard("good", listens=collect))
    ticket = submitted(asks)
    assert approved(ticket, answered(asks, ticket))
    assert store.get(ticket.ticket_id).notes == ("bad: nobody listens: OSError",)


def test_waiting_can_be_cancelled_and_the_ticket_stays_open(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    chat = Heard()
    asks = provider(store, chat)
    ticket = submitted(asks)

    async def run() -> None:
        wait = asyncio.create_task(asks.wait(waiting(ticket.ticket_id)))
        await asyncio.sleep(0.05)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait

    asyncio.run(run())
    assert chat.listeners == 0
    assert store.get(ticket.ticket_id).status == "pending"


def test_when_the_time_is_over_the_run_is_told(tmp_path: Path) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    asks = provider(store)
    ticket = submitted(asks, min_approvers=2)
    store.answer(ticket.ticket_id, yes())

    async def run() -> ApprovalAnswer:
        wait = asyncio.create_task(asks.wait(waiting(ticket.ticket_id, asking(min_approvers=2))))
        await asyncio.sleep(0.05)
        clock.forward(minutes=31)
        async with asyncio.timeout(30):
            return await wait

    answer = asyncio.run(run())
    assert answer.expired
    assert len(answer.responses) == 1
    assert store.get(ticket.ticket_id).status == "expired"


@pytest.mark.parametrize("when", ["in time", "too late"])
def test_a_run_that_comes_back_after_the_time(tmp_path: Path, when: str) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    ticket = submitted(provider(store))
    if when == "in time":
        store.answer(ticket.ticket_id, yes())
    clock.forward(days=2)
    if when == "too late":
        store.answer(ticket.ticket_id, yes())
    answer = answered(provider(store, detach=True), ticket)
    assert answer.expired is (when == "too late")
    assert approved(ticket, answer) is (when == "in time")


@pytest.mark.parametrize("gone", ["removed", "spoiled", "abandoned", "another request"])
def test_a_ticket_that_cannot_be_used_approves_nothing(tmp_path: Path, gone: str) -> None:
    store = tickets(tmp_path)
    ticket = submitted(provider(store))
    file = store.answer(ticket.ticket_id, yes()).file if gone != "abandoned" else store.abandon(ticket.ticket_id)
    if gone == "removed":
        path_of(store, file).unlink()
    elif gone == "spoiled":
        path_of(store, file).write_bytes(b"{}")
    changes = {"request_hash": "sha256:other"} if gone == "another request" else {}
    answer = answered(provider(store), ticket, **changes)
    assert answer.failure is not None
    assert answer.failure.kind == "denied"
    assert not approved(ticket, answer)


def test_a_ticket_removed_while_a_run_waits_ends_the_wait(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    asks = provider(store)
    ticket = submitted(asks)

    async def run() -> ApprovalAnswer:
        wait = asyncio.create_task(asks.wait(waiting(ticket.ticket_id)))
        await asyncio.sleep(0.05)
        path_of(store, store.get(ticket.ticket_id)).unlink()
        async with asyncio.timeout(30):
            return await wait

    answer = asyncio.run(run())
    assert answer.failure is not None


def test_signatures_are_checked_by_the_run_itself(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    ticket = submitted(provider(store), require_signed_approvals=True)
    file = store.get(ticket.ticket_id)
    store.answer(file.id, signed(file, BOB_KEY))
    assert not store.get(file.id).responses[0].response.verified
    answer = answered(provider(store), ticket, require_signed_approvals=True)
    assert answer.responses[0].verified
    assert approved(ticket, answer, require_signed_approvals=True)


def test_the_run_is_told_also_what_does_not_count(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    terms = {"approvers": (("bob",),), "admitted": (("bob",),)}
    ticket = submitted(provider(store), **terms)
    store.answer(ticket.ticket_id, yes("eve"))
    store.answer(ticket.ticket_id, yes("bob"))
    store.answer(ticket.ticket_id, no("dan"))
    answer = answered(provider(store), ticket, **terms)
    assert [each.approver for each in answer.responses] == ["eve", "bob"]
    assert approved(ticket, answer, **terms)


def test_what_somebody_was_told_does_not_count_does_not_count_for_the_run(tmp_path: Path) -> None:
    without = Tickets(str(tmp_path / "approvals"), Clock())
    run = tickets(tmp_path)
    ticket = submitted(provider(run), require_signed_approvals=True)
    file = run.get(ticket.ticket_id)
    assert without.answer(file.id, signed(file)).objection is not None
    with pytest.raises(StillOpen):
        answered(provider(run, detach=True), ticket, require_signed_approvals=True)
    said = msgspec.structs.replace(signed(file), approved=False, signature=None, signature_alg=None, key_id=None)
    run.answer(file.id, said)
    answer = answered(provider(run), ticket, require_signed_approvals=True)
    assert [each.approved for each in answer.responses] == [False]


def test_waiting_does_not_keep_writing(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    asks = provider(store)
    ticket = submitted(asks)

    async def run() -> set[Any]:
        wait = asyncio.create_task(asks.wait(waiting(ticket.ticket_id)))
        stamps = set()
        for _ in range(20):
            await asyncio.sleep(0.01)
            stamps.add(store.stamp(ticket.ticket_id))
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        return stamps

    assert len(asyncio.run(run())) == 1


# --- the end of a run


def test_tickets_a_run_leaves_open_are_abandoned_and_others_are_not(tmp_path: Path) -> None:
    store = Tickets(str(tmp_path / "approvals"), lambda: datetime.now(UTC))
    asks = provider(store)

    async def run() -> list[str]:
        left = await asks.submit(submitting(key="left"))
        done = await asks.submit(submitting(key="done"))
        store.answer(done.ticket_id, yes(at=datetime.now(UTC)))
        assert await asks.settle() == [left.ticket_id]
        return [left.ticket_id, done.ticket_id]

    other = store.open(REQUEST, msgspec.structs.replace(RUN, run_id="run-2"), "ticket")
    left, done = asyncio.run(run())
    assert [store.get(each).status for each in (left, done, other.id)] == ["abandoned", "approved", "pending"]


@pytest.mark.parametrize("days", [-1, -4000, 0], ids=["a day", "years", "not at all: it stands still"])
def test_a_clock_that_goes_back_makes_nobody_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    from gert.ecosystem.approvals import provider

    monkeypatch.setattr(provider, "GRACE", 0.0, raising=False)
    clock = Clock()
    store, request = tickets(tmp_path, clock), asking(approval_timeout=0.2)

    async def main() -> ApprovalAnswer:
        approvals = TicketApprovals(store, RUN)
        ticket = await approvals.submit(submitting(request))
        clock.forward(days=days)
        async with asyncio.timeout(10):
            return await approvals.wait(waiting(ticket.ticket_id or "", request))

    assert asyncio.run(main()) == ApprovalAnswer(expired=True)
