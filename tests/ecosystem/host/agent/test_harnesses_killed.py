"""A supervisor with a test-driven child and an agent that ends at every commit, and is woken again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.long_run import World
from tests.ecosystem.host.agent.test_agents_killed import Cut, Killed
from tests.soak import sampled

from gert.agent import (
    ArtanaKernel,
    HarnessContext,
    ModelRequest,
    ModelResult,
    ModelUsage,
    SQLiteStore,
    SupervisorHarness,
    TaskUnit,
    TenantContext,
    TestDrivenHarness,
    ToolExecutionContext,
    ToolExecutionResult,
)

TENANT = TenantContext(tenant_id="acme", budget_usd_limit=100)
COMMITS = 65
CHILD = "boss::child::coder"


class Code(BaseModel):
    """What the coder writes."""

    code: str = ""


class Path_(BaseModel):
    """Where it writes it."""

    path: str
    code: str


class Model:
    """Answers by what it is asked, and remembers each request."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def complete(self, request: ModelRequest[Any]) -> ModelResult[Any]:
        """Answer."""
        asked = request.messages[-1].content
        self._world.note("asked", f"{request.run_id} {asked}"[:200].replace("\n", " "))
        given = {"passed": '"exit_code":0' in asked, "reasoning": "", "code": f"code for {asked}"}
        fields = {name: value for name, value in given.items() if name in request.output_schema.model_fields}
        return ModelResult(request.output_schema.model_validate(fields), ModelUsage(1, 1, 0.1), raw_output="x")


class Coder(TestDrivenHarness):
    """Writes two files; the first one passes its tests at the second attempt."""

    async def define_tasks(self) -> list[TaskUnit]:
        return [TaskUnit(id=name, description=f"write {name}") for name in ("parser", "printer")]

    async def work_on(self, task: TaskUnit) -> None:
        for attempt in (1, 2):
            written = await self.run_draft_model(prompt=f"{task.description}, attempt {attempt}", output_schema=Code)
            given = Path_(path=f"{task.id}-{attempt}", code=written.output.code)
            await self.run_tool(tool_name="write", arguments=given)
            if await self.verify_and_commit(task_id=task.id, test_command=f"test {task.id}-{attempt}"):
                return


class Boss(SupervisorHarness[str]):
    """Wakes the coder until its tasks are done, then asks an agent."""

    async def step(self, *, context: HarnessContext) -> str:
        coder = Coder(self.kernel)
        while not all(unit.state == "done" for unit in await self.run_child(coder, run_id=CHILD)):
            pass
        return (await self.run_autonomous_agent(prompt="sum up", output_schema=Code)).code


def make_kernel(store: Any, world: World) -> ArtanaKernel:
    """A kernel with the tools of the coder."""
    kernel = ArtanaKernel(store=store, model_port=Model(world))

    async def is_written(context: ToolExecutionContext, given: dict[str, Any]) -> ToolExecutionResult:
        happened = world.noted("written")[given["path"]]
        return ToolExecutionResult("success" if happened else "transient_error", json.dumps(given["path"]))

    @kernel.tool(side_effect=True, reconcile=is_written)
    async def write(path: str, code: str, artana_context: ToolExecutionContext) -> str:
        """Write a file."""
        world.note("written", path)
        return path

    @kernel.tool()
    async def execute_test(command: str) -> dict[str, int]:
        """Run tests."""
        return {"exit_code": int(command == "test parser-1")}

    return kernel


def life(world: World, commits: int) -> tuple[str | None, int]:
    """Run the supervisor until it has ended, or so many commits were made."""

    async def main() -> tuple[str | None, int]:
        store = SQLiteStore(str(world.folder / "runs.db"))
        cut = Cut(store.ledger, commits)
        store.ledger = cut
        try:
            async with make_kernel(store, world) as kernel:
                return await Boss(kernel, TENANT).run("boss"), cut.commits
        except Killed:
            return None, cut.commits

    return asyncio.run(main())


def check(world: World) -> None:
    """Nothing was asked or written twice, and both runs are completed."""
    assert set(world.noted("asked").values()) == {1}
    assert len(world.noted("asked")) == 7
    assert world.noted("written") == {"parser-1": 1, "parser-2": 1, "printer-1": 1}

    async def main() -> None:
        async with SQLiteStore(str(world.folder / "runs.db")) as store:
            for run_id in ("boss", CHILD):
                assert await store.verify_run_chain(run_id)
                snapshot = await store.get_run_state_snapshot(run_id=run_id)
                assert snapshot is not None
                assert snapshot.status == "completed"
            kinds = [event.event_type.value for event in await store.get_events_for_run(CHILD)]
            assert kinds.count("harness_initialized") == 1
            assert kinds.count("harness_stage") in (1, 2)

    asyncio.run(main())


def test_uninterrupted_it_makes_so_many_commits(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert life(world, 10_000) == ("code for sum up", COMMITS)
    check(world)


@pytest.mark.parametrize("commits", sampled(range(1, COMMITS), (2, 9, 31, 50)))
def test_ended_after_any_commit_it_is_woken_to_the_same_result(commits: int, tmp_path: Path) -> None:
    world = World(tmp_path)
    assert life(world, commits) == (None, commits)
    assert life(world, 10_000)[0] == "code for sum up"
    check(world)
