"""How those who wait for a run on Postgres hear of it: in this process, from others, and when nobody tells them."""

import asyncio
from typing import Any

import asyncpg
import pytest
from tests.ecosystem.ledger.postgres_writes import append_all, in_process

from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.errors import TraceError

NEVER_LOOKS = 600.0
LISTENERS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'
"""


async def listeners(dsn: str, least: int = 0) -> list[int]:
    """Who listens, as soon as so many do."""
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            found = [row[0] for row in await connection.fetch(LISTENERS)]
            if len(found) >= least:
                return found
            await asyncio.sleep(0.005)
    finally:
        await connection.close()


async def kill(dsn: str, pids: list[int]) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.fetch("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid", pids)
    await connection.close()


class TestWaiting:
    def test_another_process_wakes_who_waits(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, poll_interval=NEVER_LOOKS) as ledger:
                waits = [asyncio.create_task(ledger.wait("run", after, 60)) for after in (0, 1, 2)]
                await listeners(dsn, 1)
                assert await in_process(dsn, "run", "p", 3) == 0
                assert await asyncio.gather(*waits) == [True, True, True]

        asyncio.run(main())

    @pytest.mark.parametrize("read_only", [False, True], ids=["a writer", "a reader"])
    def test_a_stream_follows_what_another_ledger_writes(self, dsn: str, read_only: bool) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as writer:
                await append_all(writer, "run", ["0", "1"])
                async with PostgresLedger(dsn, poll_interval=NEVER_LOOKS, read_only=read_only) as reader:
                    await follows(reader, writer)

        async def follows(reader: PostgresLedger, writer: PostgresLedger) -> None:
            seen: list[bytes] = []

            async def follow() -> None:
                async for line in reader.stream("run", follow=True, idle_timeout=60):
                    seen.append(line)
                    if len(seen) == 42:
                        return

            following = asyncio.create_task(follow())
            await listeners(dsn, 1)
            for number in range(2, 42):
                await append_all(writer, "run", [f"{number}"])
            await following
            assert seen == await writer.lines("run")

        asyncio.run(main())

    def test_all_who_wait_share_one_connection(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, poll_interval=NEVER_LOOKS) as ledger, PostgresLedger(dsn) as other:
                waits = [asyncio.create_task(ledger.wait(f"run-{n % 5}", 0, 60)) for n in range(50)]
                assert len(await listeners(dsn, 1)) == 1
                await asyncio.sleep(0.05)
                for number in range(5):
                    await append_all(other, f"run-{number}", ["a"])
                assert all(await asyncio.gather(*waits))
                assert len(await listeners(dsn)) == 1

        asyncio.run(main())

    def test_waiters_of_one_process_are_woken_without_the_server(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, poll_interval=NEVER_LOOKS) as ledger:
                ledger._notifier.wrote = lambda run_id: None  # type: ignore[method-assign]
                waiting = asyncio.create_task(ledger.wait("run", 0, 60))
                await listeners(dsn, 1)
                await append_all(ledger, "run", ["a"])
                assert await waiting

        asyncio.run(main())

    def test_a_listener_that_was_cut_off_listens_again_and_misses_nothing(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, poll_interval=NEVER_LOOKS) as ledger, PostgresLedger(dsn) as other:
                await append_all(other, "run", ["a"])
                for count in range(1, 6):
                    waiting = asyncio.create_task(ledger.wait("run", count, 60))
                    await kill(dsn, await listeners(dsn, 1))
                    await append_all(other, "run", [f"{count}"])
                    assert await waiting

        asyncio.run(main())

    def test_a_waiter_that_was_not_notified_polls(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, poll_interval=0.05) as ledger, PostgresLedger(dsn) as silent:
                silent._notifier.wrote = lambda run_id: None  # type: ignore[method-assign]
                waiting = asyncio.create_task(ledger.wait("run", 0, 60))
                await listeners(dsn, 1)
                await append_all(silent, "run", ["a"])
                assert await waiting

        asyncio.run(main())

    def test_what_a_ledger_wrote_right_before_it_was_closed_is_told(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, poll_interval=NEVER_LOOKS) as ledger:
                waiting = asyncio.create_task(ledger.wait("run", 0, NEVER_LOOKS))
                await listeners(dsn, 1)
                async with PostgresLedger(dsn) as brief:
                    await append_all(brief, "run", ["a"])
                async with asyncio.timeout(60):
                    assert await waiting

        asyncio.run(main())

    def test_one_notification_stands_for_many_appends(self, dsn: str) -> None:
        async def main() -> list[Any]:
            heard: list[Any] = []
            async with PostgresLedger(dsn) as ledger:
                await append_all(ledger, "run", ["first"])
                connection = await asyncpg.connect(dsn)
                await connection.add_listener("gert_written", lambda *said: heard.append(said[-1]))
                for _ in range(10):
                    await asyncio.gather(*(append_all(ledger, f"run-{n}", ["a"]) for n in range(10)))
                await ledger._notifier.close(5)
                await connection.fetchval("SELECT 1")
                await connection.close()
            return heard

        heard = asyncio.run(main())
        assert {f"run-{number}" for number in range(10)} <= set(heard)
        assert len(heard) < 100

    @pytest.mark.parametrize("run_id", ["run", "not/a run id"])
    def test_waiting_ends_in_time(self, dsn: str, run_id: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                await append_all(ledger, "run", ["a"])
                assert not await ledger.wait(run_id, 1, 0.05)
                assert not await ledger.wait(run_id, 1, 0)
                assert [line async for line in ledger.stream(run_id, 1, follow=True, idle_timeout=0.05)] == []

        asyncio.run(main())

    def test_closing_sends_those_who_wait_away(self, dsn: str) -> None:
        async def main() -> None:
            ledger = PostgresLedger(dsn)
            await append_all(ledger, "run", ["a"])
            waits = [asyncio.create_task(ledger.wait("run", 1, 60)) for _ in range(5)]
            await listeners(dsn, 1)
            await ledger.close()
            for result in await asyncio.gather(*waits, return_exceptions=True):
                assert isinstance(result, TraceError)
                assert result.message == "the ledger is closed"

        asyncio.run(main())
