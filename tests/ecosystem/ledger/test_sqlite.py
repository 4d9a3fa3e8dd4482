"""What only a ledger in a SQLite file can do wrong: other files, tampering, locks, and text that no database keeps."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.ecosystem.ledger.ledgers import RUN, STARTED, TENANT, check, drives, gathered, in_loop, note, says, written

from gert.ecosystem.ledger.sqlite import executor, file
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import Busy, RunError, TraceError
from gert.kernel.events.agent import RunStarted
from gert.kernel.events.runbook import StepStart
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import Batch, Call, Head, RunFilter, Written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@in_loop
async def test_a_file_that_was_closed_is_the_whole_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "QUICK_SECONDS", 0.0)
    async with SqliteLedger(path) as ledger:
        await asyncio.gather(*(written(ledger, note("kept")) for _ in range(5)))
        assert await ledger.head(RUN) is not None
        assert len(await ledger.lines(RUN)) == 5
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_file_of_another_version_is_left_alone(path: Path) -> None:
    asyncio.run(SqliteLedger(path).close())
    change(path, "UPDATE meta SET value = '3'")
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(TraceError, match="made by another version of gert: expected ledger version 6, found 3"):
            SqliteLedger(path, read_only=read_only)
    assert path.read_bytes() == before


class TestTampering:
    @pytest.mark.parametrize(
        ("statement", "failing", "message"),
        [
            pytest.param("DELETE FROM events WHERE seq = 5", {"count", "head"}, "is missing", id="the end was cut off"),
            pytest.param("DELETE FROM events WHERE seq >= 2", {"count", "head"}, "is missing", id="almost all of it"),
            pytest.param("DELETE FROM events", {"chain", "count", "head", "derived"}, "no events", id="all of it"),
            pytest.param("DELETE FROM events WHERE seq = 3", {"chain", "count"}, "breaks at line 3", id="the middle"),
            pytest.param(
                "UPDATE events SET line = replace(CAST(line AS TEXT), 'stage-2', 'stage-9') WHERE seq = 2",
                {"rows"},
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
                "DELETE FROM runs",
                {"answers", "count", "head", "derived", "seal"},
                "has no head",
                id="the head was removed",
            ),
        ],
    )
    @in_loop
    async def test_shows(self, path: Path, statement: str, failing: set[str], message: str) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, *[note(f"n{number}") for number in range(1, 6)])
            assert (await verify_run(ledger, RUN)).holds
        change(path, statement)
        async with SqliteLedger(path, read_only=True) as ledger:
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
        change(path, statement)
        async with SqliteLedger(path) as ledger:
            for _ in range(2):
                with pytest.raises(TraceError, match=r"does not end where it should: expected \d events, found \d"):
                    await ledger.append(RUN, says(note()))
            await written(ledger, note(), run_id="another")

    @in_loop
    async def test_with_the_head_of_a_run_that_is_open_is_noticed(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, *[note()] * 5)
            await asyncio.to_thread(change, path, "UPDATE runs SET count = 4")
            with pytest.raises(TraceError, match="does not end where it should"):
                await ledger.append(RUN, says(note()))

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
    async def test_is_seen_by_readers_only_once_it_is_whole(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[str] = []

        def look(connection: sqlite3.Connection) -> None:
            with pytest.raises(TraceError) as refused:
                SqliteLedger(path, read_only=True)
            seen.append(refused.value.message)
            make(connection)

        make = file.create_tables
        monkeypatch.setattr(file, "create_tables", look)
        async with SqliteLedger(path) as ledger:
            await written(ledger, note())
        assert seen == [f"`{path}` cannot be opened"]
        assert list(path.parent.iterdir()) == [path]

    @in_loop
    async def test_is_made_where_there_are_no_hard_links(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "link", refuse)
        async with SqliteLedger(path) as ledger:
            await written(ledger, note())
        assert list(path.parent.iterdir()) == [path]

    @in_loop
    async def test_of_someone_else_is_left_alone(self, path: Path) -> None:
        change(path, "CREATE TABLE events (a)")
        before = path.read_bytes()
        for read_only in (True, False):
            with pytest.raises(TraceError, match="is not a ledger of gert"):
                SqliteLedger(path, read_only=read_only)
        assert path.read_bytes() == before

    @in_loop
    async def test_that_another_process_holds_is_waited_for(self, path: Path) -> None:
        async with SqliteLedger(path, patience=20.0) as ledger:
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
        async with SqliteLedger(path, patience=0.01) as ledger:
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
            batch = build_batch(head, moment, TENANT, [Entry(note())])
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
    async def test_shares_a_commit_between_appends_of_one_turn_of_the_event_loop(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger:
            await written(ledger, note())
            executed: list[str] = []
            writer = ledger._executor._writer
            assert writer is not None
            writer.set_trace_callback(executed.append)
            await asyncio.gather(*(written(ledger, note(), run_id=f"run-{number}") for number in range(16)))
            # The first is alone, or handed to the thread where the disk is slow; the others wait for it.
            assert executed.count("COMMIT") < 16
            assert [len(await check(ledger, f"run-{number}")) for number in range(16)] == [1] * 16

    @in_loop
    async def test_keeps_runbook_runs_and_agent_runs_side_by_side(self, path: Path) -> None:
        async with SqliteLedger(path) as ledger, SqliteLedger(path) as other:
            assert await other.acquire("runbook", "driver", 60)
            await other.append("runbook", drives(STARTED))
            for number in range(10):
                await written(ledger, note())
                step = StepStart(step_id=f"s{number}", step_type="tool")
                assert isinstance(await other.append("runbook", drives(step, answers=[b"{}"])), Written)
            for run_id, kind in (("runbook", "runbook"), (RUN, "agent")):
                assert (await verify_run(ledger, run_id)).holds
                [head] = await ledger.runs(RunFilter(kind=kind))  # type: ignore[arg-type]
                assert head.run_id == run_id
            assert len(await check(ledger, "runbook")) == 11

    @in_loop
    async def test_a_slow_reader_does_not_hold_up_writers(self, path: Path) -> None:
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


@in_loop
async def test_two_ledgers_of_one_file_take_turns(path: Path) -> None:
    async with SqliteLedger(path) as one, SqliteLedger(path) as two:
        for _ in range(20):
            for ledger in (one, two, two, one):
                await written(ledger, note())
        assert await two.acquire(RUN, "w", 60) is not None
        with pytest.raises(RuntimeError, match="worker `w` drives run"):
            await one.append(RUN, says(note()))
        await written(two, note())
        assert len(await check(one)) == 81
