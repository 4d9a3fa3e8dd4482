"""A project with runbooks, and the screen on it."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Log, Select, Static, Tree

from gert.ecosystem.surfaces.tui.app import GertApp
from gert.ecosystem.surfaces.tui.desk import Desk

SIZES = [(40, 12), (80, 24), (160, 50)]

TOOL = """
apiVersion: tool/v0
meta: {name: sh, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}, outputs: {said: {type: string}}}
actions:
  run:
    argv: [sh, -c, "{{ .script }}"]
    extract: {said: {from: stdout, pattern: "(?s)(.*)"}}
  change:
    argv: [sh, -c, "{{ .script }}"]
    preview: {argv: [printf, "-old\\n+new\\n"]}
    contract: {effects: [filesystem], writes: [files]}
"""

INCIDENT = """
apiVersion: kernel/v0
meta:
  name: incident
  description: Update, change, confirm
  governance: {rules: [{writes: [files], action: require-approval}]}
  inputs:
    host: {type: string, required: true, description: Which host}
    size: {type: string, enum: [small, large], default: small}
    token: {type: string, secret: true, default: hunter22}
tools: [sh]
steps:
  - id: look
    type: tool
    tool: sh
    action: run
    inputs: {script: "echo looking at '{{ .host }}'; printf '[/red] \\\\033[31mred'"}
  - {id: change, type: tool, tool: sh, action: change, inputs: {script: "echo changed"}}
  - id: confirm
    type: manual
    instructions: "see that {{ .host }} is back [bold]"
    contract: {effects: []}
    required_evidence:
      - {kind: checklist, name: seen, items: [requests come in]}
      - {kind: text, name: note}
  - {id: done, type: end, outcome: {category: resolved, code: back}}
"""

BROKEN = """
apiVersion: kernel/v0
meta: {name: broken}
tools: [sh]
steps:
  - {id: fine, type: tool, tool: sh, action: run, inputs: {script: "echo fine"}}
  - {id: bad, type: tool, tool: sh, action: run, inputs: {script: "echo sorry >&2; exit 3"}}
  - {id: over, type: end, outcome: {category: resolved, code: over}}
"""

SLOW = """
apiVersion: kernel/v0
meta: {name: slow}
tools: [sh]
steps:
  - {id: first, type: tool, tool: sh, action: run, inputs: {script: "echo first"}}
  - {id: wait, type: tool, tool: sh, action: run, inputs: {script: "echo waiting; sleep 600"}}
  - {id: over, type: end, outcome: {category: resolved, code: over}}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk in a project of its own."""
    root = tmp_path / "project"
    (root / "tools").mkdir(parents=True)
    (root / "tools" / "sh.tool.yaml").write_text(TOOL)
    for name, text in (("incident", INCIDENT), ("broken", BROKEN), ("slow", SLOW)):
        (root / f"{name}.yaml").write_text(text)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GERT_")}
    return Desk(root=str(root), environ=environ, state_dir=str(tmp_path / "state"), actor="kim")


def on_screen(
    desk: Desk,
    work: Callable[[GertApp, "Pilot[int]"], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
    **options: Any,
) -> GertApp:
    """Drive the screen as a person with a keyboard would."""

    async def drive() -> GertApp:
        app = GertApp(desk, **options)
        async with asyncio.timeout(120), app.run_test(size=size) as pilot:
            await pilot.pause()
            await work(app, pilot)
        return app

    return asyncio.run(drive())


def picture(app: GertApp) -> str:
    """What a person sees: the cells of the terminal, line by line."""
    size = app.size
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips(size))


def text_of(app: GertApp) -> str:
    """What a person reads on the screen that is on top."""
    shown: list[str] = []
    for widget in app.screen.query("*"):
        if not widget.display:
            continue
        if isinstance(widget, Log):
            shown += widget.lines
        elif isinstance(widget, Static):
            shown.append(str(widget.render()))
        elif isinstance(widget, Tree):
            shown += [str(node.label) for node in _nodes(widget.root)]
        elif isinstance(widget, DataTable):
            shown += [" ".join(map(str, widget.get_row_at(row))) for row in range(widget.row_count)]
    return "\n".join(shown)


def _nodes(node: Any) -> list[Any]:
    return [each for child in node.children for each in (child, *_nodes(child))]


async def until(pilot: "Pilot[int]", app: GertApp, wanted: str) -> str:
    """Wait until a text is on the screen."""
    await eventually(pilot, lambda: wanted in text_of(app), lambda: f"`{wanted}` did not appear:\n{text_of(app)}")
    return text_of(app)


async def seen(pilot: "Pilot[int]", app: GertApp, wanted: str) -> str:
    """Wait until a text is in sight."""
    await eventually(pilot, lambda: wanted in picture(app), lambda: f"`{wanted}` is not in sight:\n{picture(app)}")
    return picture(app)


async def on_top(pilot: "Pilot[int]", app: GertApp, kind: type[Any]) -> Any:
    """Wait until a screen of a kind is on top, and has been laid out."""
    await eventually(
        pilot,
        lambda: (
            isinstance(app.screen, kind)
            and app.screen.is_running
            and bool(app.screen.size)
            and all(each.children for each in app.screen.query(Select))
        ),
        lambda: f"{kind.__name__} is not on top, but {type(app.screen).__name__}:\n{text_of(app)}",
    )
    await pilot.pause()
    return app.screen


async def eventually(
    pilot: "Pilot[int]", holds: Callable[[], bool], what: Callable[[], str] = lambda: "it does not hold"
) -> None:
    """Wait until something holds, however slow the machine is."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        await pilot.pause(0.02)
        if holds():
            return
    raise AssertionError(what())
