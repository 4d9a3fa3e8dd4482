"""What only a ledger on a server can do wrong: many who open it at once, old memories, races, and event loops."""

import asyncio
import subprocess
import sys
import time
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from tests.ecosystem.ledger.ledgers import NOON, ROOT, TENANT, answers, asks, note, says, written
from tests.ecosystem.ledger.postgres_writes import append_all, in_process, notes_of
from tests.postgres import database, execute, on_database

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.postgres import faults
from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.errors import GertError, InputError, LeaseLost, RunError, TraceError, UsageError
from gert.kernel.events.agent import RunStarted
from gert.kernel.events.envelope import Envelope, encode
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import parse_key
from gert.kernel.ledger.head_seal import read_seal
from gert.kernel.ledger.record import Batch, Call, CallEnd, Event, Expect, Head, Held, Overtaken, Written


class TestOpening:
    def test_many_that_begin_at_once_on_an_empty_database_all_succeed(self, dsn: str) -> None:
        async def begin(number: int) -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as ledger:
                await append_all(ledger, f"run-{number}", ["a", "b"])

        async def main() -> list[int]:
            processes = [in_process(dsn, f"process-{number}", "p", 2) for number in range(4)]
            return [code for code in await asyncio.gather(*processes, *map(begin, range(25))) if code is not None]

        assert asyncio.run(main()) == [0, 0, 0, 0]
        assert execute(dsn, "SELECT count(*), sum(count) FROM gert.runs")[0] == (29, 58)
        assert execute(dsn, "SELECT value FROM gert.meta")[0] == (str(sql.SCHEMA_VERSION),)

    def test_schemas_are_ledgers_of_their_own(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, schema="one") as one, PostgresLedger(dsn, schema="two") as two:
                await append_all(one, "run", ["a"])
                assert await two.head("run") is None
                await append_all(two, "run", ["b", "c"])
                assert (await notes_of(one, "run"), await notes_of(two, "run")) == (["a"], ["b", "c"])

        asyncio.run(main())

    @pytest.mark.parametrize(
        ("statements", "why"),
        [
            pytest.param(["UPDATE gert.meta SET value = '99'"], "made by another version", id="a newer version"),
            pytest.param(["UPDATE gert.meta SET value = 'x'"], "does not hold a ledger", id="no version at all"),
            pytest.param(["DELETE FROM gert.meta"], "does not hold a ledger", id="an empty page of facts"),
            pytest.param(["DROP TABLE gert.meta"], "holds tables of another program", id="tables of another program"),
        ],
    )
    def test_a_ledger_that_is_not_ours_is_refused(self, dsn: str, statements: list[str], why: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                await ledger.head("run")
            await asyncio.to_thread(execute, dsn, *statements, "SELECT 1")
            other = PostgresLedger(dsn)
            with pytest.raises(TraceError, match=why):
                await other.append("run", says(note("a")))
            await other.close()

        asyncio.run(main())

    def test_a_reader_creates_nothing(self, dsn: str) -> None:
        async def main() -> None:
            ledger = PostgresLedger(dsn, read_only=True)
            with pytest.raises(TraceError, match="there is no ledger in the schema `gert`"):
                await ledger.head("run")
            with pytest.raises(TraceError, match="open only for reading"):
                await ledger.append("run", says(note("a")))
            await ledger.close()

        asyncio.run(main())
        assert execute(dsn, "SELECT count(*) FROM pg_namespace WHERE nspname = 'gert'")[0] == (0,)

    def test_a_reader_may_not_write(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                await append_all(ledger, "run", ["a"])
            async with PostgresLedger(dsn, read_only=True) as ledger:
                assert await notes_of(ledger, "run") == ["a"]
                for change in (ledger.append("run", says(note("b"))), ledger.acquire("run", "w", 5)):
                    with pytest.raises(TraceError, match="open only for reading"):
                        await change
                with pytest.raises(TraceError, match="read-only"):
                    await ledger._rows("DELETE FROM runs")

        asyncio.run(main())

    def test_it_is_as_durable_as_its_server(self, dsn: str, durable_dsn: str) -> None:
        async def main(address: str) -> tuple[bool, str]:
            async with PostgresLedger(address) as ledger:
                [row] = await ledger._rows("SHOW synchronous_commit")
                return ledger.durable, row[0]

        fsync = execute(dsn, "SHOW fsync")[0][0]
        assert asyncio.run(main(dsn)) == (fsync == "on", "on")
        # Whatever is usual in a database, an append is on the disk when it returns.
        name = execute(durable_dsn, "SELECT current_database()")[0][0]
        execute(durable_dsn, f"ALTER DATABASE {name} SET synchronous_commit = off")
        for _ in range(2):
            assert asyncio.run(main(durable_dsn)) == (True, "on")

    @pytest.mark.parametrize("schema", ["", "Gert", "a-b", "a b", 'a"; DROP TABLE runs; --', "pg_gert", "x" * 64, "1a"])
    def test_a_name_that_is_none_is_refused(self, schema: str) -> None:
        with pytest.raises(UsageError, match="is not the name of a schema"):
            PostgresLedger("postgresql://localhost/x", schema=schema)

    @pytest.mark.parametrize(("least", "most"), [(0, 0), (-1, 2), (3, 2)])
    def test_a_pool_without_connections_is_refused(self, least: int, most: int) -> None:
        with pytest.raises(UsageError, match="expected a pool"):
            PostgresLedger("postgresql://localhost/x", min_pool_size=least, max_pool_size=most)

    @pytest.mark.parametrize(
        ("address", "why"),
        [
            pytest.param("postgresql://ann:hunter2@127.0.0.1:1/x", "cannot be reached", id="no listener"),
            pytest.param("http://ann:hunter2@127.0.0.1/x", "cannot be read", id="no address of a database"),
            pytest.param("postgresql://ann:hunter2/x@127.0.0.1/x", "cannot be read", id="a password with a slash"),
            pytest.param(None, "there is no such database", id="no such database"),
        ],
    )
    def test_what_is_wrong_is_said_without_the_password(self, postgres: str, address: str | None, why: str) -> None:
        async def main() -> None:
            ledger = PostgresLedger(address or on_database(postgres, "nowhere"), retry_backoff_seconds=0.001)
            for ask in (ledger.head("run"), ledger.append("run", says(note("a"))), ledger.acquire("run", "w", 5)):
                with pytest.raises(GertError, match=why) as caught:
                    await ask
                assert "hunter2" not in f"{caught.value}{caught.value.hint}{caught.value.__cause__}"
            await ledger.close()

        asyncio.run(main())

    def test_without_asyncpg_it_is_said_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        faults.driver.cache_clear()
        monkeypatch.setitem(sys.modules, "asyncpg", None)
        try:
            with pytest.raises(UsageError, match="needs asyncpg") as caught:
                PostgresLedger("postgresql://localhost/x")
            assert caught.value.hint == "pip install asyncpg"
        finally:
            faults.driver.cache_clear()

    def test_asyncpg_is_imported_only_by_those_who_need_it(self) -> None:
        code = "import sys, gert.ecosystem.ledger.postgres.ledger; sys.exit('asyncpg' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def row(seq: int, head: Head, kind: str = "note") -> Event:
    time = "2026-02-28T12:00:00.000000Z"
    event = Envelope(seq=seq, run_id=head.run_id, type=kind, timestamp=time, prev_hash=head.hash, data={"n": seq})
    return Event(seq, kind, time, f"kind-{seq}" if seq % 2 else None, encode(event))


def batch_of(head: Head, rows: int, calls: int, ends: int) -> Batch:
    """A batch of a shape; what it ends was begun before."""
    written = [row(head.count + number, head) for number in range(1, rows + 1)]
    count = head.count + rows
    moment = written[-1].timestamp
    after = Head(
        head.run_id, "agent", TENANT, count, sha256_hex(written[-1].line), started_at=head.started_at or moment,
        updated_at=moment,
    )  # fmt: skip
    opened = [
        Call(
            head.run_id,
            head.count + 1 + n,
            "tool",
            f"k{head.count + n}",
            "t",
            TENANT,
            moment,
            "h",
            f"{head.run_id}-{count}-{n}",
            last_seq=head.count + 1 + n,
        )
        for n in range(min(calls, rows))
    ]
    ended = [CallEnd(1 + n, count, "success") for n in range(ends)]
    return Batch(after, written, opened, ended)


class TestAppending:
    @pytest.mark.parametrize(
        ("rows", "calls", "ends", "expects", "fenced"),
        list(product((1, 3), (0, 1, 2), (0, 1, 2), (0, 1, 2), (False, True))),
    )
    def test_every_shape_of_a_batch_is_written_whole(
        self, shared_ledger: "Shared", rows: int, calls: int, ends: int, expects: int, fenced: bool
    ) -> None:
        ledger, run_id = shared_ledger.ledger, shared_ledger.next_run()

        async def main() -> None:
            if fenced:
                assert await ledger.acquire(run_id, "w", 60) is not None
            first = await ledger.append(run_id, lambda head, _: batch_of(head, 3, 2, 0))
            assert isinstance(first, Written)
            beliefs = [Expect("k0", 1), Expect("nothing", 0)][:expects]
            for _ in range(2):
                done = await ledger.append(run_id, lambda head, _: batch_of(head, rows, calls, ends), expects=beliefs)
                assert isinstance(done, Written)
                assert await ledger.lines(run_id, done.first - 1) == [row.line for row in done.batch.events]
                assert await ledger.head(run_id) == done.batch.head
                for call in done.batch.calls:
                    assert await ledger.calls(run_id, call.key) == [call]
                last = max(call.last_seq for call in await ledger.calls(run_id, "k0"))
                beliefs = [Expect("k0", last), Expect("nothing", 0)][:expects]
            open_calls = {call.seq for call in await ledger.open_calls(run_id)}
            assert {1, 2} - open_calls == set(range(1, ends + 1))
            wrong = [Expect("k0", last), Expect("nothing", 7)]
            assert await ledger.append(
                run_id, lambda head, _: batch_of(head, rows, calls, ends), expects=wrong
            ) == Overtaken("nothing")

        shared_ledger.run(main())

    def test_two_ledgers_take_turns_although_each_remembers_an_older_end(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
                for number in range(6):
                    await append_all(one, "run", [f"one-{number}"])
                    await append_all(two, "run", [f"two-{number}"])
                assert await notes_of(one, "run") == [f"{name}-{n}" for n in range(6) for name in ("one", "two")]

        asyncio.run(main())

    def test_a_writer_that_refuses_an_older_end_is_asked_about_the_newest(self, dsn: str) -> None:
        def only_odd(head: Head, moment: str) -> Batch:
            if head.count % 2:
                raise RunError("odd")
            return says(note("odd"))(head, moment)

        async def main() -> None:
            async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
                await append_all(one, "run", ["first"])
                await append_all(two, "run", ["second"])
                assert isinstance(await one.append("run", only_odd), Written)
                with pytest.raises(RunError, match="odd"):
                    await one.append("run", only_odd)
                assert (await notes_of(two, "run"))[2:] == ["odd"]

        asyncio.run(main())

    def test_a_writer_with_nothing_to_say_writes_nothing(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                for count in (0, 0, 1, 1):
                    if count and await ledger.head("run") is None:
                        await append_all(ledger, "run", ["a"])
                    done = await ledger.append("run", lambda head, _: Batch(head, ()))
                    assert isinstance(done, Written)
                    assert done.last == count

        asyncio.run(main())

    def test_of_many_that_begin_a_run_one_does(self, dsn: str) -> None:
        def begins(head: Head, moment: str) -> Batch:
            if head.count:
                raise RunError("the run is there already")
            return says(RunStarted())(head, moment)

        async def begin(ledger: PostgresLedger) -> bool:
            try:
                return isinstance(await ledger.append("run", begins), Written)
            except RunError:
                return False

        async def main() -> list[bool]:
            # All at the same time of day, so that they write the same bytes.
            ledgers = [PostgresLedger(dsn, max_pool_size=2, clock=lambda: NOON) for _ in range(6)]
            begun = await asyncio.gather(*(begin(ledger) for ledger in ledgers for _ in range(5)))
            assert (await ledgers[0].head("run") or Head("")).count == 1
            await asyncio.gather(*(ledger.close() for ledger in ledgers))
            return begun

        assert sorted(asyncio.run(main()), reverse=True) == [True] + [False] * 29

    def test_of_many_that_want_a_semantic_key_one_has_it(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
                done = await asyncio.gather(
                    *(ledger.append(f"run-{n}", says(asks("k", "order-1"))) for n in range(8) for ledger in (one, two))
                )
                [written] = [result for result in done if isinstance(result, Written)]
                [call] = written.batch.calls
                assert {result.call for result in done if isinstance(result, Held)} == {call}
                assert len(await one.runs()) == 1

        asyncio.run(main())

    def test_a_key_is_free_for_the_call_that_begins_where_another_fails(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                await ledger.append("run", says(asks("a", "order-1")))
                held = await ledger.append("run", says(asks("b", "order-1")))
                assert isinstance(held, Held)
                assert held.call.seq == 1
                done = await ledger.append("run", says(answers(1, "transient_error"), asks("b", "order-1")))
                assert isinstance(done, Written)
                # The first turns out to have happened after all, and another has its key by now.
                assert isinstance(await ledger.append("run", says(answers(1))), Written)
                assert [call.seq for call in await ledger.holders(TENANT, "pay", "order-1")] == [3, 1]

        asyncio.run(main())

    def test_a_run_that_lost_its_end_is_not_continued(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                await append_all(ledger, "run", ["a", "b", "c"])
            await asyncio.to_thread(execute, dsn, "DELETE FROM gert.events WHERE seq = 3", "SELECT 1")
            async with PostgresLedger(dsn) as ledger:
                with pytest.raises(TraceError, match="expected 3 events, found 2"):
                    await append_all(ledger, "run", ["d"])

        asyncio.run(main())

    def test_a_text_postgres_cannot_keep_is_refused_before_it_is_sent(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                for _ in range(2):
                    with pytest.raises(InputError, match="holds a NUL"):
                        await ledger.append("run", says(note("a"), note("b", kind="zero\0byte")))
                    assert await notes_of(ledger, "run") == []
                await append_all(ledger, "run", ["c"])

        asyncio.run(main())

    def test_the_end_is_sealed_with_a_key(self, dsn: str) -> None:
        async def main() -> None:
            key = parse_key("correct horse battery staple", "k1")
            async with PostgresLedger(dsn, key=key) as ledger:
                for text in ("a", "b", "c"):
                    done = await written(ledger, note(text), run_id="run")
                    head = await ledger.head("run")
                    assert head is not None
                    assert head == done.batch.head
                    assert read_seal(head.seal or "").key_id == "k1"

        asyncio.run(main())


class TestContention:
    def test_two_ledgers_that_write_one_run_wait_for_each_other(self, dsn: str) -> None:

        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=2) as one, PostgresLedger(dsn, max_pool_size=2) as two:
                wanted = [(ledger, f"{name}-{n}") for n in range(40) for name, ledger in (("1", one), ("2", two))]
                await asyncio.gather(*(append_all(ledger, "run", [text]) for ledger, text in wanted))
                texts = await notes_of(one, "run")
                for name in ("1", "2"):
                    assert [text for text in texts if text.startswith(name)] == [f"{name}-{n}" for n in range(40)]

                def refuses(head: Head, moment: str) -> Batch:
                    raise ConnectionError(f"not after {head.count}")

                with pytest.raises(ConnectionError, match="not after 0"):
                    await one.append("new", refuses)
                assert isinstance(await one.append("run", says(asks("k", "order"))), Written)
                assert isinstance(await two.append("new", says(asks("k", "order"))), Held)
                assert await two.append("run", says(asks("k")), expects=[Expect("tool:k", 7)]) == Overtaken("tool:k")

        asyncio.run(main())
        assert execute(dsn, "SELECT run_id FROM gert.runs WHERE count > 0") == [("run",)]

    def test_two_processes_write_one_run(self, dsn: str) -> None:
        async def main() -> None:
            done = await asyncio.gather(*(in_process(dsn, "run", name, 120) for name in ("a", "b", "c")))
            assert done == [0, 0, 0]
            async with PostgresLedger(dsn) as ledger:
                texts = await notes_of(ledger, "run")
            for name in ("a", "b", "c"):
                assert [text for text in texts if text.startswith(name)] == [f"{name}-{n}" for n in range(120)]

        asyncio.run(main())

    def test_appends_to_one_run_keep_their_order_and_runs_do_not_wait_for_each_other(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=4) as ledger:
                wanted = [(f"run-{n % 5}", f"{n}") for n in range(200)]
                await asyncio.gather(*(append_all(ledger, run, [text]) for run, text in wanted))
                for number in range(5):
                    assert await notes_of(ledger, f"run-{number}") == [f"{n}" for n in range(number, 200, 5)]

        asyncio.run(main())

    def test_one_connection_is_enough_for_all_callers(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=1) as ledger:
                work: list[Any] = [append_all(ledger, f"run-{n % 7}", [f"{n}"]) for n in range(60)]
                work += [ledger.lines(f"run-{n % 7}") for n in range(60)]
                work += [ledger.acquire(f"lease-{n % 3}", "w", 60) for n in range(20)]
                await asyncio.gather(*work)
                assert sum(head.count for head in await ledger.runs()) == 60

        asyncio.run(main())

    def test_a_caller_that_gets_no_connection_in_time_is_told_so(self, dsn: str) -> None:
        async def main() -> None:
            options: dict[str, Any] = {"command_timeout_seconds": 0.2, "max_retry_attempts": 1}
            async with PostgresLedger(dsn, max_pool_size=1, **options) as ledger:
                await append_all(ledger, "run", ["a"])
                async with ledger._connection(ledger._pool):
                    with pytest.raises(TraceError, match="did not answer in time"):
                        await ledger.head("run")
                    with pytest.raises(TraceError, match="did not answer in time"):
                        await append_all(ledger, "run", ["b"])
                await append_all(ledger, "run", ["c"])
                assert await notes_of(ledger, "run") == ["a", "c"]

        asyncio.run(main())


class TestLeases:
    def test_a_lease_that_was_taken_over_stops_appends_at_once(self, dsn: str) -> None:
        over = "UPDATE gert.runs SET lease_expires = '2026-01-01T00:00:00.000000Z'"

        async def main() -> None:
            async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
                old = await one.acquire("run", "one", 60)
                assert old is not None
                await append_all(one, "run", ["old"])
                await asyncio.to_thread(execute, dsn, over, "SELECT 1")
                new = await two.acquire("run", "two", 60)
                assert new is not None
                assert new.token == old.token + 1
                done = await asyncio.gather(
                    *(append_all(ledger, "run", [name]) for ledger, name in ((one, "old"), (two, "new")) * 10),
                    return_exceptions=True,
                )
                assert [type(each) for each in done] == [LeaseLost, type(None)] * 10
                assert await notes_of(two, "run") == ["old", *["new"] * 10]

        asyncio.run(main())

    def test_heart_beats_and_appends_do_not_hurt_each_other(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn, max_pool_size=3) as ledger:
                lease = await ledger.acquire("run", "w", 60)
                assert lease is not None

                async def beat() -> None:
                    for _ in range(80):
                        renewed = await ledger.renew("run", "w", 60)
                        assert renewed is not None
                        assert renewed.token == lease.token

                async def append() -> None:
                    for number in range(80):
                        await ledger.append("run", says(note(f"{number}")))

                await asyncio.gather(beat(), append(), beat())
                assert await notes_of(ledger, "run") == [f"{number}" for number in range(80)]

        asyncio.run(main())

    def test_of_many_workers_one_gets_the_lease(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as one, PostgresLedger(dsn) as two:
                got = await asyncio.gather(
                    *(ledger.acquire("run", f"w{n}", 60) for n in range(10) for ledger in (one, two))
                )
                # Each name came twice, and both of the winner's calls may have it.
                assert len({lease.worker_id for lease in got if lease is not None}) == 1
                assert {lease.token for lease in got if lease is not None} == {1}

        asyncio.run(main())

    def test_leases_go_by_the_clock_of_the_server(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                lease = await ledger.acquire("run", "w", 60)
                [row] = await ledger._rows("SELECT clock_timestamp()")
                assert lease is not None
                assert timedelta(seconds=50) < lease.expires_at - row[0] <= timedelta(seconds=60)

        asyncio.run(main())

    def test_a_clock_of_ones_own_decides_about_leases_too(self, dsn: str) -> None:
        now = NOON

        async def main() -> None:
            nonlocal now
            async with PostgresLedger(dsn, clock=lambda: now) as ledger:
                assert await ledger.acquire("run", "one", 60) is not None
                assert await ledger.acquire("run", "two", 60) is None
                now += timedelta(seconds=61)
                two = await ledger.acquire("run", "two", 60)
                assert two is not None
                assert two.token == 2

        asyncio.run(main())


class TestItsLoop:
    def test_another_loop_is_told_what_to_do(self, dsn: str) -> None:
        ledger = PostgresLedger(dsn)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(append_all(ledger, "run", ["a"]))
        wanted: list[Any] = [
            lambda: ledger.head("run"),
            lambda: ledger.append("run", says(note("b"))),
            lambda: ledger.acquire("run", "w", 5),
            lambda: ledger.wait("run", 0, 1),
            ledger.close,
        ]
        for ask in wanted:
            with pytest.raises(TraceError, match="belongs to another event loop") as caught:
                asyncio.run(ask())
            assert caught.value.hint is not None
            assert "asyncio.run" in caught.value.hint
        assert loop.run_until_complete(notes_of(ledger, "run")) == ["a"]
        loop.run_until_complete(ledger.close())
        loop.close()

    def test_closing_twice_is_closing_once_and_nothing_begins_afterwards(self, dsn: str) -> None:
        async def main() -> None:
            ledger = PostgresLedger(dsn)
            await append_all(ledger, "run", ["a"])
            await asyncio.gather(ledger.close(), ledger.close())
            await ledger.close()
            for ask in (ledger.head("run"), ledger.append("run", says(note("b"))), ledger.wait("run", 0, 1)):
                with pytest.raises(TraceError, match="the ledger is closed"):
                    await ask
            never_used = PostgresLedger(dsn)
            await never_used.close()

        asyncio.run(main())

    def test_closing_waits_for_what_was_begun(self, dsn: str) -> None:
        async def main() -> None:
            ledger = PostgresLedger(dsn)
            await append_all(ledger, "run", ["a"])
            appends = [asyncio.create_task(append_all(ledger, "run", [f"{n}"])) for n in range(20)]
            reads = [asyncio.create_task(ledger.lines("run")) for _ in range(20)]
            await asyncio.sleep(0)
            await ledger.close()
            for _ in range(10):  # a task ends a few turns of the loop after the call that it awaits
                await asyncio.sleep(0)
            assert all(task.done() for task in appends + reads)
            await asyncio.gather(*appends, *reads)
            async with PostgresLedger(dsn) as again:
                assert await notes_of(again, "run") == ["a", *(f"{n}" for n in range(20))]

        asyncio.run(main())
        assert left_over(dsn) == 0


def left_over(dsn: str) -> int:
    """Connections that do not end: a server takes a moment to notice that somebody has gone."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gert' AND datname = current_database()"
    for _ in range(200):
        if not (count := execute(dsn, query)[0][0]):
            break
        time.sleep(0.01)
    return int(count)


class Shared:
    """One ledger for many small cases."""

    def __init__(self, dsn: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._runs = 0
        self.ledger = PostgresLedger(dsn)

    def run(self, work: Any) -> None:
        self._loop.run_until_complete(work)

    def next_run(self) -> str:
        self._runs += 1
        return f"run-{self._runs}"

    def close(self) -> None:
        self._loop.run_until_complete(self.ledger.close())
        self._loop.close()


@pytest.fixture(scope="module")
def shared_ledger(postgres: str) -> Any:
    with database(postgres) as dsn:
        shared = Shared(dsn)
        yield shared
        shared.close()
