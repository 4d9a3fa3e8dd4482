"""A worker of the chaos test: takes runs that have not ended and drives them, until it is killed or none are left.

Run as a program: `chaos_worker.py DSN WORKER EFFECTS SEED`.
"""

import asyncio
import os
import random
import sys
from contextlib import suppress

from pydantic import BaseModel

from gert.agent import (
    ArtanaKernel,
    BoundRun,
    EventType,
    HarnessSleepPayload,
    LeaseLost,
    MockModelPort,
    PostgresStore,
    TenantContext,
    ToolExecutionContext,
    ToolExecutionFailedError,
)

TENANT = TenantContext(tenant_id="chaos", budget_usd_limit=1000)
TTL = 2
STEPS = ("look", "fix")


class Plan(BaseModel):
    """What the model answers."""

    ok: bool


def kernel_on(dsn: str, effects: str) -> ArtanaKernel:
    """A kernel with one tool, which leaves a line in a file for each time it really happened."""
    kernel = ArtanaKernel(store=PostgresStore(dsn, max_pool_size=3), model_port=MockModelPort(output={"ok": True}))

    @kernel.tool(side_effect=True)
    async def charge(step: str, artana_context: ToolExecutionContext) -> dict[str, str]:
        await asyncio.sleep(random.random() * 0.02)
        file = os.open(effects, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, f"{artana_context.run_id} {step} {artana_context.idempotency_key}\n".encode())
        finally:
            os.close(file)
        await asyncio.sleep(random.random() * 0.02)
        return {"charged": step}

    return kernel


async def drive(run: BoundRun) -> None:
    """Everything one run has to do; what is on record is not done again."""
    failed = None
    for step in STEPS:
        await run.model("mock", f"What about {step}?", Plan, step_key=f"plan_{step}")
        try:
            await run.tool("charge", {"step": step}, step_key=f"charge_{step}")
        except ToolExecutionFailedError as error:
            if not error.in_doubt:
                raise
            failed = "UnknownOutcome"
            break
    await run.kernel.append_harness_event(
        run_id=run.run_id,
        tenant=TENANT,
        event_type=EventType.HARNESS_SLEEP,
        payload=HarnessSleepPayload(status="failed" if failed else "completed", execution_error_type=failed),
    )


async def beat(kernel: ArtanaKernel, run_id: str, worker: str) -> None:
    """Keep the lease while the run is driven."""
    while True:
        await asyncio.sleep(TTL / 4)
        await kernel.renew_run_lease(run_id=run_id, worker_id=worker, ttl_seconds=TTL)


async def take(kernel: ArtanaKernel, run_id: str, worker: str) -> None:
    """Drive a run if nobody else does."""
    if not await kernel.acquire_run_lease(run_id=run_id, worker_id=worker, ttl_seconds=TTL):
        return
    beating = asyncio.create_task(beat(kernel, run_id, worker))
    try:
        # Another worker may have ended it just before.
        if (await kernel.get_run_status(run_id=run_id)).status == "active":
            with suppress(LeaseLost):
                await drive(kernel.bind(run_id=run_id, tenant=TENANT))
    finally:
        beating.cancel()
        await kernel.release_run_lease(run_id=run_id, worker_id=worker)


async def work(dsn: str, worker: str, effects: str, seed: int) -> None:
    """Take runs in an order of our own until all have ended."""
    order = random.Random(seed)
    async with kernel_on(dsn, effects) as kernel:
        while active := [run.run_id for run in await kernel.list_active_runs(tenant_id=TENANT.tenant_id)]:
            order.shuffle(active)
            for run_id in active[:20]:
                await take(kernel, run_id, worker)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
