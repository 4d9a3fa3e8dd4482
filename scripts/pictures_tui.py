"""Draw the pictures of docs/tui.md: `python -m scripts.pictures_tui` runs an incident on the screen and exports SVG."""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from textual.app import App
from textual.widgets import DataTable, Static

from gert.ecosystem.surfaces.tui.app import GertApp
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.run_screen import RunScreen

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "images")
WIDTH, HEIGHT = 96, 26
TOOL = """
apiVersion: tool/v0
meta: {name: web, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}}
actions:
  look: {argv: [sh, -c, "{{ .script }}"]}
  scale:
    argv: [sh, -c, "echo scaled web to 6 replicas"]
    preview: {argv: [printf, "-replicas: 3\\n+replicas: 6\\n"]}
    contract: {effects: [kubernetes], writes: [deployments]}
"""
RUNBOOK = """
apiVersion: kernel/v0
meta:
  name: web-slow
  description: Find out why the web is slow, and add replicas
  governance: {rules: [{writes: [deployments], action: require-approval}]}
  inputs:
    service: {type: string, required: true, description: The slow service}
    region: {type: string, enum: [eu, us], default: eu}
tools: [web]
steps:
  - {id: latency, type: tool, tool: web, action: look, inputs: {script: "echo p99 1840 ms; echo budget 300 ms"}}
  - id: causes
    type: parallel
    branches:
      - label: database
        steps: [{id: queries, type: tool, tool: web, action: look, inputs: {script: "echo no slow query"}}]
      - label: pods
        steps: [{id: pods, type: tool, tool: web, action: look, inputs: {script: "echo 3 of 3 at 98 % CPU"}}]
  - {id: scale, type: tool, tool: web, action: scale}
  - id: confirm
    type: manual
    instructions: "Watch the dashboard of {{ .service }} for five minutes."
    contract: {effects: []}
    required_evidence:
      - {kind: checklist, name: seen, items: [latency is below 300 ms, no errors]}
      - {kind: attachment, name: dashboard, description: a picture of the dashboard}
  - {id: done, type: end, outcome: {category: resolved, code: scaled}}
"""


async def _until(pilot: Any, holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        await pilot.pause(0.02)
        if holds():
            await pilot.pause()
            return
    raise RuntimeError("the picture did not come about")


async def _save(pilot: Any, name: str, folder: str, height: int = HEIGHT) -> None:
    """Write a picture of the screen, on a terminal with as many lines as it needs."""
    await pilot.resize_terminal(WIDTH, height)
    await pilot.pause(0.2)
    app: App[Any] = pilot.app
    # A temporary path would be another one in each picture.
    here = os.path.realpath(os.getcwd())
    drawn = app.export_screenshot(title="gert-tui").replace(
        here, "/srv/runbooks".ljust(len(here), "\N{NO-BREAK SPACE}")
    )
    with open(os.path.join(folder, f"tui-{name}.svg"), "w", encoding="utf-8") as file:
        # No font is loaded from elsewhere: the reader's own serves.
        file.write(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))
    await pilot.resize_terminal(WIDTH, HEIGHT)


def _waits(app: App[Any], kind: str) -> bool:
    return isinstance(app.screen, RunScreen) and any(node.waits == kind for node in app.screen.steps.waiting)


def _status(app: App[Any]) -> str:
    return str(app.screen.query_one("#status", Static).render()).partition("approval: ")[2]


async def _draw(desk: Desk, folder: str) -> None:
    app = GertApp(desk)
    is_open: Callable[[str], Callable[[], bool]] = lambda kind: lambda: type(app.screen).__name__ == kind  # noqa: E731
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await _until(pilot, lambda: app.screen.query_one("#runbooks", DataTable).row_count > 0)
        await _save(pilot, "home", folder, 12)
        await pilot.press("enter")
        await _until(pilot, is_open("StartForm"))
        await pilot.press(*"checkout")
        await _save(pilot, "form", folder, 12)
        app.screen.query_one("#start").press()  # type: ignore[attr-defined]
        await _until(pilot, lambda: _waits(app, "approval") and "a" in _status(app))
        await _save(pilot, "run", folder, 16)
        await pilot.press("a")
        await _until(pilot, is_open("Respond"))
        await _save(pilot, "approval", folder)
        app.screen.query_one("#typed").value = "scale"  # type: ignore[attr-defined]
        app.screen.query_one("#approve").press()  # type: ignore[attr-defined]
        await _until(pilot, lambda: _waits(app, "a person"))
        await pilot.press("enter")
        await _until(pilot, is_open("EvidenceForm"))
        await pilot.press("space")
        await _save(pilot, "evidence", folder, 14)
        await pilot.press("escape")
        await _until(pilot, is_open("RunScreen"))
        await pilot.press("question_mark")
        await _until(pilot, is_open("Page"))
        await _save(pilot, "help", folder)
        await pilot.press("escape")
        await _until(pilot, is_open("RunScreen"))
        screen = app.screen
        if isinstance(screen, RunScreen):
            await desk.cancel(screen.place, screen.run_id)


def draw(folder: str = FOLDER) -> None:
    """Draw every picture into a folder."""
    folder, here = os.path.abspath(folder), os.getcwd()
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gert-pictures-") as root:
        os.mkdir(os.path.join(root, "tools"))
        for name, text in (("web-slow.yaml", RUNBOOK), ("tools/web.tool.yaml", TOOL)):
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write(text)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GERT_")}
        desk = Desk(root=root, environ=environ, state_dir=os.path.join(root, "state"), actor="kim")
        # No path of this machine is on the pictures.
        os.chdir(root)
        work: Awaitable[None] = _draw(desk, folder)
        try:
            asyncio.run(asyncio.wait_for(work, 120))
        finally:
            os.chdir(here)


if __name__ == "__main__":
    draw(*sys.argv[1:2])
