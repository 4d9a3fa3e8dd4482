"""A run of twenty turns that ends at every event, and is resumed: the same result, and nothing is done twice.

A process that is killed leaves what it committed. Here the ledger takes nothing more after so many commits, and the
run is driven again by another kernel; a few real processes are killed by SIGKILL at the same places.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.long_run import CHARGES, RESEARCH, RUN, World, drive
from tests.ecosystem.host.agent.places import Place
from tests.soak import sampled

from gert.agent import KernelEvent, RunSummaryPayload, SQLiteExperienceStore, SQLiteMemoryStore

COMMITS = 193
"""Commits of a run that is not interrupted, of the agent and its sub-agents together."""

MODEL_CALLS = 31


class Killed(BaseException):
    """The process ended here."""


class Cut:
    """A ledger of a process that ends after so many commits: nothing it does afterwards has any effect."""

    def __init__(self, ledger: Any, commits: int) -> None:
        self._ledger = ledger
        self._left = commits
        self.commits = 0

    async def append(self, *given: Any, **more: Any) -> Any:
        """Append, unless the process has ended; it ends when its last commit is durable."""
        self._require()
        answer = await self._ledger.append(*given, **more)
        self._require()
        self.commits += 1
        self._left -= 1
        self._require()
        return answer

    async def close(self) -> None:
        """Close the file; a killed process does no more than that."""
        await self._ledger.close()

    def __getattr__(self, name: str) -> Any:
        self._require()
        return getattr(self._ledger, name)

    def _require(self) -> None:
        if self._left <= 0:
            raise Killed


def sqlite(world: World) -> Place:
    """The ledger of most of these tests."""
    return Place("sqlite", str(world.folder / "runs.db"))


def life(world: World, commits: int, place: Place | None = None) -> tuple[str | None, int]:
    """Drive the run until it has ended or so many commits were made; its result, and the commits."""

    async def main() -> tuple[str | None, int]:
        store = (place or sqlite(world)).store()
        cut = Cut(store.ledger, commits)
        store.ledger = cut
        try:
            return (await drive(store, world)).text, cut.commits
        except Killed:
            return None, cut.commits

    return asyncio.run(main())


async def found(world: World, place: Place) -> tuple[dict[str, list[KernelEvent]], str, list[str]]:
    """The events of all runs, whose records are whole; the memory; what was learned."""
    async with place.store() as store:
        runs = {run_id: await store.get_events_for_run(run_id) for run_id in await store.list_run_ids()}
        for run_id in runs:
            assert await store.verify_run_chain(run_id)
            snapshot = await store.get_run_state_snapshot(run_id=run_id)
            assert snapshot is not None
            assert snapshot.status == "completed"
            assert await store.ledger.open_calls(run_id) == []
    memory, learned = SQLiteMemoryStore(world.folder / "memory.db"), SQLiteExperienceStore(world.folder / "learned.db")
    try:
        return runs, await memory.load(RUN), [rule.content for rule in await learned.get_rules("acme", "ops")]
    finally:
        await memory.close()
        await learned.close()


def check(world: World, place: Place | None = None) -> None:
    """Nothing was done twice, nothing was left out, and the record is whole."""
    asked, charged = world.noted("asked"), world.noted("charged")
    assert set(asked.values()) == {1}, "a model call was repeated"
    assert len(asked) == MODEL_CALLS
    assert Counter(int(line.split()[0]) for line in charged.elements()) == dict.fromkeys(CHARGES, 1)
    # A call that is known not to have happened may be made again, until its model was told.
    assert world.noted("flaky")["12"] in (1, 2)
    runs, memory, learned = asyncio.run(found(world, place or sqlite(world)))
    assert len(runs) == 1 + len(RESEARCH)
    assert memory == "turn=16 all is well"
    assert learned == ["ask"]
    noted = Counter(
        (run_id, said.summary_type, said.step_key)
        for run_id, events in runs.items()
        for said in (event.payload for event in events)
        if isinstance(said, RunSummaryPayload) and said.summary_type.startswith("agent_")
    )
    assert set(noted.values()) == {1}, "a note was repeated"
    assert sum(kind == "agent_model_step" for _, kind, _ in noted) == 26
    assert sum(kind == "agent_acceptance_gate" for _, kind, _ in noted) == 2


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "AGENTS.md").write_text("Be careful.")
    return World(tmp_path)


def test_uninterrupted_it_makes_so_many_commits(world: World) -> None:
    result, commits = life(world, 10_000)
    assert result == "final turn=20"
    assert commits == COMMITS
    check(world)
    assert life(world, 1) == ("final turn=20", 0), "a finished run is replayed without a write"


EVERY = range(1, COMMITS)
SAMPLE = (1, 4, 27, 38, 45, 58, 111, 157)


@pytest.mark.parametrize("commits", sampled(EVERY, SAMPLE))
def test_ended_after_any_commit_it_resumes_to_the_same_result(commits: int, world: World) -> None:
    assert life(world, commits) == (None, commits)
    # What the workspace says now is not what the run has read.
    (world.folder / "AGENTS.md").write_text("Be reckless.")
    assert life(world, 10_000)[0] == "final turn=20"
    check(world)


def test_ended_again_and_again_it_resumes_to_the_same_result(durable: Place, world: World) -> None:
    lives = 0
    while life(world, 17, durable)[0] is None:
        lives += 1
        assert lives < 40
    assert lives > 5
    check(world, durable)


KILLER = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.ecosystem.host.agent.long_run import World, drive
from gert.agent import SQLiteStore

class Dying:
    def __init__(self, ledger, commits):
        self.ledger, self.left = ledger, commits
    async def append(self, *given, **more):
        answer = await self.ledger.append(*given, **more)
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    def __getattr__(self, name):
        return getattr(self.ledger, name)

world = World(Path(sys.argv[1]))
for commits in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        store = SQLiteStore(str(world.folder / "runs.db"))
        store.ledger = Dying(store.ledger, commits)
        asyncio.run(drive(store, world))
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
"""


@pytest.mark.parametrize(
    "commits", [pytest.param((11, 30, 40, 43), id="four kills"), pytest.param((63,), id="one kill")]
)
def test_killed_by_sigkill_it_resumes_to_the_same_result(commits: tuple[int, ...], world: World) -> None:
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", KILLER, str(world.folder), *map(str, commits)]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert life(world, 10_000)[0] == "final turn=20"
    check(world)
