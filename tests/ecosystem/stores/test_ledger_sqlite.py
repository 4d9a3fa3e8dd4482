"""What only a ledger in a SQLite file can do wrong: older files, tampering, locks, and text no database keeps."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.sqlite import SqliteStore
from gert.ecosystem.stores.sqlite_ledger import SqliteLedger
from gert.ecosystem.stores.sqlite_reader import SqliteReader
from gert.ecosystem.stores.sqlite_writer import SqliteWriter
from gert.ecosystem.stores.verifying import verify_run
from gert.errors import Busy, RunError, TraceError
from gert.kernel.agent.compose import Entry, compose
from gert.kernel.agent.ledger import Batch, Call, Head, Written
from gert.kernel.events.agent import RunStarted
from gert.kernel.foundation.canonical import sha256_hex

from .ledgers import ROOT, RUN, TENANT, check, gathered, in_loop, note, says, written
from .lines import events
from .old_databases import make_old

OLD = {"a": events(3, "a"), "b": events(5, "b"), "run.c": events(1, "run.c")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def schema_of(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            " ".join(text.split()) for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql > ''")
        }


def columns_of(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in sorted(tables)}


@in_loop
async def test_a_file_that_was_closed_is_the_whole_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_closed = threading.Event()
    close_writer, close_reader = SqliteWriter.close, SqliteReader.close

    def writer_closes(writer: SqliteWriter) -> None:
        close_writer(writer)
        has_closed.set()

    def reader_closes(reader: SqliteReader) -> None:
        # As slow as a reader can be: where the writer may go first, it does.
        has_closed.wait(0.2)
        close_reader(reader)

    async with SqliteLedger(path, quick_seconds=0) as ledger:
        await written(ledger, note("kept"))
        assert await ledger.head(RUN) is not None
        monkeypatch.setattr(SqliteWriter, "close", writer_closes)
        monkeypatch.setattr(SqliteReader, "close", reader_closes)
    assert [found.name for found in path.parent.iterdir()] == [path.name]


class TestOlderFiles:
    @pytest.mark.parametrize("version", [1, 2])
    @in_loop
    async def test_are_brought_up_to_date_once(self, path: Path, version: int) -> None:
        make_old(path, version, OLD)
        for _ in range(2):
            async with SqliteLedger(path) as ledger:
                assert await ledger.schema_info() == ("sqlite", "3")
                for run_id, lines in OLD.items():
                    assert await check(ledger, run_id) == lines
                    head = await ledger.head(run_id)
                    assert head == Head(
                        run_id,
                        None,
                        len(lines),
                        sha256_hex(lines[-1]),
                        None,
                        "2026-02-28T14:30:00.000001Z",
                        f"2026-02-28T14:30:00.{len(lines):06d}Z",
                    )
                assert [head.run_id for head in await ledger.runs()] == ["b", "a", "run.c"]
        new = path.with_name("new.db")
        SqliteStore(new).close()
        assert {name: [row[1] for row in rows] for name, rows in columns_of(path).items()} == {
            name: [row[1] for row in rows] for name, rows in columns_of(new).items()
        }
        assert {" ".join(each.split()) for each in sql.indexes()} <= schema_of(path)

    @pytest.mark.parametrize("version", [1, 2])
    def test_go_on_as_runbook_runs(self, path: Path, version: int) -> None:
        make_old(path, version, OLD)
        with SqliteStore(path) as store:
            store.append("a", 4, events(6, "a")[3:])
            assert list(store.events("a")) == events(6, "a")
            assert list(store.answers("a")) == [b'{"an":"answer"}']
            store.write_state("a", b"{}")
            assert store.state("a") == b"{}"

    @pytest.mark.parametrize("version", [1, 2])
    @in_loop
    async def test_can_be_read_as_they_are(self, path: Path, version: int) -> None:
        make_old(path, version, OLD)
        before = path.read_bytes(), schema_of(path)
        async with SqliteLedger(path, read_only=True) as ledger:
            assert await ledger.schema_info() == ("sqlite", str(version))
            for run_id, lines in OLD.items():
                assert await check(ledger, run_id) == lines
                assert (await verify_run(ledger, run_id)).holds
                assert await ledger.lines_at(run_id, [1]) == {1: lines[0]}
            assert [head.run_id for head in await ledger.runs(limit=2)] == ["b", "a"]
            assert await ledger.head("none") is None
            assert await ledger.calls("a", "k") == await ledger.open_calls("a") == []
            assert await ledger.summaries("a") == []
            assert await ledger.latest_summaries("a", "") == []
            assert await ledger.lease("a") is None
            assert await ledger.count_calls("pay", tenant=TENANT) == 0
            assert await ledger.wait("b", 4, 0) is True
            with pytest.raises(TraceError, match="open only for reading"):
                await ledger.append("a", says(note()))
            with pytest.raises(TraceError, match="open only for reading"):
                await ledger.acquire("a", "w", 5)
        assert (path.read_bytes(), schema_of(path)) == before

    def test_are_brought_up_to_date_by_one_of_many_processes(self, path: Path) -> None:
        make_old(path, 1, {f"run-{number:03d}": events(3, f"run-{number:03d}") for number in range(200)})
        script = "import sys\nfrom gert.ecosystem.stores.sqlite import SqliteStore\nSqliteStore(sys.argv[1]).close()"
        children = [
            subprocess.Popen([sys.executable, "-c", script, str(path)], stderr=subprocess.PIPE, cwd=ROOT)
            for _ in range(4)
        ]
        assert [child.communicate(timeout=60)[1] for child in children] == [b""] * 4
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*), sum(count) FROM runs").fetchone() == (200, 600)

    def test_that_hold_something_else_are_left_as_they_were(self, path: Path) -> None:
        make_old(path, 2, OLD)
        change(path, "UPDATE events SET line = 'text' WHERE run_id = 'b' AND seq = 5")
        before = schema_of(path)
        with pytest.raises(TraceError, match="something that is not a line"):
            SqliteStore(path)
        assert schema_of(path) == before


class TestTampering:
    @pytest.mark.parametrize(
        ("statement", "failing", "message"),
        [
            pytest.param("DELETE FROM events WHERE seq = 5", {"count", "head"}, "is missing", id="the end was cut off"),
            pytest.param("DELETE FROM events WHERE seq >= 2", {"count", "head"}, "is missing", id="almost all of it"),
            pytest.param("DELETE FROM events", {"chain", "count", "head"}, "no events", id="all of it"),
            pytest.param("DELETE FROM events WHERE seq = 3", {"chain", "count"}, "breaks at line 3", id="the middle"),
            pytest.param(
                "UPDATE events SET line = replace(CAST(line AS TEXT), 'stage-2', 'stage-9') WHERE seq = 2",
                None,
                "not a line",
                id="a line became text",
            ),
            pytest.param(
                "UPDATE events SET line = CAST(replace(CAST(line AS TEXT), 'n2', 'n9') AS BLOB) WHERE seq = 2",
                {"chain"},
                "breaks at line 3",
                id="a line was changed",
            ),
            pytest.param(
                "UPDATE events SET line = CAST(replace(CAST(line AS TEXT), 'n5', 'n9') AS BLOB) WHERE seq = 5",
                {"head"},
                "is not the head",
                id="the last line was changed",
            ),
            pytest.param("UPDATE runs SET count = 4", {"count"}, "after the end", id="the count was changed"),
            pytest.param(
                f"UPDATE runs SET hash = '{'0' * 64}'", {"head"}, "is not the head", id="the head was changed"
            ),
            pytest.param(
                "DELETE FROM runs", {"count", "head", "seal"}, "does not say where", id="the head was removed"
            ),
        ],
    )
    @in_loop
    async def test_shows(self, path: Path, statement: str, failing: set[str] | None, message: str) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, *[note(f"n{number}") for number in range(1, 6)])
            assert (await verify_run(ledger, RUN)).holds
        change(path, statement)
        async with SqliteLedger(path, read_only=True) as ledger:
            if failing is None:
                with pytest.raises(TraceError, match=message):
                    await verify_run(ledger, RUN)
                return
            report = await verify_run(ledger, RUN)
        assert not report.holds
        assert {check.name for check in report.failures} == failing
        assert message in report.failures[0].reason

    @pytest.mark.parametrize(
        "statement",
        [
            pytest.param("DELETE FROM events WHERE seq = 5", id="lines are missing"),
            pytest.param("UPDATE runs SET count = 4", id="there are more"),
        ],
    )
    @in_loop
    async def test_keeps_others_from_adding_to_it(self, path: Path, statement: str) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, *[note()] * 5)
            # While it is open, and its end is remembered.
            await asyncio.to_thread(change, path, statement)
            for _ in range(2):
                with pytest.raises(TraceError, match=r"does not end where it should: expected \d events, found \d"):
                    await ledger.append(RUN, says(note()))
            await written(ledger, note(), run_id="another")
        with SqliteStore(path) as store, pytest.raises(TraceError, match="does not end where it should"):
            store.append(RUN, 6, events(6, RUN)[5:])

    @in_loop
    async def test_with_a_run_that_is_followed_is_no_endless_loop(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, *[note()] * 5)
            await asyncio.to_thread(change, path, "DELETE FROM events WHERE seq = 5")
            with pytest.raises(TraceError, match="no lines after event 4"):
                async for _ in ledger.stream(RUN, follow=True):
                    pass

    @in_loop
    async def test_with_what_a_run_comes_to_is_said(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, note())
            await asyncio.to_thread(change, path, "UPDATE runs SET snapshot = x'00'")
            for use in (ledger.head(RUN), ledger.append(RUN, says(note())), ledger.runs()):
                with pytest.raises(TraceError, match="cannot be read"):
                    await use


class TestTheDatabase:
    def test_is_durable_unless_told_otherwise(self, path: Path) -> None:
        for ledger, is_durable in ((SqliteLedger(path), True), (SqliteLedger(path, sync=False), False)):
            assert ledger.durable is is_durable
            asyncio.run(ledger.close())

    @in_loop
    async def test_is_never_made_by_reading(self, path: Path) -> None:
        with pytest.raises(TraceError, match="cannot be opened"):
            SqliteLedger(path, read_only=True)
        assert list(path.parent.iterdir()) == []

    @in_loop
    async def test_of_someone_else_is_left_alone(self, path: Path) -> None:
        change(path, "CREATE TABLE events (a)")
        before = path.read_bytes()
        for read_only in (True, False):
            with pytest.raises(TraceError, match="is not a database of gert"):
                SqliteLedger(path, read_only=read_only)
        assert path.read_bytes() == before

    @in_loop
    async def test_that_another_process_holds_is_waited_for(self, path: Path) -> None:
        async with SqliteLedger(path, busy_timeout_ms=20, max_retry_attempts=200, retry_backoff_seconds=0) as ledger:
            await written(ledger, note())
            with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
                other.execute("BEGIN IMMEDIATE")
                appends = [asyncio.create_task(written(ledger, note())) for _ in range(5)]
                await asyncio.sleep(0.1)
                assert not any(task.done() for task in appends)
                # Nobody who reads has to wait.
                assert len(await ledger.lines(RUN)) == 1
                other.execute("ROLLBACK")
                await asyncio.gather(*appends)
            assert len(await check(ledger)) == 6

    @in_loop
    async def test_that_another_process_never_lets_go_of_is_said(self, path: Path) -> None:
        async with SqliteLedger(path, busy_timeout_ms=5, max_retry_attempts=2, retry_backoff_seconds=0.001) as ledger:
            with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
                other.execute("BEGIN IMMEDIATE")
                done = await gathered(*(written(ledger, note()) for _ in range(3)), ledger.acquire(RUN, "w", 5))
                assert {type(each) for each in done} == {Busy}
                assert "is locked by another process" in str(done[0])
                other.execute("ROLLBACK")
            await written(ledger, note())
            assert len(await check(ledger)) == 1

    @in_loop
    async def test_keeps_no_half_of_what_it_cannot_keep(self, path: Path) -> None:
        def spoilt(head: Head, moment: str) -> Batch:
            batch = compose(head, moment, TENANT, [Entry(note())])
            return batch._replace(calls=[Call(RUN, batch.head.count, "tool", "k", "n", TENANT, moment, "a\ud800")])

        async with SqliteLedger(path) as ledger:
            writes = [says(note("a")), spoilt, says(note("b"))] * 4
            done = await gathered(*(ledger.append(RUN, write) for write in writes))
            assert [type(each) for each in done[:3]] == [Written, UnicodeEncodeError, Written]
            assert len(await check(ledger)) == 8

    @in_loop
    async def test_that_refuses_one_append_takes_the_others(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, RunStarted())
            await asyncio.to_thread(
                change,
                path,
                "CREATE TRIGGER no BEFORE INSERT ON events WHEN new.summary_type = 'no' BEGIN SELECT raise(ABORT, 'x');"
                " END",
            )
            done = await gathered(*(ledger.append(RUN, says(note(kind=each))) for each in ["a", "no", "b"] * 5))
            assert [type(each) for each in done[:3]] == [Written, TraceError, Written]
            assert len(await check(ledger)) == 11

    @in_loop
    async def test_keeps_runbook_runs_and_agent_runs_side_by_side(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            with SqliteStore(path) as store:
                for number in range(10):
                    await written(ledger, note())
                    store.append("runbook", number + 1, events(10, "runbook")[number : number + 1], [b"{}"])
                    head = await ledger.head("runbook")
                    assert head is not None
                    assert (head.count, head.snapshot, head.tenant) == (number + 1, None, None)
                assert sorted(store.runs()) == [RUN, "runbook"]
            assert (await verify_run(ledger, "runbook")).holds
            assert await check(ledger, "runbook") == events(10, "runbook")
            assert len(await check(ledger)) == 10
            assert [head.run_id for head in await ledger.runs(tenant=TENANT)] == [RUN]

    @in_loop
    async def test_a_slow_reader_holds_up_nobody_who_writes(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, *[note("x" * 100)] * 3000)
            reading = [asyncio.create_task(ledger.lines(RUN, limit=3000)) for _ in range(20)]
            for _ in range(20):
                await written(ledger, note())
            assert [len(lines) for lines in await asyncio.gather(*reading)] >= [3000] * 20

    def test_no_unknown_run_is_ever_verified(self, path: Path) -> None:
        async def main() -> None:
            async with SqliteLedger(path) as ledger:
                await ledger.acquire("leased", "w", 5)
                for run_id in ("none", "leased", "../x"):
                    with pytest.raises(RunError, match="there is no run"):
                        await verify_run(ledger, run_id)

        asyncio.run(main())


@pytest.mark.parametrize("where", ["on the event loop", "on the thread"])
def test_what_is_remembered_of_a_run_is_forgotten_when_others_write(path: Path, where: str, monkeypatch: Any) -> None:
    if where == "on the thread":
        monkeypatch.setattr("gert.ecosystem.stores.threads._FEW", 0)

    async def main() -> None:
        async with SqliteLedger(path) as one, SqliteLedger(path) as two:
            for _ in range(20):
                for ledger in (one, two, two, one):
                    await written(ledger, note())
            lease = await two.acquire(RUN, "w", 60)
            assert lease is not None
            with pytest.raises(RuntimeError, match="worker `w` holds the run"):
                await one.append(RUN, says(note()))
            await written(one, note(), fence=lease.token)
            assert len(await check(two)) == 81

    asyncio.run(main())
