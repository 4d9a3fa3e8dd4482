"""What must hold, 16 and 17: a step costs the same however long its run is, and what is durable is on disk."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import SIZE, TENANT, Model, Place, ask, call, stands

from gert.agent import ArtanaKernel, PostgresStore, SQLiteStore, ToolExecutionContext
from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.sqlite.file import open_writer
from gert.kernel.events.agent import ModelCompleted, ModelRequested, RunSummary, ToolCompleted, ToolRequested
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import Batch, Head

LONG = 20_000 * SIZE
PAGE = 500


class Counting:
    """A ledger that counts what it is asked, and how much it gives."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.asked: Counter[str] = Counter()
        self.given = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ledger, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def counted(*given: Any, **more: Any) -> Any:
            self.asked[name] += 1
            answer = await found(*given, **more)
            if isinstance(answer, list | dict):
                self.given += len(answer)
            return answer

        return counted

    def count(self) -> tuple[Counter[str], int]:
        """What was asked since the last time."""
        asked, given = self.asked, self.given
        self.asked, self.given = Counter(), 0
        return asked, given


async def lengthen(kernel: ArtanaKernel, count: int) -> None:
    """Make a run long: steps, summaries and tools, by the thousand."""
    ledger = kernel.ledger

    def write(head: Head, moment: str) -> Batch:
        entries = []
        for seq in range(head.count + 1, head.count + PAGE, 5):
            key = f"old_{seq}"
            entries += [
                ModelRequested(model="mock", prompt="q", step_key=key, input_hash=key),
                ModelCompleted(request_seq=seq, model="mock", output_json='{"text":"a"}'),
                ToolRequested(tool_name="look", arguments_json="{}", idempotency_key="x", step_key=key),
                ToolCompleted(request_seq=seq + 2, tool_name="look", result_json="1"),
                RunSummary(summary_type="artifact::a", summary_json='{"value":1}'),
            ]
        return build_batch(head, moment, "acme", [Entry(each) for each in entries])

    while (head := await ledger.head("r")) is not None and head.count < count:
        await ledger.append("r", write)
    # By its next event a kernel sees that somebody else has written.
    await kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type="s", summary_json="{}")


Syscall = Callable[[ArtanaKernel, int], Coroutine[Any, Any, Any]]

SYSCALLS: dict[str, Syscall] = {
    "a model step": lambda kernel, n: ask(kernel, "r", f"q{n}", f"k{n}"),
    "a model step without a key": lambda kernel, n: ask(kernel, "r", f"unkeyed {n}"),
    "a model step that is replayed": lambda kernel, _: ask(kernel, "r", "first", "first"),
    "a pinned model step": lambda kernel, n: ask(kernel, "r", f"q{n}", f"p{n}", tool_drift="pin"),
    "a tool step": lambda kernel, n: call(kernel, "r", "charge", {"n": n}, f"t{n}"),
    "a tool step that is replayed": lambda kernel, _: call(kernel, "r", "charge", {"n": 0}, "first"),
    "a status": lambda kernel, _: kernel.get_run_status(run_id="r"),
    "a progress": lambda kernel, _: kernel.get_run_progress(run_id="r"),
    "an explanation": lambda kernel, _: kernel.explain_run("r"),
    "a resume point": lambda kernel, _: kernel.resume_point(run_id="r"),
    "an artifact": lambda kernel, _: kernel.get_artifact(run_id="r", key="a"),
    "a summary": lambda kernel, n: kernel.append_run_summary(
        run_id="r", tenant=TENANT, summary_type="s", summary_json="{}"
    ),
    "all artifacts": lambda kernel, _: kernel.list_artifacts(run_id="r"),
    "a pause": lambda kernel, n: kernel.pause(run_id="r", tenant=TENANT, reason="x", step_key=f"pause{n}"),
}


