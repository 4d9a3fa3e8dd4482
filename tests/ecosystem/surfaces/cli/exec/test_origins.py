"""Where a run and its inputs come from, as its first events say."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, call, events_in, note, of_type


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def parent(project: Project, run: int = -1) -> str | None:
    data: dict[str, Any] = project.runs()[run].events()[0]["data"]
    return data.get("parent_run_id")


def test_a_run_from_the_command_line_has_no_parent(project: Project) -> None:
    project.runbook(note("one"))
    project.exec().ended(0)
    assert parent(project) is None


def test_the_parent_of_a_rerun_is_the_run_it_repeats(project: Project) -> None:
    project.runbook(note("one"), note("two"))
    project.exec().ended(0)
    first = project.run().folder.name
    project.gert("rerun", "--run", first, "--from", "two").ended(0)
    assert (parent(project, 0), parent(project)) == (None, first)
    second = project.runs()[-1].folder.name
    assert project.gert("run", "show", second, "--json").ended(0).said["parent_run_id"] == first
    assert first in project.gert("run", "show", second).ended(0).out


@pytest.mark.parametrize("how", ["exec", "resume"])
def test_the_parent_of_a_run_that_a_tool_starts_is_the_run_of_the_tool(project: Project, how: str) -> None:
    inner = project.runbook(note("inner"), name="inner", governance={"rules": [{"default": "require-approval"}]})
    project.tool("starts", [sys.executable, "-m", "gert", "exec", str(inner), "--detach"])
    project.runbook(call("outer", "starts"), tools=["starts"])
    said = project.exec("--json").ended(0).said
    (child,) = (run for run in project.runs() if run.folder.name != said["run_id"])
    assert child.events()[0]["data"]["parent_run_id"] == said["run_id"]
    if how == "resume":
        (asked,) = of_type(child.events(), "approval_submitted")
        project.gert("approve", asked["data"]["ticket_id"], "--as", "lou").ended(0)
        # The first event is written again as it was, though gert is called by hand now.
        project.gert("resume", "--run", child.folder.name).ended(0)


def test_the_variable_is_not_taken_from_outside_when_it_is_no_run_id(project: Project) -> None:
    project.runbook(note("one"))
    project.exec(GERT_PARENT_RUN_ID="../../etc/passwd").ended(0)
    assert parent(project) is None


def inputs_of(trace: Path) -> dict[str, tuple[str, Any]]:
    events = of_type(events_in(trace), "input_resolved")
    return {each["data"]["name"]: (each["data"]["source"], each["data"].get("value")) for each in events}


def test_every_binding_has_its_event_also_where_it_has_no_value(project: Project) -> None:
    (project.root / "word.txt").write_text("w")
    optional = {"type": "string", "required": False}
    project.runbook(
        note("one", word="{{ default `none` .unset }} {{ default `none` .secret }}"),
        inputs={
            "unset": {**optional, "from": "env/NOT_THERE"},
            "secret": {**optional, "from": "env/NOR_THIS", "secret": True},
            "file": {**optional, "from": "file/word.txt"},
            "gone": {**optional, "from": "file/gone.txt", "default": "d"},
            "free": optional,
        },
    )
    project.exec("--record", "scenarios/book/one").ended(0)
    first = inputs_of(project.run().trace)
    assert first == {
        "unset": ("unset", None),
        "secret": ("unset", None),
        "file": ("file/word.txt", "w"),
        "gone": ("default", "d"),
    }
    assert project.noted() == ["none none"]
    again = project.root / "again.jsonl"
    project.exec("--mode", "replay", "--scenario", "one", "--trace", again).ended(0)
    assert inputs_of(again) == first
