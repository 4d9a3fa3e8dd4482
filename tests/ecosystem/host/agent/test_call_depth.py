"""How many modules a reader follows from a model step to the commit of its events."""

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel

from gert.agent import ArtanaKernel, MockModelPort, SQLiteStore, TenantContext
from gert.ecosystem.ledger.sqlite import executor
from gert.ecosystem.ledger.sqlite.executor import Executor

MOST_MODULES = 10
TENANT = TenantContext(tenant_id="acme", budget_usd_limit=10)


class Verdict(BaseModel):
    ok: bool


def modules_on_the_stack() -> set[str]:
    found: set[str] = set()
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        found.add(frame.f_globals["__name__"])
        frame = frame.f_back
    return {name for name in found if name.startswith("gert.")}


def test_a_model_step_reaches_its_commit_through_at_most_ten_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[set[str]] = []
    commit = Executor._commit

    def recorded(self: Executor, *args: Any, **kwargs: Any) -> bool:
        commits.append(modules_on_the_stack())
        return commit(self, *args, **kwargs)

    # On the event loop's own thread, where the whole stack can be seen.
    monkeypatch.setattr(executor, "QUICK_SECONDS", 60.0)

    async def step() -> None:
        store = SQLiteStore(tmp_path / "runs.db", sync=False)
        async with ArtanaKernel(store=store, model_port=MockModelPort(output={"ok": True})) as kernel:
            run = await kernel.start_run(tenant=TENANT)
            monkeypatch.setattr(Executor, "_commit", recorded)
            await kernel.bind(run_id=run.run_id, tenant=TENANT).model("m", "Is it up?", Verdict, step_key="triage")

    asyncio.run(step())
    through = [modules for modules in commits if "gert.kernel.agent.api.kernel" in modules]
    assert len(through) == 2, "one commit for the request, one for the answer"
    for modules in through:
        assert len(modules) <= MOST_MODULES, sorted(modules)
