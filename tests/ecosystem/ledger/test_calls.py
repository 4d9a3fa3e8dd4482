"""What every ledger promises about calls: who asked, what came of it, and that what means the same is done once."""

import asyncio
import re
from datetime import timedelta

import pytest
from tests.ecosystem.ledger.ledgers import (
    LEDGERS,
    NOON,
    RUN,
    TENANT,
    Clock,
    answers,
    asks,
    check,
    in_loop,
    note,
    says,
    written,
)

from gert.ecosystem.ledger import sql
from gert.kernel.events.agent import ContextRead, PauseRequested, ResumeRequested, RunStarted
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import tool_hash
from gert.kernel.ledger.record import (
    HOLDING,
    MOST_CALLS,
    Call,
    CallOutcome,
    Expect,
    Held,
    Overtaken,
    Written,
    last_seq_of,
)


def call(seq: int, key: str = "tool:k", outcome: CallOutcome = "open", done_seq: int | None = None) -> Call:
    moment = format_timestamp(NOON)
    return Call(
        RUN,
        seq,
        "tool",
        key,
        "pay",
        TENANT,
        moment,
        tool_hash("pay", "{}"),
        None,
        outcome,
        done_seq,
        "",
        done_seq or seq,
    )


def test_the_databases_and_the_kernel_agree_on_what_may_have_happened() -> None:
    listed = re.search(r"outcome IN \(([^)]*)\)", sql.HOLDERS)
    assert listed is not None
    assert {word.strip(" '") for word in listed[1].split(",")} == HOLDING


async def first_holder(ledger: Ledger, tenant: str, name: str, semantic_key: str) -> Call | None:
    return next(iter(await ledger.holders(tenant, name, semantic_key)), None)


