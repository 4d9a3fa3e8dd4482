"""Lives of a worker that is killed by SIGKILL at a chosen point, and of those who go on with its run.

Run as a program: `killed_worker.py KIND ADDRESS SCHEMA FOLDER PLAN`. It forks a process for each life, so that none
has to be started from scratch. PLAN is JSON: for each run its id and the lives of it, each a place to die at.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel

from gert.agent import (
    ArtanaKernel,
    BoundRun,
    EventType,
    HarnessSleepPayload,
    ModelRequest,
    ModelResult,
    ModelUsage,
    PostgresStore,
    SQLiteStore,
    TenantContext,
    ToolExecutionContext,
    ToolExecutionFailedError,
    WorkflowContext,
    json_step_serde,
)

TENANT = TenantContext(tenant_id="acme", budget_usd_limit=100)
MODEL_STEPS = ("plan", "check")
CHARGES = (1, 2)
MOST_LIVES = 60


class Answer(BaseModel):
    """What the model answers."""

    text: str


class Life:
    """One life: where it ends, and what it leaves behind in files."""

    def __init__(self, folder: Path, run_id: str, death: str) -> None:
        self.folder = folder
        self.run_id = run_id
        self.death = death
        self._passed = 0

    def reach(self, place: str) -> None:
        """Die here, if this is the place; `append>n` is any append after n of them."""
        if place == self.death:
            die()
        if place == "appended":
            self._passed += 1
            if self.death in (f"appended {self._passed}", f"appended>{self._passed}"):
                die()
        if place == "append" and self.death == f"append {self._passed + 1}":
            die()

    def leave(self, name: str, what: str) -> None:
        """Write a line, as something outside would remember it."""
        file = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{self.run_id} {what}\n".encode())
        finally:
            os.close(file)

    def left(self, name: str) -> list[str]:
        """What is remembered of this run."""
        path = self.folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{self.run_id} ") for line in lines if line.startswith(f"{self.run_id} ")]


def die() -> NoReturn:
    """End at once; nothing is said or closed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Dying:
    """A ledger around whose appends a life may end."""

    def __init__(self, ledger: Any, life: Life) -> None:
        self._ledger = ledger
        self._life = life

    async def append(self, *given: Any, **more: Any) -> Any:
        """Append, if that is survived."""
        self._life.reach("append")
        answer = await self._ledger.append(*given, **more)
        self._life.reach("appended")
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class DyingModel:
    """A model that remembers who asked."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def complete(self, request: ModelRequest[Any]) -> ModelResult[Any]:
        """Answer, if that is survived."""
        self._life.leave("asked", request.prompt)
        self._life.reach(f"asked {request.prompt}")
        return ModelResult(request.output_schema(text=f"{request.prompt}!"), ModelUsage(1, 1, 0.5))


def open_store(kind: str, address: str, schema: str) -> Any:
    """The ledger of the test."""
    if kind == "sqlite":
        return SQLiteStore(address)
    return PostgresStore(address, schema=schema, max_pool_size=2)


def with_tools(kernel: ArtanaKernel, life: Life) -> ArtanaKernel:
    """The tools of the run."""

    @kernel.tool(side_effect=True)
    async def charge(n: int, artana_context: ToolExecutionContext) -> dict[str, int]:
        life.reach(f"before effect {n}")
        life.leave("effects", f"{n} {artana_context.idempotency_key}")
        life.reach(f"after effect {n}")
        return {"charged": n}

    @kernel.tool()
    async def look(n: int) -> int:
        life.reach("looked")
        return n

    return kernel


async def drive(run: BoundRun, life: Life) -> None:
    """Everything the run has to do."""

    async def memory() -> str:
        return f"read by {os.getpid()}"

    seen = await run.read("memory", "memory", memory)
    for step, n in zip(MODEL_STEPS, CHARGES, strict=True):
        answer = await run.model("mock", f"{step} {seen}", Answer, step_key=step)
        if answer.output.text != f"{step} {seen}!":
            raise AssertionError(answer)
        await charge(run, life, n)
        await run.tool("look", {"n": n}, step_key=f"look_{n}")

    async def work(ctx: WorkflowContext) -> Any:
        async def act() -> Any:
            life.leave("acted", "act")
            return "acted"

        return await ctx.step(name="act", action=act, serde=json_step_serde())

    await run.kernel.run_workflow(run_id=run.run_id, tenant=TENANT, workflow=work)
    if (await run.status()).status == "active":
        await run.kernel.append_harness_event(
            run_id=run.run_id,
            tenant=TENANT,
            event_type=EventType.HARNESS_SLEEP,
            payload=HarnessSleepPayload(status="completed"),
        )


async def charge(run: BoundRun, life: Life, n: int) -> None:
    """Charge once; what is in doubt is looked up where it would have happened."""
    try:
        await run.tool("charge", {"n": n}, step_key=f"charge_{n}")
        return
    except ToolExecutionFailedError as error:
        if not error.in_doubt:
            raise
    life.leave("doubts", str(n))
    happened = any(line.startswith(f"{n} ") for line in life.left("effects"))
    if happened:
        await run.reconcile("charge", {"n": n}, step_key=f"charge_{n}", outcome="success", result={"charged": n})
        return
    try:
        await run.reconcile("charge", {"n": n}, step_key=f"charge_{n}", outcome="transient_error", by="test")
    except ToolExecutionFailedError:
        await run.tool("charge", {"n": n}, step_key=f"charge_{n}")


async def live(kind: str, address: str, schema: str, life: Life) -> None:
    """One life."""
    store = open_store(kind, address, schema)
    if await store.ledger.head(life.run_id) is not None:
        unfinished = await store.ledger.open_calls(life.run_id)
        for call in unfinished:
            if call.name == "charge":
                life.leave("dangling", str(call.seq))
    store.ledger = Dying(store.ledger, life)
    async with (
        with_tools(ArtanaKernel(store=store, model_port=DyingModel(life)), life) as kernel,
        kernel.run(tenant=TENANT, run_id=life.run_id) as run,
    ):
        await drive(run, life)


def main(kind: str, address: str, schema: str, folder: str, plan: str) -> None:
    """Live all lives of all runs; the last one of each is not killed."""
    # Everything is imported before it is needed: what is forked has it.
    open_store(kind, address, schema)
    report = {}
    for run_id, deaths in json.loads(plan).items():
        killed = 0
        for death in [*deaths, "never"] if deaths != ["always"] else ["appended>3"] * MOST_LIVES:
            child = os.fork()
            if not child:
                code = 1
                try:
                    asyncio.run(live(kind, address, schema, Life(Path(folder), run_id, death)))
                    code = 0
                finally:
                    os._exit(code)
            status = os.waitpid(child, 0)[1]
            if os.WIFSIGNALED(status):
                killed += 1
            elif os.WEXITSTATUS(status):
                raise SystemExit(f"{run_id} {death}: exit {os.WEXITSTATUS(status)}")
            else:
                break
        report[run_id] = killed
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
