"""A ledger on Postgres when connections break, servers restart, and whoever waits is cancelled."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest
from tests.postgres import Server

from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.ecosystem.stores.postgres_pool import Link
from gert.errors import TraceError
from gert.kernel.ledger.record import Held, Written

from .ledgers import asks, note, says
from .postgres_writes import append_all, notes_of

KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'gert' AND datname = current_database() AND pid <> pg_backend_pid()
"""


@asynccontextmanager
async def killing(dsn: str, seed: int, written: list[str]) -> AsyncIterator[Callable[[], int]]:
    """Cuts all connections again and again, whenever something more was written; gives how often it did."""
    connection = await asyncpg.connect(dsn)
    chance, cuts = random.Random(seed), 0

    async def kill() -> None:
        nonlocal cuts
        while True:
            before = len(written)
            cuts += len(await connection.fetch(KILL))
            # A slow machine may need longer to connect than we wait for it.
            while len(written) == before:
                await asyncio.sleep(0.001)
            await asyncio.sleep(chance.uniform(0.0, 0.02))

    task = asyncio.create_task(kill())
    try:
        yield lambda: cuts
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        connection.terminate()


@asynccontextmanager
async def locked(dsn: str, run_id: str) -> AsyncIterator[Any]:
    """Somebody else has the row of a run until this ends: whatever is appended waits."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "gert"})
    try:
        async with connection.transaction():
            await connection.fetch("SELECT 1 FROM runs WHERE run_id = $1 FOR UPDATE", run_id)
            yield connection
    finally:
        await connection.close()


async def somebody_waits(connection: Any) -> None:
    """Return when an append was sent, and waits for the row."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while not await connection.fetchval(query):
        await asyncio.sleep(0.002)


class Faulty:
    """A statement whose answer gets lost, or which gets lost on the way."""

    def __init__(self, statement: Any, connection: Any, *, arrives: bool) -> None:
        self._statement = statement
        self._connection = connection
        self._arrives = arrives

    async def fetch(self, *values: Any) -> Any:
        if self._arrives:
            await self._statement.fetch(*values)
        self._connection.terminate()
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


def only_link(ledger: PostgresLedger) -> Link:
    [link] = ledger._server.pool._idle
    return link