class TestRequests:
    @in_loop
    async def test_are_found_by_their_key_the_newest_first(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            await written(ledger, RunStarted(), asks("k"), asks("k"), asks("other"))
            await written(ledger, asks("k"), answers(2, "transient_error"))
            assert await ledger.calls(RUN, "tool:k") == [
                call(5),
                call(3),
                call(2, outcome="transient_error", done_seq=6),
            ]
            assert await ledger.calls(RUN, "tool:k", limit=1) == [call(5)]
            assert await ledger.calls(RUN, "tool:none") == await ledger.calls("other", "tool:k") == []

    @in_loop
    async def test_without_an_end_are_open_the_oldest_first(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            await written(ledger, *[asks("k") for _ in range(6)])
            await written(ledger, answers(2), answers(4, "unknown_outcome"), answers(6, "permanent_error"))
            assert [each.seq for each in await ledger.open_calls(RUN)] == [1, 3, 5]
            assert await ledger.open_calls(RUN, limit=1) == [call(1)]
            assert await ledger.open_calls("other") == []

    @in_loop
    async def test_that_end_in_the_batch_they_begin_in_are_ended(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            await written(ledger, asks("k"), answers(1))
            assert await ledger.calls(RUN, "tool:k") == [call(1, outcome="success", done_seq=2)]
            assert await ledger.open_calls(RUN) == []

    @in_loop
    async def test_of_every_kind_are_kept(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, ContextRead(source="memory", step_key="r", content="x"))
            await written(ledger, PauseRequested(reason="lunch", step_key="p"))
            await written(ledger, ResumeRequested(pause_seqs=(2,)))
            [read] = await ledger.calls(RUN, "read:r")
            assert (read.kind, read.name, read.outcome, read.done_seq) == ("read", "memory", "success", 1)
            [pause] = await ledger.calls(RUN, "pause:p")
            assert (pause.outcome, pause.done_seq) == ("success", 3)

    @in_loop
    async def test_are_counted_for_a_run_and_for_a_tenant(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            await written(ledger, asks("k"), asks("k"), asks("k", tool="look"))
            await written(ledger, ContextRead(source="pay", step_key="r", content=""))
            clock.passes(60)
            await ledger.append("b", says(asks("k")))
            await ledger.append("c", says(asks("k"), tenant="other"))
            later = NOON + timedelta(seconds=60)
            assert await ledger.count_calls("pay", run_id=RUN) == 2
            assert await ledger.count_calls("pay", run_id=RUN, since=later) == 0
            assert await ledger.count_calls("pay", tenant=TENANT) == 3
            assert await ledger.count_calls("pay", tenant=TENANT, since=later) == 1
            assert await ledger.count_calls("pay", run_id=RUN, tenant="other") == 0
            assert await ledger.count_calls("pay") == 4
            assert await ledger.count_calls("none", tenant=TENANT) == 0
            assert await ledger.count_calls("pay", run_id="../x") == 0


class TestExpecting:
    @in_loop
    async def test_a_writer_that_was_overtaken_writes_nothing(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            assert isinstance(await ledger.append(RUN, says(asks("k")), expects=[Expect("tool:k", 0)]), Written)
            done = await ledger.append(RUN, says(asks("k")), expects=[Expect("tool:k", 0)])
            assert done == Overtaken("tool:k")
            done = await ledger.append(
                RUN, says(asks("k")), expects=[Expect("tool:other", 0), Expect("tool:k", 1), Expect("tool:k", 7)]
            )
            assert done == Overtaken("tool:k")
            assert isinstance(await ledger.append(RUN, says(asks("k")), expects=[Expect("tool:k", 1)]), Written)
            assert len(await check(ledger)) == 2

    @in_loop
    async def test_a_writer_that_did_not_see_the_end_of_a_request_writes_nothing(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks("k"), asks("other"))
            await written(ledger, answers(1, "transient_error"))
            assert await ledger.append(RUN, says(asks("k")), expects=[Expect("tool:k", 1)]) == Overtaken("tool:k")
            # What happens under other keys is of no concern.
            assert isinstance(await ledger.append(RUN, says(answers(2)), expects=[Expect("tool:other", 2)]), Written)
            assert isinstance(await ledger.append(RUN, says(asks("k")), expects=[Expect("tool:k", 3)]), Written)

    @in_loop
    async def test_only_the_newest_requests_under_a_key_count(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, *[asks("k") for _ in range(MOST_CALLS + 5)])
            await written(ledger, answers(2, "transient_error"))
            found = await ledger.calls(RUN, "tool:k")
            expects = [Expect("tool:k", last_seq_of(found))]
            assert isinstance(await ledger.append(RUN, says(asks("k")), expects=expects), Written)

    @in_loop
    async def test_of_many_who_expect_the_same_one_asks(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, RunStarted())
            expects = [Expect("tool:k", 0)]
            done = await asyncio.gather(
                *(ledger.append(RUN, says(asks("k")), expects=expects) for _ in range(20)),
                *(written(ledger, note(str(n))) for n in range(20)),
            )
            assert [type(each) for each in done[:20]].count(Written) == 1
            assert [type(each) for each in done[:20]].count(Overtaken) == 19
            assert len(await check(ledger)) == 22


class TestHolding:
    @in_loop
    async def test_of_many_calls_that_mean_the_same_one_is_made(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            runs = [f"run-{number}" for number in range(12)]
            done = await asyncio.gather(*(ledger.append(run, says(asks("k", "order-7"))) for run in runs))
            [winner] = [each for each in done if isinstance(each, Written)]
            held = [each for each in done if isinstance(each, Held)]
            assert len(held) == 11
            assert {each.call for each in held} == {winner.batch.calls[0]}
            assert [head.run_id for head in await ledger.runs()] == [winner.batch.head.run_id]
            assert await first_holder(ledger, TENANT, "pay", "order-7") == winner.batch.calls[0]

    @pytest.mark.parametrize("outcome", ["open", "success", "unknown_outcome"])
    @in_loop
    async def test_what_may_have_happened_holds_its_key(self, kind: str, place: str, outcome: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks("k", "order-7"))
            if outcome != "open":
                await written(ledger, answers(1, outcome))
            done = await ledger.append("other", says(RunStarted(), asks("k", "order-7")))
            assert isinstance(done, Held)
            assert (done.call.run_id, done.call.seq, done.call.outcome) == (RUN, 1, outcome)
            assert await ledger.head("other") is None

    @pytest.mark.parametrize("outcome", ["transient_error", "permanent_error"])
    @in_loop
    async def test_what_did_not_happen_lets_go_of_it(self, kind: str, place: str, outcome: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks("k", "order-7"))
            await written(ledger, answers(1, outcome))
            before = await first_holder(ledger, TENANT, "pay", "order-7")
            assert before is not None
            assert (before.seq, before.outcome) == (1, outcome)
            done = await ledger.append("other", says(asks("k", "order-7")))
            assert isinstance(done, Written)
            assert await first_holder(ledger, TENANT, "pay", "order-7") == done.batch.calls[0]

    @in_loop
    async def test_a_run_that_releases_a_key_in_the_same_batch_may_claim_it_again(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks("k", "order-7"))
            again = await written(ledger, answers(1, "transient_error"), asks("k", "order-7"))
            assert await first_holder(ledger, TENANT, "pay", "order-7") == again.batch.calls[0]
            assert isinstance(await ledger.append("other", says(asks("k", "order-7"))), Held)

    @in_loop
    async def test_two_that_mean_the_same_are_not_made_in_one_batch_either(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            done = await ledger.append(RUN, says(asks("a", "order-7"), asks("b", "order-7")))
            assert isinstance(done, Held)
            assert await ledger.head(RUN) is None

    @in_loop
    async def test_other_tenants_tools_and_keys_are_others(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks("k", "order-7"), asks("k", "order-8"), asks("k"), asks("k"))
            assert isinstance(await ledger.append("b", says(asks("k", "order-7", tool="look"))), Written)
            assert isinstance(await ledger.append("c", says(asks("k", "order-7"), tenant="other")), Written)
            assert await first_holder(ledger, "nobody", "pay", "order-7") is None

    @in_loop
    async def test_what_is_settled_later_holds_again_unless_another_does(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks("k", "order-7"), answers(1, "transient_error"))
            await written(ledger, answers(1))
            assert isinstance(await ledger.append("other", says(asks("k", "order-7"))), Held)
            await written(ledger, answers(1, "transient_error"))
            taken = await ledger.append("other", says(asks("k", "order-7")))
            assert isinstance(taken, Written)
            # It did happen, which is a fact, and the other one is under way, which is one too.
            await written(ledger, answers(1))
            [settled] = await ledger.calls(RUN, "tool:k")
            assert settled.outcome == "success"
            holder = await first_holder(ledger, TENANT, "pay", "order-7")
            assert holder is not None
            assert holder.run_id == "other"
            await ledger.append("other", says(answers(1)))
            assert isinstance(await ledger.append("third", says(asks("k", "order-7"))), Held)

    @pytest.mark.parametrize("together", [False, True], ids=["before", "in the same batch"])
    @in_loop
    async def test_a_call_that_happened_after_all_holds_its_key_once_the_other_lets_go(
        self, kind: str, place: str, together: bool
    ) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, asks("k", "order-1"), run_id="run-a")
            await written(ledger, answers(1, "transient_error"), run_id="run-a")
            await written(ledger, asks("k", "order-1"), run_id="run-b")
            await written(ledger, answers(1, "success"), run_id="run-a")
            if together:
                held = await ledger.append("run-b", says(answers(1, "transient_error"), asks("k", "order-1")))
                head = await ledger.head("run-b")
                assert head is not None
                assert head.count == 1
            else:
                await written(ledger, answers(1, "transient_error"), run_id="run-b")
                held = await ledger.append("run-c", says(asks("k", "order-1")))
                found = await first_holder(ledger, TENANT, "pay", "order-1")
                assert found is not None
                assert found.run_id == "run-a"
            assert isinstance(held, Held)
            assert (held.call.run_id, held.call.outcome) == ("run-a", "success")

    @in_loop
    async def test_of_many_one_asks_again_where_the_last_did_not_happen(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            for run_id in ("run-a", "run-b"):
                await written(ledger, asks("k", "order-1"), run_id=run_id)
                await written(ledger, answers(1, "permanent_error"), run_id=run_id)
            done = await asyncio.gather(
                *(ledger.append(f"run-{number}", says(asks("k", "order-1"))) for number in range(12))
            )
            assert [type(each) for each in done].count(Written) == 1
            assert [type(each) for each in done].count(Held) == 11
