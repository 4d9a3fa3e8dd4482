"""Runs of runbooks written by chance, killed at every boundary and gone on with: each ends as if nobody had."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import environment
from tests.soak import sampled

RESUMING = Path(__file__).parents[1] / "resuming.py"
BOOKS = 200
SHARES = 8
"""In how many parts all runbooks are taken, so that parts can run side by side."""
# Few and short, and together they have everything that is looked for below.
SAMPLE = (3, 9, 52, 110, 145, 151)
WALKS = [
    pytest.param(SAMPLE, id="a sample"),
    *(
        pytest.param(range(n, BOOKS + 1, SHARES), id=f"share {n} of {SHARES}", marks=pytest.mark.soak)
        for n in range(1, SHARES + 1)
    ),
]
EVERY_WAY = "TEST_RESUME_EVERY_WAY"
"""Set, a run is killed in every way at each boundary, and not in one of them."""
LONGEST = 3600


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: nothing here is about disks."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as place:
        yield Path(place)


def called(job: dict[str, Any]) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, str(RESUMING)],
        input=json.dumps(job).encode(),
        capture_output=True,
        env=environment(),
        timeout=LONGEST,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only there is an orphan waited for")
@pytest.mark.parametrize("seeds", WALKS)
def test_a_run_that_is_killed_and_resumed_equals_the_run_that_was_not_killed(
    folder: Path, seeds: Sequence[int]
) -> None:
    tally = called({"folder": str(folder), "seeds": list(seeds), "every_way": EVERY_WAY in os.environ})
    assert tally["problems"] == [], "\n".join(tally["problems"][:5])
    assert tally["books"] == len(seeds)
    # What was never there was not tested.
    assert tally["kills"] >= 10 * len(seeds), tally
    assert tally["doubts"] >= len(seeds), tally
    for kind in (
        *("approval_resolved", "parallel_merge", "for_each_item", "repeat_iteration", "next_taken", "step_retry"),
        *("branch_exit", "finally_complete", "run_resumed", "step_complete failed", "run_complete failed"),
    ):
        assert tally["seen"].get(kind), f"no runbook has {kind}: {tally['seen']}"


@pytest.mark.parametrize("count", sampled([20, 200], [20]))
def test_runs_that_wait_cost_no_process_and_each_is_approved_and_ended_once(folder: Path, count: int) -> None:
    """Ten processes approve all of them at the same time, and ten go on with all of them at the same time."""
    found = called({"folder": str(folder), "crowd": count, "processes": 10})
    assert found["waiting"] == {"waiting": count}
    assert sum(found["counted"]) == 10 * count, "every response is received, and one decides"
    assert sum(found["ended"]) == count, found["ended"]
    assert (found["words"], found["twice"], found["left"]) == (3 * count, [], [])
