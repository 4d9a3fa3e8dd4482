"""`gert run`: which runs there are, how each stands, what happens in one, and an end for one nobody goes on with."""

import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import (
    GERT,
    Project,
    Ran,
    call,
    completed,
    environment,
    finish,
    note,
    of_type,
    until,
)

KEY = {"GERT_TRACE_SIGNING_KEY": "a-key-of-some-length-4711"}
ASKS = {"rules": [{"effects": ["restart"], "action": "require-approval"}, {"default": "allow"}]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.script("dies", "kill -9 $PPID")
    project.note_tool("once", contract={"idempotent": False})
    project.note_tool("restart", contract={"effects": ["restart"]})
    return project


def cut_off(
    project: Project,
    *before: dict[str, Any],
    tool: str = "dies",
    environ: Mapping[str, str] = MappingProxyType({}),
    **book: Any,
) -> str:
    """A run whose process is killed by its last step."""
    tools = ("note", "once", "restart", "dies", tool)
    project.runbook(*before, call("last", tool), tools=tuple(dict.fromkeys(tools)), **book)
    project.exec(**environ).ended(-signal.SIGKILL)
    return project.runs()[-1].folder.name


def waiting(project: Project, **book: Any) -> tuple[str, str]:
    """A run that was set aside, and its ticket."""
    project.runbook(note("first"), note("second", tool="restart"), tools=("note", "restart"), governance=ASKS, **book)
    said = project.exec("--detach", "--json").ended(0).said
    return said["run_id"], said["pending"][0]["ticket_id"]


def listed(project: Project, *words: str | Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(project.gert("run", "list", "--json", *words).ended(0).out)
    return rows


def abandoned(project: Project, run_id: str, *words: str | Path, **environ: str) -> Ran:
    return project.gert("run", "abandon", run_id, "--reason", "no use", "--as", "kim", *words, **environ)


class TestDoubts:
    """What `gert run show` says of calls that a killed process left without a result."""

    @pytest.fixture
    def place(self, request: pytest.FixtureRequest, project: Project) -> tuple[str, ...]:
        return ("--db", str(project.root / "runs.db")) if request.param else ()

    def shown(self, project: Project, run_id: str, *place: str) -> dict[str, Any]:
        before = project.kept()
        said: dict[str, Any] = project.gert("run", "show", run_id, "--json", *place).ended(0).said
        assert project.kept() == before
        return said

    @pytest.mark.parametrize("place", [False, True], ids=["in files", "in a database"], indirect=True)
    def test_a_call_that_only_the_operator_can_settle_is_named_with_what_to_say(
        self, place: tuple[str, ...], project: Project
    ) -> None:
        project.script("slays", "kill -9 $PPID", contract={"idempotent": False})
        loop = call("each", "slays", for_each={"over": ["a", "b"], "as": "item"})
        project.runbook(note("one"), loop, tools=("note", "slays"))
        project.exec(*place).ended(-signal.SIGKILL)
        run_id = listed(project, *place)[0]["run_id"]
        said = self.shown(project, run_id, *place)
        assert said["in_doubt"] == [
            {"path": "each[0]", "step_id": "each[0]", "target": "slays:go", "idempotent": False}
        ]
        words = "".join(f" {word}" for word in place)
        assert f"gert resume {run_id} --reconcile 'each[0]'=CHOICE{words}" in said["next"]
        out = project.gert("run", "show", run_id, *place).ended(0).out
        assert "each[0] (slays:go): gert stopped before recording a result" in out
        assert "success|failed|retry" in out
        # What is shown is what resume asks for, and takes.
        assert "`each[0]`" in project.gert("resume", "--run", run_id, *place).ended(3).err
        project.script("slays", "true", contract={"idempotent": False})
        words_again = ("--reconcile", "each[0]=success", "--allow-changed", *place)
        project.gert("resume", "--run", run_id, *words_again).ended(0)
        assert self.shown(project, run_id, *place)["in_doubt"] == []

    def test_a_call_that_is_made_again_anyway_needs_no_word(self, project: Project) -> None:
        run_id = cut_off(project, note("one"))
        said = self.shown(project, run_id)
        assert [(each["path"], each["idempotent"]) for each in said["in_doubt"]] == [("last", True)]
        assert f"gert resume {run_id}" in said["next"]
        assert "`gert resume` calls it again" in project.gert("run", "show", run_id).ended(0).out

    def test_side_by_side_all_that_are_open_are_named_and_those_that_ended_are_not(self, project: Project) -> None:
        up = project.root / "up"
        project.script("waits", f"touch {up}; sleep 60", contract={"idempotent": False})
        project.script(
            "slays", f"while [ ! -e {up} ]; do sleep 0.01; done; kill -9 $PPID", contract={"idempotent": False}
        )
        lanes = [{"steps": [call("a", "waits")]}, {"steps": [note("b"), call("c", "slays")]}]
        project.runbook({"id": "both", "type": "parallel", "branches": lanes}, tools=("note", "waits", "slays"))
        project.exec().ended(-signal.SIGKILL)
        said = self.shown(project, project.run().folder.name)
        assert {each["step_id"] for each in said["in_doubt"]} == {"a", "c"}
        assert next(each for each in said["next"] if "resume" in each).count("--reconcile ") == 2

    def test_a_run_that_waits_for_an_approval_has_none(self, project: Project) -> None:
        run_id, _ = waiting(project)
        assert self.shown(project, run_id)["in_doubt"] == []
        assert "in doubt" not in project.gert("run", "show", run_id).ended(0).out

    def test_a_run_that_has_ended_has_none(self, project: Project) -> None:
        run_id = cut_off(project)
        abandoned(project, run_id).ended(0)
        assert self.shown(project, run_id)["in_doubt"] == []

    def test_a_mirror_that_is_gone_does_not_keep_it_from_being_said(self, project: Project) -> None:
        run_id = cut_off(project)
        project.run().trace.unlink()
        assert [each["path"] for each in self.shown(project, run_id)["in_doubt"]] == ["last"]


class TestListing:
    def test_each_run_is_listed_as_it_stands_the_newest_first(self, project: Project) -> None:
        project.runbook(note("one"), name="fine")
        project.exec("fine.yaml").ended(0)
        dead = cut_off(project)
        run_id, ticket = waiting(project, name="asking", file="book.yaml")
        rows = listed(project)
        assert [row["status"] for row in rows] == ["waiting", "cut-off", "completed"]
        assert [row["runbook_name"] for row in rows] == ["asking", "book", "fine"]
        assert (rows[0]["run_id"], rows[0]["tickets"]) == (run_id, [ticket])
        assert rows[1]["run_id"] == dead
        assert rows[2]["outcome"] == {"category": "resolved", "code": "done"}
        assert rows[2]["events"] == len(project.runs()[0].events())
        assert rows[2]["mode"] == "real"
        assert rows[2]["duration"] >= 0

    def test_a_run_with_a_process_is_running_and_then_is_not(self, project: Project) -> None:
        project.script("slow", f"touch {project.root}/up; while [ ! -e {project.root}/go ]; do sleep 0.02; done")
        project.runbook(call("wait", "slow"), tools=("slow",))
        process = project.start()
        until((project.root / "up").exists)
        assert [row["status"] for row in listed(project)] == ["running"]
        run_id = project.run().folder.name
        refused = abandoned(project, run_id).ended(2)
        assert "is running" in refused.err
        assert "SIGTERM" in refused.err
        (project.root / "go").touch()
        finish(process).ended(0)
        assert [row["status"] for row in listed(project)] == ["completed"]

    def test_one_whose_ticket_is_answered_waits_until_it_is_resumed(self, project: Project) -> None:
        run_id, ticket = waiting(project)
        project.gert("approve", ticket, "--as", "bob").ended(0)
        assert [(row["status"], row["tickets"]) for row in listed(project)] == [("waiting", [ticket])]
        project.gert("resume", "--run", run_id).ended(0)
        assert [(row["status"], row["tickets"]) for row in listed(project)] == [("completed", [])]

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            pytest.param(("--status", "ended"), ["c", "a"], id="an abandoned run has ended"),
            pytest.param(("--status", "abandoned"), ["c"], id="abandoned alone"),
            pytest.param(("--status", "cut-off"), ["b"], id="cut off"),
            pytest.param(("--status", "running"), [], id="none runs"),
            pytest.param(("--runbook", "a"), ["a"], id="one runbook"),
            pytest.param(("--runbook", "none"), [], id="an unknown runbook"),
            pytest.param(("--limit", "1"), ["c"], id="the newest only"),
            pytest.param(("--since", "1h"), ["c", "b", "a"], id="all of the last hour"),
            pytest.param(("--since", "0s"), [], id="none of no time"),
        ],
    )
    def test_which_runs_are_listed(self, words: tuple[str, ...], found: list[str], tmp_path: Path) -> None:
        project = Project(tmp_path)
        project.script("dies", "kill -9 $PPID")
        project.runbook(note("one"), name="a")
        project.exec("a.yaml").ended(0)
        for name in ("b", "c"):
            project.runbook(call("last", "dies"), tools=("dies",), name=name)
            project.exec(f"{name}.yaml").ended(-signal.SIGKILL)
        abandoned(project, project.runs()[-1].folder.name).ended(0)
        assert [row["runbook_name"] for row in listed(project, *words)] == found

    @pytest.mark.parametrize("since", ["yesterday", "-1d", ""])
    def test_a_time_that_is_none_is_a_mistake(self, since: str, project: Project) -> None:
        assert "--since" in project.gert("run", "list", f"--since={since}").ended(2).err

    def test_runs_are_listed_from_the_ledger_whatever_lies_beside_it(self, project: Project) -> None:
        project.runbook(note("one"))
        project.exec().ended(0)
        run = project.run()
        dead = cut_off(project)
        (project.root / "runs" / dead / "trace.jsonl").write_bytes(b'{"seq":99,"run_id":"x","ty')
        run.trace.unlink()
        (project.root / "runs" / "zz-foreign").mkdir()
        (project.root / "runs" / "zz-foreign" / "trace.jsonl").write_text("hello\n")
        ran = project.gert("run", "list", "--json").ended(0)
        assert [row["run_id"] for row in json.loads(ran.out)] == [dead, run.id]
        assert ran.err == ""

    def test_without_runs_the_list_is_empty(self, project: Project) -> None:
        assert listed(project) == []
        assert "there are no runs" in project.gert("run", "list").ended(0).out

    def test_people_read_a_table(self, project: Project) -> None:
        waiting(project)
        out = project.gert("run", "list").ended(0).out
        assert "RUNBOOK" in out
        assert "waiting (1 ticket)" in out

    def test_runs_in_a_database_are_listed_like_others(self, project: Project) -> None:
        project.runbook(note("one"))
        project.exec("--db", "runs.db").ended(0)
        (row,) = listed(project, "--db", "runs.db")
        assert (row["status"], row["runbook_name"], row["trace"]) == ("completed", "book", None)
        assert row["db"] == "runs.db"

    def test_a_database_that_is_not_there_is_a_mistake(self, project: Project) -> None:
        assert "there is no file" in project.gert("run", "list", "--db", "nope.db").ended(2).err


