"""Attacks on limits: ways to execute a step more often than `limits` allows."""

from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import ALLOW, Project, call, completed, finish, note, of_type, until

EVERYTHING = "limits count what is executed, retries and loop items included"


CLAIMED = "an execution is claimed in the ledger by the append that announces it"


def limited(**limits: int) -> dict[str, Any]:
    return {"rules": [{"effects": ["restart"], "action": "allow", "limits": limits}, *ALLOW["rules"]]}


def failing(project: Project, fails: str = "exit 1", **tool: Any) -> None:
    project.note_tool("restart", after=fails, contract={"effects": ["restart"]}, **tool)


def denied(project: Project, most: int) -> str:
    """Run it: no more happened than the limit allows, and the run was denied."""
    ran = project.exec("--json").ended(3)
    assert len(project.noted()) == most, project.noted()
    failure: dict[str, str] = ran.said["failure"]
    assert failure["kind"] == "denied"
    events = of_type(project.runs()[-1].events(), "governance_decision")
    assert events[-1]["data"]["decision"] == "deny"
    return failure["message"]


def retried_items(project: Project) -> str:
    """The attack that was found: two items, each of them tried ten times."""
    failing(project)
    items = {"as": "each", "over": ["a", "b"]}
    step = note("go", "{{ .each }}", tool="restart", for_each=items, retry={"max": 9}, continue_on_fail=True)
    project.runbook(step, tools=["restart"], governance=limited(max_targets=2))
    return denied(project, 2)


def retried_by_the_action(project: Project) -> str:
    failing(project, action={"retry": {"max": 9}})
    project.runbook(note("go", tool="restart"), tools=["restart"], governance=limited(max_targets=3))
    return denied(project, 3)


def retried_at_once(project: Project) -> str:
    failing(project)
    items = {"as": "each", "over": ["a", "b"], "parallel": True}
    step = note("go", "{{ .each }}", tool="restart", for_each=items, retry={"max": 9})
    project.runbook(step, tools=["restart"], governance=limited(max_targets=5))
    return denied(project, 5)


def retried_in_a_repeat(project: Project) -> str:
    failing(project)
    step = note("go", tool="restart", retry={"max": 1}, continue_on_fail=True)
    repeat = {"id": "again", "type": "repeat", "repeat": {"max": 5}, "steps": [step]}
    project.runbook(repeat, tools=["restart"], governance=limited(max_targets=3))
    return denied(project, 3)


def retried_after_a_jump(project: Project) -> str:
    failing(project)
    step = note("go", tool="restart", retry={"max": 1}, continue_on_fail=True, next={"step": "go", "max": 5})
    project.runbook(step, tools=["restart"], governance=limited(max_targets=3))
    return denied(project, 3)


def retried_in_lanes(project: Project) -> str:
    failing(project)
    steps = [note(name, tool="restart", retry={"max": 9}, continue_on_fail=True, scope=name) for name in ("one", "two")]
    lanes = [{"label": step["id"], "steps": [step]} for step in steps]
    block = {"id": "both", "type": "parallel", "branches": lanes}
    project.runbook(block, tools=["restart"], governance=limited(max_per_hour=4))
    return denied(project, 4)


def retried_this_hour(project: Project) -> str:
    """What an earlier run retried counts, too."""
    failing(project)
    step = note("go", tool="restart", retry={"max": 2})
    project.runbook(step, tools=["restart"], governance=limited(max_per_hour=4))
    project.exec().ended(3)
    assert len(project.noted()) == 3
    return denied(project, 4)


def retried_after_resume(project: Project) -> str:
    """Attempts before gert was killed count after it was resumed."""
    killed = project.root / "killed"
    third = f'[ "$(wc -l < {project.effects})" -ge 3 ] && ! test -e {killed}'
    failing(project, f"if {third}; then touch {killed}; kill -9 $PPID; fi\nexit 1")
    step = note("go", tool="restart", retry={"max": 9})
    project.runbook(step, tools=["restart"], governance=limited(max_targets=4))
    project.exec()
    assert len(project.noted()) == 3
    ran = project.gert("resume", "--run", project.run().folder.name, "--json").ended(3)
    # The call that was cut off is made again: the kernel asked for four attempts, and one of them twice.
    assert len(project.noted()) == 5
    return str(ran.said["failure"]["message"])


def retried_in_a_rerun(project: Project) -> str:
    """A new run from a step on has the limits of any run."""
    failing(project)
    step = note("go", tool="restart", retry={"max": 9})
    project.runbook(note("first"), step, tools=["note", "restart"], governance=limited(max_targets=2))
    project.exec().ended(3)
    ran = project.gert("rerun", "--run", project.run().folder.name, "--from", "go", "--json").ended(3)
    assert project.noted() == ["first", "go", "go", "go", "go"]
    return str(ran.said["failure"]["message"])


