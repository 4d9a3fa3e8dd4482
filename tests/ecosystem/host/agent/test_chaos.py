"""Four workers on one Postgres drive agent runs while they are killed at random."""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.ecosystem.host.agent.chaos_worker import STEPS, TENANT, kernel_on
from tests.soak import sampled

from gert.agent import PostgresStore, resolve_tool_resolutions

WORKERS = 4
KILLS = 25
PATIENCE = 180.0
WORKER = Path(__file__).with_name("chaos_worker.py")


def start(dsn: str, name: str, effects: Path, seed: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, str(WORKER), dsn, name, str(effects), str(seed)])


async def begin(dsn: str, effects: Path, runs: int) -> list[str]:
    async with kernel_on(dsn, str(effects)) as kernel:
        return [(await kernel.start_run(tenant=TENANT, run_id=f"chaos-{n:03}")).run_id for n in range(runs)]


def kill_at_random(dsn: str, effects: Path, choice: random.Random) -> tuple[int, list[int]]:
    """Keep four workers going, killing one of them now and then; how many were killed, and how the last ended."""
    workers = [start(dsn, f"worker-{n}", effects, n) for n in range(WORKERS)]
    killed, deadline = 0, time.monotonic() + PATIENCE
    try:
        while killed < KILLS and all(worker.poll() is None for worker in workers):
            time.sleep(choice.uniform(0.1, 0.5))
            place = choice.randrange(WORKERS)
            workers[place].kill()
            workers[place].wait()
            killed += 1
            workers[place] = start(dsn, f"worker-{WORKERS + killed}", effects, WORKERS + killed)
        return killed, [worker.wait(max(1.0, deadline - time.monotonic())) for worker in workers]
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()


async def audit(dsn: str, run_ids: list[str], effects: Counter[tuple[str, str]]) -> Counter[str]:
    """Check every run; how many calls ended each way."""
    found: Counter[str] = Counter()
    async with PostgresStore(dsn) as store:
        for run_id in run_ids:
            assert await store.verify_run_chain(run_id)
            snapshot = await store.get_run_state_snapshot(run_id=run_id)
            assert snapshot is not None
            assert snapshot.status in ("completed", "failed")
            events = await store.get_events_for_run(run_id)
            ended = [event for event in events if event.event_type.value == "harness_sleep"]
            assert len(ended) == 1, "a run ends once"
            calls = {call.request.payload.step_key: call for call in resolve_tool_resolutions(events)}  # type: ignore[union-attr]
            assert len(calls) == len(resolve_tool_resolutions(events)), "a step is announced once"
            for step in STEPS:
                happened, call = effects[run_id, step], calls.get(f"charge_{step}")
                found[call.outcome if call is not None else "never"] += 1
                if call is None:
                    assert happened == 0, "nothing happens that was not announced"
                elif call.outcome == "success":
                    assert happened == 1
                else:
                    assert call.outcome in ("open", "unknown_outcome")
                    assert happened <= 1
            in_doubt = any(call.outcome != "success" for call in calls.values())
            assert (snapshot.status == "failed") == in_doubt
    return found


@pytest.mark.parametrize("runs", sampled([60, 400], [60]))
def test_killed_workers_lose_no_run_and_repeat_no_effect(durable_dsn: str, tmp_path: Path, runs: int) -> None:
    effects = tmp_path / "effects.txt"
    effects.touch()
    run_ids = asyncio.run(begin(durable_dsn, effects, runs))
    killed, ends = kill_at_random(durable_dsn, effects, random.Random(7))
    assert killed >= 1
    assert ends == [0] * WORKERS
    happened = Counter(tuple(line.split()[:2]) for line in effects.read_text().splitlines())
    keys = [line.split()[2] for line in effects.read_text().splitlines()]
    assert len(set(keys)) == len(keys)
    found = asyncio.run(audit(durable_dsn, run_ids, happened))  # type: ignore[arg-type]
    assert found["success"] > runs
