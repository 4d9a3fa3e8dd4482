"""`limits.max_per_hour`: a circuit breaker over all runs, that opens also where nobody can count."""

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, call, note, of_type


def limited(most: int, **rule: Any) -> dict[str, Any]:
    return {
        "rules": [
            {"effects": ["restart"], "action": "allow", "limits": {"max_per_hour": most}, **rule},
            {"default": "allow"},
        ]
    }


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.note_tool("restart", contract={"effects": ["restart"]})
    project.script("dies", "kill -9 $PPID")
    return project


def why(project: Project) -> str:
    """Why the last run was denied."""
    events = project.runs()[-1].events()
    assert events[-1]["data"]["failure"]["kind"] == "denied"
    denied = of_type(events, "governance_decision")[-1]["data"]
    assert denied["decision"] == "deny"
    (reason,) = denied["reasons"]
    return str(reason)


@pytest.mark.parametrize("db", [(), ("--db", "runs.db")], ids=["in files", "in a database"])
def test_runs_add_up_until_the_limit_is_reached(db: tuple[str, ...], project: Project) -> None:
    project.runbook(note("one", tool="restart"), tools=("restart",), governance=limited(2))
    project.exec(*db).ended(0)
    project.exec(*db).ended(0)
    denied = project.exec("--json", *db).ended(3).said
    assert denied["failure"] == {
        "kind": "denied",
        "message": "expected at most 2 executions of `restart:go` in an hour, found 3 with this one",
    }
    assert project.noted() == ["one", "one"]
    # What was denied was not executed, and does not count.
    assert "found 3" in project.exec("--json", *db).ended(3).said["failure"]["message"]


def test_a_run_counts_what_it_executes_itself(project: Project) -> None:
    steps = [note(f"s{n}", tool="restart") for n in range(4)]
    project.runbook(*steps, tools=("restart",), governance=limited(3))
    project.exec().ended(3)
    assert project.noted() == ["s0", "s1", "s2"]
    assert "found 4 with this one" in why(project)


def test_other_targets_and_old_runs_do_not_count(project: Project) -> None:
    project.runbook(note("one"), note("two", tool="restart"), tools=("note", "restart"), governance=limited(1))
    project.exec().ended(0)
    project.run().change("UPDATE claims SET at = '1999' || substr(at, 5) WHERE run_id = ?1")
    project.exec().ended(0)
    project.exec().ended(3)


def test_a_dry_run_shows_that_the_breaker_is_open_and_a_replay_has_no_ledger(project: Project) -> None:
    project.runbook(note("one", tool="restart"), tools=("restart",), governance=limited(1))
    project.exec("--record", "scenarios/book/kept").ended(0)
    project.exec("--mode", "dry-run").ended(3)
    project.exec("--mode", "replay", "--scenario", "kept").ended(0)


def test_an_emergency_overrides_it_where_the_rule_allows_that(project: Project) -> None:
    governance = limited(1, action="require-approval", break_glass=True)
    project.runbook(note("one", tool="restart"), tools=("restart",), governance=governance)
    project.exec(stdin="y\n").ended(0)
    project.exec(stdin="y\n").ended(3)
    project.exec("--break-glass", "the house burns").ended(0)
    assert project.noted() == ["one", "one"]