class TestShowing:
    def test_a_run_that_failed_says_why_and_how_to_run_it_again(self, project: Project) -> None:
        project.script("breaks", "exit 3")
        project.runbook(
            note("one"), call("two", "breaks"), tools=("note", "breaks"), inputs={"who": {"default": "kim"}}
        )
        project.exec().ended(3)
        run_id = project.run().folder.name
        said = project.gert("run", "show", run_id, "--json").ended(0).said
        assert said["status"] == "failed"
        assert said["end"]["failed_step"] == "two"
        assert said["runbook_hash"].startswith("sha256:")
        assert said["inputs"] == {"who": "kim"}
        assert said["next"] == [f"gert rerun {run_id} --from two"]
        out = project.gert("run", "show", run_id).ended(0).out
        assert "who = kim (default)" in out
        assert "failed at:" in out

    def test_a_run_that_waits_says_for_what(self, project: Project) -> None:
        run_id, ticket = waiting(project)
        said = project.gert("run", "show", run_id, "--json").ended(0).said
        assert [(each["ticket_id"], each["step_id"], each["status"]) for each in said["pending"]] == [
            (ticket, "second", "pending")
        ]
        assert said["next"][:2] == [f"gert approve {ticket}", f"gert resume {run_id}"]

    @pytest.mark.parametrize("answer", [None, "approve"])
    def test_a_run_does_not_wait_for_an_outdated_ticket(self, project: Project, answer: str | None) -> None:
        run_id, ticket = waiting(project)
        if answer is not None:
            project.gert(answer, ticket, "--as", "bob").ended(0)
        project.note_tool("restart", before=":", contract={"effects": ["restart"]})
        resumed = project.gert("resume", "--run", run_id, "--detach", "--allow-changed", "--json").ended(0).said
        [again] = [each["ticket_id"] for each in resumed["pending"]]
        assert again != ticket
        shown = project.gert("approvals", "show", ticket, "--json").ended(0).said
        assert shown["status"] == "abandoned"
        said = project.gert("run", "show", run_id, "--json").ended(0).said
        assert [each["ticket_id"] for each in said["pending"]] == [again]
        assert ticket not in project.gert("run", "show", run_id).ended(0).out
        assert listed(project)[0]["tickets"] == [again]
        status = project.gert("run", "status", run_id, "--json").ended(0).said
        assert status["blocked_on"] == f"approval:{again}"

    def test_a_secret_input_is_masked(self, project: Project) -> None:
        project.runbook(note("one"), inputs={"token": {"secret": True, "from": "env/TOKEN"}})
        project.exec(TOKEN="very-secret-4711").ended(0)
        ran = project.gert("run", "show", project.run().folder.name, "--json", TOKEN="very-secret-4711").ended(0)
        assert "very-secret-4711" not in ran.out
        assert ran.said["inputs"] == {"token": "[REDACTED]"}

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            pytest.param("nope", "there is no run `nope`", id="no run"),
            pytest.param("../runs", "is not a run id", id="a path"),
            pytest.param("20", "matches 2 runs", id="not enough of an id"),
        ],
    )
    def test_a_name_that_is_not_one_run_is_a_mistake(self, name: str, why: str, project: Project) -> None:
        project.runbook(note("one"))
        project.exec().ended(0)
        project.exec().ended(0)
        assert why in project.gert("run", "show", name).ended(2).err

    def test_the_beginning_of_an_id_is_enough(self, project: Project) -> None:
        project.runbook(note("one"))
        run_id = project.exec("--json").ended(0).said["run_id"]
        assert project.gert("run", "show", run_id[:10], "--json").ended(0).said["run_id"] == run_id


