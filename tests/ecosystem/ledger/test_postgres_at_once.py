"""An append to Postgres as one statement: when it is one, and that it refuses what a transaction refuses."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from tests.ecosystem.ledger.ledgers import Clock, answers, asks, in_loop, note, says, written
from tests.ecosystem.ledger.postgres_writes import append_all, notes_of
from tests.postgres import execute

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import IntegrityError, LeaseLost, TraceError
from gert.kernel.events.payload import Payload
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import (
    Batch,
    CallLimit,
    Exceeded,
    Expect,
    Head,
    Held,
    Limit,
    Overtaken,
    SpendLimit,
    Write,
    Written,
)


@contextmanager
def statements() -> Iterator[list[str]]:
    """The first word of every statement that changes something or begins a transaction."""
    sent: list[str] = []

    def noting(real: Any) -> Any:
        async def run(self: Any, query: str, *args: Any, **more: Any) -> Any:
            word = query.split(maxsplit=1)[0].rstrip(";")
            if word in ("WITH", "BEGIN", "COMMIT", "INSERT", "UPDATE"):
                sent.append(word)
            return await real(self, query, *args, **more)

        return run

    with pytest.MonkeyPatch.context() as patched:
        for name in ("execute", "executemany", "fetch"):
            patched.setattr(asyncpg.Connection, name, noting(getattr(asyncpg.Connection, name)))
        yield sent


@in_loop
async def test_an_append_is_one_statement_where_this_ledger_wrote_the_run_last(dsn: str) -> None:
    async with PostgresLedger(dsn) as ledger:
        await written(ledger, note("a"), run_id="run")
        await written(ledger, asks("old"), run_id="run")
        batches: list[tuple[Payload, ...]] = [
            (note("b"),),
            (note("c"), note("d")),
            (asks("k"),),
            (answers(6), note("e")),
        ]
        with statements() as sent:
            for payloads in batches:
                await written(ledger, *payloads, run_id="run")
        assert sent == ["WITH"] * len(batches)
        assert await notes_of(ledger, "run") == ["a", "b", "c", "d", "e"]
        assert [call.outcome for call in await ledger.all_calls("run")] == ["open", "success"]
        assert (await verify_run(ledger, "run")).holds


@in_loop
async def test_an_append_after_another_process_wrote_the_run_is_made_under_the_lock(dsn: str) -> None:
    async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
        for ledger, text in ((one, "a"), (two, "b"), (one, "c"), (two, "d"), (two, "e")):
            await append_all(ledger, "run", [text])
        assert await notes_of(one, "run") == ["a", "b", "c", "d", "e"]
        assert (await verify_run(one, "run")).holds


@in_loop
async def test_two_ledgers_that_append_at_once_write_every_event_once(dsn: str) -> None:
    async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
        texts = {ledger: [f"{name}-{n}" for n in range(30)] for name, ledger in (("one", one), ("two", two))}
        await asyncio.gather(*(append_all(ledger, "run", each) for ledger, each in texts.items()))
        found = await notes_of(one, "run")
        for each in texts.values():
            assert [text for text in found if text in each] == each
        assert (await verify_run(two, "run")).holds


@in_loop
async def test_an_expectation_that_does_not_hold_writes_nothing(dsn: str) -> None:
    async with PostgresLedger(dsn) as ledger:
        asked = await written(ledger, asks("k"), run_id="run")
        for expected in (0, 99):
            refused = await ledger.append("run", says(asks("k")), expects=[Expect("tool:k", expected)])
            assert refused == Overtaken("tool:k")
        with statements() as sent:
            assert isinstance(await ledger.append("run", says(note()), expects=[Expect("tool:k", asked.last)]), Written)
        assert sent == ["WITH"]
        head = await ledger.head("run")
        assert head is not None
        assert head.count == 2


@in_loop
async def test_what_refuses_an_append_is_asked_about_the_head_that_is_there(dsn: str) -> None:
    def once(head: Head, moment: str) -> Batch:
        if head.count == 1:
            raise TraceError("one event is not enough")
        return build_batch(head, moment, "acme", ())

    async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
        await append_all(one, "run", ["a"])
        await append_all(two, "run", ["b"])
        assert isinstance(await one.append("run", once), Written)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param("hash = repeat('0', 64)", id="another hash"),
        pytest.param("count = 1", id="another number of events"),
        pytest.param("snapshot = '{\"type\":\"agent\"}', hash = repeat('1', 64)", id="another snapshot and hash"),
    ],
)
def test_a_head_that_was_edited_since_the_last_append_is_not_continued(dsn: str, edit: str) -> None:
    async def main() -> None:
        async with PostgresLedger(dsn) as ledger:
            await append_all(ledger, "run", ["a", "b"])
            await asyncio.to_thread(execute, dsn, f"UPDATE gert.runs SET {edit}")
            with pytest.raises((IntegrityError, TraceError)):
                await append_all(ledger, "run", ["c"])

    asyncio.run(main())


@in_loop
async def test_an_append_under_a_lease_is_one_statement_until_the_lease_expires_or_is_taken(dsn: str) -> None:
    clock = Clock()
    async with PostgresLedger(dsn, clock=clock) as one, PostgresLedger(dsn, clock=clock) as two:
        assert await one.acquire("run", "one", 10) is not None
        await append_all(one, "run", ["a"])
        with statements() as sent:
            await append_all(one, "run", ["b"])
            assert sent == ["WITH"]
            clock.passes(20)
            # An expired lease is renewed with the append, which takes a transaction.
            await append_all(one, "run", ["c"])
        assert sent[:2] == ["WITH", "WITH"]
        assert len(sent) > 2
        with pytest.raises(LeaseLost):
            await append_all(two, "run", ["x"])
        clock.passes(20)
        assert await two.acquire("run", "two", 10) is not None
        with pytest.raises(LeaseLost):
            await append_all(one, "run", ["y"])
        await append_all(two, "run", ["d"])
        assert await notes_of(two, "run") == ["a", "b", "c", "d"]


def within(payload: Payload, *limits: Limit) -> Write:
    """A write of an event under limits."""
    return lambda head, moment: build_batch(head, moment, "acme", (Entry(payload),))._replace(limits=limits)


RATE = CallLimit("acme", "pay", 3, 3600.0)
BUDGET = SpendLimit("tenant", "acme", "", 10**22, 3600.0)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(says(asks("k", "invoice-1")), id="a semantic key"),
        pytest.param(within(asks("k"), RATE), id="a rate"),
        pytest.param(within(asks("k", "invoice-1"), BUDGET, RATE), id="a semantic key, a budget and a rate"),
    ],
)
def test_an_append_that_waits_for_other_runs_locks_their_names_and_is_one_statement(dsn: str, write: Write) -> None:
    async def main() -> None:
        async with PostgresLedger(dsn) as ledger:
            await written(ledger, note(), run_id="run")
            with statements() as sent:
                assert isinstance(await ledger.append("run", write), Written)
            assert sent == ["BEGIN", "WITH", "WITH", "COMMIT"]
            assert (await verify_run(ledger, "run")).holds

    asyncio.run(main())


@in_loop
async def test_a_key_that_is_held_and_a_limit_that_is_reached_write_nothing(dsn: str) -> None:
    async with PostgresLedger(dsn) as ledger:
        await written(ledger, note(), run_id="run")
        assert isinstance(await ledger.append("run", within(asks("a", "invoice-1"), RATE)), Written)
        assert isinstance(await ledger.append("run", says(asks("b", "invoice-1"))), Held)
        for key in ("c", "d"):
            assert isinstance(await ledger.append("run", within(asks(key), RATE)), Written)
        assert await ledger.append("run", within(asks("e"), RATE)) == Exceeded(RATE, 3)
        spent = SpendLimit("tenant", "acme", "", 0)
        assert await ledger.append("run", within(asks("f"), spent)) == Exceeded(spent, 0)
        assert [call.key for call in await ledger.all_calls("run")] == ["tool:a", "tool:c", "tool:d"]
        assert (await verify_run(ledger, "run")).holds


@in_loop
async def test_of_runs_that_want_one_key_or_the_last_calls_of_a_rate_no_more_get_them(dsn: str) -> None:
    async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
        runs = [((one, two)[n % 2], f"run-{n}") for n in range(8)]
        # Each ledger wrote its runs last, so that each believes that it may.
        await asyncio.gather(*(written(ledger, note(), run_id=run_id) for ledger, run_id in runs))
        for n in range(10):
            asked = (ledger.append(run_id, says(asks(f"k{n}", f"invoice-{n}"))) for ledger, run_id in runs)
            made = await asyncio.gather(*asked)
            assert sorted(type(each).__name__ for each in made) == ["Held"] * 7 + ["Written"]
        rate = CallLimit("acme", "mail", 3, 3600.0)
        asked = (ledger.append(run_id, within(asks("m", tool="mail"), rate)) for ledger, run_id in runs)
        made = await asyncio.gather(*asked)
        assert sorted(type(each).__name__ for each in made) == ["Exceeded"] * 5 + ["Written"] * 3


@in_loop
async def test_two_ledgers_that_append_keys_to_one_run_do_not_wait_for_each_other(dsn: str) -> None:
    async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
        await written(one, note(), run_id="run")
        asked = [(one, two)[n % 2].append("run", within(asks(f"k{n}", f"i-{n % 10}"), BUDGET)) for n in range(40)]
        made = await asyncio.gather(*asked)
        assert [type(each) for each in made].count(Written) == 10
        assert (await verify_run(two, "run")).holds


@pytest.mark.parametrize(
    ("question", "given", "wanted"),
    [
        pytest.param("CALLS", ("r", "k", 10), ("calls_by_key", "key >= "), id="the calls under a key"),
        pytest.param("LAST_CALL", ("r", "k"), ("calls_by_key", "key >= "), id="the last event about a key"),
        pytest.param("END_CALL", ("r", 5, 6, "success", None), ("calls_pkey", "seq = "), id="the end of a call"),
    ],
)
def test_calls_are_found_by_their_index_from_the_first_plan_on(
    dsn: str, question: str, given: tuple[Any, ...], wanted: tuple[str, str]
) -> None:
    async def main() -> str:
        async with PostgresLedger(dsn) as ledger, ledger._connection(await ledger._opened()) as connection:
            return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {getattr(sql, question)}", *given))

    plan = asyncio.run(main())
    assert all(each in plan for each in wanted), plan
    assert plan.count("Index Scan") == 1, plan
