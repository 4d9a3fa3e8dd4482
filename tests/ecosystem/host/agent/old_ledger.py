"""Writes a ledger with this version, to be kept: every later version must read and verify it.

Run once for each release, as a program: `old_ledger.py tests/fixtures/ledgers/VERSION`.
"""

import asyncio
import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel

from gert.agent import (
    ArtanaKernel,
    BoundRun,
    EventType,
    HarnessFailedPayload,
    HarnessSleepPayload,
    JSONLStore,
    MockModelPort,
    SQLiteStore,
    TenantContext,
    ToolCall,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolUnknownOutcomeError,
    json_step_serde,
)
from gert.kernel.foundation.signature import parse_key

KEY = "base64:Z2VydC1sZWRnZXItZml4dHVyZS1rZXk="
"""Not a secret: it seals fixtures, so that seals of old versions are verified, too."""

TENANT = TenantContext(tenant_id="acme", budget_usd_limit=10)


class Verdict(BaseModel):
    """What the mock model answers."""

    healthy: bool
    note: str = ""


def kernel_on(store: SQLiteStore | JSONLStore) -> ArtanaKernel:
    """The kernel whose runs are kept; the test that reads them makes the same."""
    kernel = ArtanaKernel(
        store=store,
        model_port=MockModelPort(
            output={"healthy": False, "note": "Pod “web-1” ist weg ☠"},
            tool_calls=(ToolCall("restart", '{"pod":"web-1"}', "call_1"),),
        ),
    )

    @kernel.tool(side_effect=True)
    async def restart(pod: str, artana_context: ToolExecutionContext) -> dict[str, str]:
        """Restart a pod."""
        if pod == "gone":
            raise ToolUnknownOutcomeError("the connection broke")
        return {"restarted": pod, "key": artana_context.idempotency_key}

    return kernel


async def drive(run: BoundRun) -> None:
    """Every kind of step, each replayed by whoever reads the fixture."""
    await run.model("mock-1", "Is web-1 healthy?", Verdict, step_key="triage")
    await run.tool("restart", {"pod": "web-1"}, step_key="restart")
    await run.read("memory", "memory", lambda: asyncio.sleep(0, "web-1 was restarted yesterday"))


async def write(kernel: ArtanaKernel) -> None:
    """One run of each kind worth keeping."""
    async with kernel.run(tenant=TENANT, run_id="steps") as run:
        await drive(run)
        await run.model(
            "mock-1", "Is web-1 healthy now?", Verdict, step_key="triage", replay_policy="allow_prompt_drift"
        )
        await run.model("mock-1", "Is web-1 fine?", Verdict, step_key="triage", replay_policy="fork_on_drift")
        await run.set_artifact("report", {"pods": ["web-1"], "n": 1})
        await run.checkpoint("restarted", {"at": 1})
        await kernel.append_harness_event(
            run_id="steps", tenant=TENANT, event_type=EventType.HARNESS_SLEEP, payload=HarnessSleepPayload()
        )
    async with kernel.run(tenant=TENANT, run_id="doubt") as run:
        try:
            await run.tool("restart", {"pod": "gone"}, step_key="restart")
        except ToolExecutionFailedError:
            await run.block("somebody must look", "look")
    async with kernel.run(tenant=TENANT, run_id="failed"):
        payload = HarnessFailedPayload(error_type="ValueError", message="no such pod", last_step_key="restart")
        await kernel.append_harness_event(
            run_id="failed", tenant=TENANT, event_type=EventType.HARNESS_FAILED, payload=payload
        )
    await kernel.run_workflow(
        run_id="workflow",
        tenant=TENANT,
        workflow=lambda ctx: ctx.step(name="one", action=lambda: asyncio.sleep(0, [1]), serde=json_step_serde()),
    )


async def main(folder: Path) -> None:
    """Write both embedded ledgers."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun, ticks = datetime(2026, 1, 1, tzinfo=UTC), iter(range(1_000_000))

    def clock() -> datetime:
        return begun + timedelta(milliseconds=next(ticks))

    key = parse_key(KEY)
    for store in (
        SQLiteStore(folder / "ledger.db", key=key, clock=clock),
        JSONLStore(folder / "jsonl", key=key, clock=clock),
    ):
        async with kernel_on(store) as kernel:
            await write(kernel)
    # One file: whoever closes last may only have been reading, and leaves what was written beside it.
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
