"""A ledger that some version of gert wrote is read, verified and gone on with by every later one."""

import asyncio
import shutil
from pathlib import Path

import pytest

import gert
from gert.agent import JSONLStore, SQLiteStore, StepModelResult
from gert.ecosystem.stores.verifying import verify_run
from gert.kernel.foundation.signature import Keys, parse_key

from .old_ledger import KEY, TENANT, Verdict, drive, kernel_on

LEDGERS = Path(__file__).parents[3] / "fixtures" / "ledgers"
VERSIONS = sorted(folder.name for folder in LEDGERS.iterdir())
RUNS = {"steps": "completed", "doubt": "paused", "failed": "failed", "workflow": "active"}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sqlite", "jsonl"])
def store(request: pytest.FixtureRequest, version: str, tmp_path: Path) -> SQLiteStore | JSONLStore:
    """A copy: nobody may write into what is kept."""
    shutil.copytree(LEDGERS / version, tmp_path / version)
    key = parse_key(KEY)
    if request.param == "sqlite":
        return SQLiteStore(tmp_path / version / "ledger.db", key=key)
    return JSONLStore(tmp_path / version / "jsonl", key=key)


def test_this_version_has_its_ledger() -> None:
    assert gert.__version__ in VERSIONS


def test_every_run_verifies_with_its_seal(store: SQLiteStore | JSONLStore) -> None:
    async def verified() -> dict[str, bool]:
        async with store:
            ids = await store.list_run_ids()
            return {run: (await verify_run(store.ledger, run, Keys([parse_key(KEY)]))).proven for run in ids}

    found = asyncio.run(verified())
    assert set(RUNS) < set(found)
    assert set(found.values()) == {True}


def test_every_run_stands_as_it_stood(store: SQLiteStore | JSONLStore) -> None:
    async def statuses() -> dict[str, str]:
        async with kernel_on(store) as kernel:
            return {run: (await kernel.get_run_status(run_id=run)).status for run in RUNS}

    assert asyncio.run(statuses()) == RUNS


def test_steps_are_replayed_and_nothing_is_added(store: SQLiteStore | JSONLStore) -> None:
    async def again() -> tuple[int, int, StepModelResult[Verdict]]:
        async with kernel_on(store) as kernel:
            before = await kernel.get_events(run_id="steps")
            run = kernel.bind(run_id="steps", tenant=TENANT)
            await drive(run)
            after = await kernel.get_events(run_id="steps")
            answer = await run.model("mock-1", "Is web-1 healthy?", Verdict, step_key="triage")
            return len(before), len(after), answer

    before, after, answer = asyncio.run(again())
    assert before == after
    assert answer.replayed
    assert answer.output.note == "Pod “web-1” ist weg ☠"
    assert [call.tool_name for call in answer.tool_calls] == ["restart"]


def test_an_old_run_goes_on(store: SQLiteStore | JSONLStore) -> None:
    async def on() -> bool:
        async with kernel_on(store) as kernel:
            await kernel.unblock_run(run_id="doubt", tenant=TENANT, unblock_key="look")
            settled = await kernel.reconcile_tool(
                run_id="doubt",
                tenant=TENANT,
                tool_name="restart",
                arguments={"pod": "gone"},
                step_key="restart",
                outcome="success",
                result={"restarted": "gone"},
                by="ann@example.com",
            )
            assert settled == '{"restarted":"gone"}'
            return await store.verify_run_chain("doubt")

    assert asyncio.run(on())
