"""What every ledger promises beside events: answers, documents, tickets, messages, output and claims."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest
from tests.ecosystem.ledger.ledgers import (
    LEDGERS,
    LONG,
    NOON,
    RUN,
    SHARED,
    STARTED,
    Clock,
    drives,
    in_loop,
    note,
    outcome_of,
    process,
    says,
    written,
)
from tests.soak import sampled

from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import InputError, RunError, TraceError
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import ApprovalResolved, ApprovalSubmitted, RunComplete, StepComplete, StepStart
from gert.kernel.ledger.append_rules import MAX_ANSWER_BYTES
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import MAX_MESSAGE, Batch, Claim, Output, Written

shared = pytest.mark.parametrize("kind", sampled(SHARED, ["sqlite", "postgres"]))
CALLS = StepStart(step_id="pay", step_type="tool", tool="bank", action="pay")
ENDS = StepComplete(step_id="pay", status="success", duration="1s")
OVER = RunComplete(status="completed", mode="real", duration="1s")


def asks(ticket_id: str, step_id: str = "pay") -> ApprovalSubmitted:
    return ApprovalSubmitted(
        ticket_id=ticket_id, step_id=step_id, risk_level="high", request_hash="h", min_approvers=1, method="ticket",
        expires_at="2026-02-28T13:00:00.000000Z",
    )  # fmt: skip


def approved(ticket_id: str) -> ApprovalResolved:
    return ApprovalResolved(ticket_id=ticket_id, step_id="pay", approved=True, status="approved", method="ticket")


async def drive(ledger: Ledger, *payloads: Payload, run_id: str = RUN, **parts: object) -> Written:
    """Append to a runbook run, which is begun if it has not begun."""
    if await ledger.head(run_id) is None:
        assert await ledger.acquire(run_id, "driver", 600) is not None
        await ledger.append(run_id, drives(STARTED))
    done = await ledger.append(run_id, drives(*payloads, **parts))  # type: ignore[arg-type]
    assert isinstance(done, Written)
    return done


class TestAnswers:
    @in_loop
    async def test_are_kept_in_order_and_named_by_the_next_event(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS)
            await drive(ledger, answers=[b'{"n":1}'])
            await drive(ledger, ENDS, answers=[b'{"n":2}', b'{"n":3}'])
            assert await ledger.answers(RUN) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
            assert await ledger.answers(RUN, since=1, limit=1) == [b'{"n":2}']
            head = await ledger.head(RUN)
            assert head is not None
            assert head.answers == 3
            [line] = await ledger.last_lines(RUN, 1)
            assert f'"answers":"3:{head.answers_hash}"'.encode() in line
            report = await verify_run(ledger, RUN)
            assert report.holds, report.failures

    @pytest.mark.parametrize("answer", [b"", b"{}\n{}", b"x" * (MAX_ANSWER_BYTES + 1)], ids=["empty", "two", "large"])
    @in_loop
    async def test_that_are_no_line_are_refused(self, kind: str, place: str, answer: bytes) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS)
            with pytest.raises(TraceError, match="an answer is"):
                await ledger.append(RUN, drives(answers=[answer]))
            assert await ledger.answers(RUN) == []


class TestCalls:
    @in_loop
    async def test_of_a_runbook_are_open_until_their_step_ends(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS)
            [call] = await ledger.open_calls(RUN)
            assert (call.key, call.name, call.last_seq) == ("tool:pay", "bank:pay", call.seq)
            await drive(ledger, ENDS)
            assert await ledger.open_calls(RUN) == []
            [ended] = await ledger.calls(RUN, "tool:pay")
            assert (ended.outcome, ended.done_seq, ended.last_seq) == ("success", 3, 3)


class TestDocuments:
    @in_loop
    async def test_are_stored_once_for_all_runs(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            for run_id in ("a", "b"):
                await drive(ledger, CALLS, run_id=run_id, documents=[("d1", b"one"), ("d2", b"two")])
            assert await ledger.documents(["d1", "d2", "d3"]) == {"d1": b"one", "d2": b"two"}


class TestTickets:
    @in_loop
    async def test_are_found_by_status_run_and_prefix(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            for number, run_id in enumerate(("a", "b")):
                clock.passes(1)
                await drive(ledger, CALLS, asks(f"t-{number}1"), asks(f"t-{number}2"), run_id=run_id)
            await drive(ledger, approved("t-01"), run_id="a")
            assert [row.ticket_id for row in await ledger.tickets()] == ["t-01", "t-02", "t-11", "t-12"]
            assert [row.ticket_id for row in await ledger.tickets("pending")] == ["t-02", "t-11", "t-12"]
            assert [row.ticket_id for row in await ledger.tickets("approved", "rejected")] == ["t-01"]
            assert [row.ticket_id for row in await ledger.tickets(run_id="b", limit=1)] == ["t-11"]
            [row] = await ledger.tickets(prefix="t-01")
            assert (row.run_id, row.step_id, row.status, row.done_seq) == ("a", "pay", "approved", 5)
            assert row.expires_at == "2026-02-28T13:00:00.000000Z"
            assert await ledger.tickets(prefix="x") == []

    @in_loop
    async def test_that_are_open_when_a_run_ends_are_abandoned(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS, asks("t1"), approved("t1"), asks("t2"))
            await drive(ledger, OVER)
            assert [(row.ticket_id, row.status) for row in await ledger.tickets()] == [
                ("t1", "approved"),
                ("t2", "abandoned"),
            ]
            report = await verify_run(ledger, RUN)
            assert report.holds, report.failures


class TestMessages:
    @in_loop
    async def test_need_no_lease_and_are_kept_in_the_order_they_came(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            await drive(ledger, CALLS, asks("t1"))
            await ledger.post(RUN, "approval", b'{"by":"ann"}', "t1")
            await ledger.post(RUN, "cancel", b"{}")
            first, second = await ledger.messages(RUN)
            assert (first.kind, first.body, first.ticket_id, first.taken) == ("approval", b'{"by":"ann"}', "t1", None)
            assert await ledger.messages(RUN, ticket_id="t1") == [first]
            assert await ledger.messages(RUN, since=first.id) == [second]
            assert await ledger.messages("other") == []
            done = await drive(ledger, approved("t1"), taken=[first.id])
            assert [message.taken for message in await ledger.messages(RUN)] == [done.last, None]

    @in_loop
    async def test_to_a_run_that_is_not_there_are_refused(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await ledger.acquire("leased", "w", 60)
            for run_id in (RUN, "leased"):
                with pytest.raises(RunError, match="there is no run"):
                    await ledger.post(run_id, "cancel", b"{}")
            with pytest.raises(RunError, match="is not a run id"):
                await ledger.post("../x", "cancel", b"{}")
            with pytest.raises(InputError):
                await ledger.post(RUN, "approval", b"{}", "t\0")

    @in_loop
    async def test_wake_the_driver(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, poll_interval=LONG) as ledger:
            await drive(ledger, CALLS)
            assert await ledger.wait_for_message(RUN, 0, 0.01) is False
            waiting = asyncio.create_task(ledger.wait_for_message(RUN, 0, LONG))
            await asyncio.sleep(0.02)
            await ledger.post(RUN, "cancel", b"{}")
            assert await waiting is True
            [message] = await ledger.messages(RUN)
            assert await ledger.wait_for_message(RUN, message.id, 0.01) is False

    @in_loop
    async def test_wake_the_driver_even_if_their_author_was_cancelled(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, poll_interval=LONG) as ledger:
            await drive(ledger, CALLS)
            waiting = asyncio.create_task(ledger.wait_for_message(RUN, 0, LONG))
            await asyncio.sleep(0.02)
            posting = asyncio.create_task(ledger.post(RUN, "cancel", b"{}"))
            await asyncio.sleep(0)
            posting.cancel()
            assert await waiting is True

    @shared
    @in_loop
    async def test_of_another_process_wake_the_driver(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS)
            waiting = asyncio.create_task(ledger.wait_for_message(RUN, 0, 60.0))
            await outcome_of(process(kind, place, 'await ledger.post(RUN, "cancel", b"{}")'))
            assert await waiting is True

    @in_loop
    async def test_at_the_same_instant_are_two(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS)
            await asyncio.gather(*(ledger.post(RUN, "cancel", b"{}") for _ in range(20)))
            assert len({message.id for message in await ledger.messages(RUN)}) == 20

    @in_loop
    async def test_about_a_ticket_that_is_not_there_or_too_long_are_refused(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS, asks("t1"))
            for run_id, ticket_id in ((RUN, "t2"), ("other", "t1")):
                with pytest.raises(RunError, match="there is no ticket"):
                    await ledger.post(run_id, "approval", b"{}", ticket_id)
            with pytest.raises(InputError, match="too long"):
                await ledger.post(RUN, "approval", b"x" * (MAX_MESSAGE + 1), "t1")
            assert await ledger.messages(RUN) == []

    @in_loop
    async def test_are_stamped_by_the_clock_of_the_ledger(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS)
            before = await ledger.time()
            await ledger.post(RUN, "cancel", b"")
            [message] = await ledger.messages(RUN)
            assert before <= parse_timestamp(message.received_at) <= await ledger.time()
            assert message.body == b""


class TestOutput:
    @in_loop
    async def test_is_read_while_a_step_runs_and_dropped_with_its_answer(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await drive(ledger, CALLS)
            one, two = Output("tool:pay", "stdout", "hello"), Output("tool:other", "stderr", "wörld")
            await ledger.write_output(RUN, [one, two])
            await ledger.write_output(RUN, [])
            mark, found = await ledger.output(RUN)
            assert found == [one, two]
            assert await ledger.output(RUN, "tool:pay") == (mark - 1, [one])
            assert await ledger.output(RUN, since=mark) == (mark, [])
            await drive(ledger, ENDS, answers=[b"{}"], finished=["tool:pay"])
            assert (await ledger.output(RUN))[1] == [two]


class TestClaims:
    @staticmethod
    async def claim(ledger: Ledger, *claims: Claim, run_id: str = RUN) -> Mapping[str, int]:
        found = await ledger.append(run_id, lambda head, _: Batch(head, (), claims=claims))
        assert isinstance(found, Written)
        return found.refused

    @in_loop
    async def test_are_counted_for_an_hour(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            both = (Claim("deploys", "one", 2), Claim("deploys", "two", 2))
            assert await self.claim(ledger, *both) == {}
            assert await self.claim(ledger, Claim("deploys", "three", 2), Claim("others", "four", 2)) == {"three": 2}
            assert await ledger.claimed(NOON - timedelta(hours=1)) == {"deploys": 2, "others": 1}
            assert await self.claim(ledger, Claim("deploys", "one", 2)) == {}, "the same request is counted once"
            assert await self.claim(ledger, Claim("deploys", "five")) == {}
            assert await self.claim(ledger, Claim("deploys", "one", 2), run_id="other") == {"one": 3}
            clock.passes(3601)
            assert await self.claim(ledger, Claim("deploys", "six", 1)) == {}
            assert await ledger.claimed(clock() - timedelta(hours=1)) == {"deploys": 1}

    @in_loop
    async def test_one_batch_does_not_exceed_a_limit(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            claims = [Claim("k", f"r{n}", 3) for n in range(5)]
            assert await self.claim(ledger, *claims) == {"r3": 3, "r4": 3}

    @shared
    @in_loop
    async def test_of_many_at_once_as_many_as_the_limit_succeed(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger, LEDGERS[kind](place) as other:
            asked = (self.claim((ledger, other)[n % 2], Claim("k", "r", 5), run_id=f"run-{n}") for n in range(20))
            assert sum(not refused for refused in await asyncio.gather(*asked)) == 5


@in_loop
async def test_an_append_of_nothing_writes_nothing(kind: str, place: str) -> None:
    async with LEDGERS[kind](place) as ledger:
        await written(ledger, note())
        head = await ledger.head(RUN)
        done = await ledger.append(RUN, says())
        assert isinstance(done, Written)
        assert await ledger.head(RUN) == head
