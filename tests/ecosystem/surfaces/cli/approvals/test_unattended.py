"""Approvals of detached runs without a person at a terminal: several at once, undelivered, expired, and on a timer."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.notify.servers import closed_port, serving, status
from tests.ecosystem.surfaces.cli.workbench import GERT, Project, environment, finish, note, of_type, until

from gert.kernel.foundation.signature import parse_key

GATE: dict[str, Any] = {"rules": [{"default": "require-approval", "min_approvers": 1}]}
SEED = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="
PUBLIC = parse_key(SEED).public_text or ""
SHARED = "base64:c2hhcmVkIHNlY3JldCBvZiB0aGUgc2VydmljZQ=="


def loop(project: Project, **governance: Any) -> tuple[str, list[str]]:
    """A detached run that waits for an approval of each of three items: its id, and its tickets."""
    items = {"over": ["a", "b", "c"], "as": "z", "parallel": True}
    project.runbook(note("each", "{{ .z }}", for_each=items), governance={**GATE, **governance})
    said = project.exec("--detach", "--as", "ann", "--json").ended(0).said
    return said["run_id"], [each["ticket_id"] for each in said["pending"]]


def detached(project: Project, word: str = "hello", *words: str, **governance: Any) -> str:
    """A detached run that waits for one approval; its id."""
    project.runbook(note("write", word), governance={**GATE, **governance})
    run_id: str = project.exec("--detach", "--as", "ann", "--json", *words).ended(0).said["run_id"]
    return run_id


def listed(project: Project, *words: str) -> list[dict[str, Any]]:
    """What a command prints as a list."""
    found: list[dict[str, Any]] = json.loads(project.gert(*words, "--json").out)
    return found


def of_run(project: Project, run_id: str) -> str:
    """The status of a run."""
    found: str = project.gert("run", "status", run_id, "--json").ended(0).said["status"]
    return found


def expired(project: Project, run_id: str) -> None:
    """Wait until all tickets of a run have expired."""
    until(
        lambda: all(
            each["status"] == "expired"
            for each in project.gert("run", "status", run_id, "--json").ended(0).said["tickets"]
        )
    )


# --- several tickets


def test_several_tickets_are_answered_at_once(project: Project) -> None:
    run_id, tickets = loop(project)
    ran = project.gert("approve", *tickets, "--as", "bob", "--reason", "checked").ended(0)
    for item in "abc":
        assert f"z: {item}" in ran.out or f"word: {item}" in ran.out
    assert ran.out.count("received: your approval, 1 of 1 needed") == 3
    assert ran.out.count(f"gert resume {run_id}") == 1
    assert {each["reason"] for each in project.run().inbox()} == {"checked"}
    project.gert("resume", run_id).ended(0)
    assert sorted(project.noted()) == ["a", "b", "c"]


@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize("name", ["last", "id", "prefix"])
def test_all_tickets_of_a_run_are_answered(project: Project, verb: str, name: str) -> None:
    run_id, tickets = loop(project)
    named = {"last": "last", "id": run_id, "prefix": run_id[:-2]}[name]
    said = listed(project, verb, named, "--all", "--as", "bob")
    assert sorted(each["ticket_id"] for each in said) == sorted(tickets)
    assert [(each["approved"], each["received"], each["objection"]) for each in said] == [
        (verb == "approve", True, None)
    ] * 3
    project.gert("resume", run_id).ended(0 if verb == "approve" else 3)
    assert len(project.noted()) == (3 if verb == "approve" else 0)


def test_a_run_that_waits_for_several_approvals_prints_the_command_for_all_of_them(project: Project) -> None:
    run_id, tickets = loop(project)
    every = f"approve all of them: gert approve {run_id} --all\n"
    out = project.gert("resume", run_id, "--detach").ended(0).out
    assert every in out
    project.gert("approve", *tickets, "--as", "bob").ended(0)
    project.gert("resume", run_id).ended(0)
    loop(project)
    again = project.exec("--detach").ended(0).out
    assert re.findall(r"pending for `each\[(\d)\]`", again) == ["0", "1", "2"]
    detached(project)
    assert "approve all of them" not in project.gert("resume", "last", "--detach").ended(0).out


def test_each_of_several_answers_is_signed(project: Project) -> None:
    trusted = {"GERT_APPROVAL_KEY_BOB": PUBLIC, "GERT_APPROVAL_OWNER_BOB": "bob"}
    run_id, _ = loop(project)
    (project.root / "bob.key").write_text(SEED)
    ran = project.gert("approve", run_id, "--all", "--as", "bob", "--key", "bob.key", "--json", **trusted).ended(0)
    assert [(each["signed"], each["signature_checked_here"]) for each in json.loads(ran.out)] == [(True, True)] * 3
    project.gert("resume", run_id, **trusted).ended(0)
    resolved = of_type(project.run().events(), "approval_resolved")
    assert [each["data"]["verified"] for each in resolved] == [True] * 3


def test_a_ticket_that_cannot_be_answered_does_not_prevent_the_others(project: Project) -> None:
    _, tickets = loop(project)
    ran = project.gert("approve", tickets[0], "nothing", tickets[1], tickets[0], "--as", "bob").ended(2)
    assert ran.out.count("received: your approval") == 2
    assert "there is no ticket `nothing`" in ran.err
    ran = project.gert("approve", *tickets, "--as", "bob", "--json").ended(1)
    first, second, third = json.loads(ran.out)
    assert (first["received"], second["received"], third["received"]) == (False, False, True)
    assert first["objection"] == "`bob` has already responded"
    ran = project.gert("reject", "nothing", tickets[2], "--as", "bob", "--json").ended(2)
    missing, rejected = json.loads(ran.out)
    assert (missing["ticket_id"], missing["received"], missing["error"]["code"]) == ("nothing", False, "usage")
    assert rejected["received"]


def test_all_leaves_out_what_is_answered_and_a_rejection_still_decides_it(project: Project) -> None:
    run_id, tickets = loop(project)
    project.gert("approve", tickets[0], "--as", "bob").ended(0)
    said = listed(project, "approve", run_id, "--all", "--as", "bob")
    assert [each["ticket_id"] for each in said] == tickets[1:]
    ran = project.gert("approve", run_id, "--all", "--as", "bob").ended(2)
    assert "every ticket is answered" in ran.err
    assert f"gert resume {run_id}" in ran.err
    assert [each["ticket_id"] for each in listed(project, "reject", run_id, "--all", "--as", "eve")] == tickets


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["--all"], "missing argument", id="no run"),
        pytest.param(["last", "last", "--all"], "expected one run with `--all`", id="two runs"),
        pytest.param(["nope", "--all"], "there is no run `nope`", id="no such run"),
        pytest.param(["last", "--all", "--drop-box", "box"], "a drop box has no runs", id="a drop box"),
        pytest.param(["last", "--all", "--key", "none"], "no variable or file has the name", id="no such key"),
    ],
)
def test_all_needs_one_run(project: Project, words: list[str], why: str) -> None:
    loop(project)
    assert why in project.gert("approve", *words).ended(2).err
    assert project.run().inbox() == []


def test_a_name_of_several_tickets_names_all(project: Project) -> None:
    run_id, _ = loop(project)
    assert "`gert approve last --all`" in project.gert("approve", "last").ended(2).err
    assert f"`gert approve {run_id} --all`" in project.gert("approve", run_id).ended(2).err


def test_the_answer_to_one_ticket_says_what_was_given_and_checked(project: Project) -> None:
    _, tickets = loop(project)
    said = project.gert("approve", tickets[0], "--as", "bob", "--json").ended(0).said
    assert (said["approvals"], said["counted"], said["min_approvers"]) == (1, 0, 1)
    assert (said["signed"], said["signature_checked_here"]) == (False, False)
    signed = ("--as", "bob", "--key", "MINE", "--json")
    said = project.gert("approve", tickets[1], *signed, MINE=SEED).ended(0).said
    assert (said["approvals"], said["signed"], said["signature_checked_here"]) == (0, True, False)


def test_the_status_names_every_ticket(project: Project) -> None:
    run_id, tickets = loop(project)
    shown = project.gert("run", "status", run_id).ended(0).out
    assert [f"ticket {each} of `each[{n}]`: pending" in shown for n, each in enumerate(tickets)] == [True] * 3
    said = project.gert("run", "status", run_id, "--json").ended(0).said
    assert said["blocked_on"] == f"approval:{tickets[0]}"
    assert [(each["ticket_id"], each["path"], each["status"]) for each in said["tickets"]] == [
        (ticket, f"each[{n}]", "pending") for n, ticket in enumerate(tickets)
    ]


# --- requests that reach no one


def test_a_request_that_cannot_be_signed_is_a_warning(project: Project) -> None:
    project.write("gert-config.yaml", {"approvals": {"http": {"url": f"http://127.0.0.1:{closed_port()}/"}}})
    project.runbook(note("write"), governance=GATE)
    why = "http: not sent: there is no key to sign the request with: `GERT_APPROVAL_SIGNING_KEY` is not set"
    ran = project.exec("--detach", "--json").ended(0)
    assert f"warning: request for approval of `write`: {why}" in ran.err
    assert ran.said["warnings"] == [f"request for approval of `write`: {why}"]
    assert ran.said["pending"][0]["notes"] == [why]
    assert project.exec("--detach", "--quiet").ended(0).err.count(why) == 1
    for command in ("status", "show"):
        assert why in project.gert("run", command, "last").ended(0).out
    assert project.gert("run", "status", "last", "--json").said["tickets"][0]["notes"] == [why]
    assert project.gert("run", "show", "last", "--json").said["pending"][0]["notes"] == [why]


def test_a_server_that_is_down_is_a_warning_also_where_the_run_waits(project: Project) -> None:
    project.write("gert-config.yaml", {"approvals": {"http": {"url": f"http://127.0.0.1:{closed_port()}/"}}})
    project.runbook(note("write"), governance=GATE)
    process = project.start("--wait", "--as", "ann", GERT_APPROVAL_SIGNING_KEY=SHARED)
    until(lambda: project.runs() and project.run().requests())
    (ticket_id,) = project.run().requests()
    project.gert("approve", ticket_id, "--as", "bob").ended(0)
    ran = finish(process).ended(0)
    assert "warning: request for approval of `write`: http: not sent" in ran.err
    assert project.noted() == ["write"]


def test_a_request_that_was_delivered_is_no_warning(project: Project) -> None:
    with serving(status(200)) as server:
        project.write("gert-config.yaml", {"approvals": {"http": {"url": server.url()}}})
        project.runbook(note("write"), governance=GATE)
        ran = project.exec("--detach", "--json", GERT_APPROVAL_SIGNING_KEY=SHARED).ended(0)
    assert len(server.requests) == 1
    assert "warnings" not in ran.said
    assert "warning" not in ran.err


# --- tickets that have expired


def test_every_command_says_that_a_ticket_has_expired_and_what_applies_it(project: Project) -> None:
    run_id = detached(project, approval_timeout="1s")
    (ticket,) = project.run().requests()
    expired(project, run_id)
    at = listed(project, "approvals", "list")[0]["expires_at"]
    said = f"expired at {at}; `gert resume {run_id}` applies it"
    for words in (["run", "status", run_id], ["run", "show", run_id], ["approvals", "show", ticket]):
        assert said in project.gert(*words).ended(0).out, words
    assert f"{ticket} {said}" in project.gert("approvals", "list").ended(0).out
    assert "waiting (expired)" in project.gert("run", "list").ended(0).out
    for words in (["approve", "last"], ["approve", "last", "--all"], ["reject", run_id, "--all"]):
        ran = project.gert(*words).ended(2)
        assert f"the ticket `{ticket}` expired at {at}" in ran.err, words
        assert f"`gert resume {run_id}` applies it" in ran.err, words
    ran = project.gert("approve", ticket).ended(1)
    assert "not counted: the response came too late" in ran.out
    assert f"gert resume {run_id}" in ran.out
    assert project.gert("run", "show", run_id, "--json").said["next"][0] == f"gert resume {run_id}"
    assert listed(project, "approvals", "list")[0]["resume"] == f"gert resume {run_id}"
    project.gert("resume", run_id).ended(3)
    assert project.gert("approvals", "list").ended(0).out == "nothing waits for approval\n"


def test_an_answer_in_time_is_no_expired_ticket(project: Project) -> None:
    run_id = detached(project, approval_timeout="3s")
    project.gert("approve", "last", "--as", "bob").ended(0)
    (ticket,) = project.run().requests()

    def is_late() -> bool:
        return "too late" in project.gert("approve", ticket, "--as", "eve").out

    until(is_late)
    said = f"answered; resume the run with `gert resume {run_id}`"
    for words in (["run", "status", run_id], ["run", "show", run_id], ["approvals", "list"]):
        assert said in project.gert(*words).ended(0).out, words
    assert listed(project, "resume", "--ready")[0]["status"] == "completed"
    assert project.noted() == ["hello"]


# --- on a timer


def test_ready_runs_are_resumed_the_oldest_first_and_no_others(project: Project) -> None:
    answered, rejected, waiting, ended = (detached(project) for _ in range(4))
    project.gert("approve", answered, "--as", "bob").ended(0)
    project.gert("reject", rejected, "--as", "bob").ended(0)
    project.gert("run", "abandon", ended, "--reason", "not needed").ended(0)
    ran = project.gert("resume", "--ready", "--json").ended(3)
    assert [(each["run_id"], each["status"], each["reason"]) for each in json.loads(ran.out)] == [
        (answered, "completed", None),
        (rejected, "failed", "`write`: rejected by `bob`"),
    ]
    assert project.noted() == ["hello"]
    assert of_run(project, waiting) == "waiting"
    assert project.gert("resume", "--ready").ended(0).out == "no run is ready to resume\n"
    assert listed(project, "resume", "--ready") == []


def test_a_run_with_an_open_ticket_is_not_ready(project: Project) -> None:
    run_id, tickets = loop(project)
    project.gert("approve", *tickets[:2], "--as", "bob").ended(0)
    before = project.run().record()
    assert project.gert("resume", "--ready").ended(0).out == "no run is ready to resume\n"
    assert project.run().record() == before
    project.gert("approve", tickets[2], "--as", "bob").ended(0)
    ran = project.gert("resume", "--ready").ended(0)
    assert ran.out == f"{run_id} (book): completed, resolved: done\n"


def test_nothing_is_ready_in_an_empty_project(project: Project) -> None:
    assert project.gert("resume", "--ready").ended(0).out == "no run is ready to resume\n"
    assert project.runs() == []


def test_an_expired_ticket_is_rejected_on_a_timer_and_the_outcome_is_sent(project: Project) -> None:
    with serving(status(200)) as server:
        project.write("gert-config.yaml", {"notify": {"rejected": {"webhook": server.url()}}})
        project.runbook(note("write"), governance={**GATE, "approval_timeout": "1s"})
        run_id = project.exec("--detach", "--json").ended(0).said["run_id"]
        expired(project, run_id)
        (done,) = json.loads(project.gert("resume", "--ready", "--json").ended(3).out)
    assert (done["status"], done["reason"]) == ("failed", "`write`: no approver approved in time")
    assert [request.said["run_id"] for request in server.requests] == [run_id]
    assert project.noted() == []


def test_an_expired_ticket_is_escalated_on_a_timer_and_the_request_is_sent(project: Project) -> None:
    rule = {"default": "require-approval", "min_approvers": 1, "on_timeout": "escalate", "escalate_to": ["boss"]}
    with serving(status(200), status(200)) as server:
        project.write("gert-config.yaml", {"approvals": {"http": {"url": server.url()}}})
        project.runbook(note("write"), governance={"rules": [rule], "approval_timeout": "1s"})
        run_id = project.exec("--detach", "--json", GERT_APPROVAL_SIGNING_KEY=SHARED).ended(0).said["run_id"]
        expired(project, run_id)
        ran = project.gert("resume", "--ready", "--json", GERT_APPROVAL_SIGNING_KEY=SHARED).ended(0)
    (done,) = json.loads(ran.out)
    first, second = (request.said["ticket_id"] for request in server.requests)
    assert (done["run_id"], done["status"], done["tickets"]) == (run_id, "waiting", [second])
    assert first != second
    assert of_type(project.run().events(), "approval_escalated")[0]["data"]["escalated_to"] == ["boss"]


def test_a_run_that_was_to_wait_is_detached_where_it_needs_the_next_approval(project: Project) -> None:
    project.runbook(note("one"), note("two"), governance=GATE)
    process = project.start("--wait", "--as", "ann")
    until(lambda: project.runs() and project.run().requests())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    project.gert("approve", "last", "--as", "bob").ended(0)
    (done,) = listed(project, "resume", "--ready")
    assert (done["status"], len(done["tickets"])) == ("waiting", 1)
    assert project.noted() == ["one"]


def test_an_answer_in_the_drop_box_makes_a_run_ready(project: Project) -> None:
    if os.name != "posix":
        pytest.skip("a drop box needs the rights of POSIX")
    trusted = {"GERT_APPROVAL_KEY_BOB": PUBLIC, "GERT_APPROVAL_OWNER_BOB": "bob"}
    project.write("gert-config.yaml", {"approvals": {"drop_box": "box"}})
    (project.root / "bob.key").write_text(SEED)
    project.runbook(note("write"), governance=GATE)
    project.exec("--detach", **trusted).ended(0)
    (ticket,) = project.run().requests()
    assert project.gert("resume", "--ready", **trusted).ended(0).out == "no run is ready to resume\n"
    project.gert("approve", ticket, "--drop-box", "box", "--as", "bob", "--key", "bob.key").ended(0)
    assert "completed" in project.gert("resume", "--ready", **trusted).ended(0).out
    assert project.noted() == ["write"]


def test_a_run_that_cannot_be_resumed_does_not_prevent_the_others(project: Project, tmp_path: Path) -> None:
    changed = detached(project, "one")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ("--state-dir", str(project.root), "--detach", "--json")
    gone = Project(elsewhere).gert("exec", project.root / "book.yaml", *words).ended(0).said["run_id"]
    fine = detached(project, "two", "--state-dir", str(project.root))
    for run_id in (changed, gone, fine):
        project.gert("approve", run_id, "--as", "bob").ended(0)
    for path in sorted(elsewhere.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    elsewhere.rmdir()
    ran = project.gert("resume", "--ready", "--json").ended(1)
    said = {each["run_id"]: (each["status"], each["reason"]) for each in json.loads(ran.out)}
    assert said[changed][0] == "error"
    assert "was changed since the run began" in (said[changed][1] or "")
    assert said[gone] == ("skipped", f"its folder `{elsewhere}` is not on this machine")
    assert said[fine] == ("completed", None)
    assert f"error: run `{changed}`: the runbook" in ran.err
    assert f"warning: run `{gone}` was skipped" in ran.err
    assert project.noted() == ["two"]


@contextmanager
def timer(project: Project) -> Iterator["subprocess.Popen[bytes]"]:
    """`gert resume --ready` as a process that a timer starts."""
    process = subprocess.Popen(
        [*GERT, "resume", "--ready", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project.root,
        env=environment(),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_run_that_another_process_drives_is_left_to_it(project: Project) -> None:
    gate = project.root / "gate"
    os.mkfifo(gate)
    project.note_tool("note", after=f"read line < {gate}")
    run_id = detached(project)
    project.gert("approve", run_id, "--as", "bob").ended(0)
    with timer(project) as first:
        until(project.noted)
        assert project.gert("resume", "--ready").ended(0).out == "no run is ready to resume\n"
        gate.write_text("go\n")
        ran = finish(first).ended(0)
    assert [each["status"] for each in json.loads(ran.out)] == ["completed"]
    assert project.noted() == ["hello"]


def test_two_timers_at_once_resume_each_run_once(project: Project) -> None:
    runs = [detached(project, "same") for _ in range(4)]
    for run_id in runs:
        project.gert("approve", run_id, "--as", "bob").ended(0)
    with timer(project) as first, timer(project) as second:
        said = [json.loads(finish(each).ended(0).out) for each in (first, second)]
    assert project.noted() == ["same"] * 4
    done = sorted(each["run_id"] for part in said for each in part if each["status"] == "completed")
    assert done == sorted(runs)
    assert {each["status"] for part in said for each in part} <= {"completed", "busy"}


@pytest.mark.parametrize(
    "words",
    [["last"], ["--run", "last"], ["--ticket", "x"], ["--reconcile", "retry"], ["--input", "a=b"], ["--wait"]],
    ids=lambda words: words[0],
)
def test_what_is_about_one_run_is_refused_with_ready(project: Project, words: list[str]) -> None:
    assert "expected `--ready` or" in project.gert("resume", "--ready", *words).ended(2).err
