"""A ledger on Postgres whose connections end at any call, and whose server says no: nothing is lost, nothing twice."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg
import pytest
from tests.ecosystem.ledger.ledgers import check, note, written
from tests.ecosystem.ledger.postgres_writes import append_all, notes_of
from tests.postgres import execute

from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.errors import TraceError

MOST = 120
CALLS = [(asyncpg.Connection, name) for name in ("execute", "fetch", "fetchrow", "fetchval", "prepare")]
KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'gert' AND datname = current_database() AND pid <> pg_backend_pid()
"""
FAILING = (
    "CREATE SEQUENCE gert.failed",
    """CREATE FUNCTION gert.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('gert.failed') <= {times} THEN RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'; END IF;
        RETURN NEW;
    END $$""",
    "CREATE TRIGGER fails BEFORE INSERT ON gert.events FOR EACH STATEMENT EXECUTE FUNCTION gert.fail()",
)


def fails(dsn: str, code: str, times: int = 1_000_000) -> None:
    """Let inserts fail with a code, so many times."""
    execute(dsn, *(statement.format(code=code, times=times) for statement in FAILING))


def heals(dsn: str) -> None:
    execute(dsn, "DROP FUNCTION gert.fail CASCADE", "DROP SEQUENCE gert.failed")


@contextmanager
def cut_at(dsn: str, number: int, *, after: bool) -> Iterator[Callable[[], int]]:
    """Cut all connections of a ledger before or after one of its calls; gives how many there were."""
    made = 0

    def counted(call: Any) -> Any:
        async def count(self: Any, *args: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            mine = made == number
            if mine and not after:
                await cut()
            result = await call(self, *args, **more)
            if mine and after:
                await cut()
                # What came back is lost with the connection.
                raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
            return result

        return count

    async def cut() -> None:
        killer = await asyncpg.connect(dsn)
        try:
            await fetch(killer, KILL)
        finally:
            killer.terminate()

    fetch = asyncpg.Connection.fetch
    with pytest.MonkeyPatch.context() as patched:
        for kind, name in [*CALLS, (asyncpg.prepared_stmt.PreparedStatement, "fetch")]:
            patched.setattr(kind, name, counted(getattr(kind, name)))
        yield lambda: made


@pytest.mark.parametrize("after", [pytest.param(False, id="before"), pytest.param(True, id="after")])
def test_a_ledger_writes_everything_once_whichever_call_it_is_cut_at(dsn: str, after: bool) -> None:
    async def attempt(number: int) -> bool:
        run_id, texts = f"run-{number}", ["a", "b", "c"]
        async with PostgresLedger(dsn, max_pool_size=1, retry_backoff_seconds=0.001) as ledger:
            with cut_at(dsn, number, after=after) as made:
                await append_all(ledger, run_id, texts)
                assert await ledger.acquire(run_id, "w", 60) is not None
                await written(ledger, note("d"), run_id=run_id)
                assert await ledger.renew(run_id, "w", 60)
                assert await ledger.release(run_id, "w")
                assert await notes_of(ledger, run_id) == [*texts, "d"]
        return made() >= number

    for number in range(1, MOST):
        if not asyncio.run(attempt(number)):
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("after", [pytest.param(False, id="before"), pytest.param(True, id="after")])
def test_a_ledger_that_is_cut_while_it_is_made_is_made_or_not(dsn: str, after: bool) -> None:
    async def attempt(number: int) -> bool:
        with cut_at(dsn, number, after=after) as made, suppress(TraceError):
            async with PostgresLedger(dsn):
                pass
        async with PostgresLedger(dsn) as ledger, PostgresLedger(dsn) as other:
            await append_all(ledger, "run", ["a"])
            await append_all(other, "run", ["b"])
            assert await notes_of(ledger, "run") == ["a", "b"]
        return made() >= number

    for number in range(1, MOST):
        execute(dsn, "DROP SCHEMA IF EXISTS gert CASCADE")
        if not asyncio.run(attempt(number)):
            return
    pytest.fail("it never came to an end")


REFUSALS = [
    pytest.param("53100", "cannot be written: no space left on device", id="the disk is full"),
    pytest.param("58030", "cannot be used", id="the disk fails"),
    pytest.param("25006", "it is read-only", id="the database became a replica"),
    pytest.param("53200", "cannot be used", id="there is no memory"),
    pytest.param("XX001", "cannot be used", id="the data is corrupted"),
]


@pytest.mark.parametrize(("code", "message"), REFUSALS)
def test_a_server_that_refuses_an_append_has_nothing_of_it(dsn: str, code: str, message: str) -> None:
    async def main() -> None:
        async with PostgresLedger(dsn) as ledger:
            await append_all(ledger, "run", ["a"])
            await asyncio.to_thread(fails, dsn, code)
            for run_id in ("run", "run", "new"):
                with pytest.raises(TraceError, match=message):
                    await written(ledger, note("b"), run_id=run_id)
            await asyncio.to_thread(heals, dsn)
            await append_all(ledger, "run", ["c"])
            assert await notes_of(ledger, "run") == ["a", "c"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("40001", id="of a serialization failure"),
        pytest.param("40P01", id="of a deadlock"),
        pytest.param("57014", id="an administrator cancelled it"),
    ],
)
def test_what_was_taken_back_because(dsn: str, code: str) -> None:
    async def main() -> None:
        async with PostgresLedger(dsn, retry_backoff_seconds=0.001) as ledger:
            await append_all(ledger, "run", ["a"])
            await asyncio.to_thread(fails, dsn, code, 2)
            await append_all(ledger, "run", ["b"])
            assert len(await check(ledger, "run")) == 2

    asyncio.run(main())


def test_a_schema_that_is_dropped_is_said_and_what_is_new_there_is_used(dsn: str) -> None:
    async def main() -> None:
        async with PostgresLedger(dsn) as ledger:
            await append_all(ledger, "run", ["a", "b"])
            await asyncio.to_thread(execute, dsn, "DROP SCHEMA gert CASCADE")
            with pytest.raises(TraceError, match="the database cannot be used: relation"):
                await append_all(ledger, "run", ["c"])
            async with PostgresLedger(dsn) as other:
                await append_all(other, "run", ["d"])
            await append_all(ledger, "run", ["e"])
            assert await notes_of(ledger, "run") == ["d", "e"]

    asyncio.run(main())


def test_connections_the_server_ends_for_being_idle_cost_nothing(dsn: str) -> None:
    setting = "format('ALTER DATABASE %I SET idle_session_timeout = 50', current_database())"
    execute(dsn, f"DO $$ BEGIN EXECUTE {setting}; END $$")

    async def main() -> None:
        async with PostgresLedger(dsn) as ledger:
            for text in ("a", "b", "c"):
                await append_all(ledger, "run", [text])
                await asyncio.sleep(0.12)
            assert await notes_of(ledger, "run") == ["a", "b", "c"]

    asyncio.run(main())
