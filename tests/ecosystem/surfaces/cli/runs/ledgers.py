"""Ledgers with agent runs and runbook runs side by side, in SQLite and on Postgres."""

import asyncio
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from tests.postgres import execute

from gert.agent import (
    ArtanaKernel,
    EventType,
    HarnessSleepPayload,
    MockModelPort,
    ModelUsage,
    PostgresStore,
    SQLiteStore,
    TenantContext,
    ToolExecutionContext,
)

ACME = TenantContext(tenant_id="acme", budget_usd_limit=10)
OTHER = TenantContext(tenant_id="other", budget_usd_limit=10)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")


class Verdict(BaseModel):
    """What the model of these tests says."""

    ok: bool = True


class Place:
    """A ledger: how to name it on a command line, how to write to it, and how to harm it."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.is_postgres = "://" in where
        self.words = ["--dsn" if self.is_postgres else "--db", where]

    def store(self, **more: Any) -> Any:
        return PostgresStore(self.where, **more) if self.is_postgres else SQLiteStore(self.where, **more)

    def kernel(self, **more: Any) -> ArtanaKernel:
        usage = ModelUsage(prompt_tokens=3, completion_tokens=4, cost_usd=0.25)
        return ArtanaKernel(store=self.store(**more), model_port=MockModelPort(output={"ok": True}, usage=usage))

    def harm(self, statement: str) -> None:
        """Change the database behind the back of the ledger."""
        if self.is_postgres:
            execute(self.where, "SET search_path TO gert", statement, "SELECT 1")
            return
        with closing(sqlite3.connect(self.where)) as connection:
            connection.execute(statement)
            connection.commit()


def fill(place: Place, **more: Any) -> Place:
    """Three runs: one that was worked on, one that waits, one of another tenant that has ended."""

    async def work() -> None:
        async with place.kernel(**more) as kernel:
            await _worked_on(kernel)
            async with kernel.run(tenant=ACME, run_id="triage-2") as run:
                await run.block("who may?", unblock_key="boss")
            async with kernel.run(tenant=OTHER, run_id="other-1") as run:
                slept = HarnessSleepPayload(status="completed")
                await kernel.append_harness_event(
                    run_id=run.run_id, tenant=OTHER, event_type=EventType.HARNESS_SLEEP, payload=slept
                )

    asyncio.run(work())
    return place


async def _worked_on(kernel: ArtanaKernel) -> None:
    @kernel.tool(side_effect=True)
    async def send(to: str, artana_context: ToolExecutionContext) -> str:
        return f'{{"sent":"{to}"}}'

    await kernel.start_run(tenant=ACME, run_id="triage-1")
    run = kernel.bind(run_id="triage-1", tenant=ACME)
    await run.model("gpt-5", "is it up?", Verdict, step_key="ask", parent_step_key="turn_1")
    await run.tool("send", {"to": "kim"}, step_key="send")
    await run.set_artifact("report", {"b": 1, "a": [2]})
    await run.set_artifact("report", {"b": 2, "a": [3]})
    await run.set_artifact("nasty\tkey\x1b[2J", "\x1b[31m\nred")
    await run.checkpoint("deployed", {"n": 1}, step_key="deploy")


def append(place: Place, run_id: str, text: str) -> None:
    """One more event, from another process as it were."""

    async def note() -> None:
        async with place.kernel() as kernel:
            await kernel.append_run_summary(run_id=run_id, tenant=ACME, summary_type="note", summary_json=f'"{text}"')

    asyncio.run(note())


def paths_below(folder: Path) -> set[str]:
    """Everything there is, to see that nothing came of looking."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


Make = Callable[[], Place]
