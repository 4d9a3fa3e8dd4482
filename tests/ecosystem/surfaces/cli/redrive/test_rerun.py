"""`gert rerun`: the recorded answers up to a step, the live world from there on, and an old run nobody touches."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import (
    END,
    Project,
    Ran,
    Recorded,
    call,
    completed,
    finish,
    note,
    of_type,
    snapshot,
    until,
)

ASKS: dict[str, Any] = {"rules": [{"effects": ["restart"], "action": "require-approval"}, {"default": "allow"}]}
LANES = {
    "id": "both",
    "type": "parallel",
    "branches": [
        {"label": "left", "steps": [note("l1", scope="l"), note("l2", scope="l")]},
        {"label": "right", "steps": [note("r1", scope="r"), note("r2", scope="r")]},
    ],
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    # Fails until somebody has mended it.
    project.note_tool("fragile", after=f"test -e {tmp_path}/mended")
    project.note_tool("restart", contract={"effects": ["restart"]})
    project.note_tool("slow", before="sleep 0.3", contract={"idempotent": False})
    project.script("dies", "kill -9 $PPID")
    return project


TOOLS = ("note", "fragile", "restart", "slow", "dies")


def failed(project: Project, *steps: dict[str, Any], **book: Any) -> str:
    """The id of a run that failed; what it wrote down is forgotten."""
    project.runbook(*steps, tools=TOOLS, **book)
    ran = project.exec("--json")
    assert ran.code in (3, -signal.SIGKILL), ran
    forget(project)
    return project.runs()[-1].folder.name


def forget(project: Project) -> None:
    project.effects.unlink(missing_ok=True)


def again(project: Project, run_id: str, step: str, *words: str | Path, **environ: str) -> Ran:
    return project.gert("rerun", "--run", run_id, "--from", step, "--json", *words, **environ)


def mend(project: Project) -> None:
    (project.root / "mended").touch()


def newest(project: Project) -> Recorded:
    return project.runs()[-1]


def refused(project: Project, code: int, why: str, ran: Ran, before: dict[str, Any]) -> None:
    """Nothing was called, and nothing recorded."""
    assert why in ran.ended(code).err
    assert project.noted() == []
    assert project.kept() == before


def test_a_run_that_failed_goes_on_from_where_it_failed(project: Project) -> None:
    old = failed(project, note("one"), note("two"), note("three", tool="fragile"), note("four"))
    before = [Recorded(project.root / "runs" / old).lines(), snapshot(project.root / "runs" / old)]
    mend(project)
    said = again(project, old, "three", "--as", "kim").ended(0).said
    assert project.noted() == ["three", "four"]
    assert said["run_id"] != old
    assert [Recorded(project.root / "runs" / old).lines(), snapshot(project.root / "runs" / old)] == before
    run = newest(project)
    project.verifies(run)
    events = run.events()
    (forked,) = of_type(events, "run_forked")
    assert forked["data"]["source_run_id"] == old
    assert forked["data"]["from_step"] == "three"
    assert forked["data"]["answered"] == 2
    assert len(forked["data"]["source_chain_hash"]) == 64
    assert forked["principal"]["id"] == "kim"
    done = [event["seq"] for event in of_type(events, "step_complete") if event["data"]["step_id"] in ("one", "two")]
    later = [event["seq"] for event in of_type(events, "step_complete") if event["data"]["step_id"] == "three"]
    assert max(done) < forked["seq"] < min(later)
    assert completed(events, "one")["outputs"] == {"said": "one"}


def test_the_view_shows_what_was_not_done_again(project: Project) -> None:
    old = failed(project, note("one"), note("two", tool="fragile"), note("three"))
    mend(project)
    lines = again(project, old, "two").ended(0).err.splitlines()
    [at] = [at for at, line in enumerate(lines) if line.startswith("↻ live from two on")]
    assert lines[at].endswith(f"the steps above were recorded in run {old} and did not run again")
    assert lines[at + 1] == "  1 recorded answer used"
    assert any(line.startswith("✓ one") for line in lines[:at])
    assert any(line.startswith("✓ two") for line in lines[at:])


def test_a_rerun_is_run_again_like_any_other(project: Project) -> None:
    old = failed(project, note("one"), note("two", tool="fragile"))
    second = again(project, old, "two").ended(3).said["run_id"]
    forget(project)
    mend(project)
    again(project, second, "two").ended(0)
    assert project.noted() == ["two"]
    assert of_type(newest(project).events(), "run_forked")[0]["data"]["source_run_id"] == second


def test_a_run_that_completed_may_be_run_again_from_any_step(project: Project) -> None:
    project.runbook(note("one"), note("two"))
    run_id = project.exec("--json").ended(0).said["run_id"]
    forget(project)
    again(project, run_id, "one").ended(0)
    assert project.noted() == ["one", "two"]


@pytest.mark.parametrize("step", ["each[2]", "each"])
def test_one_item_of_a_loop_or_all_of_it(step: str, project: Project) -> None:
    items = note(
        "each", "{{ .item }}", tool="fragile", for_each={"as": "item", "over": ["a", "b", "c"], "parallel": True}
    )
    project.runbook({**items, "continue_on_fail": True}, note("after"), tools=TOOLS)
    run_id = project.exec("--json").ended(0).said["run_id"]
    forget(project)
    mend(project)
    again(project, run_id, step).ended(0)
    assert sorted(project.noted()) == (["after", "c"] if step == "each[2]" else ["a", "after", "b", "c"])
    statuses = {
        event["data"]["step_id"]: event["data"]["status"]
        for event in of_type(newest(project).events(), "step_complete")
    }
    assert statuses["each[2]"] == "success"
    assert statuses["each[0]"] == ("failed" if step == "each[2]" else "success")


@pytest.mark.parametrize(
    ("step", "live"),
    [
        pytest.param("l2", ["after", "l2"], id="the other lane is not run again, whenever it was done"),
        pytest.param("r1", ["after", "r1", "r2"], id="a lane from its first step on"),
        pytest.param("both/right/r2", ["after", "r2"], id="by path"),
        pytest.param("both", ["after", "l1", "l2", "r1", "r2"], id="the block with all its lanes"),
        pytest.param("after", ["after"], id="behind the block"),
    ],
)
def test_lanes_keep_the_answers_that_do_not_come_after_the_step(step: str, live: list[str], project: Project) -> None:
    project.runbook(note("before"), LANES, note("after"), tools=TOOLS)
    run_id = project.exec("--json").ended(0).said["run_id"]
    forget(project)
    again(project, run_id, step).ended(0)
    assert sorted(project.noted()) == live
    project.verifies(newest(project))


def test_a_step_of_finally_is_a_step(project: Project) -> None:
    old = failed(project, note("one", tool="fragile"), after=[note("tidy"), note("sweep")])
    again(project, old, "sweep").ended(3)
    assert project.noted() == ["sweep"]


def test_a_step_that_asks_nothing_is_where_the_next_question_is_live(project: Project) -> None:
    check = {"id": "check", "type": "assert", "assert": [{"type": "equals", "value": "1", "expected": "1"}]}
    old = failed(project, note("one"), check, note("two", tool="fragile"))
    again(project, old, "check").ended(3)
    assert project.noted() == ["two"]


def test_a_visit_by_a_jump_takes_the_way_to_the_first_one(project: Project) -> None:
    steps = [note("one"), {**note("two"), "next": {"step": "one", "max": 1}}, note("three", tool="fragile")]
    old = failed(project, *steps)
    again(project, old, "three").ended(3)
    assert project.noted() == ["three"]
    forget(project)
    again(project, old, "two").ended(3)
    assert project.noted() == ["two", "one", "two", "three"]


def test_the_same_tools_in_the_same_folder(project: Project) -> None:
    project.script("here", "pwd", extract={"at": {"from": "stdout", "pattern": "(.*)"}})
    project.runbook(call("where", "here"), tools=("here",))
    run_id = project.exec("--json").ended(0).said["run_id"]
    (project.root / "below").mkdir()
    ended = project.gert("rerun", "--run", run_id, "--from", "where", "--state-dir", project.root)
    ended.ended(0)
    assert completed(newest(project).events(), "where")["outputs"]["at"] == str(project.root)


def test_what_ctrl_c_stopped_had_no_answer_and_is_asked_again(project: Project) -> None:
    project.script("hangs", f"touch {project.root}/up; test -e {project.root}/mended || sleep 30")
    project.runbook(note("one"), call("two", "hangs"), note("three"), tools=("note", "hangs"), after=[note("tidy")])
    process = project.start()
    until((project.root / "up").exists)
    process.send_signal(signal.SIGINT)
    finish(process).ended(130)
    assert project.noted() == ["one", "tidy"]
    forget(project)
    mend(project)
    again(project, project.run().folder.name, "two").ended(0)
    assert project.noted() == ["three", "tidy"]


def test_a_run_in_a_database_is_run_again_there(project: Project) -> None:
    project.runbook(note("one"), note("two", tool="fragile"), tools=TOOLS)
    project.exec("--db", "runs.db").ended(3)
    (row,) = json.loads(project.gert("run", "list", "--db", "runs.db", "--json").ended(0).out)
    forget(project)
    mend(project)
    said = again(project, row["run_id"], "two", "--db", "runs.db").ended(0).said
    assert project.noted() == ["two"]
    project.gert("trace", "verify", "--db", "runs.db", "--run", said["run_id"]).ended(0)


class TestPeopleAndSecrets:
    def test_approvals_before_the_step_hold_and_those_from_it_on_are_asked_for_again(self, project: Project) -> None:
        project.runbook(note("one", tool="restart"), note("two", tool="restart"), tools=TOOLS, governance=ASKS)
        run_id = project.exec("--json", stdin="y\ny\n").ended(0).said["run_id"]
        forget(project)
        said = again(project, run_id, "two", "--detach").ended(0).said
        assert project.noted() == []
        assert [each["step_id"] for each in said["pending"]] == ["two"]
        project.gert("approve", said["pending"][0]["ticket_id"], "--as", "bob").ended(0)
        project.gert("resume", "--run", said["run_id"]).ended(0)
        assert project.noted() == ["two"]
        project.verifies(newest(project))

    def test_a_detached_run_that_is_run_again_asks_here(self, project: Project) -> None:
        project.runbook(note("one", tool="restart"), tools=TOOLS, governance=ASKS)
        said = project.exec("--json", "--detach").ended(0).said
        project.gert("reject", said["pending"][0]["ticket_id"], "--as", "bob", "--reason", "no").ended(0)
        project.gert("resume", said["run_id"]).ended(3)
        rerun = ("rerun", said["run_id"], "--from", "one", "--json")
        assert project.gert(*rerun, stdin="y now\n").ended(0).said["status"] == "completed"
        assert project.noted() == ["one"]

    def test_an_approver_of_the_old_run_may_not_start_the_new_one(self, project: Project) -> None:
        rule = {"effects": ["restart"], "action": "require-approval", "separation_of_duties": True}
        project.runbook(
            note("one", tool="restart"), note("two"), tools=TOOLS, governance={"rules": [rule, {"default": "allow"}]}
        )
        run_id = project.exec("--json", "--as", "ann", stdin="bob\ny\n").ended(0).said["run_id"]
        forget(project)
        before = project.kept()
        refused(project, 1, "replay diverged at event", again(project, run_id, "two", "--as", "bob"), before)
        again(project, run_id, "two", "--as", "cat").ended(0)

    def test_a_secret_is_found_again(self, project: Project) -> None:
        inputs = {"token": {"secret": True, "from": "env/TOKEN", "required": True}}
        old = _secret_run(project, inputs)
        said = again(project, old, "two", TOKEN="very-secret-4711")
        said.ended(0)
        assert project.noted() == ["very-secret-4711"]
        assert "very-secret-4711" not in newest(project).trace.read_text() + json.dumps(newest(project).answers())

    def test_without_its_secret_it_does_not_begin(self, project: Project) -> None:
        inputs = {"token": {"secret": True, "from": "env/TOKEN", "required": True}}
        old = _secret_run(project, inputs)
        before = project.kept()
        refused(project, 2, "token", again(project, old, "two"), before)

    def test_a_secret_that_had_a_value_never_takes_its_default(self, project: Project) -> None:
        old = _secret_run(project, {"token": {"secret": True, "from": "env/TOKEN", "default": "the-default"}})
        before = project.kept()
        refused(project, 2, "the secret input `token`", again(project, old, "two"), before)
        again(project, old, "two", "--input", "token=very-secret-4711").ended(0)
        assert project.noted() == ["very-secret-4711"]

    def test_an_emergency_override_is_not_taken_over(self, project: Project) -> None:
        rules = [{"effects": ["restart"], "action": "deny", "break_glass": True}, {"default": "allow"}]
        project.runbook(
            note("one", tool="restart"), note("two", tool="fragile"), tools=TOOLS, governance={"rules": rules}
        )
        project.exec("--break-glass", "the house burns").ended(3)
        forget(project)
        before = project.kept()
        run_id = project.run().folder.name
        refused(project, 1, "pass --break-glass again", again(project, run_id, "two"), before)
        again(project, run_id, "two", "--break-glass", "still").ended(3)
        assert project.noted() == ["two"]


def _secret_run(project: Project, inputs: dict[str, Any]) -> str:
    project.runbook(note("one"), note("two", "{{ .token }}"), tools=TOOLS, inputs=inputs)
    project.exec(TOKEN="very-secret-4711").ended(0)
    forget(project)
    return project.run().folder.name


class TestChanges:
    def test_an_input_may_change_where_the_way_does_not_depend_on_it(self, project: Project) -> None:
        old = failed(
            project, note("one"), note("two", "{{ .word }}", tool="fragile"), inputs={"word": {"default": "x"}}
        )
        mend(project)
        again(project, old, "two", "--var", "word=y").ended(0)
        assert project.noted() == ["y"]

    def test_an_input_may_not_change_where_it_does(self, project: Project) -> None:
        steps = [note("one", "{{ .word }}"), note("two", tool="fragile")]
        old = failed(project, *steps, inputs={"word": {"default": "x"}})
        before = project.kept()
        refused(project, 1, "at `one`", again(project, old, "two", "--input", "word=y"), before)

    def test_a_changed_runbook_needs_to_be_allowed(self, project: Project) -> None:
        old = failed(project, note("one"), note("two", tool="fragile"))
        project.runbook(note("one"), note("two", "other"), note("three"), tools=TOOLS)
        before = project.kept()
        refused(project, 1, "was changed", again(project, old, "two"), before)
        again(project, old, "two", "--allow-changed").ended(0)
        assert project.noted() == ["other", "three"]

    @pytest.mark.parametrize(
        "steps",
        [
            pytest.param([note("one", "other"), note("two")], id="a step is called with something else"),
            pytest.param([note("zero"), note("one"), note("two")], id="a step more"),
            pytest.param([note("two")], id="a step less"),
            pytest.param([note("one", tool="fragile"), note("two")], id="another tool"),
            pytest.param([note("two"), note("one")], id="another order"),
            pytest.param([{**note("one"), "when": "{{ false }}"}, note("two")], id="a step that is skipped"),
            pytest.param([note("one"), END, note("two")], id="an end before the step"),
        ],
    )
    def test_a_change_before_the_step_is_refused(self, steps: list[dict[str, Any]], project: Project) -> None:
        old = failed(project, note("one"), note("two", tool="fragile"))
        project.runbook(*steps, tools=TOOLS)
        before = project.kept()
        ran = again(project, old, "two", "--allow-changed")
        refused(project, 1, "replay diverged at event", ran, before)

    def test_an_input_that_changes_the_way_is_refused_by_name(self, project: Project) -> None:
        project.runbook(
            note("one", "{{ .word }}"), note("two", tool="fragile"), tools=TOOLS, inputs={"word": {"default": "a"}}
        )
        run_id = project.exec("--json").said["run_id"]
        forget(project)
        before = project.kept()
        ran = again(project, run_id, "two", "--input", "word=b")
        refused(project, 1, "`step_start` is recorded with another `inputs`", ran, before)

    @pytest.mark.parametrize("table", ["answers", "events"])
    def test_a_record_that_was_forged_is_refused(self, table: str, project: Project) -> None:
        old = failed(project, note("one"), note("two", tool="fragile"))
        forged = 'CAST(replace(CAST(line AS TEXT), \'"said":"one"\', \'"said":"won"\') AS BLOB)'
        Recorded(project.root / "runs" / old).change(f"UPDATE {table} SET line = {forged} WHERE run_id = ?1")
        refused(project, 1, "was changed", again(project, old, "two"), project.kept())


class TestRefusals:
    @pytest.mark.parametrize(
        ("step", "why"),
        [
            pytest.param("thre", "did you mean `three`?", id="misspelt"),
            pytest.param("nothing-like-it", "has no step", id="unknown"),
            pytest.param("three", "never reached `three`", id="never reached"),
            pytest.param("one[0]", "never reached `one[0]`", id="no such item"),
            pytest.param("both/left/one", "never reached", id="no such path"),
            pytest.param("one//", "is not a step", id="no path at all"),
            pytest.param("", "is not a step", id="nothing"),
        ],
    )
    def test_a_step_the_run_never_came_to(self, step: str, why: str, project: Project) -> None:
        old = failed(project, note("one"), note("two", tool="fragile"), note("three"))
        before = project.kept()
        refused(project, 2, why, again(project, old, step), before)

    def test_nothing_is_asked_any_more(self, project: Project) -> None:
        project.runbook(note("one"), {**END, "id": "over"})
        run_id = project.exec("--json").ended(0).said["run_id"]
        forget(project)
        refused(project, 2, "have the same result", again(project, run_id, "over"), project.kept())

    @pytest.mark.parametrize("words", [("--wait", "--detach"), ("--as", " "), ("--break-glass", "")])
    def test_called_wrongly(self, words: tuple[str, ...], project: Project) -> None:
        old = failed(project, note("one", tool="fragile"))
        again(project, old, "one", *words).ended(2)

    def test_no_such_run(self, project: Project) -> None:
        again(project, "nope", "one").ended(2)

    def test_a_run_that_waits_has_to_be_abandoned_first(self, project: Project) -> None:
        project.runbook(note("one"), note("two", tool="restart"), tools=TOOLS, governance=ASKS)
        run_id = project.exec("--detach", "--json").ended(0).said["run_id"]
        forget(project)
        refused(project, 2, "waits for approval", again(project, run_id, "one"), project.kept())
        project.gert("run", "abandon", run_id, "--reason", "begun anew").ended(0)
        again(project, run_id, "two", "--detach").ended(0)
        assert project.noted() == []

    def test_a_call_in_another_lane_whose_outcome_is_unknown_is_not_made_again(self, project: Project) -> None:
        block = {
            "id": "both",
            "type": "parallel",
            "branches": [
                {"label": "left", "steps": [note("l1", tool="slow")]},
                {"label": "right", "steps": [call("r1", "dies")]},
            ],
        }
        old = failed(project, note("one"), block)
        ran = again(project, old, "r1").ended(3)
        assert "`both/left/l1` would be called" in ran.err
        assert "r1" not in project.noted()