class TestBrokenConnections:
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_every_event_is_written_once_whenever_connections_are_cut(self, dsn: str, seed: int) -> None:
        written: list[str] = []

        async def write(ledger: PostgresLedger, name: str) -> None:
            for number in range(60):
                await append_all(ledger, "run", [f"{name}-{number}"])
                written.append(f"{name}-{number}")

        async def read(ledger: PostgresLedger, stop: asyncio.Event) -> None:
            while not stop.is_set():
                lines = await ledger.lines("run")
                head = await ledger.head("run")
                assert len(lines) <= (head.count if head is not None else 0)
                await ledger.runs(limit=3)

        async def main() -> int:
            ledgers = [PostgresLedger(dsn, max_retry_attempts=30, retry_backoff_seconds=0.005) for _ in range(2)]
            await append_all(ledgers[0], "run", ["first"])
            stop = asyncio.Event()
            async with killing(dsn, seed, written) as cuts:
                readers = [asyncio.create_task(read(ledger, stop)) for ledger in ledgers]
                await asyncio.gather(*(write(ledger, f"{n}") for n, ledger in enumerate(ledgers)))
                stop.set()
                await asyncio.gather(*readers)
            texts = await notes_of(ledgers[0], "run")
            assert sorted(texts) == sorted(["first", *(f"{name}-{n}" for name in (0, 1) for n in range(60))])
            for name in ("0", "1"):
                assert [text for text in texts if text.startswith(name)] == [f"{name}-{n}" for n in range(60)]
            for ledger in ledgers:
                assert ledger._server.pool.in_use == 0
                await ledger.close()
            return cuts()

        assert asyncio.run(main()) > 0

    @pytest.mark.parametrize("arrives", [True, False], ids=["the answer is lost", "the question is lost"])
    @pytest.mark.parametrize("remembered", [True, False], ids=["at once", "carefully"])
    def test_an_append_in_doubt_is_looked_for_before_it_is_sent_again(
        self, dsn: str, arrives: bool, remembered: bool
    ) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=1) as ledger:
                await append_all(ledger, "run", ["a", "b"])
                link = only_link(ledger)
                for query, statement in list(link.statements.items()):
                    link.statements[query] = Faulty(statement, link.connection, arrives=arrives)
                if not remembered:
                    ledger._appends._run("run").head = None
                done = await ledger.append("run", says(note("c")))
                assert isinstance(done, Written)
                assert done.last == 3
                await append_all(ledger, "run", ["d"])
                assert await notes_of(ledger, "run") == ["a", "b", "c", "d"]

        asyncio.run(main())

    def test_an_append_that_lands_late_is_not_written_again(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, command_timeout_seconds=0.2, max_retry_attempts=20) as ledger:
                await append_all(ledger, "run", ["a"])
                async with locked(dsn, "run") as other:
                    append = asyncio.create_task(append_all(ledger, "run", ["b"]))
                    await somebody_waits(other)
                    await asyncio.sleep(0.5)
                await append
                assert await notes_of(ledger, "run") == ["a", "b"]

        asyncio.run(main())

    def test_a_call_in_doubt_that_landed_does_not_hold_its_own_key_against_itself(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=1) as ledger:
                await ledger.append("run", says(asks("a", "one")))
                await ledger.append("run", says(asks("b", "two")))
                link = only_link(ledger)
                for query, statement in list(link.statements.items()):
                    link.statements[query] = Faulty(statement, link.connection, arrives=True)
                assert isinstance(await ledger.append("run", says(asks("c", "three"))), Written)
                assert isinstance(await ledger.append("run", says(asks("d", "three"))), Held)

        asyncio.run(main())

    def test_many_that_find_the_connections_broken_renew_them_once(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, min_pool_size=5, max_pool_size=5) as ledger:
                await append_all(ledger, "run", ["a"])
                generation = ledger._server.pool.generation
                other = await asyncpg.connect(dsn)

                async def ask(query: str) -> Any:
                    return await ledger._server.rows(query)

                # All five are cut while they are asked, and not before.
                asked = [asyncio.create_task(ask("SELECT pg_sleep(0.2)")) for _ in range(5)]
                await asyncio.sleep(0.1)
                await other.fetch(KILL)
                await asyncio.gather(*asked)
                assert ledger._server.pool.generation == generation + 1
                await other.close()

        asyncio.run(main())

    def test_a_server_that_restarts_is_found_again(self, own_server: Server) -> None:
        async def main() -> None:
            ledger = PostgresLedger(own_server.dsn, max_retry_attempts=2, retry_backoff_seconds=0.01)
            await append_all(ledger, "run", ["a"])
            waiting = asyncio.create_task(ledger.wait("run", 2, 60))
            while not ledger._waiting._waiters:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(own_server.stop)
            wanted = [
                ledger.head("run"), ledger.append("run", says(note("b"))), ledger.append("new", says(note("b"))),
                ledger.acquire("run", "w", 5),
            ]  # fmt: skip
            for ask in wanted:
                with pytest.raises(TraceError, match="the database cannot be reached"):
                    await ask
            await asyncio.to_thread(own_server.start)
            await append_all(ledger, "run", ["c"])
            async with PostgresLedger(own_server.dsn) as other:
                await append_all(other, "run", ["d"])
                assert await waiting
            assert await notes_of(ledger, "run") == ["a", "c", "d"]
            assert ledger._server.pool.in_use == 0
            await ledger.close()

        asyncio.run(main())

    def test_an_answer_that_does_not_come_is_not_waited_for(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, command_timeout_seconds=0.2, max_retry_attempts=2) as ledger:
                await append_all(ledger, "run", ["a"])
                async with locked(dsn, "run"):
                    with pytest.raises(TraceError, match="did not answer in time") as caught:
                        await append_all(ledger, "run", ["b"])
                    assert caught.value.hint == "it may be written: look at the end of run `run`"
                    with pytest.raises(TraceError, match="did not answer in time"):
                        await ledger._server.rows("SELECT pg_sleep(5)")
                assert set(await notes_of(ledger, "run")) <= {"a", "b"}
                assert ledger._server.pool.in_use == 0

        asyncio.run(main())


