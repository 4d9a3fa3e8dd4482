"""A ledger on Postgres when connections break, servers restart, and whoever waits is cancelled."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg
import pytest
from tests.ecosystem.ledger.ledgers import asks, note, says
from tests.ecosystem.ledger.postgres_writes import append_all, notes_of
from tests.postgres import Server

from gert.ecosystem.ledger.postgres.faults import is_transient
from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.errors import TraceError, Unavailable
from gert.kernel.ledger.record import Held, RunFilter, Written

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


@contextmanager
def lost_commit(*at: str, arrives: bool) -> Iterator[list[str]]:
    """The connection of the next commit, or of an append in one statement, breaks: before it was sent, or before its
    answer came.
    """
    lost: list[str] = []

    def losing(real: Any, beginning: str) -> Any:
        async def run(self: Any, query: str, *args: Any, **more: Any) -> Any:
            if lost or not query.startswith(beginning) or (at and beginning not in at):
                return await real(self, query, *args, **more)
            lost.append(query)
            if arrives:
                await real(self, query, *args, **more)
            self.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

        return run

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncpg.Connection, "execute", losing(asyncpg.Connection.execute, "COMMIT"))
        patched.setattr(asyncpg.Connection, "fetch", losing(asyncpg.Connection.fetch, "WITH moved"))
        yield lost


async def append_when_it_is_back(ledger: PostgresLedger) -> None:
    """Append once the server takes connections again, which may be a moment after it says so."""
    async with asyncio.timeout(60):
        while True:
            try:
                await append_all(ledger, "run", ["c"])
                return
            except Unavailable:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("module", "code", "transient"),
    [
        pytest.param("asyncpg.connection", "None.bind_execute", True, id="a connection whose protocol is gone"),
        pytest.param("gert.somewhere", "None.bind_execute", False, id="a mistake of gert"),
        pytest.param("asyncpg.connection", "(1).bind_execute", False, id="another mistake of asyncpg"),
    ],
)
def test_a_connection_that_is_cut_inside_asyncpg_is_tried_again(module: str, code: str, transient: bool) -> None:
    with pytest.raises(AttributeError) as caught:
        exec(code, {"__name__": module})
    assert is_transient(caught.value) is transient


def test_a_connection_that_is_cut_between_two_statements_is_tried_again() -> None:
    said = "cannot call Connection.transaction(): connection has been released back to the pool"
    assert is_transient(asyncpg.InterfaceError(said))
    assert not is_transient(asyncpg.InterfaceError("cannot perform operation: another operation is in progress"))


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
                await ledger.runs(RunFilter(limit=3))

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
                await ledger.close()
            return cuts()

        assert asyncio.run(main()) > 0

    @pytest.mark.parametrize("arrives", [True, False], ids=["the answer is lost", "the question is lost"])
    @pytest.mark.parametrize("begun", [True, False], ids=["a run that has begun", "a new run"])
    def test_a_commit_in_doubt_is_looked_for_before_it_is_done_again(
        self, dsn: str, arrives: bool, begun: bool
    ) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                await append_all(ledger, "run" if begun else "other", ["a"])
                with lost_commit(arrives=arrives) as lost:
                    done = await ledger.append("run", says(note("b")))
                assert len(lost) == 1
                assert isinstance(done, Written)
                assert done.last == 1 + begun
                await append_all(ledger, "run", ["c"])
                assert await notes_of(ledger, "run") == [*["a"] * begun, "b", "c"]

        asyncio.run(main())

    @pytest.mark.parametrize("arrives", [True, False], ids=["the answer is lost", "the question is lost"])
    @pytest.mark.parametrize("lost_at", ["WITH moved", "COMMIT"])
    def test_a_call_with_a_semantic_key_is_written_once_whatever_is_lost(
        self, dsn: str, arrives: bool, lost_at: str
    ) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                await append_all(ledger, "run", ["a"])
                with lost_commit(lost_at, arrives=arrives) as lost:
                    done = await ledger.append("run", says(asks("k", "key")))
                assert len(lost) == 1
                assert isinstance(done, Written)
                assert isinstance(await ledger.append("run", says(asks("k2", "key"))), Held)
                assert [call.seq for call in await ledger.all_calls("run")] == [2]

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

    def test_a_statement_that_arrives_after_the_next_attempt_was_lost_is_found(self, dsn: str) -> None:
        held: list[tuple[Any, ...]] = []
        broken = asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        fetch, execute = asyncpg.Connection.fetch, asyncpg.Connection.execute

        async def hold(self: Any, query: str, *args: Any, **more: Any) -> Any:
            if held or not query.startswith("WITH moved"):
                return await fetch(self, query, *args, **more)
            held.append((query, *args))
            self.terminate()
            raise broken

        async def lose(self: Any, query: str, *args: Any, **more: Any) -> Any:
            if len(held) != 1 or not query.startswith("COMMIT"):
                return await execute(self, query, *args, **more)
            [late] = held
            held.append(())
            self.terminate()
            other = await asyncpg.connect(dsn, server_settings={"search_path": "gert"})
            await fetch(other, *late)
            await other.close()
            raise broken

        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                await append_all(ledger, "run", ["a"])
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(asyncpg.Connection, "fetch", hold)
                    patched.setattr(asyncpg.Connection, "execute", lose)
                    assert isinstance(await ledger.append("run", says(note("b"))), Written)
                assert len(held) == 2
                await append_all(ledger, "run", ["c"])
                assert await notes_of(ledger, "run") == ["a", "b", "c"]

        asyncio.run(main())

    @pytest.mark.parametrize("arrives", [True, False], ids=["the answer is lost", "the question is lost"])
    def test_a_lease_in_doubt_is_given_back_once(self, dsn: str, arrives: bool) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                for _ in range(2):
                    with lost_commit(arrives=arrives):
                        assert await ledger.acquire("run", "w", 60) is not None
                    with lost_commit(arrives=arrives):
                        assert await ledger.release("run", "w")
                    assert not await ledger.release("run", "w")

        asyncio.run(main())

    def test_a_call_in_doubt_that_landed_does_not_hold_its_own_key_against_itself(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=1) as ledger:
                await ledger.append("run", says(asks("a", "one")))
                with lost_commit(arrives=True):
                    assert isinstance(await ledger.append("run", says(asks("c", "three"))), Written)
                assert isinstance(await ledger.append("run", says(asks("d", "three"))), Held)

        asyncio.run(main())

    def test_a_server_that_restarts_is_found_again(self, own_server: Server) -> None:
        async def main() -> None:
            ledger = PostgresLedger(own_server.dsn, max_retry_attempts=2, retry_backoff_seconds=0.01)
            await append_all(ledger, "run", ["a"])
            other_one = PostgresLedger(own_server.dsn, max_retry_attempts=1, poll_interval=0.1)
            waiting = asyncio.create_task(other_one.wait("run", 2, 60))
            while not other_one._waiting._polling:
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
            await append_when_it_is_back(ledger)
            async with PostgresLedger(own_server.dsn) as other:
                await append_all(other, "run", ["d"])
                assert await waiting
            assert await notes_of(ledger, "run") == ["a", "c", "d"]
            await other_one.close()
            await ledger.close()

        asyncio.run(main())

    def test_an_answer_that_does_not_come_is_not_waited_for(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, command_timeout_seconds=0.2, max_retry_attempts=2) as ledger:
                await append_all(ledger, "run", ["a"])
                async with locked(dsn, "run"):
                    with pytest.raises(TraceError, match="did not answer in time"):
                        await append_all(ledger, "run", ["b"])
                    with pytest.raises(TraceError, match="did not answer in time"):
                        await ledger._rows("SELECT pg_sleep(5)")
                assert set(await notes_of(ledger, "run")) <= {"a", "b"}

        asyncio.run(main())

    def test_a_process_that_freezes_in_the_middle_of_an_append_loses_it(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, command_timeout_seconds=0.3) as frozen, PostgresLedger(dsn) as ledger:
                await append_all(frozen, "run", ["a"])
                connection = await frozen._pool.acquire()
                await connection.execute("BEGIN")
                await connection.fetch("SELECT 1 FROM runs WHERE run_id = 'run' FOR UPDATE")
                async with asyncio.timeout(20):
                    await append_all(ledger, "run", ["b"])
                # The server has ended this connection; how the driver notices depends on the moment.
                with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                    await frozen._pool.release(connection)
                assert await notes_of(ledger, "run") == ["a", "b"]

        asyncio.run(main())


class TestCancellation:
    def test_an_append_that_was_sent_is_written_although_its_caller_was_cancelled(self, dsn: str) -> None:
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

        asyncio.run(main())

    def test_an_append_that_waits_for_a_connection_is_written_although_its_caller_was_cancelled(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=1) as ledger:
                await append_all(ledger, "run", ["a"])
                async with ledger._connection(ledger._pool):
                    gone = asyncio.create_task(append_all(ledger, "run", ["b"]))
                    await asyncio.sleep(0)
                    gone.cancel()
                    await asyncio.gather(gone, return_exceptions=True)
                    assert gone.cancelled()
                await append_all(ledger, "run", ["c"])
                assert await notes_of(ledger, "run") == ["a", "b", "c"]

        asyncio.run(main())

    def test_an_append_whose_connection_breaks_is_written_once_although_its_caller_was_cancelled(
        self, dsn: str
    ) -> None:
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
                assert not ledger._tasks

        asyncio.run(main())

    def test_closing_waits_for_an_append_whose_caller_was_cancelled(self, dsn: str) -> None:
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

    def test_a_connection_that_is_there_only_when_the_ledger_was_closed_is_closed_too(
        self, dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed, plain = asyncio.Event(), PostgresLedger._be_durable

        async def slowly(ledger: PostgresLedger, connection: Any) -> None:
            await plain(ledger, connection)
            await closed.wait()

        async def main() -> list[Any]:
            async with PostgresLedger(dsn) as ledger:
                monkeypatch.setattr(PostgresLedger, "_be_durable", slowly)
                reads = [asyncio.create_task(ledger.lines("run")) for _ in range(4)]
                await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            closed.set()
            return await asyncio.gather(*reads, return_exceptions=True)

        told = [result for result in asyncio.run(main()) if isinstance(result, TraceError)]
        assert [problem.message for problem in told] == ["the ledger is closed"] * 3
        gc.collect()  # what is open still would warn

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
                await asyncio.gather(*ledger._tasks)
                texts = [
                    int(text) for run in range(3) for text in await notes_of(ledger, f"run-{run}") if text != "first"
                ]
                assert len(texts) == len(set(texts))
                assert done <= set(texts)
                # The connections are good: all at once.
                await asyncio.gather(*(append_all(ledger, f"after-{n}", ["x"]) for n in range(12)))
                open_ones = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
                assert (await ledger._rows(open_ones))[0][0] == 0

        asyncio.run(main())
