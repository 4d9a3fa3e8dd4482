"""What every ledger promises about runs: their numbers, their ends, what is found in them, and who comes first."""

import asyncio
from datetime import timedelta

import pytest
from tests.ecosystem.ledger.ledgers import (
    LEDGERS,
    NOON,
    RUN,
    TENANT,
    Clock,
    check,
    gathered,
    in_loop,
    note,
    says,
    stage,
    starts,
    written,
)

from gert.errors import LeaseLost, RunError, TraceError
from gert.kernel.events.agent import PauseRequested, RunStarted
from gert.kernel.events.chain import GENESIS
from gert.kernel.events.envelope import decode, format_timestamp
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import Batch, Event, Head, RunFilter, Written

HOSTILE = [
    pytest.param("../../etc/passwd", id="a path"),
    pytest.param("", id="nothing"),
    pytest.param("a\x00b", id="a null byte"),
    pytest.param("a\ud800", id="half a character"),
    pytest.param("a b'; DROP TABLE runs; --", id="an injection"),
    pytest.param("größe", id="other letters"),
    pytest.param("x" * 513, id="too long"),
]


class TestAppending:
    @in_loop
    async def test_a_run_that_is_not_there_has_a_head_without_events(self, kind: str, place: str) -> None:
        heads: list[tuple[Head, str]] = []

        def write(head: Head, moment: str) -> Batch:
            heads.append((head, moment))
            return build_batch(head, moment, TENANT, [Entry(RunStarted())])

        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            done = await ledger.append(RUN, write)
        assert heads == [(Head(RUN, count=0, hash=GENESIS), format_timestamp(NOON))]
        assert isinstance(done, Written)
        assert (done.first, done.last) == (1, 1)

    @in_loop
    async def test_each_append_goes_on_where_the_last_one_ended(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            first = await written(ledger, RunStarted())
            clock.passes(1)
            second = await written(ledger, note("a"), note("b"))
            lines = await check(ledger)
            head = await ledger.head(RUN)
        assert (first.first, first.last, second.first, second.last) == (1, 1, 2, 3)
        assert head == second.batch.head
        assert head is not None
        assert (head.tenant, head.count, head.started_at, head.updated_at) == (
            TENANT,
            3,
            format_timestamp(NOON),
            format_timestamp(NOON + timedelta(seconds=1)),
        )
        assert [decode(line).seq for line in lines] == [1, 2, 3]
        assert lines == [row.line for each in (first, second) for row in each.batch.events]

    @in_loop
    async def test_many_at_once_get_a_number_each(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            done = await asyncio.gather(*(written(ledger, *[note(str(n))] * (1 + n % 3)) for n in range(90)))
            taken = sorted(seq for each in done for seq in range(each.first, each.last + 1))
            assert taken == list(range(1, 181))
            assert len(await check(ledger)) == 180

    @in_loop
    async def test_of_many_who_start_a_run_one_does(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            done = await gathered(*(ledger.append(RUN, starts) for _ in range(20)))
            assert sorted(type(each).__name__ for each in done) == ["FileExistsError"] * 19 + ["Written"]
            assert len(await check(ledger)) == 1

    @in_loop
    async def test_what_one_write_raises_does_not_touch_other_writes(self, kind: str, place: str) -> None:
        def raises(head: Head, moment: str) -> Batch:
            raise KeyError("mine")

        def stops(head: Head, moment: str) -> Batch:
            raise StopIteration

        async with LEDGERS[kind](place) as ledger:
            writes = [says(note("a")), raises, says(note("b")), stops, says(note("c"))] * 5
            done = await gathered(*(ledger.append(RUN, write) for write in writes))
            assert [type(each) for each in done[:5]] == [Written, KeyError, Written, RuntimeError, Written]
            assert len(await check(ledger)) == 15

    @pytest.mark.parametrize(
        "forge",
        [
            pytest.param(lambda b: b._replace(events=b.events[:-1]), id="fewer lines than the head says"),
            pytest.param(lambda b: b._replace(events=b.events[::-1]), id="out of order"),
            pytest.param(lambda b: b._replace(head=Head("other", count=b.head.count)), id="of another run"),
            pytest.param(lambda b: _with_line(b, b.events[0].line + b"\n{}"), id="two lines in one"),
            pytest.param(lambda b: _with_line(b, b.events[0].line + b" " * (16 << 20) + b"}}"), id="too long"),
            pytest.param(lambda b: _with_line(b, b"\xff"), id="no event at all"),
            pytest.param(lambda b: _with_line(b, b.events[1].line), id="an event of another number"),
        ],
    )
    @in_loop
    async def test_a_batch_that_does_not_follow_is_refused(self, kind: str, place: str, forge: object) -> None:
        def write(head: Head, moment: str) -> Batch:
            forged = forge(says(note("x"), note("y"))(head, moment))  # type: ignore[operator]
            assert isinstance(forged, Batch)
            return forged

        async with LEDGERS[kind](place) as ledger:
            await written(ledger, RunStarted())
            with pytest.raises(TraceError):
                await ledger.append(RUN, write)
            await written(ledger, note("after"))
            assert len(await check(ledger)) == 2

    @in_loop
    async def test_half_a_batch_is_never_written(self, kind: str, place: str) -> None:
        def spoilt(head: Head, moment: str) -> Batch:
            # No ledger can keep it, and only the last one it writes shows that.
            batch = says(note("x"), note("y"))(head, moment)
            rows = [
                *batch.events[:-1],
                batch.events[-1]._replace(line=b'{"seq":3,"run_id":"%b","type":"' % RUN.encode()),
            ]
            return batch._replace(events=rows)

        async with LEDGERS[kind](place) as ledger:
            await written(ledger, RunStarted())
            done = await gathered(
                ledger.append(RUN, says(note("a"))), ledger.append(RUN, spoilt), ledger.append(RUN, says(note("b")))
            )
            assert isinstance(done[1], TraceError)
            assert len(await check(ledger)) == 3

    @in_loop
    async def test_a_batch_of_nothing_changes_nothing(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            done = await ledger.append(RUN, lambda head, _: Batch(head, ()))
            assert isinstance(done, Written)
            assert await ledger.head(RUN) is None
            await written(ledger, note())
            before = await ledger.head(RUN)
            await ledger.append(RUN, lambda head, _: Batch(head, ()))
            assert await ledger.head(RUN) == before

    @pytest.mark.parametrize("run_id", HOSTILE)
    @in_loop
    async def test_what_cannot_name_a_run_is_refused_and_never_found(self, kind: str, place: str, run_id: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            with pytest.raises(RunError, match="is not a run id"):
                await ledger.append(run_id, says(note()))
            for change in (ledger.acquire(run_id, "w", 5), ledger.renew(run_id, "w", 5), ledger.release(run_id, "w")):
                with pytest.raises(RunError, match="is not a run id"):
                    await change
            assert await ledger.head(run_id) is None
            assert await ledger.lines(run_id) == []
            assert await ledger.lines_at(run_id, [1]) == {}
            assert await ledger.calls(run_id, "k") == []
            assert await ledger.lease(run_id) is None
            assert await ledger.wait(run_id, 0, 0.01) is False
            assert [line async for line in ledger.stream(run_id)] == []
            assert await ledger.runs() == []

    @pytest.mark.parametrize(
        "run_id",
        [
            pytest.param("a" * 512, id="a long one"),
            pytest.param("A" * 512, id="a long one in capitals"),
            pytest.param("CON", id="a device of Windows"),
            pytest.param("con.x", id="a device with an ending"),
            pytest.param("a:b@c+d=e~f.", id="every sign an id may have"),
            pytest.param("_", id="one sign"),
        ],
    )
    @in_loop
    async def test_what_can_name_a_run_does(self, kind: str, place: str, run_id: str) -> None:
        other = run_id.swapcase() if run_id.swapcase() != run_id else run_id + "x"
        names = [each for each in (run_id, other) if is_run_id(each)]
        async with LEDGERS[kind](place) as ledger:
            for name in names:
                await written(ledger, note(name), run_id=name)
            for name in names:
                assert [decode(line).run_id for line in await check(ledger, name)] == [name]
            assert sorted(head.run_id for head in await ledger.runs()) == sorted(names)

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("ünï-©0dé 漢字 🎉 \u2028", id="letters of the world"),
            pytest.param("line\nbreak\r\t\x00\x1b[31m", id="control characters"),
            pytest.param("x" * 5_000_000, id="five million"),
            pytest.param('"}}\\', id="signs of JSON"),
        ],
    )
    @in_loop
    async def test_a_line_comes_back_as_it_was(self, kind: str, place: str, text: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            done = await written(ledger, note(text, "text"), stage("after"))
            lines = await check(ledger)
            assert lines == [row.line for row in done.batch.events]
            assert decode(lines[0]).data["summary_json"] == text
            assert await ledger.summary(RUN, "text") == lines[0]


def _with_line(batch: Batch, line: bytes) -> Batch:
    return batch._replace(events=[batch.events[0]._replace(line=line), *batch.events[1:]])


class TestReading:
    @in_loop
    async def test_lines_by_page_and_by_number(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            lines = [row.line for row in (await written(ledger, *[note(str(n)) for n in range(10)])).batch.events]
            assert await ledger.lines(RUN) == lines
            assert await ledger.lines(RUN, 4) == lines[4:]
            assert await ledger.lines(RUN, 4, 3) == lines[4:7]
            assert await ledger.lines(RUN, 10) == await ledger.lines(RUN, 99) == await ledger.lines("other") == []
            assert await ledger.lines(RUN, 0, 0) == []
            assert await ledger.lines_at(RUN, [3, 1, 3, 99, 0, -1]) == {3: lines[2], 1: lines[0]}
            assert await ledger.lines_at(RUN, []) == await ledger.lines_at("other", [1]) == {}
            assert [line async for line in ledger.stream(RUN, 7)] == lines[7:]

    @in_loop
    async def test_what_a_run_comes_to_is_folded_with_every_append(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, RunStarted(), stage("plan"))
            await written(ledger, PauseRequested(reason="lunch"))
            head = await ledger.head(RUN)
        assert head is not None
        assert head.agent is not None
        assert (head.agent.status, head.agent.last_stage) == ("paused", "plan")
        assert [pause.seq for pause in head.agent.pauses] == [3]

    @in_loop
    async def test_summaries_are_found_by_type_and_by_its_beginning(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            kinds = [f"{prefix}::{n:03d}" for n in range(120) for prefix in ("artifact", "artifactory", "%", "task")]
            await written(ledger, RunStarted(), *[note("old", each) for each in kinds])
            done = await written(ledger, *[note("new", each) for each in reversed(kinds)], stage("x"))
            newest = {kind: row.line for kind, row in zip(reversed(kinds), done.batch.events, strict=False)}
            assert await ledger.summary(RUN, "artifact::007") == newest["artifact::007"]
            assert await ledger.summary(RUN, "artifact::") is None
            assert await ledger.summary("other", "artifact::007") is None
            assert await ledger.latest_summaries(RUN, "artifact::") == [
                newest[f"artifact::{n:03d}"] for n in range(120)
            ]
            assert len(await ledger.latest_summaries(RUN, "%::")) == 120
            assert len(await ledger.latest_summaries(RUN, "")) == 480
            assert await ledger.latest_summaries(RUN, "artifact:::") == []
            assert await ledger.latest_summaries("other", "") == []
            assert await ledger.summaries(RUN, limit=3) == [row.line for row in done.batch.events[-2:-5:-1]]
            assert [decode(line).data["summary_json"] for line in await ledger.summaries(RUN, "task::001")] == [
                "new",
                "old",
            ]
            assert len(await ledger.summaries(RUN)) == 20

    @in_loop
    async def test_runs_are_listed_from_the_last_written(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            for number in range(6):
                clock.passes(1)
                write = says(RunStarted(), tenant="acme" if number % 2 else "other")
                await ledger.append(f"run-{number}", write)
            clock.passes(1)
            await ledger.append("run-1", says(PauseRequested(reason="x"), tenant="acme"))
            await ledger.acquire("only-a-lease", "w", 60)
            listed = [head.run_id for head in await ledger.runs()]
            assert listed == ["run-1", "run-5", "run-4", "run-3", "run-2", "run-0"]
            assert [head.run_id for head in await ledger.runs(RunFilter(tenant="acme"))] == ["run-1", "run-5", "run-3"]
            assert [head.run_id for head in await ledger.runs(RunFilter(limit=2))] == listed[:2]
            assert await ledger.runs(RunFilter(limit=0)) == await ledger.runs(RunFilter(tenant="nobody")) == []
            since = NOON + timedelta(seconds=5)
            assert [head.run_id for head in await ledger.runs(RunFilter(since=since))] == ["run-1", "run-5", "run-4"]
            assert [head.run_id for head in await ledger.runs(RunFilter(status="paused"))] == ["run-1"]
            assert [head.run_id for head in await ledger.runs(RunFilter(status="active", tenant="acme", limit=1))] == [
                "run-5"
            ]
            assert (await ledger.runs())[0] == await ledger.head("run-1")

    @in_loop
    async def test_a_ledger_says_what_it_is(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            info = await ledger.schema_info()
            assert (info.backend, info.schema_version.isdecimal()) == (
                "postgres" if kind == "postgres" else "sqlite",
                True,
            )
            if kind != "postgres":  # as durable as its server
                assert ledger.durable is (kind != "memory")
            assert ledger.now() == NOON

    @in_loop
    async def test_ids_are_new_and_sort_by_time(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            ids = []
            for _ in range(100):
                ids.append(ledger.new_id())
                clock.passes(0.001)
            assert ids == sorted(set(ids))
            assert all(map(is_run_id, ids))
        async with LEDGERS[kind](place, ids=lambda: "mine") as ledger:
            assert ledger.new_id() == "mine"


class TestTenants:
    @in_loop
    async def test_a_run_belongs_to_one_tenant(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, RunStarted())
            with pytest.raises(RunError, match="another tenant"):
                await ledger.append(RUN, says(note(), tenant="other"))
            assert len(await check(ledger)) == 1


def test_a_row_is_the_line_and_the_columns_it_is_found_by() -> None:
    assert Event._fields == ("seq", "type", "timestamp", "summary_type", "line")
    assert issubclass(LeaseLost, RuntimeError)