class TestCancellation:
    def test_an_append_that_was_sent_is_written_although_nobody_waits_for_it(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                await append_all(ledger, "run", ["a"])
                async with locked(dsn, "run") as other:
                    sent = asyncio.create_task(append_all(ledger, "run", ["b"]))
                    behind = asyncio.create_task(append_all(ledger, "run", ["c"]))
                    await somebody_waits(other)
                    gone = asyncio.create_task(append_all(ledger, "run", ["d"]))
                    await asyncio.sleep(0)
                    sent.cancel()
                    gone.cancel()
                    assert await asyncio.gather(sent, gone, return_exceptions=True)
                    assert sent.cancelled()
                    assert gone.cancelled()
                    assert not behind.done()
                await behind
                await append_all(ledger, "run", ["e"])
                # Each in its place, also the one that was not sent yet.
                assert await notes_of(ledger, "run") == ["a", "b", "c", "d", "e"]
                assert ledger._server.pool.in_use == 0

        asyncio.run(main())

    def test_an_append_that_waits_for_a_connection_is_written_although_nobody_waits_for_it(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=1) as ledger:
                await append_all(ledger, "run", ["a"])
                link = await ledger._server.pool.take()
                gone = asyncio.create_task(append_all(ledger, "run", ["b"]))
                await asyncio.sleep(0)
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                assert gone.cancelled()
                ledger._server.pool.give_back(link)
                await append_all(ledger, "run", ["c"])
                assert await notes_of(ledger, "run") == ["a", "b", "c"]
                assert ledger._server.pool.in_use == 0

        asyncio.run(main())

    def test_an_append_whose_statement_is_prepared_is_written_although_nobody_waits_for_it(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=1) as ledger:
                await append_all(ledger, "run", ["a"])
                for number in range(5):
                    [link] = ledger._server.pool._idle
                    link.statements.clear()
                    gone = asyncio.create_task(append_all(ledger, "run", [f"b{number}"]))
                    await asyncio.sleep(0)
                    assert ledger._server.pool.in_use == 1
                    gone.cancel()
                    await asyncio.gather(gone, return_exceptions=True)
                    assert gone.cancelled()
                    await append_all(ledger, "run", [f"c{number}"])
                expected = ["a", *(f"{letter}{number}" for number in range(5) for letter in "bc")]
                assert await notes_of(ledger, "run") == expected
                assert ledger._server.pool.in_use == 0

        asyncio.run(main())

    def test_an_append_by_an_old_memory_is_written_although_nobody_waits_for_it(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger, PostgresLedger(dsn) as other:
                await append_all(ledger, "run", ["a", "a"])
                await append_all(other, "run", ["b"])
                # Sent at once, it finds another end than it was made for.
                gone = asyncio.create_task(append_all(ledger, "run", ["c"]))
                await asyncio.sleep(0)
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                assert gone.cancelled()
                await append_all(ledger, "run", ["d"])
                assert await notes_of(ledger, "run") == ["a", "a", "b", "c", "d"]

        asyncio.run(main())

    def test_an_append_whose_connection_breaks_is_written_once_although_nobody_waits_for_it(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                await append_all(ledger, "run", ["a"])
                async with locked(dsn, "run") as other:
                    gone = asyncio.create_task(append_all(ledger, "run", ["b"]))
                    await somebody_waits(other)
                    gone.cancel()
                    await asyncio.gather(gone, return_exceptions=True)
                    assert gone.cancelled()
                    await other.fetch(KILL)
                await append_all(ledger, "run", ["c"])
                assert await notes_of(ledger, "run") == ["a", "b", "c"]

        asyncio.run(main())

    def test_those_in_line_keep_their_places_when_all_are_cancelled(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                await append_all(ledger, "run", ["first"])
                appends = [asyncio.create_task(append_all(ledger, "run", [f"{n}"])) for n in range(30)]
                await asyncio.sleep(0)
                for task in appends[::2]:
                    task.cancel()
                await asyncio.gather(*appends, return_exceptions=True)
                await append_all(ledger, "run", ["last"])
                assert await notes_of(ledger, "run") == ["first", *(f"{n}" for n in range(30)), "last"]
                assert not ledger._appends._going_on

        asyncio.run(main())

    def test_closing_waits_for_an_append_nobody_waits_for(self, dsn: str) -> None:
        async def main() -> None:
            ledger = PostgresLedger(dsn)
            await append_all(ledger, "run", ["a"])
            async with locked(dsn, "run") as other:
                sent = asyncio.create_task(append_all(ledger, "run", ["b"]))
                await somebody_waits(other)
                sent.cancel()
                closing = asyncio.create_task(ledger.close())
                await asyncio.sleep(0.05)
                assert not closing.done()
            await closing
            async with PostgresLedger(dsn) as again:
                assert await notes_of(again, "run") == ["a", "b"]

        asyncio.run(main())

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_a_storm_of_cancellations_leaves_whole_events_and_all_connections(self, dsn: str, seed: int) -> None:
        chance = random.Random(seed)

        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=4) as ledger:
                await append_all(ledger, "run-0", ["first"])
                tasks: list[asyncio.Task[Any]] = []
                for number in range(300):
                    run = f"run-{number % 3}"
                    kind = number % 4
                    work: Any = append_all(ledger, run, [f"{number}"])
                    if kind == 2:
                        work.close()
                        work = ledger.lines(run)
                    elif kind == 3:
                        work.close()
                        work = ledger.acquire(f"lease-{number % 3}", "w", 60)
                    tasks.append(asyncio.create_task(work))
                    if chance.random() < 0.7:
                        await asyncio.sleep(chance.uniform(0, 0.002))
                    if chance.random() < 0.8:
                        chance.choice(tasks[-20:]).cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                problems = [error for error in results if isinstance(error, Exception)]
                assert problems == []
                done = {n for n, result in enumerate(results) if n % 4 < 2 and result is None}
                await ledger._appends.drain()
                texts = [
                    int(text) for run in range(3) for text in await notes_of(ledger, f"run-{run}") if text != "first"
                ]
                assert len(texts) == len(set(texts))
                assert done <= set(texts)
                assert ledger._server.pool.in_use == 0
                # The connections are good: all at once.
                await asyncio.gather(*(append_all(ledger, f"after-{n}", ["x"]) for n in range(12)))
                open_ones = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
                assert (await ledger._server.rows(open_ones))[0][0] == 0

        asyncio.run(main())

    def test_whoever_stops_waiting_for_a_connection_takes_none(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                pool = ledger._server.pool
                links = [await pool.take(), await pool.take()]
                waiting = [asyncio.create_task(ledger.head("run")) for _ in range(10)]
                await asyncio.sleep(0)
                for task in waiting[::2]:
                    task.cancel()
                # Handed to somebody who is cancelled before he runs again.
                pool.give_back(links[0])
                waiting[1].cancel()
                await asyncio.sleep(0)
                links[1].connection.terminate()
                pool.give_back(links[1])
                waiting[3].cancel()
                results = await asyncio.gather(*waiting, return_exceptions=True)
                assert [result for result in results if not isinstance(result, asyncio.CancelledError)] == [None] * 3
                assert pool.in_use == 0
                await asyncio.gather(*(ledger.head("run") for _ in range(5)))

        asyncio.run(main())
