"""The provider of runs that wait for responses, or detach and are resumed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import (
    BOB_KEY,
    MALLORY_KEY,
    NOON,
    SHARED,
    Clock,
    Run,
    asking,
    done,
    insert,
    no,
    public,
    running,
    signed,
    submitting,
    verifier,
    yes,
)

from gert.ecosystem.approvals import provider as module
from gert.ecosystem.approvals.announce import Channels
from gert.ecosystem.approvals.inbox import MOST_TAKEN
from gert.ecosystem.approvals.port import StillOpen
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.responses import encode_response
from gert.ecosystem.approvals.signatures import NO_KEYS
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.errors import Unavailable, UsageError
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.governance.approval import ticket_id_for


class Chat:
    """A channel that remembers, and does what it is made to do."""

    def __init__(self, name: str = "chat", *, announces: Any = None, listens: Any = None) -> None:
        self.name = name
        self.told: list[TicketView] = []
        self.listeners = self.most = self.times = 0
        self._announces = announces
        self._listens = listens

    async def announce(self, ticket: TicketView) -> str | None:
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
    async def _listening(self, tickets: Tickets) -> AsyncIterator[None]:
        if isinstance(self._listens, Exception):
            raise self._listens
        self.listeners += 1
        self.times += 1
        self.most = max(self.most, self.listeners)
        task = asyncio.create_task(self._listens(tickets)) if self._listens is not None else None
        try:
            yield
        finally:
            self.listeners -= 1
            if task is not None:
                await task


# --- submitting


@pytest.mark.parametrize("run_id", ["run-1", "x" * 128])
def test_the_ticket_of_a_request_has_the_same_safe_id_whenever_it_is_asked(run_id: str) -> None:
    first = ticket_id_for(run_id, "a")
    assert is_safe_name(first)
    assert first == ticket_id_for(run_id, "a") != ticket_id_for(run_id, "b")


def test_people_are_told_once_and_only_after_the_request_is_on_record() -> None:
    async def case() -> None:
        chat = Chat()
        async with running() as (run, _):
            asks = run.provider(chat, detach=True)
            ask = await run.opened(asks)
            assert chat.told == []
            for _ in range(2):
                with pytest.raises(StillOpen):
                    await asks.wait(ask)
            assert [view.id for view in chat.told] == [ask.ticket_id]

    done(case())


@pytest.mark.parametrize(
    ("announces", "note"),
    [
        pytest.param("no such room", "chat: no such room", id="a failure it knows"),
        pytest.param(UsageError("bad address"), "chat: not announced: bad address", id="an error of gert"),
        pytest.param(RuntimeError("token=abc"), "chat: not announced: RuntimeError", id="a foreign error"),
        pytest.param("hang", "chat: not announced within 0.05 s", id="no end"),
    ],
)
def test_a_channel_that_fails_is_a_note_and_no_failure(announces: Any, note: str) -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            ask = await run.opened()
            view = await tickets.get(ask.ticket_id)
            await Channels(tickets, [Chat(announces=announces)], limit=0.05).announce(view)
            assert (await tickets.get(ask.ticket_id)).notes == (note,)

    done(case())


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        pytest.param({"require_signed_approvals": True}, {}, "`require_signed_approvals`", id="a policy asks for it"),
        pytest.param({}, {"must_sign": True}, "a ledger that others can write to", id="others can write to the ledger"),
    ],
)
def test_signed_approvals_without_a_key_to_verify_them_are_denied_at_once(
    changes: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    async def case() -> None:
        async with running() as (run, _):
            asks = TicketApprovals("run-1", NO_KEYS, **options)
            asks.attach(run.ledger)
            answer = await asks.submit(submitting(asking(**changes)))
            assert answer.failure is not None
            assert (answer.failure.kind, why in answer.failure.message) == ("denied", True)

    done(case())


def test_a_request_that_an_approver_could_not_read_is_not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REQUEST", 1000)

    async def case() -> None:
        async with running() as (run, _):
            answer = await run.provider().submit(submitting(asking(inputs={"text": "x" * 2000})))
            assert answer.failure is not None
            assert "too large to be approved" in answer.failure.message

    done(case())


# --- waiting


async def decided(run: Run, asks: TicketApprovals, ask: Any) -> str:
    async with asyncio.timeout(30):
        count, answer = await run.waited(asks, ask)
    if count.resolved_by is None:
        return "expired" if answer.expired else "open"
    return f"{'approved' if count.resolved_by.approved else 'rejected'} by {count.resolved_by.approver}"


def test_responses_that_came_before_are_taken_with_the_events_they_lead_to() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks)
            await tickets.answer(ask.ticket_id, yes())
            assert [each.response.approver for each in (await tickets.get(ask.ticket_id)).responses] == ["bob"]
            assert await decided(run, asks, ask) == "approved by bob"
            [message] = await run.ledger.messages("run-1")
            assert message.taken == run.journal.events
            view = await tickets.get(ask.ticket_id)
            assert (view.status, view.approvals, view.waiting) == ("approved", 1, [])

    done(case())


def test_a_waiting_run_takes_responses_of_another_process_one_by_one(tmp_path: Path) -> None:
    async def case() -> None:
        db = tmp_path / "ledger.db"
        async with running(db=db) as (run, _), SqliteLedger(db, clock=Clock()) as other:
            asks = run.provider()
            ask = await run.opened(asks, min_approvers=2)
            wait = asyncio.create_task(decided(run, asks, ask))
            tickets = Tickets(other, verifier())
            await tickets.answer(ask.ticket_id, yes("bob"))
            async with asyncio.timeout(30):
                while (await tickets.get(ask.ticket_id)).approvals < 1:
                    await asyncio.sleep(0.01)
            assert not wait.done()
            await tickets.answer(ask.ticket_id, yes("eve"))
            assert await wait == "approved by eve"

    done(case())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(yes("bob"), no("eve"), "rejected by eve", id="an approval and a rejection"),
        pytest.param(no("bob"), yes("eve"), "rejected by bob", id="a rejection and an approval"),
        pytest.param(no("bob"), no("eve"), "rejected by bob", id="two rejections"),
        pytest.param(yes("bob"), yes("eve"), "approved by bob", id="two approvals"),
    ],
)
def test_two_approvers_at_the_same_instant_are_two_messages_and_no_rejection_is_lost(
    first: Any, second: Any, expected: str
) -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks)
            results = await asyncio.gather(*(tickets.answer(ask.ticket_id, each) for each in (first, second)))
            assert [each.objection for each in results] == [None, None]
            assert await decided(run, asks, ask) == expected
            assert all(each.taken for each in await run.ledger.messages("run-1"))

    done(case())


def test_more_responses_than_are_taken_at_once_all_count() -> None:
    async def case() -> None:
        many = MOST_TAKEN * 2 + 1
        async with running() as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks, min_approvers=many)
            for each in range(many):
                await tickets.answer(ask.ticket_id, yes(f"person-{each}"))
            assert await decided(run, asks, ask) == f"approved by person-{many - 1}"

    done(case())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b"[" * 5000, id="nested without end"),
        pytest.param(b'{"approved": "yes"}', id="no response"),
        pytest.param(b'{"approved":true,"approver_id":"bob"}', id="half a response"),
        pytest.param(b"x" * (64 * 1024 + 10), id="too long to be read"),
        pytest.param(encode_response(yes("b" * 300)), id="a name without end"),
        pytest.param(encode_response(yes("bo\u200bb")), id="a name with something invisible"),
        pytest.param(encode_response(no("")), id="a rejection without a name"),
        pytest.param(encode_response(yes(at=NOON.replace(year=2031))), id="from the future"),
        pytest.param(encode_response(yes(at=NOON.replace(year=2020))), id="older than the request"),
        pytest.param(encode_response(yes(ticket_id="run-2-abc")), id="for another ticket"),
        pytest.param(encode_response(yes(request_hash="sha256:1")), id="for another request"),
        pytest.param(encode_response(yes(signature="AAAA", key_id="bob", signature_alg="ed25519")), id="badly signed"),
        pytest.param(encode_response(no(key_id="bob")), id="half a signature"),
    ],
)
def test_an_unfit_or_unverifiable_message_is_refused_and_closes_nothing(body: bytes) -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks)
            # As another program would write it: gert itself posts nothing of the kind.
            await insert(run.ledger, ask.ticket_id, body)
            with pytest.raises(StillOpen):
                await run.waited(asks, ask)
            view = await tickets.get(ask.ticket_id)
            assert (view.status, view.approvals, view.waiting) == ("pending", 0, [])
            assert [each.is_taken and each.objection is not None for each in view.responses] == [True]
            await tickets.answer(ask.ticket_id, yes())
            assert await decided(run, asks, ask) == "approved by bob"

    done(case())


@pytest.mark.parametrize(
    ("key", "approver", "verdict", "expected"),
    [
        pytest.param(BOB_KEY, "bob", True, "approved by bob", id="a key of the approver"),
        pytest.param(BOB_KEY, "ann", True, "open", id="a key of another person"),
        pytest.param(MALLORY_KEY, "ann", True, "open", id="another key under the same id"),
        pytest.param(SHARED, "bob", True, "open", id="a key without an owner"),
        pytest.param(None, "bob", True, "open", id="no signature"),
        pytest.param(SHARED, "bob", False, "rejected by bob", id="a rejection by a key without an owner"),
        pytest.param(None, "bob", False, "rejected by bob", id="a rejection without a signature"),
        pytest.param(MALLORY_KEY, "ann", False, "open", id="a rejection with a signature that does not hold"),
    ],
)
def test_on_a_ledger_that_others_can_write_to_an_approval_needs_a_key_with_an_owner(
    key: Any, approver: str, verdict: bool, expected: str
) -> None:
    check = verifier(*map(public, (BOB_KEY,)), SHARED, is_strict=True, bob="bob", ann="ann")

    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider(check=check, must_sign=True, detach=True)
            ask = await run.opened(asks)
            assert ask.request.require_signed_approvals
            response = (yes if verdict else no)(approver)
            view = await tickets.get(ask.ticket_id)
            given = signed(view, key, response) if key is not None else response
            await insert(run.ledger, ask.ticket_id, encode_response(given))
            try:
                said = await decided(run, asks, ask)
            except StillOpen:
                said = "open"
            assert said == expected

    done(case())


# --- time


def test_the_clock_of_the_ledger_decides_about_the_timeout() -> None:
    async def case() -> None:
        clock = Clock()
        async with running(clock) as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks)
            # Received in time, taken later: it counts.
            await tickets.answer(ask.ticket_id, yes())
            clock.forward(hours=2)
            assert await decided(run, asks, ask) == "approved by bob"

    done(case())


def test_a_response_received_too_late_is_refused_whatever_time_it_names() -> None:
    async def case() -> None:
        clock = Clock()
        async with running(clock) as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks)
            clock.forward(hours=2)
            assert "came too late" in ((await tickets.answer(ask.ticket_id, yes())).objection or "")
            await run.ledger.post("run-1", "approval", encode_response(yes()), ask.ticket_id)
            assert await decided(run, asks, ask) == "expired"
            [refused] = (await tickets.get(ask.ticket_id)).responses
            assert "came too late" in (refused.objection or "")

    done(case())


def test_a_waiting_run_learns_that_the_time_is_over() -> None:
    async def case() -> None:
        clock = Clock()
        async with running(clock) as (run, _):
            asks = run.provider()
            ask = await run.opened(asks, approval_timeout=0.2)
            wait = asyncio.create_task(decided(run, asks, ask))
            await asyncio.sleep(0.05)
            clock.forward(seconds=1)
            assert await wait == "expired"

    done(case())


def test_a_clock_that_is_set_back_makes_no_run_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.1)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.02)

    async def case() -> None:
        clock = Clock()
        async with running(clock) as (run, _):
            asks = run.provider()
            ask = await run.opened(asks, approval_timeout=0.1)
            clock.forward(hours=-5)
            assert await decided(run, asks, ask) == "expired"

    done(case())


def test_a_ledger_that_cannot_be_reached_for_a_moment_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.02)

    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider()
            ask = await run.opened(asks)
            wait = asyncio.create_task(decided(run, asks, ask))
            await asyncio.sleep(0.05)
            messages = run.ledger.messages
            failures = iter([Unavailable("gone")] * 3)

            async def flaky(*values: Any, **options: Any) -> Any:
                for failure in failures:
                    raise failure
                return await messages(*values, **options)

            monkeypatch.setattr(run.ledger, "messages", flaky)
            await asyncio.sleep(0.1)
            assert not wait.done()
            await tickets.answer(ask.ticket_id, yes())
            assert await wait == "approved by bob"

    done(case())


# --- channels


def test_a_channel_posts_responses_and_listens_once_for_all_lanes() -> None:
    async def collect(tickets: Tickets) -> None:
        for view in await tickets.all("pending"):
            await tickets.answer(view.id, yes())

    async def case() -> None:
        chat = Chat(listens=collect)
        async with running() as (run, _):
            asks = run.provider(chat)
            waits = [await run.opened(asks, key=f"k{each}") for each in range(3)]
            async with asyncio.timeout(30):
                answers = await asyncio.gather(*map(asks.wait, waits))
            assert [each.responses[0].approver for each in answers] == ["bob"] * 3
        assert (chat.most, chat.listeners, chat.times) == (1, 0, 1)

    done(case())


def test_a_channel_that_cannot_listen_is_a_note() -> None:
    async def collect(tickets: Tickets) -> None:
        for view in await tickets.all("pending"):
            await tickets.answer(view.id, yes())

    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider(Chat("bad", listens=OSError("in use")), Chat("good", listens=collect))
            ask = await run.opened(asks)
            assert await decided(run, asks, ask) == "approved by bob"
            assert (await tickets.get(ask.ticket_id)).notes == ("bad: it does not listen: OSError",)

    done(case())


def test_waiting_can_be_cancelled_and_the_ticket_stays_open() -> None:
    async def case() -> None:
        chat = Chat()
        async with running() as (run, tickets):
            asks = run.provider(chat)
            ask = await run.opened(asks)
            wait = asyncio.create_task(asks.wait(ask))
            await asyncio.sleep(0.05)
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            assert chat.listeners == 0
            assert (await tickets.get(ask.ticket_id)).status == "pending"

    done(case())


# --- what would run has changed


@pytest.mark.parametrize("response", [pytest.param(no(), id="a rejection"), pytest.param(yes(), id="an approval")])
def test_an_outdated_ticket_is_given_up_with_the_responses_to_it(response: Any) -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks)
            await tickets.answer(ask.ticket_id, response)
            answer = await asks.withdraw(ask, Failure("approval_outdated", "another program"))
            assert answer.failure == Failure("approval_outdated", "another program")
            assert [each.approved for each in answer.responses] == [response.approved]

    done(case())
