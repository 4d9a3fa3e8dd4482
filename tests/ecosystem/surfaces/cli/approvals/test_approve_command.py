"""`gert approvals`, `gert approve` and `gert reject` as processes: what they show, what counts, how they exit."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import Clock, ticket_in, view_in
from tests.ecosystem.surfaces.cli.workbench import GERT, PATIENCE, Project, environment, finish, note, rows_of, until

from gert.ecosystem.approvals.tickets import TicketView
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.foundation.signature import parse_key

SEED = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="
PUBLIC = parse_key(SEED).public_text or ""


def now() -> datetime:
    return datetime.now(UTC)


INPUTS = {"name": "web", "token": f"Bearer {secret_ref('key')}", "steer": "\x1b[2J"}


def ledger(project: Project) -> Path:
    return project.root / "runs" / "ledger.db"


def ticket(project: Project, **changes: Any) -> TicketView:
    return ticket_in(ledger(project), **{"title": "Restart \x1b[31mit", "inputs": INPUTS, **changes})


def view(project: Project, file: TicketView) -> TicketView:
    return view_in(ledger(project), file.id)


def an_hour_ago() -> Clock:
    return Clock(now() - timedelta(hours=1))


def test_a_ticket_that_shows_something_else_than_what_would_run_is_not_approved(project: Project) -> None:
    file = ticket(project, request_hash="sha256:" + "1" * 64)
    ran = project.gert("approve", file.id, "--as", "bob").ended(1)
    assert "shows something else than what would run" in ran.err
    assert view(project, file).responses == ()
    project.gert("reject", file.id, "--as", "bob").ended(0)


# --- answering


def test_an_approval_is_received_and_says_how_to_resume(project: Project) -> None:
    file = ticket(project)
    ran = project.gert("approve", file.id, "--as", "bob", "--reason", "looked at it").ended(0)
    assert "approval needed for step `restart`" in ran.out
    assert "received: your approval, 1 of 1 needed" in ran.out
    assert "gert resume run-1" in ran.out
    (received,) = view(project, file).responses
    assert (received.response.approver, received.response.reason) == ("bob", "looked at it")


def test_what_is_shown_masks_secrets_and_steers_no_terminal(project: Project) -> None:
    file = ticket(project)
    for words in (("approvals", "show", file.id), ("approve", file.id, "--as", "bob"), ("approvals", "list", "--all")):
        ran = project.gert(*words).ended(0)
        assert "\x1b" not in ran.out
        assert "\ufdd0" not in ran.out
    shown = project.gert("approvals", "show", file.id, "--json").ended(0)
    assert shown.said["inputs"]["token"] == "Bearer [REDACTED]"


def test_one_of_two_is_received_and_not_yet_enough(project: Project) -> None:
    file = ticket(project, min_approvers=2)
    ran = project.gert("approve", file.id, "--as", "bob").ended(0)
    assert "received: your approval, 1 of 2 needed" in ran.out
    assert "resume" not in ran.out
    ran = project.gert("approve", file.id, "--as", "BOB").ended(1)
    assert "not counted: `BOB` has already responded" in ran.out
    ran = project.gert("approve", file.id, "--as", "eve").ended(0)
    assert "gert resume run-1" in ran.out


def test_a_rejection_decides_the_ticket(project: Project) -> None:
    file = ticket(project, min_approvers=3)
    said = project.gert("reject", file.id, "--as", "bob", "--json").ended(0).said
    assert said == {
        "ticket_id": file.id,
        "run_id": "run-1",
        "approved": False,
        "received": True,
        "objection": None,
        "status": "pending",
        "approvals": 0,
        "counted": 0,
        "min_approvers": 3,
        "resume": "gert resume run-1",
        "signed": False,
        "signature_checked_here": False,
    }


@pytest.mark.parametrize(
    ("changes", "who", "why"),
    [
        pytest.param(
            {"separation_of_duties": True}, "Ann", "`Ann` started the run", id="the person who started the run"
        ),
        pytest.param(
            {"approvers": (("group:ops",),), "admitted": (("dan",),)}, "bob", "`group:ops`", id="not in the group"
        ),
        pytest.param({}, "", "does not name its approver plainly", id="an empty name"),
        pytest.param({}, "a\nb", "does not name its approver plainly", id="two lines"),
        pytest.param({}, "x" * 300, "the approver is too long", id="an endless name"),
    ],
)
def test_an_approval_that_does_not_count_says_why(
    project: Project, changes: dict[str, Any], who: str, why: str
) -> None:
    file = ticket(project, **changes)
    ran = project.gert("approve", file.id, "--as", who).ended(1)
    assert why in ran.out
    assert "resume" not in ran.out
    assert view(project, file).status == "pending"


def test_too_late_is_too_late(project: Project) -> None:
    file = ticket(project, clock=an_hour_ago())
    ran = project.gert("approve", file.id, "--as", "bob").ended(1)
    assert "not counted: the response came too late" in ran.out
    assert view(project, file).status_at(now()) == "expired"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["nothing"], "there is no ticket `nothing`", id="unknown"),
        pytest.param(["../run-1"], "is not a ticket id", id="a path"),
        pytest.param(["/etc/passwd"], "is not a ticket id", id="an absolute path"),
        pytest.param(["a\nb"], "is not a ticket id", id="two lines"),
        pytest.param([""], "is not a ticket id", id="empty"),
        pytest.param(["run"], "`run` may be 2 tickets", id="not unique"),
        pytest.param([], "missing argument", id="none"),
        pytest.param(["run-1", "--key", "/nonexistent"], "no variable or file has the name", id="no such key"),
        pytest.param(["run-1", "--key", SEED], "no variable or file has the name", id="the key itself"),
        pytest.param(["run-1", "--key", "PUB"], "is public and cannot sign", id="a public key"),
        pytest.param(["run-1", "--key", "EMPTY"], "does not hold a valid key", id="an empty variable"),
        pytest.param(["run-1", "--wrong"], "no such option", id="an option there is not"),
    ],
)
@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_wrong_usage_exits_with_2_and_changes_nothing(project: Project, verb: str, words: list[str], why: str) -> None:
    ticket(project)
    ticket(project, run_id="run-2")
    before = rows_of(ledger(project))
    ran = project.gert(verb, *words, PUB=PUBLIC, EMPTY="").ended(2)
    assert why in ran.err
    assert "hint:" in ran.err
    assert SEED not in ran.out + ran.err
    assert rows_of(ledger(project)) == before


@pytest.mark.skipif(os.name != "posix", reason="arguments are bytes only there")
@pytest.mark.parametrize("option", ["--as", "--reason"])
def test_what_is_no_utf8_is_refused(project: Project, option: str) -> None:
    file = ticket(project)
    ended = subprocess.run(
        [*(os.fsencode(word) for word in (*GERT, "approve", file.id, option)), b"b\xffb"],
        capture_output=True,
        cwd=project.root,
        env=environment({"PYTHONUTF8": "1"}),
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 2
    assert f"{option} is not UTF-8 text" in ended.stderr.decode()


# --- signing


def test_where_signatures_are_asked_for_one_is_needed(project: Project) -> None:
    file = ticket(project, require_signed_approvals=True)
    ran = project.gert("approve", file.id, "--as", "bob").ended(2)
    assert "takes only signed approvals" in ran.err
    assert "--key" in ran.err
    assert not view(project, file).responses
    project.gert("reject", file.id, "--as", "bob").ended(0)


@pytest.mark.parametrize("where", ["variable", "file"])
def test_a_signed_approval_counts(project: Project, where: str) -> None:
    file = ticket(project, require_signed_approvals=True)
    key = project.root / "bob.key"
    key.write_text(SEED)
    named = "GERT_APPROVAL_KEY_BOB" if where == "variable" else str(key)
    environ = {"GERT_APPROVAL_KEY_BOB": SEED if where == "variable" else PUBLIC}
    ran = project.gert("approve", file.id, "--as", "bob", "--key", named, **environ).ended(0)
    assert SEED.partition(":")[2] not in ran.out + ran.err
    (received,) = view(project, file).responses
    assert (received.response.key_id, received.response.signature_alg) == ("bob", "ed25519")
    assert not received.response.verified


def test_a_key_only_the_run_can_check_is_said_to_be_one(project: Project) -> None:
    file = ticket(project, require_signed_approvals=True)
    ran = project.gert("approve", file.id, "--as", "bob", "--key", "MINE", MINE=SEED).ended(0)
    assert "received: your approval, 1 of 1 needed" in ran.out
    assert "the run verifies it before it counts" in ran.out
    said = project.gert("approve", file.id, "--as", "dan", "--key", "MINE", "--json", MINE=SEED).ended(0).said
    assert (said["signature_checked_here"], said["objection"], said["status"]) == (False, None, "pending")
    assert said["resume"].startswith("gert resume run-1")
    shown = project.gert("approvals", "show", file.id).ended(0).out
    assert shown.count("(received: the run has not taken it yet)") == 2


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        pytest.param({"GERT_APPROVAL_KEY_BOB": "base64:" + "QUJD" * 8}, "is for hmac-sha256", id="another algorithm"),
        pytest.param(
            {"GERT_APPROVAL_VERIFY_KEY": "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="},
            "the signature by key `bob` is invalid",
            id="another key",
        ),
        pytest.param(
            {"GERT_APPROVAL_KEY_BOB": PUBLIC, "GERT_APPROVAL_OWNER_BOB": "dan"},
            "the key `bob` does not speak for `bob`",
            id="the key of another person",
        ),
    ],
)
def test_a_key_the_environment_does_not_hold_is_refused_at_once(
    project: Project, environ: dict[str, str], why: str
) -> None:
    file = ticket(project, require_signed_approvals=True)
    (project.root / "bob.key").write_text(SEED)
    ran = project.gert("approve", file.id, "--as", "bob", "--key", str(project.root / "bob.key"), **environ).ended(1)
    assert why in ran.out


# --- listing


def test_nothing_waits_in_an_empty_project(project: Project) -> None:
    assert project.gert("approvals", "list").ended(0).out == "nothing waits for approval\n"
    assert project.gert("approvals", "list", "--json").ended(0).out == "[]\n"
    assert not ledger(project).exists()


def test_the_list_shows_what_waits_and_all_shows_everything(project: Project) -> None:
    file = ticket(project, min_approvers=2)
    other = ticket(project, run_id="run-2")
    late = ticket(project, run_id="run-3", clock=an_hour_ago())
    project.gert("approve", file.id, "--as", "bob").ended(0)
    lines = project.gert("approvals", "list").ended(0).out.splitlines()
    assert lines[0].split() == ["TICKET", "RUNBOOK", "STEP", "RISK", "ASKED", "BY", "SINCE", "EXPIRES", "ANSWERS"]
    assert len(lines) == 5
    assert lines[1].startswith(late.id)
    assert lines[2].split()[:5] == [file.id, "restart-service", "restart", "high", "ann"]
    assert lines[2].endswith("0/2 (+1 received)")
    assert lines[4] == f"{late.id} expired at {late.ticket.expires_at}; `gert resume run-3` applies it"
    everything = json.loads(project.gert("approvals", "list", "--all", "--json").ended(0).out)
    assert {each["ticket_id"]: each["status"] for each in everything} == {
        file.id: "pending",
        other.id: "pending",
        late.id: "expired",
    }


def test_a_ticket_that_cannot_be_read_is_complained_about_beside_the_others(project: Project) -> None:
    file, other = ticket(project), ticket(project, run_id="run-2")
    with closing(sqlite3.connect(ledger(project), isolation_level=None)) as found:
        found.execute("UPDATE tickets SET request = '{' WHERE ticket_id = ?", (other.id,))
    ran = project.gert("approvals", "list").ended(1)
    assert file.id in ran.out
    assert f"the ticket `{other.id}` cannot be read" in ran.err
    project.gert("approvals", "show", other.id).ended(1)


def test_everything_about_a_ticket_is_shown(project: Project) -> None:
    file = ticket(project, min_approvers=2, approvers=(("bob", "dan"),), admitted=(("bob", "dan"),))
    project.gert("approve", file.id, "--as", "eve").ended(1)
    project.gert("approve", file.id, "--as", "bob", "--reason", "fine").ended(0)
    with closing(sqlite3.connect(ledger(project), isolation_level=None)) as found:
        columns = "(run_id, kind, body, ticket_id, received_at)"
        found.execute(f"INSERT INTO inbox {columns} VALUES ('run-1', 'note', 'chat: no room', ?, '')", (file.id,))
    shown = project.gert("approvals", "show", "run-1").ended(0).out
    for part in (
        f"ticket {file.id}: pending",
        "effects:",
        '["service"]',
        "kubectl/restart",
        "rules[0]",
        "one of bob, dan",
        "name: web",
        "token: Bearer [REDACTED]",
        "0 of 2 approvals counted, 1 answer received that the run has not taken yet",
        "bob approved at",
        ": fine",
        "chat: no room",
    ):
        assert part in shown, part


def test_the_state_directory_can_be_chosen(project: Project, tmp_path: Path) -> None:
    file = ticket(project)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere).mkdir()
    ended = Project(elsewhere).gert("approvals", "list", "--state-dir", project.root).ended(0)
    assert file.id in ended.out
    said = Project(elsewhere).gert("approve", file.id, "--as", "bob", "--state-dir", project.root).ended(0)
    assert f"gert resume run-1 --state-dir {project.root}" in said.out


# --- with a run


GATE = {"rules": [{"default": "require-approval", "min_approvers": 1}]}


def test_a_run_in_a_database_goes_on_as_the_approval_says(project: Project) -> None:
    project.runbook(note("write", "hello"), governance=GATE)
    database = project.root / "all my runs.db"
    project.exec("--detach", "--as", "ann", "--db", database).ended(0)
    (waiting,) = json.loads(project.gert("approvals", "list", "--db", database, "--json").ended(0).out)
    said = project.gert("approve", waiting["ticket_id"], "--as", "bob", "--db", database, "--json").ended(0).said
    words = shlex.split(said["resume"])
    assert words == ["gert", "resume", said["run_id"], "--db", str(database)]
    project.gert(*words[1:]).ended(0)
    assert project.noted() == ["hello"]


def test_a_run_that_was_set_aside_is_listed_and_approved(project: Project) -> None:
    project.runbook(note("write", "hello"), governance=GATE)
    project.exec("--detach", "--as", "ann").ended(0)
    assert project.noted() == []
    (waiting,) = json.loads(project.gert("approvals", "list", "--json").ended(0).out)
    assert waiting["run_id"] == project.run().folder.name
    shown = project.gert("approvals", "show", waiting["ticket_id"]).ended(0).out
    assert "word: hello" in shown
    ran = project.gert("approve", waiting["run_id"], "--as", "bob").ended(0)
    assert f"gert resume {project.run().folder.name}" in ran.out


PRINTED = re.compile(r"(?:approval pending for `\w+`|resume with): gert (.*)")


@pytest.mark.parametrize(
    ("words", "is_here", "environ"),
    [
        pytest.param([], True, {}, id="where one would look"),
        pytest.param([], False, {}, id="in the project of the runbook, and asked from outside of it"),
        pytest.param(["--state-dir", "my state"], True, {}, id="in a folder that was named"),
        pytest.param(["--state-dir", "my state"], False, {}, id="in a folder that was named, from outside"),
        pytest.param(["--db", "all my runs.db"], True, {}, id="in a database"),
        pytest.param(["--db", "all my runs.db"], False, {}, id="in a database, from outside"),
        pytest.param([], False, {"GERT_STATE_DIR": "state"}, id="in a folder the environment names"),
    ],
)
def test_what_is_printed_goes_on_with_a_run_wherever_it_is_kept(
    project: Project, tmp_path: Path, words: list[str], is_here: bool, environ: dict[str, str]
) -> None:
    project.runbook(note("write", "hello"), governance=GATE)
    here = project if is_here else Project(tmp_path / "elsewhere")
    out = here.gert("exec", project.root / "book.yaml", "--detach", "--as", "ann", *words, **environ).ended(0).out
    approve, resume = (shlex.split(command) for command in PRINTED.findall(out))
    has_to_be_said = not environ and "--db" not in words and (not is_here or "--state-dir" in words)
    assert ("--state-dir" in [*approve, *resume]) == has_to_be_said
    shown = here.gert("run", "show", resume[1], *resume[2:], "--json", **environ).ended(0).said
    assert [shlex.split(command)[1:] for command in shown["next"]][:2] == [approve, resume]
    here.gert(*approve, "--as", "bob", **environ).ended(0)
    here.gert(*resume, **environ).ended(0)
    assert project.noted() == ["hello"]


# --- any ledger


def test_a_ledger_that_is_named_needs_no_state_directory(project: Project, tmp_path: Path) -> None:
    file = ticket(project)
    elsewhere = Project(tmp_path / "elsewhere")
    nowhere = {"GERT_STATE_DIR": str(tmp_path / "none")}
    assert file.id in elsewhere.gert("approvals", "list", "--db", ledger(project), **nowhere).ended(0).out
    elsewhere.gert("approvals", "show", file.id, "--db", ledger(project), **nowhere).ended(0)
    said = elsewhere.gert("approve", file.id, "--as", "bob", "--db", ledger(project), **nowhere).ended(0)
    assert f"gert resume run-1 --db {ledger(project)}" in said.out
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("verb", [["approvals", "list"], ["approvals", "show", "run-1"], ["approve", "run-1"]])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["--db", "none.db"], "there is no file `none.db`", id="no such file"),
        pytest.param(["--db", "a", "--dsn", "b"], "expected `--db` or `--dsn`, found both", id="two ledgers"),
        pytest.param(["--dsn", "env:NOT_SET"], "NOT_SET", id="an address that is not set"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused(project: Project, verb: list[str], words: list[str], why: str) -> None:
    assert why in project.gert(*verb, *words).ended(2).err


@pytest.mark.parametrize(
    "words", [["approvals", "list"], ["approvals", "show", "run-1"], ["approve", "run-1"], ["reject", "run-1"]]
)
def test_the_validator_of_runbooks_is_not_loaded(project: Project, words: list[str]) -> None:
    ticket(project)
    code = (
        "import sys\n"
        "from gert.ecosystem.surfaces.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print([name for name in sys.modules if name.startswith('gert.kernel.runbook.validate')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=project.root,
        env=environment({}),
        timeout=PATIENCE,
        check=False,
    )
    assert ended.stdout.splitlines()[-1] == "[]", ended.stdout + ended.stderr


# --- answered, and no process drives the run


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_answered_ticket_says_how_to_resume_its_run(project: Project, verb: str) -> None:
    project.runbook(note("write", "hello"), governance=GATE)
    project.exec("--detach", "--as", "ann").ended(0)
    run = project.run()
    (ticket_id,) = run.requests()
    assert "answered;" not in project.gert("approvals", "list").out + project.gert("run", "show", "last").out
    project.gert(verb, ticket_id, "--as", "bob").ended(0)
    said = f"answered; resume the run with `gert resume {run.id}`"
    assert f"{ticket_id} is {said}" in project.gert("approvals", "list").ended(0).out
    assert said in project.gert("approvals", "show", ticket_id).ended(0).out
    assert said in project.gert("run", "show", "last").ended(0).out
    assert "waiting (answered)" in project.gert("run", "list").ended(0).out
    shown = project.gert("approvals", "show", ticket_id, "--json").ended(0).said
    assert (shown["answered"], shown["resume"]) == (True, f"gert resume {run.id}")
    assert project.gert("run", "show", "last", "--json").said["pending"][0]["answered"]
    project.gert("resume", "last").ended(0 if verb == "approve" else 3)
    assert "answered;" not in project.gert("approvals", "list", "--all").out


def test_a_ticket_of_a_run_that_waits_needs_no_resume(project: Project) -> None:
    project.runbook(note("write", "hello"), governance={"rules": [{"default": "require-approval", "min_approvers": 2}]})
    process = project.start("--wait", "--as", "ann")
    try:
        until(lambda: project.runs() and project.run().requests())
        (ticket_id,) = project.run().requests()
        project.gert("approve", ticket_id, "--as", "bob").ended(0)
        shown = project.gert("approvals", "show", ticket_id, "--json").ended(0).said
        assert (shown["answered"], shown["resume"]) == (False, None)
        assert "answered;" not in project.gert("approvals", "list").out
    finally:
        process.terminate()
        finish(process)
