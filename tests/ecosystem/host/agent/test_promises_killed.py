"""What must hold, 1 to 7, when the process is killed: at every event and around every effect, then gone on with."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.ecosystem.host.agent.killed_worker import CHARGES, MODEL_STEPS
from tests.ecosystem.host.agent.places import SIZE, Place

from gert.agent import (
    KernelEvent,
    ModelCompletedPayload,
    ModelRequestedPayload,
    ToolCompletedPayload,
    ToolRequestedPayload,
    resolve_tool_resolutions,
)

WORKER = Path(__file__).with_name("killed_worker.py")
APPENDS = 15
"""Appends of a run nobody kills."""

ONCE = {
    "unkilled": [],
    **{f"before-append-{n}": [f"append {n}"] for n in range(1, APPENDS + 1)},
    **{f"after-append-{n}": [f"appended {n}"] for n in range(1, APPENDS + 1, 2 if SIZE == 1 else 1)},
    **{f"before-effect-{n}": [f"before effect {n}"] for n in CHARGES},
    **{f"after-effect-{n}": [f"after effect {n}"] for n in CHARGES},
    "looking": ["looked"],
}
AGAIN = {
    **{f"thrice-{n}": [f"appended {n}", "appended 2", "append 3"] for n in range(2, APPENDS, 4 // min(SIZE, 4))},
    "twice-in-doubt": ["before effect 1", "before effect 1", "after effect 1"],
    "twice-after": ["after effect 2", "after effect 2"],
    "always": ["always"],
}


def lives(place: Place, folder: Path, plan: dict[str, list[str]]) -> dict[str, int]:
    """Live them; how often each run was killed."""
    command = [sys.executable, str(WORKER), place.kind, place.address, place.schema, str(folder), json.dumps(plan)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def left(folder: Path, name: str) -> Counter[tuple[str, str]]:
    path = folder / name
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter((line.split(" ")[0], line.split(" ")[1]) for line in lines)


async def audited(place: Place, run_id: str) -> list[KernelEvent]:
    """The events of a run whose record is whole."""
    async with place.store() as store:
        assert await store.verify_run_chain(run_id)
        snapshot = await store.get_run_state_snapshot(run_id=run_id)
        assert snapshot.status == "completed"
        # A step of a workflow may be taken again; nothing says of the first time that it has ended.
        assert [call for call in await store.ledger.open_calls(run_id) if call.kind != "workflow"] == []
        events: list[KernelEvent] = await store.get_events_for_run(run_id)
        return events


def check(events: list[KernelEvent]) -> None:
    """No step was taken again after it had ended, and every step has ended."""
    step_of = {e.seq: e.payload.step_key for e in events if isinstance(e.payload, ModelRequestedPayload)}
    answered = Counter(
        step_of[e.payload.request_seq or 0] for e in events if isinstance(e.payload, ModelCompletedPayload)
    )
    assert answered == dict.fromkeys(MODEL_STEPS, 1)
    for pair in resolve_tool_resolutions(events):
        assert pair.outcome in ("success", "transient_error")
    done = Counter(
        pair.request.payload.step_key
        for pair in resolve_tool_resolutions(events)
        if pair.outcome == "success" and isinstance(pair.request.payload, ToolRequestedPayload)
    )
    assert done == {f"{name}_{n}": 1 for name in ("charge", "look") for n in CHARGES}
    kinds = Counter(event.event_type.value for event in events)
    assert kinds["run_started"] == kinds["context_read"] == kinds["workflow_step_completed"] == 1
    settled = [e.payload for e in events if isinstance(e.payload, ToolCompletedPayload) and e.payload.reconciled_by]
    assert all(end.outcome == "transient_error" for end in settled)


class TestKilled:
    """Completed steps are not repeated, effects happen once or are said to be in doubt, and the ledger verifies."""

    def test_killed_once_anywhere_a_run_goes_on(self, durable: Place, tmp_path: Path) -> None:
        doubts = went_on(durable, tmp_path, ONCE)
        # Those whose process died between a request and its end, and nobody else.
        assert {run for run in doubts if "effect" not in run} == {
            *("after-append-5", "before-append-6", "after-append-11", "before-append-12")
        }
        assert {run for run in ONCE if "effect" in run} <= doubts

    def test_killed_again_and_again_a_run_goes_on(self, shared: Place, tmp_path: Path) -> None:
        went_on(shared, tmp_path, AGAIN)


def went_on(place: Place, tmp_path: Path, plan: dict[str, list[str]]) -> set[str]:
    """Check every run of a plan; the runs of which something was in doubt."""
    folder = tmp_path / "outside"
    folder.mkdir()
    killed = lives(place, folder, plan)
    assert {run_id for run_id, times in killed.items() if not times} == {"unkilled"} & set(plan)
    effects, asked = left(folder, "effects"), left(folder, "asked")
    for run_id in plan:
        events = asyncio.run(audited(place, run_id))
        check(events)
        for n in CHARGES:
            assert effects[run_id, str(n)] == 1, f"{run_id} charged {n}"
        requests = Counter(e.payload.step_key for e in events if isinstance(e.payload, ModelRequestedPayload))
        for step in MODEL_STEPS:
            assert asked[run_id, step] <= requests[step]
    doubts = {run for run, _ in left(folder, "doubts")}
    assert doubts == {run for run, _ in left(folder, "dangling")}
    return doubts