class TestFollowing:
    def test_the_timeline_of_a_run_is_shown(self, project: Project) -> None:
        project.runbook(note("one"))
        run_id = project.exec("--json").ended(0).said["run_id"]
        out = project.gert("run", "tail", run_id).ended(0).out
        assert "run completed" in out
        lines = project.gert("run", "tail", run_id, "--json", "--follow").ended(0).out.splitlines()
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))

    @pytest.mark.parametrize("db", [(), ("--db", "runs.db")], ids=["in a file", "in a database"])
    def test_a_run_is_followed_to_its_end(self, db: tuple[str, ...], project: Project) -> None:
        project.script("slow", f"touch {project.root}/up; while [ ! -e {project.root}/go ]; do sleep 0.02; done")
        project.runbook(call("wait", "slow"), note("after"), tools=("slow", "note"))
        process = project.start(*db)
        until((project.root / "up").exists)
        (row,) = listed(project, *db)
        tail = subprocess.Popen(
            [*GERT, "run", "tail", row["run_id"], "--follow", *db],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.root, env=environment(),
        )  # fmt: skip
        assert tail.stdout is not None
        assert b"run" in tail.stdout.readline()
        (project.root / "go").touch()
        finish(process).ended(0)
        assert "run completed" in finish(tail).ended(0).out

    def test_ctrl_c_ends_the_following_and_not_the_run(self, project: Project) -> None:
        project.script("slow", f"touch {project.root}/up; while [ ! -e {project.root}/go ]; do sleep 0.02; done")
        project.runbook(call("wait", "slow"), tools=("slow",))
        process = project.start()
        until((project.root / "up").exists)
        tail = subprocess.Popen(
            [*GERT, "run", "tail", project.run().folder.name, "--follow"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.root, env=environment(),
        )  # fmt: skip
        assert tail.stdout is not None
        while b"wait" not in tail.stdout.readline():
            pass
        tail.send_signal(signal.SIGINT)
        assert "incomplete" in finish(tail).ended(0).out
        (project.root / "go").touch()
        finish(process).ended(0)

    def test_following_a_run_that_is_not_driven_ends_at_once(self, project: Project) -> None:
        run_id = cut_off(project)
        assert "incomplete" in project.gert("run", "tail", run_id, "--follow").ended(0).out


class TestAbandoning:
    def test_a_run_that_was_cut_off_ends_sealed_and_nothing_is_called(self, project: Project) -> None:
        run_id = cut_off(project, note("one"), after=[note("cleanup")], environ=KEY)
        said = abandoned(project, run_id, "--json", **KEY).ended(0).said
        run = project.run()
        events = run.events()
        assert project.noted() == ["one"]
        assert of_type(events, "run_cancelled")[0]["data"]["reason"] == "abandoned: no use (by kim)"
        assert events[-1]["data"]["status"] == "cancelled"
        assert events[-1]["data"]["signature"]
        assert events[-1]["data"]["finally_failure"]["kind"] == "cancelled"
        assert completed(events, "last")["failure"]["kind"] == "cancelled"
        assert (said["in_doubt"], said["finally_steps"], said["redriven"]) == (["last"], 1, True)
        project.gert("trace", "verify", run.trace, **KEY).ended(0)
        project.gert("run", "verify", run_id, **KEY).ended(0)

    def test_it_needs_no_secret(self, project: Project) -> None:
        project.script("dies", "kill -9 $PPID")
        project.runbook(
            call("last", "dies"),
            tools=("dies",),
            inputs={"token": {"secret": True, "required": True, "from": "env/TOKEN"}},
            secrets=[{"env": "PAGER", "required": True}],
        )
        project.exec(TOKEN="very-secret-4711", PAGER="pager-secret-42").ended(-signal.SIGKILL)
        abandoned(project, project.run().folder.name).ended(0)
        project.verifies()
        assert b"very-secret" not in project.run().trace.read_bytes()

    def test_its_open_tickets_are_closed(self, project: Project) -> None:
        run_id, ticket = waiting(project)
        said = abandoned(project, run_id, "--json").ended(0).said
        assert said["tickets"] == [ticket]
        assert json.loads(project.gert("approvals", "list", "--json").ended(0).out) == []
        assert project.gert("approve", ticket, "--as", "bob").code != 0
        assert [row["status"] for row in listed(project)] == ["abandoned"]
        assert "has ended" in project.gert("resume", "--run", run_id).ended(2).err

    def test_tickets_are_closed_where_the_run_keeps_them(self, project: Project) -> None:
        project.runbook(note("one", tool="restart"), tools=("restart",), governance=ASKS)
        project.exec("--detach", "--db", "runs.db", "--state-dir", "elsewhere").ended(0)
        (row,) = listed(project, "--db", "runs.db")
        assert len(abandoned(project, row["run_id"], "--db", "runs.db", "--json").ended(0).said["tickets"]) == 1
        assert json.loads(project.gert("approvals", "list", "--json", "--state-dir", "elsewhere").ended(0).out) == []

    def test_a_run_in_a_database_is_abandoned_like_others(self, project: Project) -> None:
        project.runbook(call("last", "dies"), tools=("dies",))
        project.exec("--db", "runs.db").ended(-signal.SIGKILL)
        (row,) = listed(project, "--db", "runs.db")
        assert row["status"] == "cut-off"
        abandoned(project, row["run_id"], "--db", "runs.db").ended(0)
        assert [each["status"] for each in listed(project, "--db", "runs.db")] == ["abandoned"]
        project.gert("trace", "verify", "--db", "runs.db").ended(0)

    @pytest.mark.parametrize("change", ["changed", "gone", "not valid"])
    def test_a_runbook_that_is_not_what_it_was_does_not_prevent_ending_the_run(
        self, change: str, project: Project
    ) -> None:
        run_id = cut_off(project, note("one"))
        book = project.root / "book.yaml"
        if change == "changed":
            project.runbook(note("other"))
        elif change == "gone":
            book.unlink()
        else:
            book.write_text("apiVersion: kernel/v0\nsteps: [")
        said = abandoned(project, run_id, "--json").ended(0).said
        assert said["redriven"] is False
        project.verifies()
        assert [event["type"] for event in project.run().events()[-2:]] == ["run_cancelled", "run_complete"]
        assert [row["status"] for row in listed(project)] == ["abandoned"]

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            pytest.param(("--reason", " "), "needs a reason", id="an empty reason"),
            pytest.param((), "missing option", id="no reason"),
            pytest.param(("--reason", "x", "--as", " "), "needs a name", id="an empty name"),
        ],
    )
    def test_who_and_why_have_to_be_said(self, words: tuple[str, ...], why: str, project: Project) -> None:
        run_id = cut_off(project)
        before = project.kept()
        assert why in project.gert("run", "abandon", run_id, *words).ended(2).err.lower()
        assert project.kept() == before

    def test_a_run_that_has_ended_is_not_ended_again(self, project: Project) -> None:
        project.runbook(note("one"))
        run_id = project.exec("--json").ended(0).said["run_id"]
        before = project.kept()
        assert "has ended" in abandoned(project, run_id).ended(2).err
        assert project.kept() == before
