"""What must hold, 15: a record that was changed, cut or exchanged does not verify."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Hooks, Model, Place, ask, kinds
from tests.postgres import execute

from gert.agent import (
    ArtanaKernel,
    EventType,
    GertError,
    HarnessStagePayload,
    LeaseLost,
    PostgresStore,
    RunError,
    SQLiteStore,
)
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import IntegrityError
from gert.kernel.foundation.signature import Keys, parse_key

KEY = parse_key("a shared secret that is long enough to be one", "ledger")


@dataclass(frozen=True)
class Record:
    """A run as a ledger keeps it: its lines, and where it says the run ends."""

    lines: list[bytes]
    count: int
    hash: str


Forge = Callable[[Record], Record]


def record(place: Place, run_id: str, forge: Forge) -> None:
    """Change a run behind the back of its ledger, as somebody does who can write to the database."""
    if place.kind == "sqlite":
        connection = sqlite3.connect(place.address)
        with connection:
            rows = connection.execute("SELECT line FROM events WHERE run_id = ? ORDER BY seq", (run_id,)).fetchall()
            head = connection.execute("SELECT count, hash FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            made = forge(Record([row[0] for row in rows], *head))
            connection.execute("DELETE FROM events WHERE run_id = ? AND seq > ?", (run_id, len(made.lines)))
            for seq, line in enumerate(made.lines, start=1):
                connection.execute(
                    "INSERT OR REPLACE INTO events (run_id, seq, type, timestamp, line) VALUES (?, ?, ?, ?, ?)",
                    (run_id, seq, *columns(line), line),
                )
            connection.execute("UPDATE runs SET count = ?, hash = ? WHERE run_id = ?", (made.count, made.hash, run_id))
        connection.close()
        return
    schema, where = place.schema, f"WHERE run_id = '{run_id}'"
    rows = execute(place.address, f"SELECT line FROM {schema}.events {where} ORDER BY seq")
    [head] = execute(place.address, f"SELECT count, hash FROM {schema}.runs {where}")
    made = forge(Record([bytes(row[0]) for row in rows], head[0], head[1]))
    statements = [
        f"DELETE FROM {schema}.events {where}",
        *(
            f"INSERT INTO {schema}.events (run_id, seq, type, timestamp, line)"
            f" VALUES ('{run_id}', {seq}, '{columns(line)[0]}', '{columns(line)[1]}', decode('{line.hex()}', 'hex'))"
            for seq, line in enumerate(made.lines, start=1)
        ),
        f"UPDATE {schema}.runs SET count = {made.count}, hash = '{made.hash}' {where}",
        "SELECT 1",
    ]
    execute(place.address, *statements)


def columns(line: bytes) -> tuple[str, str]:
    """What the ledger has beside a line."""
    said = json.loads(line)
    return said["type"], said["timestamp"]


def swapped(found: Record) -> Record:
    lines = list(found.lines)
    lines[2], lines[3] = lines[3], lines[2]
    return replace(found, lines=lines)


def cut(found: Record) -> Record:
    return replace(found, lines=found.lines[:-1])


def cut_with_head(found: Record) -> Record:
    lines = found.lines[:-1]
    return Record(lines, len(lines), sha256(lines[-1]).hexdigest())


def edited(position: int) -> Forge:
    def forge(found: Record) -> Record:
        lines = list(found.lines)
        lines[position] = lines[position].replace(b"acme", b"evil")
        assert lines != found.lines
        return replace(found, lines=lines)

    return forge


FORGERIES = [
    pytest.param(edited(0), "chain", id="the first event edited"),
    pytest.param(edited(4), "chain", id="an event in the middle edited"),
    pytest.param(edited(-1), "head", id="the last event edited"),
    pytest.param(lambda r: replace(r, lines=[*r.lines[:3], r.lines[3] + b" ", *r.lines[4:]]), "chain", id="one byte"),
    pytest.param(swapped, "chain", id="two events swapped"),
    pytest.param(lambda r: replace(r, lines=r.lines[1:]), "chain", id="the first event taken off"),
    pytest.param(lambda r: replace(r, lines=[*r.lines[:2], *r.lines[3:]]), "chain", id="one in the middle taken out"),
    pytest.param(cut, "count", id="the end cut off"),
    pytest.param(lambda r: replace(r, lines=[]), "chain", id="all events taken away"),
    pytest.param(lambda r: replace(r, count=r.count - 1), "count", id="the count edited"),
    pytest.param(lambda r: replace(r, hash="0" * 64), "head", id="the head edited"),
    pytest.param(lambda r: replace(r, lines=[*r.lines, r.lines[-1]]), "chain", id="the last event twice"),
]


async def written(place: Place, **settings: Any) -> None:
    async with place.kernel(store=settings) as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        await kernel.start_run(tenant=TENANT, run_id="s")
        for n in range(3):
            await ask(kernel, "r", f"q{n}", f"k{n}")


class TestPoint15:
    """Ledger verification."""

    @pytest.mark.parametrize(("forge", "check"), FORGERIES)
    def test_a_forged_record_does_not_verify(self, shared: Place, forge: Forge, check: str) -> None:
        asyncio.run(written(shared))
        record(shared, "r", forge)

        async def verify() -> None:
            async with shared.store() as store:
                assert not await store.verify_run_chain("r")
                assert await store.verify_run_chain("s")
                report = await verify_run(store.ledger, "r")
                assert check in [each.name for each in report.failures]

        asyncio.run(verify())

    def test_an_end_that_was_cut_off_with_its_head_shows_against_the_seal(self, shared: Place) -> None:
        asyncio.run(written(shared, key=KEY))
        keys = Keys([KEY])

        async def verify(*, holds: bool) -> None:
            async with shared.store() as store:
                assert (await verify_run(store.ledger, "r", keys)).holds is holds
                assert (await verify_run(store.ledger, "s", keys)).proven

        asyncio.run(verify(holds=True))
        record(shared, "r", cut_with_head)
        asyncio.run(verify(holds=False))

    def test_a_run_that_was_not_started_is_an_error(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                for run_id in ("x", "R", "r ", "", "r::fork::x"):
                    with pytest.raises(RunError, match="no run"):
                        await kernel.store.verify_run_chain(run_id)
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    def test_a_run_that_is_written_meanwhile_verifies(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                steps = [asyncio.create_task(ask(kernel, "r", f"q{n}", f"k{n}")) for n in range(20)]
                for _ in range(5):
                    assert await kernel.store.verify_run_chain("r")
                await asyncio.gather(*steps)
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    def test_who_only_reads_creates_nothing(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing"

        async def scenario() -> None:
            async with SQLiteStore(missing, read_only=True) as store:
                await store.verify_run_chain("r")

        with pytest.raises(GertError):
            asyncio.run(scenario())
        assert list(tmp_path.iterdir()) == []

    def test_who_only_reads_makes_no_tables(self, agents_dsn: str) -> None:
        async def scenario() -> None:
            async with PostgresStore(agents_dsn, schema="nobody_made_it", read_only=True) as store:
                await store.list_run_ids()

        with pytest.raises(GertError):
            asyncio.run(scenario())
        found = execute(agents_dsn, "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'nobody_made_it'")
        assert found == []


class TestSealedRuns:
    """With a key, a run is continued by those who can seal it, and verified with its key."""

    def test_a_run_that_is_not_sealed_is_adopted_with_a_reason(self, shared: Place) -> None:
        asyncio.run(written(shared))

        async def scenario() -> None:
            async with shared.kernel(store={"key": KEY}) as kernel:
                store: Any = kernel.store
                with pytest.raises(IntegrityError, match="is not sealed"):
                    await ask(kernel, "r", "new", "new")
                assert not await store.verify_run_chain("r")
                event = await store.adopt_unsealed_run(run_id="r", tenant_id="acme", reason="moved from a laptop")
                assert event.payload.summary_type == "run_adopted"
                assert "moved from a laptop" in event.payload.summary_json
                assert not (await ask(kernel, "r", "new", "new")).replayed
                assert await store.verify_run_chain("r")
                with pytest.raises(RunError, match="another tenant"):
                    await store.adopt_unsealed_run(run_id="s", tenant_id="evil", reason="x")
                with pytest.raises(RunError, match="has not started"):
                    await store.adopt_unsealed_run(run_id="x", tenant_id="acme", reason="x")

        asyncio.run(scenario())

    def test_a_sealed_run_is_not_continued_without_its_key(self, shared: Place) -> None:
        asyncio.run(written(shared, key=KEY))

        async def scenario() -> None:
            async with shared.kernel() as kernel:
                with pytest.raises(IntegrityError, match="is sealed, and no signing key is configured"):
                    await ask(kernel, "r", "new", "new")
                assert (await ask(kernel, "r", "q0", "k0")).replayed
            async with shared.kernel(store={"key": KEY}) as kernel:
                assert not (await ask(kernel, "r", "new", "new")).replayed

        asyncio.run(scenario())

    def test_a_blocked_run_is_not_unblocked_by_editing_a_column(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.db"

        async def block() -> None:
            async with Place("sqlite", str(path)).kernel(store={"key": KEY}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await kernel.block_run(run_id="r", tenant=TENANT, reason="audit", unblock_key="a")

        async def go_on() -> None:
            async with Place("sqlite", str(path)).kernel(store={"key": KEY}) as kernel:
                assert not await kernel.store.verify_run_chain("r")
                with pytest.raises(IntegrityError):
                    await ask(kernel, "r", "q", "k")

        asyncio.run(block())
        with sqlite3.connect(path) as connection:
            changed = connection.execute("UPDATE runs SET snapshot = ?", (b'{"type":"agent","last_type":"x"}',))
            assert changed.rowcount == 1
        connection.close()
        asyncio.run(go_on())

    def test_the_store_and_middleware_of_a_kernel_write_under_its_lease(self, shared: Place) -> None:
        async def scenario() -> None:
            async with shared.kernel() as kernel, shared.kernel() as other:
                store: Any = kernel.store

                async def before(_: Any) -> None:
                    await store.append_event(
                        run_id="r",
                        tenant_id="acme",
                        event_type=EventType.HARNESS_STAGE,
                        payload=HarnessStagePayload(stage="checked"),
                    )

                class Checks(Hooks):
                    async def before_model(self, **call: Any) -> None:
                        await before(call)

                guarded = ArtanaKernel(store=store, model_port=Model(), middleware=[Checks()])
                await kernel.start_run(tenant=TENANT, run_id="r")
                assert await guarded.acquire_run_lease(run_id="r", worker_id="w", ttl_seconds=60)
                assert not (await ask(guarded, "r", "q", "k")).replayed
                assert "harness_stage" in await kinds(kernel, "r")
                with pytest.raises(LeaseLost):
                    await ask(other, "r", "q2", "k2")

        asyncio.run(scenario())