def overtaken(project: Project) -> str:
    """A run counts the executions of others when it begins, and waits; another run then takes the last one."""
    go = project.root / "go"
    failing(project, "")
    project.script("hold", f": > {project.root}/up; while [ ! -e {go} ]; do sleep 0.02; done")
    steps = [call("wait", "hold"), note("late", tool="restart", retry={"max": 3}, continue_on_fail=True)]
    project.runbook(*steps, tools=["hold", "restart"], governance=limited(max_per_hour=1))
    project.runbook(note("soon", tool="restart"), name="soon", tools=["restart"], governance=limited(max_per_hour=1))
    waiting = project.start("--json")
    until((project.root / "up").exists)
    project.exec("soon.yaml").ended(0)
    go.touch()
    ended = finish(waiting).ended(3)
    assert project.noted() == ["soon"]
    (run,) = [each for each in project.runs() if of_type(each.events(), "run_start")[0]["data"]["runbook"] == "book"]
    assert completed(run.events(), "late")["status"] == "skipped"
    project.verifies(run)
    return str(ended.said["failure"]["message"])


def at_once(project: Project) -> str:
    """Eight runs begin together and want the last two executions."""
    failing(project, "")
    project.runbook(note("go", tool="restart"), tools=["restart"], governance=limited(max_per_hour=2))
    ended = [finish(process) for process in [project.start("--json") for _ in range(8)]]
    assert sorted(each.code for each in ended) == [0, 0, 3, 3, 3, 3, 3, 3], [each.err for each in ended]
    assert len(project.noted()) == 2
    return str(next(each for each in ended if each.code).said["failure"]["message"])


ATTACKS = [
    Attack("another run takes the last execution", CLAIMED, overtaken, "at most 1 executions"),
    Attack("eight runs want the last two executions", CLAIMED, at_once, "at most 2 executions"),
    Attack("two items with nine retries each", EVERYTHING, retried_items, "at most 2 targets, found 3"),
    Attack("an action that retries by itself", EVERYTHING, retried_by_the_action, "at most 3 targets, found 4"),
    Attack("retries of items that run at once", EVERYTHING, retried_at_once, "at most 5 targets"),
    Attack("retries in a repeated block", EVERYTHING, retried_in_a_repeat, "at most 3 targets, found 4"),
    Attack("retries before and after a jump", EVERYTHING, retried_after_a_jump, "at most 3 targets, found 4"),
    Attack("retries in two lanes of one target", EVERYTHING, retried_in_lanes, "at most 4 executions"),
    Attack("retries of a run before this one", EVERYTHING, retried_this_hour, "at most 4 executions"),
    Attack("retries before and after a resume", EVERYTHING, retried_after_resume, "at most 4 targets, found 5"),
    Attack("retries in a rerun", EVERYTHING, retried_in_a_rerun, "at most 2 targets, found 3"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


def test_retries_within_the_limit_are_made(project: Project) -> None:
    failing(project, f'[ "$(wc -l < {project.effects})" -ge 3 ]')
    step = note("go", tool="restart", retry={"max": 5})
    project.runbook(step, tools=["restart"], governance=limited(max_targets=3, max_per_hour=3))
    project.exec().ended(0)
    assert len(project.noted()) == 3


def test_a_limit_can_be_overridden_in_an_emergency_where_its_rule_says_so(project: Project) -> None:
    failing(project)
    rule = {"effects": ["restart"], "action": "require-approval", "limits": {"max_targets": 2}, "break_glass": True}
    project.runbook(note("go", tool="restart", retry={"max": 3}), tools=["restart"], governance={"rules": [rule]})
    project.exec("--break-glass", "the pager does not stop").ended(3)
    assert len(project.noted()) == 4


def test_a_call_that_was_interrupted_is_counted_once(project: Project) -> None:
    """The resume makes the call again under the claim of the first attempt."""
    killed = project.root / "killed"
    failing(project, f"if ! test -e {killed}; then touch {killed}; kill -9 $PPID; fi")
    project.runbook(note("go", tool="restart"), tools=["restart"], governance=limited(max_per_hour=1))
    project.exec()
    project.gert("resume", "--run", project.run().id).ended(0)
    assert project.noted() == ["go", "go"]
    project.exec().ended(3)
    assert project.noted() == ["go", "go"]


def test_a_tool_is_counted_under_its_own_name(project: Project) -> None:
    """Another spelling of its file is the same tool."""
    failing(project, "")
    project.runbook(note("go", tool="restart"), tools=["restart"], governance=limited(max_per_hour=1))
    project.exec().ended(0)
    path = "tools/restart.tool.yaml"
    project.runbook(note("go", tool=path), tools=[path], governance=limited(max_per_hour=1))
    project.exec().ended(3)
    assert project.noted() == ["go"]
