"""The screen: how soon it answers a key while a large run is busy, and how much it slows the run.

Keys are posted as a terminal driver posts them, while a run of 2,000 steps in 16 lanes is under way: to the screen that
watches it, and to an empty Textual application beside the same run under `gert exec`, in turns. A process of its own
drives the run either way, and its record says how long it took.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from textual.app import App, ComposeResult
from textual.widgets import Tree

from bench.ratio import Ratio, report
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.surfaces.tui.app import GertApp
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.run_screen import RunScreen
from gert.kernel.events.envelope import parse_timestamp

LANES = 16
STEPS = 2_000
ROUNDS = 5
KEY = 0.100
"""Seconds within which a key has to be answered."""
PAUSE = 0.2
"""Seconds between two keys."""
SLOWER = 1.10
SIZE = (160, 50)
TOOL = """
apiVersion: tool/v0
meta: {name: sh, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}}
actions:
  run: {argv: [sh, -c, "{{ .script }}"]}
"""


def runbook() -> str:
    """A runbook whose lanes each print in every step."""
    lines = [
        "apiVersion: kernel/v0",
        "meta: {name: busy}",
        "tools: [sh]",
        "steps:",
        "  - id: all",
        "    type: parallel",
    ]
    lines.append("    branches:")
    for lane in range(LANES):
        lines += [f"      - label: lane{lane}", "        steps:"]
        for step in range(STEPS // LANES):
            call = "type: tool, tool: sh, action: run, inputs: {script: 'seq 5'}"
            lines.append(f"          - {{id: l{lane}s{step}, {call}}}")
    lines.append("  - {id: done, type: end, outcome: {category: resolved, code: done}}")
    return "\n".join(lines)


class Empty(App[None]):
    """An application with one tree, and nothing to do."""

    def compose(self) -> ComposeResult:
        """A tree to move in."""
        tree: Tree[str] = Tree("steps", id="steps")
        for number in range(STEPS):
            tree.root.add_leaf(f"step {number}")
        tree.root.expand()
        yield tree


async def pressed(app: App[Any], key: str) -> float:
    """Seconds from a key, as a terminal driver posts it, to the screen with the moved cursor."""
    tree = app.screen.query_one("#steps", Tree)
    before, answered = tree.cursor_line, asyncio.Event()

    def drawn() -> None:
        if tree.cursor_line != before:
            answered.set()

    def moved() -> None:
        app.call_after_refresh(drawn)

    app.watch(tree, "cursor_line", moved, init=False)
    started = time.perf_counter()
    app.simulate_key(key)
    await asyncio.wait_for(answered.wait(), 60)
    return time.perf_counter() - started


async def unwatched(desk: Desk, file: str) -> tuple[float, list[float]]:
    """Seconds of the same run under `gert exec`, and how soon an empty application answered keys meanwhile."""
    app = Empty()
    keys: list[float] = []
    async with app.run_test(size=SIZE) as pilot:
        app.query_one(Tree).focus()
        await pilot.press("down", "down")
        run = asyncio.create_task(asyncio.to_thread(executed, desk, file))
        while not run.done():
            keys.append(await pressed(app, "up" if len(keys) % 2 else "down"))
            await asyncio.sleep(PAUSE)
        return await run, keys


async def watched(desk: Desk, file: str) -> tuple[float, list[float]]:
    """Seconds of a run that is watched, and how soon keys were answered meanwhile."""
    app = GertApp(desk)
    keys: list[float] = []
    async with app.run_test(size=SIZE) as pilot:
        launched, place = await desk.start(file, {}, "real")
        app.watch_run(place, launched.run_id)
        while not isinstance(app.screen, RunScreen) or not app.screen.steps.done:
            await asyncio.sleep(0.01)
        screen = app.screen
        await pilot.press("down")
        while screen.status in ("starting", "running"):
            keys.append(await pressed(app, "up" if len(keys) % 2 else "down"))
            await asyncio.sleep(PAUSE)
        return await asyncio.to_thread(_seconds, desk, launched.run_id), keys


def _seconds(desk: Desk, run_id: str) -> float:
    """How long a run took by its own record: from its first event to its last."""
    with Runs(desk.place) as runs:
        entry = runs.whole_entry(run_id)
        if entry.start is None or entry.end is None:
            raise RuntimeError("the run has no end")
        took = parse_timestamp(entry.end.timestamp) - parse_timestamp(entry.start.timestamp)
        return took.total_seconds()


def executed(desk: Desk, file: str) -> float:
    """Seconds of the same run under `gert exec`."""
    command = [sys.executable, "-m", "gert", "exec", file, "--state-dir", str(desk.state_dir), "--json"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=600)
    return _seconds(desk, desk.find("last"))


def main() -> int:
    """Measure and report."""
    ours: list[float] = []
    bare: list[float] = []
    slow: list[float] = []
    plain: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="gert-bench-") as folder:
            os.mkdir(os.path.join(folder, "tools"))
            file = os.path.join(folder, "busy.yaml")
            for name, text in ((file, runbook()), (os.path.join(folder, "tools", "sh.tool.yaml"), TOOL)):
                with open(name, "w") as written:
                    written.write(text)
            desk = Desk(root=folder, environ=dict(os.environ), state_dir=os.path.join(folder, "state"), actor="bench")
            for measure, times, keys in ((unwatched, plain, bare), (watched, slow, ours)):
                took, answered = asyncio.run(measure(desk, file))
                times.append(took)
                keys.extend(answered)
    median, late = statistics.median(ours), statistics.quantiles(ours, n=20)[-1]
    print(
        f"     a key while {STEPS:,} steps run in {LANES} lanes: median {median * 1e3:.0f} ms, 19 of 20 within "
        f"{late * 1e3:.0f} ms; in an empty Textual application meanwhile {statistics.median(bare) * 1e3:.0f} ms and "
        f"{statistics.quantiles(bare, n=20)[-1] * 1e3:.0f} ms"
    )
    took, alone = statistics.median(slow), statistics.median(plain)
    code = report([Ratio("a key on the screen of a busy run / 100 ms", median, KEY, 1.0)])
    # An aim: both cores are busy with the steps of the run, so each drawing is taken from it.
    print(Ratio("a run that the screen watches / the same under gert exec", took, alone, SLOWER))
    return code


if __name__ == "__main__":
    sys.exit(main())
