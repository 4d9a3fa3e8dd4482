"""Runs of another kind, tenant or lease are left alone; what nobody can read counts for nothing."""

import asyncio
from pathlib import Path

import pytest
from tests.ecosystem.ledger.ledgers import RUN, STARTED, drives

from gert.agent import ArtanaKernel, MockModelPort, RunError, SQLiteStore, TenantContext
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.errors import InputError
from gert.kernel.events.agent import ModelFailed, RunSummary
from gert.kernel.ledger.agent_fold import AgentSnapshot, fold

ACME = TenantContext(tenant_id="acme", budget_usd_limit=1)
EVIL = TenantContext(tenant_id="evil", budget_usd_limit=1)


def kernel_on(path: Path) -> ArtanaKernel:
    return ArtanaKernel(store=SQLiteStore(path), model_port=MockModelPort(output={}))


class TestARunbookRun:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        async def begin() -> None:
            async with SqliteLedger(tmp_path / "runs.db") as ledger:
                assert await ledger.acquire(RUN, "driver", 60)
                await ledger.append(RUN, drives(STARTED))

        asyncio.run(begin())
        return tmp_path / "runs.db"

    @pytest.mark.parametrize("what", ["checkpoint", "status", "load", "run"])
    def test_is_no_agent_run(self, path: Path, what: str) -> None:
        async def touch() -> None:
            async with kernel_on(path) as kernel:
                if what == "checkpoint":
                    await kernel.acquire_run_lease(run_id=RUN, worker_id="driver", ttl_seconds=60)
                    await kernel.checkpoint(run_id=RUN, tenant=ACME, name="x", payload=1)
                elif what == "status":
                    await kernel.get_run_status(run_id=RUN)
                elif what == "load":
                    await kernel.load_run(run_id=RUN)
                else:
                    async with kernel.run(tenant=ACME, run_id=RUN):
                        pass

        async def count() -> int:
            async with SqliteLedger(path) as ledger:
                return len(await ledger.lines(RUN))

        with pytest.raises(RunError, match="is a runbook run"):
            asyncio.run(touch())
        assert asyncio.run(count()) == 1


def test_a_run_is_not_handed_to_another_tenant(tmp_path: Path) -> None:
    async def steal() -> None:
        async with kernel_on(tmp_path / "runs.db") as kernel:
            await kernel.start_run(tenant=ACME, run_id="r")
            async with kernel.run(tenant=EVIL, run_id="r"):
                pass

    with pytest.raises(RunError, match="another tenant"):
        asyncio.run(steal())


def test_releasing_a_lease_that_is_not_held_changes_nothing(tmp_path: Path) -> None:
    async def release() -> int:
        async with kernel_on(tmp_path / "runs.db") as kernel:
            await kernel.start_run(tenant=ACME, run_id="r")
            assert await kernel.acquire_run_lease(run_id="r", worker_id="a", ttl_seconds=60)
            assert not await kernel.acquire_run_lease(run_id="r", worker_id="b", ttl_seconds=60)
            assert not await kernel.release_run_lease(run_id="r", worker_id="b")
            return await kernel.checkpoint(run_id="r", tenant=ACME, name="x", payload=1)

    assert asyncio.run(release()) == 2


@pytest.mark.parametrize("key", ["", None, "deploy", "a::b"])
def test_a_block_is_cleared_by_its_key_whatever_it_is(tmp_path: Path, key: str | None) -> None:
    async def clear() -> str:
        async with kernel_on(tmp_path / "runs.db") as kernel, kernel.run(tenant=ACME, run_id="r") as run:
            await run.block("wait", key)
            await run.unblock(key)
            return (await run.status()).status

    assert asyncio.run(clear()) == "active"


class TestTasksThatCannotBeRead:
    def test_are_refused(self, tmp_path: Path) -> None:
        async def note() -> None:
            async with kernel_on(tmp_path / "runs.db") as kernel, kernel.run(tenant=ACME, run_id="r"):
                await kernel.append_run_summary(
                    run_id="r", tenant=ACME, summary_type="task_progress", summary_json='{"units":[{"id":1}]}'
                )

        with pytest.raises(InputError, match="expected tasks"):
            asyncio.run(note())

    def test_leave_those_known_before(self) -> None:
        one = '{"units":[{"id":"a","state":"done"},{"id":"b"},{"id":"c"}]}'
        known = fold(AgentSnapshot(), RunSummary(summary_type="task_progress", summary_json=one), 2)
        bad = RunSummary(summary_type="task_progress", summary_json='{"units":[{"id":"a","state":"failed"}]}')
        assert fold(known, bad, 3).tasks_total == known.tasks_total == 3


def test_a_paid_answer_that_cannot_be_used_is_counted() -> None:
    failed = ModelFailed(request_seq=2, model="m", reason="failed", cost_usd=0.25)
    assert fold(fold(AgentSnapshot(), failed, 3), failed, 5).model_cost == 0.5
