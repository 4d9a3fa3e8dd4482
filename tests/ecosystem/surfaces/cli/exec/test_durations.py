"""`duration` is wall time from the first to the last event; `waited` is the part spent waiting (DECISIONS 65)."""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, call, completed, note, of_type

from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.duration import parse_duration

ASKS = {"rules": [{"effects": ["files"], "action": "require-approval"}]}
PAUSE = 0.6


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project")
    project.script("nap", "sleep 0.3")
    project.script("ask", "echo done", contract={"effects": ["files"]})
    project.script("quick", "echo done", contract={"effects": []})
    return project


def seconds(data: Mapping[str, Any], name: str = "duration") -> float:
    return parse_duration(data[name]).total_seconds() if name in data else 0.0


def last(project: Project) -> dict[str, Any]:
    data: dict[str, Any] = of_type(project.runs()[-1].events(), "run_complete")[0]["data"]
    return data


def wall(project: Project) -> float:
    events = project.runs()[-1].events()
    return (parse_timestamp(events[-1]["timestamp"]) - parse_timestamp(events[0]["timestamp"])).total_seconds()


def lanes(*steps: dict[str, Any]) -> dict[str, Any]:
    branches = [{"label": f"l{index}", "steps": [step]} for index, step in enumerate(steps)]
    return {"id": "both", "type": "parallel", "branches": branches}


def approved_later(project: Project) -> dict[str, Any]:
    """Run until it waits, approve every ticket after a while, and resume."""
    pending = project.exec("--detach", "--json").ended(0).said["pending"]
    time.sleep(PAUSE)
    for ticket in pending:
        project.gert("approve", ticket["ticket_id"], "--as", "lou").ended(0)
    said: dict[str, Any] = project.gert("resume", "--run", project.run().folder.name, "--json").ended(0).said
    return said


def test_more_items_than_lanes_take_as_long_as_all_of_them(project: Project) -> None:
    loop = call("each", "nap", for_each={"over": list(range(6)), "as": "n", "parallel": True})
    project.runbook(loop, tools=["nap"])
    said = project.exec("--max-parallel", "2", "--json").ended(0).said
    each = completed(project.run().events(), "each")
    assert seconds(each) >= 0.9
    assert seconds(each) == pytest.approx(wall(project), abs=0.1)
    # The last two items waited for a lane until four had ended.
    assert seconds(each, "waited") == pytest.approx(0.6, abs=0.25)
    one = completed(project.run().events(), "each[5]")
    assert (seconds(one) < 0.6, "waited" in one) == (True, False)
    assert (said["duration"], said["waited"]) == (seconds(last(project)), seconds(last(project), "waited"))


def test_a_detached_wait_is_part_of_the_step_and_the_run(project: Project) -> None:
    project.runbook(call("go", "ask"), tools=["ask"], governance=ASKS)
    said = approved_later(project)
    step = completed(project.run().events(), "go")
    for found in (step, last(project)):
        assert seconds(found) >= seconds(found, "waited") >= PAUSE
        assert seconds(found) == pytest.approx(wall(project), abs=0.2)
    assert said["waited"] >= PAUSE
    runbook = project.gert("outcomes", "--json").ended(0).said["runbooks"][0]
    assert runbook["waited"]["longest_seconds"] >= PAUSE
    assert runbook["durations"]["longest_seconds"] >= PAUSE
    run_id = project.run().folder.name
    assert project.gert("run", "show", run_id, "--json").ended(0).said["waited"] >= PAUSE
    assert "of it waiting" in project.gert("run", "show", run_id).ended(0).out
    assert "of it waiting" in project.gert("trace", "show", project.run().trace).ended(0).out


def test_waits_that_overlap_count_once(project: Project) -> None:
    three = lanes(call("a", "ask"), call("b", "ask"), call("c", "quick"))
    project.runbook(three, tools=["ask", "quick"], governance=ASKS)
    approved_later(project)
    events = project.run().events()
    both = completed(events, "both")
    assert PAUSE <= seconds(both, "waited") <= seconds(both) < 2 * PAUSE + 1
    waits = [seconds(completed(events, step), "waited") for step in ("a", "b", "c")]
    assert [each >= PAUSE for each in waits] == [True, True, False]
    merged = of_type(events, "parallel_merge")[0]["data"]["branch_outcomes"]
    assert [seconds(lane) >= PAUSE for lane in merged] == [True, True, False]


def test_the_time_between_a_kill_and_the_resume_is_waiting(project: Project) -> None:
    project.script(
        "dies", f'if [ -e "{project.root}/again" ]; then exit 0; fi; : > "{project.root}/again"; kill -9 $PPID'
    )
    project.runbook(note("first"), call("go", "dies"), note("last"), tools=["note", "dies"])
    assert project.exec().code != 0
    time.sleep(PAUSE)
    project.gert("resume", "--run", project.run().folder.name).ended(0)
    step = completed(project.run().events(), "go")
    assert seconds(step) >= seconds(step, "waited") >= PAUSE
    assert seconds(last(project)) == pytest.approx(wall(project), abs=0.2)
    assert "waited" not in completed(project.run().events(), "last")
    # No record says when the process ended: some of that time may have been work.
    for command in ("run", "trace"):
        said = project.gert(command, "show", "last").ended(0).out
        assert "of it waiting or interrupted)" in said
        assert "of it waiting)" not in said
    shown = project.gert("run", "show", "last").ended(0).out
    assert re.search(r"✓ go  \S+ \(interrupted\)\n  ✓ last  \S+\n", shown)
    steps = project.gert("run", "show", "last", "--json").ended(0).said["steps"]
    assert [each["path"] for each in steps if "interrupted" in each] == ["go"]


def test_a_rerun_takes_its_own_time(project: Project) -> None:
    project.runbook(call("slow", "nap"), note("then"), tools=["nap", "note"])
    project.exec().ended(0)
    project.gert("rerun", "--run", project.run().folder.name, "--from", "then").ended(0)
    assert seconds(last(project)) == pytest.approx(wall(project), abs=0.1)
    assert seconds(last(project)) < 0.3


def test_an_abandoned_run_says_how_long_it_waited(project: Project) -> None:
    project.runbook(call("go", "ask"), tools=["ask"], governance=ASKS)
    project.exec("--detach").ended(0)
    time.sleep(PAUSE)
    project.gert("run", "abandon", project.run().folder.name, "--reason", "enough").ended(0)
    assert seconds(last(project)) >= seconds(last(project), "waited") >= PAUSE


def test_a_replay_of_a_recorded_run_says_the_same_each_time(project: Project) -> None:
    project.runbook(lanes(call("a", "nap"), call("b", "nap")), call("c", "nap"), tools=["nap"])
    project.exec("--record", "scenarios/book/one").ended(0)
    ran = [project.exec("--mode", "replay", "--scenario", "one", "--json").ended(0).said["duration"] for _ in range(2)]
    assert ran[0] == ran[1] == pytest.approx(0.6, abs=0.2)
    assert json.loads(project.exec("--mode", "dry-run", "--json").ended(0).out)["duration"] == 0