def test_an_approved_call_is_not_made_where_others_reached_the_limit_meanwhile(project: Project) -> None:
    governance = limited(2)
    governance["rules"][0]["action"] = "require-approval"
    project.runbook(note("one", tool="restart"), tools=("restart",), governance=governance)
    said = project.exec("--detach", "--json").ended(0).said
    assert project.run().start()["recent"] == {}
    project.runbook(
        note("x", tool="restart"),
        note("y", tool="restart"),
        note("z", tool="restart"),
        name="other",
        tools=("restart",),
    )
    project.exec("other.yaml").ended(0)
    project.gert("approve", said["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    assert "found 4" in project.gert("resume", "--run", said["run_id"]).ended(3).out
    assert project.noted() == ["x", "y", "z"]


def test_a_rerun_does_not_count_twice_what_it_does_not_do_again(project: Project) -> None:
    project.note_tool("fragile", after=f"test -e {project.root}/mended")
    steps = [note("one", tool="restart"), note("two", tool="fragile"), note("three", tool="restart")]
    project.runbook(*steps, tools=("restart", "fragile"), governance=limited(2))
    project.exec().ended(3)
    (project.root / "mended").touch()
    project.gert("rerun", "--run", project.run().folder.name, "--from", "two").ended(0)
    assert project.noted() == ["one", "two", "two", "three"]
    # One of the first run, one of the second: the limit is reached, and no further run begins on it.
    project.exec().ended(3)
    assert "found 3" in why(project)


def test_a_run_that_was_killed_counts_as_far_as_it_came(project: Project) -> None:
    project.runbook(note("one", tool="restart"), call("two", "dies"), tools=("restart", "dies"), governance=limited(1))
    project.exec().ended(-signal.SIGKILL)
    project.exec().ended(3)
    assert "found 2" in why(project)


def test_the_mirror_is_not_counted(project: Project) -> None:
    project.runbook(note("one", tool="restart"), tools=("restart",), governance=limited(1))
    project.exec().ended(0)
    project.run().trace.unlink()
    project.exec().ended(3)


LOOP = {"as": "each", "over": ["a", "b", "c"]}
ARMS = [
    {"condition": '{{ eq .found "x" }}', "steps": [note("left", tool="restart")]},
    {"condition": "default", "steps": [note("right", tool="restart")]},
]


@pytest.mark.parametrize("mode", ["dry-run", "probe"])
@pytest.mark.parametrize(
    ("steps", "denied"),
    [
        pytest.param([note(f"s{n}", tool="restart") for n in range(3)], ["s2"], id="one step after the other"),
        pytest.param([note("s", "{{ .each }}", tool="restart", for_each=LOOP)], ["s[2]"], id="items of a loop"),
        pytest.param(
            [note("s", "{{ .each }}", tool="restart", for_each={**LOOP, "parallel": True})],
            ["s[2]"],
            id="items of a parallel loop",
        ),
        pytest.param(
            [
                {
                    "id": "both",
                    "type": "parallel",
                    "branches": [
                        {"label": "l", "steps": [note("a", tool="restart"), note("b", tool="restart")]},
                        {"label": "r", "steps": [note("c", tool="restart", scope="r")]},
                    ],
                }
            ],
            ["both"],
            id="lanes together",
        ),
        pytest.param(
            [{"id": "r", "type": "repeat", "repeat": {"max": 3}, "steps": [note("s", tool="restart")]}],
            ["r/2/s"],
            id="iterations of a repeat",
        ),
        pytest.param(
            [call("look", "look"), {"id": "way", "type": "branch", "branches": ARMS}],
            [],
            id="arms that exclude each other do not add up",
        ),
        pytest.param(
            [call("look", "look"), note("s", tool="restart", when='{{ eq .found "x" }}'), note("t", tool="restart"),
             note("u", tool="restart")],
            [],
            id="a step that may be skipped does not count behind it",
        ),
    ],
)  # fmt: skip
def test_a_dry_run_counts_what_it_would_execute(
    project: Project, steps: list[dict[str, Any]], denied: list[str], mode: str
) -> None:
    project.tool("look", ["true"], contract={"effects": ["other"], "writes": ["x"], "outputs": {"found": {}}},
                 extract={"found": {"from": "stdout"}})  # fmt: skip
    project.runbook(*steps, tools=("restart", "look"), governance=limited(2))
    ran = project.exec("--mode", mode, "--json").ended(3 if denied else 0)
    found = [each["path"] for each in ran.said.get("denied", [])]
    assert [path[: len(want)] for path, want in zip(found, denied, strict=True)] == denied, ran.said
    assert project.noted() == []


def test_a_dry_run_adds_what_it_would_execute_to_earlier_runs(project: Project) -> None:
    project.runbook(note("one", tool="restart"), note("two", tool="restart"), tools=("restart",), governance=limited(3))
    project.exec().ended(0)
    ran = project.exec("--mode", "dry-run", "--json").ended(3)
    assert [each["path"] for each in ran.said["denied"]] == ["two"]
    assert "found 4 with this one" in ran.said["denied"][0]["message"]
