"""How many modules a reader follows from `gert exec` to the process of a tool."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, note

from gert.ecosystem.process import spawn as spawning
from gert.ecosystem.surfaces.cli.main import main

MOST = 10
EXECUTE = "gert.ecosystem.host.run.execute"


def stack() -> Iterator[str]:
    """The modules that call, from the process of the tool up to the event loop."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_globals.get("__name__", "")
        frame = frame.f_back


def awaiting(task: "asyncio.Task[Any]") -> Iterator[str]:
    """The modules of the coroutines that wait for each other in a task, the outermost first."""
    waiting: Any = task.get_coro()
    while isinstance(waiting, CoroutineType):
        if waiting.cr_frame is not None:
            yield waiting.cr_frame.f_globals.get("__name__", "")
        waiting = waiting.cr_await


def test_few_modules_lie_between_the_command_and_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, paths = Project(tmp_path / "project"), []
    file = project.runbook(note("a"))
    monkeypatch.chdir(project.root)
    start = spawning.spawn

    def spawned(*args: Any) -> int:
        # Requests are answered in tasks of their own, so the run itself waits in another one.
        runs = [path for task in asyncio.all_tasks() if EXECUTE in (path := [*awaiting(task)])]
        found = dict.fromkeys([*reversed([*stack()]), *(name for path in runs for name in path)])
        paths.append([name for name in found if name.startswith("gert.") and not name.endswith("cli.main")])
        return start(*args)

    for module in [each for name, each in sys.modules.items() if name.startswith("gert.ecosystem.process")]:
        if getattr(module, "spawn", None) is start:
            monkeypatch.setattr(module, "spawn", spawned)
    assert main(["exec", str(file), "--quiet"]) == 0
    (path,) = paths
    assert {"gert.ecosystem.surfaces.cli.commands.runs.exec", EXECUTE, "gert.ecosystem.tools.stdio"} <= {*path}
    assert len(path) < MOST, path  # and `process.spawn` itself