class TestPoint16:
    """Cost per step does not grow with the length of the run."""

    def test_what_is_read_and_written_by_a_step_is_the_same_in_a_long_run(self, shared: Place) -> None:
        async def scenario() -> None:
            store = shared.store()
            store.ledger = counting = Counting(store.ledger)
            async with ArtanaKernel(store=store, model_port=Model()) as kernel:

                @kernel.tool(side_effect=True)
                async def charge(n: int, artana_context: ToolExecutionContext) -> int:
                    return n

                async def measure(start: int) -> dict[str, tuple[Counter[str], int]]:
                    found = {}
                    for n, (name, syscall) in enumerate(SYSCALLS.items(), start=start):
                        counting.count()
                        await syscall(kernel, n)
                        found[name] = counting.count()
                    await kernel.resume(run_id="r", tenant=TENANT)
                    return found

                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "first", "first")
                await call(kernel, "r", "charge", {"n": 0}, "first")
                remembered = await measure(100)
                # From here on not all of it is remembered: as for a process that goes on with the run.
                await lengthen(kernel, PAGE)
                short = await measure(200)
                await lengthen(kernel, LONG)
                long = await measure(300)
                for name in SYSCALLS:
                    assert long[name] == short[name], name
                    asked, given = long[name]
                    assert asked.total() <= remembered[name][0].total() + 2, name
                    assert asked.total() <= 5, (name, asked)
                    assert given <= 4, (name, given)
                    assert "lines" not in asked, name

        asyncio.run(scenario())

    def test_a_new_process_does_not_read_a_long_run(self, shared: Place) -> None:
        async def scenario() -> None:
            async with shared.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "first", "first")
                await lengthen(kernel, 6000)
            store = shared.store()
            store.ledger = counting = Counting(store.ledger)
            async with ArtanaKernel(store=store, model_port=Model()) as kernel:
                assert (await ask(kernel, "r", "first", "first")).replayed
                assert not (await ask(kernel, "r", "next", "next")).replayed
                asked, given = counting.count()
                assert "lines" not in asked
                assert given <= 6

        asyncio.run(scenario())

    def test_the_end_of_a_run_does_not_grow_with_it(self, tmp_path: Path) -> None:
        async def size(kernel: ArtanaKernel) -> int:
            connection = sqlite3.connect(tmp_path / "runs.db")
            try:
                return int(connection.execute("SELECT length(snapshot) FROM runs").fetchone()[0])
            finally:
                connection.close()

        async def scenario() -> None:
            async with Place("sqlite", str(tmp_path / "runs.db")).kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await lengthen(kernel, 600)
                short = await size(kernel)
                await lengthen(kernel, 6000)
                assert await size(kernel) <= short + 16

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("question", "given", "index"),
        [
            ("HEAD", ("r",), "(run_id=?)"),
            ("LINES", ("r", 5, 10), "(run_id=? AND seq>?)"),
            ("CALLS", ("r", "k", 10), "calls_by_key (run_id=? AND key>? AND key<?)"),
            ("LAST_CALL", ("r", "k"), "calls_by_key (run_id=? AND key>? AND key<?)"),
            ("HOLDERS", ("acme", "t", "k"), "calls_by_semantic (tenant=? AND name=? AND semantic_key=?)"),
            ("SUMMARY", ("r", "a", 1), "events_by_summary (run_id=? AND summary_type=?)"),
            ("LATEST_SUMMARIES", ("r", "artifact::"), "events_by_summary (run_id=? AND summary_type>?)"),
        ],
    )
    def test_every_question_of_a_step_is_answered_by_an_index(
        self, question: str, given: tuple[Any, ...], index: str
    ) -> None:
        connection = sqlite3.connect(":memory:")
        for statement in sql.schema("sqlite"):
            connection.execute(statement)
        plan = connection.execute("EXPLAIN QUERY PLAN " + sql.for_sqlite(getattr(sql, question)), given).fetchall()
        connection.close()
        steps = [detail for *_, detail in plan]
        # By all it is asked for: an index on the run alone would be gone through from one end to the other.
        assert any(step.startswith("SEARCH") and step.endswith(index) for step in steps), steps
        assert not [step for step in steps if step.startswith("SCAN") and "kind" not in step], steps

    @pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
    def test_a_follower_is_woken_and_does_not_poll(
        self, request: pytest.FixtureRequest, tmp_path: Path, kind: str
    ) -> None:
        place = stands(request, kind, tmp_path)
        settings = {} if kind == "memory" else {"poll_interval": 3600.0}

        async def scenario() -> None:
            async with place.kernel(store=settings) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await followed(kernel, kernel)
            if kind == "postgres":
                # Told by the server, whoever wrote it.
                async with place.kernel(store=settings) as one, place.kernel(store=settings) as two:
                    await followed(one, two)

        async def followed(reads: ArtanaKernel, writes: ArtanaKernel) -> None:
            start = (await reads.get_run_status(run_id="r")).last_event_seq
            seen: list[int] = []

            async def follow() -> None:
                async for event in reads.stream_events(run_id="r", since_seq=start, follow=True):
                    seen.append(event.seq)
                    if len(seen) == 9:
                        return

            following = asyncio.create_task(follow())
            async with asyncio.timeout(20):
                await asyncio.sleep(0.05)
                for n in range(3):
                    await ask(writes, "r", f"q{n} {start}", f"k{n} {start}")
                await following
            assert seen == list(range(start + 1, start + 10))

        asyncio.run(scenario())

    def test_many_stores_start_at_once_where_there_is_nothing(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        dsn = request.getfixturevalue("dsn")

        async def scenario(make: Callable[[], Any]) -> None:
            stores = [make() for _ in range(8)]
            infos = await asyncio.gather(*(store.get_schema_info() for store in stores))
            assert len(set(infos)) == 1
            kernels = [ArtanaKernel(store=store, model_port=Model()) for store in stores]
            await asyncio.gather(*(kernel.start_run(tenant=TENANT, run_id=f"r{n}") for n, kernel in enumerate(kernels)))
            assert len(await stores[0].list_run_ids()) == 8
            for kernel in kernels:
                await kernel.close()

        asyncio.run(scenario(partial(PostgresStore, dsn, max_pool_size=2)))
        asyncio.run(scenario(partial(SQLiteStore, tmp_path / "runs.db")))


class TestPoint17:
    """Durable means fsynced."""

    @pytest.mark.parametrize(("settings", "level"), [({}, 2), ({"sync": False}, 0)], ids=["by default", "if told so"])
    def test_sqlite_syncs_every_commit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], level: int
    ) -> None:
        opened: list[sqlite3.Connection] = []
        where = "gert.ecosystem.ledger.sqlite.executor.open_writer"

        def opening(*given: Any, **more: Any) -> sqlite3.Connection:
            opened.append(open_writer(*given, **more))
            return opened[-1]

        monkeypatch.setattr(where, opening)

        async def scenario() -> None:
            async with Place("sqlite", str(tmp_path / "runs.db")).kernel(store=settings) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                assert kernel.ledger.durable is (level == 2)
                [connection] = opened
                assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
                assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)

        asyncio.run(scenario())

    def test_a_ledger_says_what_it_is(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.store() as store:
                info = await store.get_schema_info()
                assert info.backend == ("postgres" if place.kind == "postgres" else "sqlite")
                assert info.schema_version.isdecimal()

        asyncio.run(scenario())
