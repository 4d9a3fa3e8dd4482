"""Tickets of a ledger: found by id, shown with their responses, and answered."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import NOON, Clock, Run, done, no, running, yes

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import DocumentError, GertError, UsageError


def test_a_ticket_is_the_whole_request_and_open_for_as_long_as_it_says() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            ask = await run.opened()
            view = await tickets.get(ask.ticket_id)
            assert view.ticket.request.inputs["token"] == "Bearer [REDACTED]"
            assert view.ticket.request.request_hash == ask.request.request_hash
            assert view.ticket.expires_at == "2026-01-02T12:30:00.000000Z"
            assert (view.status_at(NOON), view.status_at(NOON + timedelta(minutes=31))) == ("pending", "expired")

    done(case())


@pytest.mark.parametrize("responses", [[], [yes()], [no()], [yes("eve"), no("dan")]], ids=repr)
def test_verification_computes_the_ticket_again(responses: list[Any]) -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks)
            for each in responses:
                await tickets.answer(ask.ticket_id, each)
            if responses:
                await run.waited(asks, ask)
            assert (await verify_run(run.ledger, run.run_id)).failures == ()

    done(case())


@pytest.mark.parametrize(
    "column", ["request = '{}'", "responses = ''", "status = 'approved'", "expires_at = '2099-01-01T00:00:00.000000Z'"]
)
def test_a_changed_ticket_is_found(tmp_path: Path, column: str) -> None:
    async def case() -> None:
        async with running(db=tmp_path / "ledger.db") as (run, tickets):
            asks = run.provider(detach=True)
            ask = await run.opened(asks, min_approvers=2)
            await tickets.answer(ask.ticket_id, yes())
            with pytest.raises(Exception, match="is open"):
                await run.waited(asks, ask)
            await _change(run, f"UPDATE tickets SET {column}")
            [failure] = (await verify_run(run.ledger, run.run_id)).failures
            assert failure.reason == "the stored tickets are not those of the events"

    done(case())


async def _change(run: Run, statement: str) -> None:
    from gert.ecosystem.ledger.transactions import Change

    def begin() -> Any:
        yield Change(statement, ((),))

    await run.ledger._executor.transact(begin, lambda _: None)  # type: ignore[attr-defined]


def test_a_ticket_that_cannot_be_read_is_named_beside_the_others(tmp_path: Path) -> None:
    async def case() -> None:
        async with running(db=tmp_path / "ledger.db") as (run, tickets):
            first, second = await run.opened(key="a"), await run.opened(key="b")
            await _change(run, f"UPDATE tickets SET request = '[' WHERE ticket_id = '{first.ticket_id}'")
            problems: list[GertError] = []
            assert [each.id for each in await tickets.all(on_problem=problems.append)] == [second.ticket_id]
            assert [first.ticket_id in each.message for each in problems] == [True]
            with pytest.raises(DocumentError):
                await tickets.get(first.ticket_id)

    done(case())


def test_a_unique_prefix_is_enough_and_one_of_several_is_refused() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            first, second = await run.opened(key="a"), await run.opened(key="b")
            assert await tickets.find(first.ticket_id) == first.ticket_id
            assert await tickets.find(first.ticket_id[:-3]) == first.ticket_id
            with pytest.raises(UsageError, match="may be 2 tickets") as refused:
                await tickets.find("run-1")
            assert second.ticket_id in (refused.value.hint or "")

    done(case())


@pytest.mark.parametrize("name", ["", "../x", "/etc/passwd", "a\nb", "a/b", "x" * 300])
def test_what_is_no_id_leads_nowhere(name: str) -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            await run.opened()
            for act in (tickets.find(name), tickets.get(name), tickets.answer(name, yes()), tickets.note(name, "x")):
                with pytest.raises(UsageError, match="is not a ticket id"):
                    await act

    done(case())


def test_an_unknown_ticket_leaves_nothing_behind() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            await run.opened()
            for act in (tickets.find("nothing"), tickets.answer("nothing", yes()), tickets.note("nothing", "x")):
                with pytest.raises(UsageError, match="there is no ticket"):
                    await act
            assert await run.ledger.messages(run.run_id) == []

    done(case())


def test_a_response_that_waits_is_shown_as_received_and_decides_nothing() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            ask = await run.opened()
            answered = await tickets.answer(ask.ticket_id, yes())
            assert (answered.objection, answered.is_decided) == (None, True)
            for view in (answered.view, await tickets.get(ask.ticket_id)):
                [received] = view.responses
                assert (view.status, view.approvals) == ("pending", 0)
                assert (received.counts, received.is_taken, received.objection) == (False, False, None)

    done(case())


def test_a_rejection_is_received_although_enough_approvals_wait() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            ask = await run.opened()
            await tickets.answer(ask.ticket_id, yes("eve"))
            assert (await tickets.answer(ask.ticket_id, no("bob"))).objection is None

    done(case())


def test_tickets_are_listed_by_status_the_oldest_first() -> None:
    async def case() -> None:
        clock = Clock()
        async with running(clock) as (run, tickets):
            late = await run.opened(key="late", approval_timeout=60.0)
            clock.forward(minutes=2)
            open_, rejected = await run.opened(key="a"), await run.opened(key="b")
            await tickets.answer(rejected.ticket_id, no(at=clock.now))
            await run.waited(run.provider(detach=True), rejected)
            assert [each.id for each in await tickets.all("pending")] == [open_.ticket_id]
            assert [each.id for each in await tickets.all("expired")] == [late.ticket_id]
            assert [each.id for each in await tickets.all("rejected")] == [rejected.ticket_id]
            assert (await tickets.all())[0].id == late.ticket_id

    done(case())


def test_a_note_is_kept_for_people_and_bounded() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            ask = await run.opened()
            for each in range(30):
                await tickets.note(ask.ticket_id, f"{each} \x1b[2J" + "x" * 1000)
            notes = (await tickets.get(ask.ticket_id)).notes
            assert len(notes) == 20
            assert all(len(each) <= 300 and "\x1b" not in each for each in notes)
            assert notes[-1].startswith("29 ")

    done(case())


def test_two_runs_of_one_ledger_have_their_own_tickets() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            first = await run.opened()
            other = Run(run.ledger, "run-2")
            second = await other.opened()
            await Tickets(run.ledger).answer(second.ticket_id, yes())
            assert (await tickets.get(first.ticket_id)).responses == ()
            assert [each.run_id for each in await run.ledger.messages("run-2")] == ["run-2"]

    done(case())
