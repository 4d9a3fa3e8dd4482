"""Attempts to have something else run than what was approved."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project, call, finish, note, of_type, snapshot, until

from gert.kernel.foundation.signature import parse_key
from gert.kernel.governance.approval_rules import UNSIGNED

GUARDED = {"rules": [{"writes": ["things"], "action": "require-approval"}, {"default": "allow"}]}
WRITES = {"effects": ["files"], "writes": ["things"], "idempotent": False}
NOTE = 'printf "%s\\n" "$1" >> "$2"'


def guarded_tool(project: Project, **more: Any) -> None:
    """The tool `guarded`, whose calls need approval; it notes its input."""
    argv = more.pop("argv", ["sh", "-c", NOTE, "sh", "{{ .word }}", str(project.effects)])
    inputs = more.pop("inputs", {"word": {"type": "string", "required": True}})
    project.tool("guarded", argv, contract={**WRITES, **more.pop("contract", {})}, inputs=inputs, **more)


def guarded(project: Project, word: str = "good", **meta: Any) -> None:
    """A runbook with one guarded step."""
    project.runbook(note("fix", word, tool="guarded"), tools=["guarded"], governance=GUARDED, **meta)


def started(project: Project, *words: str | Path, **environ: str) -> dict[str, Any]:
    return project.exec("--detach", "--json", *words, **environ).ended(0).said


def approved(project: Project, *words: str | Path, **environ: str) -> dict[str, Any]:
    """A run whose ticket is approved, and which has not gone on."""
    waiting = started(project, *words, **environ)
    for each in waiting["pending"]:
        project.gert("approve", each["ticket_id"], "--as", "bob").ended(0)
    return waiting


def asks_again(project: Project, before: dict[str, Any], *words: str | Path, **environ: str) -> str:
    """Resume a run: nothing runs, another ticket is open, and the record says why."""
    run_id = before["run_id"]
    said = project.gert("resume", "--run", run_id, "--detach", "--json", *words, **environ).ended(0).said
    assert said["status"] == "waiting", said
    tickets = {each["ticket_id"] for each in said["pending"]}
    assert not tickets & {each["ticket_id"] for each in before["pending"]}
    assert project.noted() == []
    [outdated] = of_type(project.run().events(), "approval_outdated")
    reason: str = outdated["data"]["reason"]
    return reason


def changed_tool(project: Project, **more: Any) -> str:
    guarded_tool(project)
    guarded(project)
    before = approved(project)
    guarded_tool(project, **more)
    return asks_again(project, before, "--allow-changed")


def argv_changed(project: Project) -> str:
    return changed_tool(project, argv=["sh", "-c", NOTE, "sh", "evil", str(project.effects)])


def stdin_changed(project: Project) -> str:
    return changed_tool(project, action={"stdin": "evil"})


def env_changed(project: Project) -> str:
    return changed_tool(project, action={"env": {"LD_PRELOAD": "evil.so"}})


def cwd_changed(project: Project) -> str:
    return changed_tool(project, action={"cwd": "/"})


def folder_behind_a_link(project: Project) -> str:
    """The folder of a command is a link that leads elsewhere after the approval."""
    for name in ("first", "second"):
        (project.root / name).mkdir()
    (project.root / "work").symlink_to("first")
    guarded_tool(project, action={"cwd": "work"})
    guarded(project)
    before = approved(project)
    (project.root / "work").unlink()
    (project.root / "work").symlink_to("second")
    return asks_again(project, before)


def end_of_a_long_command(project: Project) -> str:
    """The part that does harm stands far to the right."""
    guarded_tool(project)
    guarded(project, "A" * 5000 + "; rm -rf /;")
    [pending] = started(project)["pending"]
    return project.gert("approvals", "show", pending["ticket_id"]).ended(0).out


def preview_changed(project: Project) -> str:
    guarded_tool(project, action={"preview": {"argv": ["echo", "one"]}})
    guarded(project)
    before = approved(project)
    guarded_tool(project, action={"preview": {"argv": ["echo", "two"]}})
    return asks_again(project, before, "--allow-changed")


def comment_in_the_runbook(project: Project) -> str:
    guarded_tool(project)
    guarded(project)
    before = approved(project)
    guarded(project, "evil")
    return asks_again(project, before, "--allow-changed")


def manual(project: Project, instructions: str) -> None:
    step = {"id": "fix", "type": "manual", "instructions": instructions, "contract": {"writes": ["things"]}}
    project.runbook(step, governance=GUARDED, tools=[])


def instructions_changed(project: Project) -> str:
    manual(project, "press the green button")
    before = approved(project)
    manual(project, "press the red button")
    return asks_again(project, before, "--allow-changed")


def shown_otherwise(project: Project, **changes: Any) -> str:
    """The ticket is made to show something harmless."""
    guarded_tool(project, action={"preview": {"argv": ["echo", "all is lost"]}})
    guarded(project, "evil")
    [ticket] = started(project)["pending"]
    request = project.run().requests()[ticket["ticket_id"]]
    project.run().change("UPDATE tickets SET request = ?2 WHERE run_id = ?1", json.dumps({**request, **changes}))
    return project.gert("approve", ticket["ticket_id"], "--as", "bob").err


def another_command_shown(project: Project) -> str:
    return shown_otherwise(project, command={"program": "true", "arguments": []})


def no_note_shown(project: Project) -> str:
    return shown_otherwise(project, hidden={"word": "tool"})


def another_preview_command_shown(project: Project) -> str:
    return shown_otherwise(project, preview_command=["echo", "fine"])


def while_it_is_open(project: Project) -> str:
    """The tool changes while the ticket is open: the old ticket is closed, and cannot be approved any more."""
    guarded_tool(project)
    guarded(project)
    before = started(project)
    guarded_tool(project, argv=["sh", "-c", NOTE, "sh", "evil", str(project.effects)])
    reason = asks_again(project, before, "--allow-changed")
    project.gert("approve", before["pending"][0]["ticket_id"], "--as", "bob").ended(1)
    return reason


def secret_runbook(project: Project, **source: Any) -> None:
    guarded_tool(project)
    project.runbook(
        note("fix", "{{ .text }}", tool="guarded"),
        tools=["guarded"],
        governance=GUARDED,
        inputs={"text": {"type": "string", "secret": True, "required": True, **source}},
    )


def secret_given(project: Project) -> str:
    secret_runbook(project)
    good, evil = project.write("good.txt", "good-secret-1"), project.write("evil.txt", "evil-secret-2")
    before = approved(project, "--input", f"text=@{good}")
    return asks_again(project, before, "--input", f"text=@{evil}")


def secret_in_the_environment(project: Project) -> str:
    secret_runbook(project, **{"from": "env/TEXT"})
    before = approved(project, TEXT="good-secret-1")
    return asks_again(project, before, TEXT="evil-secret-2")


def secret_in_a_file(project: Project) -> str:
    secret_runbook(project, **{"from": "file/text.txt"})
    project.write("text.txt", "good-secret-1")
    before = approved(project)
    project.write("text.txt", "evil-secret-2")
    return asks_again(project, before)


def key_replaced(project: Project, key: bytes | None) -> str:
    """Replace the key under which secrets are compared."""
    secret_runbook(project, **{"from": "env/TEXT"})
    before = approved(project, TEXT="good-secret-1")
    project.run().change("UPDATE runs SET private = ?2 WHERE run_id = ?1", key)
    return asks_again(project, before, TEXT="good-secret-1")


def another_key(project: Project) -> str:
    return key_replaced(project, b"00" * 32)


def no_key(project: Project) -> str:
    return key_replaced(project, None)


def secret_of_the_tool(project: Project) -> str:
    """The tool calls its input secret: the kernel has the value, and the approver does not see it."""
    guarded_tool(project, inputs={"word": {"type": "string", "required": True, "secret": True}})
    guarded(project, "good")
    before = approved(project)
    guarded(project, "evil")
    reason = asks_again(project, before, "--allow-changed")
    request, other = project.run().requests().values()
    assert request["secrets"]["word"] != other["secrets"]["word"]
    assert "good" not in json.dumps(request["command"])
    return reason


def program(folder: Path, word: str, effects: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "fixit"
    file.write_text(f'#!/bin/sh\nprintf "%s\\n" {word} >> {effects}\n')
    file.chmod(0o755)
    return file


def with_program(project: Project, name: str = "fixit") -> None:
    guarded_tool(project, argv=[name, "{{ .word }}"])
    guarded(project)


def another_path(project: Project) -> str:
    good, evil = (program(project.root / each, each, project.effects).parent for each in ("good", "evil"))
    with_program(project)
    before = approved(project, PATH=f"{good}:{os.environ['PATH']}")
    return asks_again(project, before, PATH=f"{evil}:{good}:{os.environ['PATH']}")


def another_link(project: Project) -> str:
    for each in ("good", "evil"):
        program(project.root / each, each, project.effects)
    link = project.root / "bin" / "fixit"
    link.parent.mkdir()
    link.symlink_to(project.root / "good" / "fixit")
    with_program(project)
    path = f"{link.parent}:{os.environ['PATH']}"
    before = approved(project, PATH=path)
    link.unlink()
    link.symlink_to(project.root / "evil" / "fixit")
    return asks_again(project, before, PATH=path)


def another_linked_folder(project: Project) -> str:
    for each in ("good", "evil"):
        program(project.root / each, each, project.effects)
    link = project.root / "current"
    link.symlink_to(project.root / "good")
    with_program(project, "./current/fixit")
    before = approved(project)
    link.unlink()
    link.symlink_to(project.root / "evil")
    return asks_again(project, before)


def between_approval_and_start(project: Project) -> str:
    """One process waits for the approval; its program is replaced before it is given."""
    for each in ("good", "evil"):
        program(project.root / each, each, project.effects)
    link = project.root / "current"
    link.symlink_to(project.root / "good")
    with_program(project, "./current/fixit")
    process = project.start("--wait")
    try:
        until(lambda: project.runs() and of_type(project.run().events(), "approval_submitted"))
        [ticket] = project.run().requests()
        link.unlink()
        link.symlink_to(project.root / "evil")
        # Where the run looks only now, it has withdrawn the ticket, and the answer does not count.
        project.gert("approve", ticket, "--as", "bob")
        until(lambda: of_type(project.run().events(), "approval_outdated"))
    finally:
        process.terminate()
        finish(process)
    assert project.noted() == []
    [outdated] = of_type(project.run().events(), "approval_outdated")
    reason: str = outdated["data"]["reason"]
    return reason


def rejected(project: Project, before: dict[str, Any], *words: str | Path, **environ: str) -> str:
    """Reject the first open ticket and resume: the step fails, nothing runs, and the rejection is on record."""
    project.gert("reject", before["pending"][0]["ticket_id"], "--as", "bob", "--reason", "not today").ended(0)
    said = project.gert("resume", "--run", before["run_id"], "--detach", "--json", *words, **environ).ended(3).said
    assert said["status"] == "failed", said
    assert project.noted() == []
    events = project.run().events()
    [response] = [each["data"] for each in of_type(events, "approval_response") if not each["data"]["approved"]]
    assert response["approver_id"] == "bob"
    assert response["ticket_id"] == before["pending"][0]["ticket_id"]
    assert len(of_type(events, "approval_submitted")) == 1
    project.verifies()
    return str(of_type(events, "approval_resolved")[0]["data"]["reason"])


def rejected_then_another_path(project: Project) -> str:
    good, evil = (program(project.root / each, each, project.effects).parent for each in ("good", "evil"))
    with_program(project)
    before = started(project, PATH=f"{good}:{os.environ['PATH']}")
    return rejected(project, before, PATH=f"{evil}:{good}:{os.environ['PATH']}")


def rejected_then_changed_tool(project: Project) -> str:
    guarded_tool(project)
    guarded(project)
    before = started(project)
    guarded_tool(project, argv=["sh", "-c", NOTE, "sh", "evil", str(project.effects)])
    return rejected(project, before, "--allow-changed")


def rejected_then_changed_secret(project: Project) -> str:
    secret_runbook(project, **{"from": "env/TEXT"})
    before = started(project, TEXT="good-secret-1")
    return rejected(project, before, TEXT="evil-secret-2")


def approved_then_rejected_then_changed(project: Project) -> str:
    """One of two approvals was given before the rejection."""
    two = {"rules": [{"writes": ["things"], "action": "require-approval", "min_approvers": 2}, {"default": "allow"}]}
    guarded_tool(project)
    project.runbook(note("fix", "good", tool="guarded"), tools=["guarded"], governance=two)
    before = started(project)
    project.gert("approve", before["pending"][0]["ticket_id"], "--as", "ann").ended(0)
    guarded_tool(project, action={"stdin": "evil"})
    reason = rejected(project, before, "--allow-changed")
    assert [each["data"]["approver_id"] for each in of_type(project.run().events(), "approval_response")] == [
        "ann",
        "bob",
    ]
    return reason


def rejected_then_fewer_needed(project: Project) -> str:
    """A policy asks for two approvals; after one and a rejection, it asks for one."""

    def policy(needed: int) -> Path:
        rule = {"writes": ["things"], "action": "require-approval", "min_approvers": needed}
        governance = {"rules": [rule, {"default": "allow"}]}
        document = {"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": governance}
        return project.write("floor.policy.yaml", document)

    guarded_tool(project)
    guarded(project)
    before = started(project, "--policy", policy(2))
    project.gert("approve", before["pending"][0]["ticket_id"], "--as", "ann").ended(0)
    policy(1)
    return rejected(project, before, "--allow-changed")


ANN = "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
OTHER = "ed25519:bWFsbG9yeSBoYXMgYSBrZXkgb2YgaGVyIG93biwgdG8="
TRUSTED = {"GERT_APPROVAL_KEY_ANN": parse_key(ANN).public_text or "", "GERT_APPROVAL_OWNER_ANN": "ann@x"}


def another_key_closes_the_ticket(project: Project, verb: str, key_id: str, trusted: dict[str, str]) -> str:
    """Ann's name is signed with another key where none can verify it; then Ann approves, here or on her machine."""
    guarded_tool(project)
    guarded(project)
    before = started(project, **TRUSTED)
    [ticket] = [each["ticket_id"] for each in before["pending"]]

    def answered(verb: str, key: str, key_id: str, **environ: str) -> dict[str, Any]:
        words = ("--as", "ann@x", "--key", "KEY", "--key-id", key_id, "--json")
        return project.gert(verb, ticket, *words, KEY=key, **environ).ended(0).said

    first = answered(verb, OTHER, key_id)
    assert (first["signature_checked_here"], first["status"], first["approvals"]) == (False, "pending", 0)
    waiting = project.gert("resume", "--run", before["run_id"], "--detach", "--json", **TRUSTED).ended(0).said
    assert waiting["status"] == "waiting"
    assert project.noted() == []
    answered("approve", ANN, "ann", **trusted)
    assert project.gert("resume", "--run", before["run_id"], "--json", **TRUSTED).ended(0).said["status"] == "completed"
    assert project.noted() == ["good"]
    events = project.run().events()
    assert of_type(events, "approval_resolved")[0]["data"]["verified"]
    return str(of_type(events, "approval_refused")[0]["data"]["objection"])


def wrong_key_of_the_same_id(project: Project) -> str:
    return another_key_closes_the_ticket(project, "approve", "ann", TRUSTED)


def wrong_key_of_another_id(project: Project) -> str:
    return another_key_closes_the_ticket(project, "approve", "other", TRUSTED)


def wrong_key_rejects(project: Project) -> str:
    return another_key_closes_the_ticket(project, "reject", "other", TRUSTED)


def wrong_key_before_another_unverified(project: Project) -> str:
    return another_key_closes_the_ticket(project, "approve", "ann", {})


def approval_dropped(project: Project) -> str:
    """The approval of a ticket that is outdated is on record, with the reason why it does not count."""
    guarded_tool(project)
    guarded(project)
    before = approved(project)
    guarded_tool(project, action={"stdin": "evil"})
    asks_again(project, before, "--allow-changed")
    [refused] = of_type(project.run().events(), "approval_refused")
    assert refused["data"]["approved"]
    assert refused["data"]["approver_id"] == "bob"
    assert refused["data"]["ticket_id"] == before["pending"][0]["ticket_id"]
    return str(refused["data"]["objection"])


def ticket_of_the_rejection_removed(project: Project) -> str:
    """The ticket is rejected and its row removed; then the tool changes."""
    guarded_tool(project)
    guarded(project)
    before = started(project)
    project.gert("reject", before["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    project.run().change("DELETE FROM tickets WHERE run_id = ?1")
    guarded_tool(project, action={"stdin": "evil"})
    said = project.gert("resume", "--run", before["run_id"], "--detach", "--allow-changed").ended(1)
    assert project.noted() == []
    return said.err


def after_a_crash(project: Project) -> str:
    """The approval is on record, the call is announced and has no result; then the tool changes."""
    guarded_tool(project, argv=["sh", "-c", "kill -9 $PPID"])
    guarded(project)
    before = approved(project)
    project.gert("resume", "--run", before["run_id"])
    guarded_tool(project, argv=["sh", "-c", NOTE, "sh", "evil", str(project.effects)])
    return asks_again(project, before, "--allow-changed", "--reconcile", "retry")


def lanes(project: Project, first: dict[str, Any]) -> dict[str, Any]:
    """Two lanes: a guarded call that was cut off, and a call beside it."""
    crash = f"if [ ! -e {project.root}/crashed ]; then touch {project.root}/crashed; kill -9 $PPID; sleep 5; fi; {NOTE}"
    guarded_tool(
        project,
        argv=["sh", "-c", crash, "sh", "{{ .word }}", str(project.effects)],
        contract={"idempotent": True},
    )
    steps = {"type": "parallel", "id": "both"}
    branches = [{"steps": [first]}, {"steps": [note("beside", tool="note")]}]
    project.runbook({**steps, "branches": branches}, tools=["guarded", "note"], governance=GUARDED)
    before = approved(project)
    project.gert("resume", "--run", before["run_id"])
    assert (project.root / "crashed").exists()
    assert project.noted() == ["beside"]
    return before


def rerun_of_a_sibling(project: Project, first: dict[str, Any] | None = None) -> str:
    before = lanes(project, first or note("fix", "good", tool="guarded"))
    project.gert("run", "abandon", before["run_id"], "--reason", "test")
    said = project.gert("rerun", "--run", before["run_id"], "--from", "beside", "--detach", "--json").ended(0).said
    assert "good" not in project.noted()
    assert said["status"] == "waiting"
    again = project.runs()[-1]
    [submitted] = of_type(again.events(), "approval_submitted")
    assert submitted["data"]["ticket_id"] != before["pending"][0]["ticket_id"]
    assert not of_type(again.events(), "approval_resolved")
    return f"{said['pending'][0]['step_id']} is asked again"


def rerun_between_attempts(project: Project) -> str:
    """The approved step has failed once and waits for its next attempt when the run is stopped."""
    step = note("fix", "good", tool="guarded", retry={"max": 1, "backoff": "0s"})
    return rerun_of_a_sibling(project, step)


def rerun_from_the_step(project: Project) -> str:
    guarded_tool(project)
    guarded(project)
    before = approved(project)
    project.gert("resume", "--run", before["run_id"]).ended(0)
    said = project.gert("rerun", "--run", before["run_id"], "--from", "fix", "--detach", "--json").ended(0).said
    assert project.noted() == ["good"]
    return f"{said['status']}: {said['pending'][0]['step_id']}"


def rerun_from_after_the_step(project: Project) -> str:
    """What was approved and done is not done again, and needs no approval."""
    guarded_tool(project)
    project.runbook(note("fix", "good", tool="guarded"), note("then"), tools=["guarded", "note"], governance=GUARDED)
    before = approved(project)
    project.gert("resume", "--run", before["run_id"]).ended(0)
    said = project.gert("rerun", "--run", before["run_id"], "--from", "then", "--detach", "--json").ended(0).said
    assert project.noted() == ["good", "then", "then"]
    return str(said["status"])


def items(project: Project) -> dict[str, Any]:
    guarded_tool(project)
    loop = {"over": ["one", "two"], "as": "item", "parallel": True}
    project.runbook(note("fix", "{{ .item }}", tool="guarded", for_each=loop), tools=["guarded"], governance=GUARDED)
    return started(project)


def ticket_of_another_item(project: Project) -> str:
    """The answer to one item's ticket is put into the other's."""
    first, second = (each["ticket_id"] for each in items(project)["pending"])
    project.gert("approve", first, "--as", "bob").ended(0)
    [given] = project.run().inbox()
    project.run().post(second, given)
    run_id = project.run().folder.name
    said = project.gert("resume", "--run", run_id, "--detach", "--json").ended(0).said
    assert [each["ticket_id"] for each in said["pending"]] == [second]
    assert len(project.noted()) == 1
    return project.gert("approvals", "show", second).out


def approved_item_only(project: Project) -> str:
    tickets = {each["step_id"]: each["ticket_id"] for each in items(project)["pending"]}
    first, second = tickets["fix[0]"], tickets["fix[1]"]
    project.gert("approve", second, "--as", "bob").ended(0)
    run_id = project.run().folder.name
    said = project.gert("resume", "--run", run_id, "--detach", "--json").ended(0).said
    assert [each["ticket_id"] for each in said["pending"]] == [first]
    assert project.noted() == ["two"]
    return str(said["status"])


def between_retries(project: Project) -> str:
    """The first attempt of an approved step replaces the tool's program; the second one needs another approval."""
    for each in ("good", "evil"):
        program(project.root / each, each, project.effects)
    link = project.root / "current"
    link.symlink_to(project.root / "good")
    (project.root / "good" / "fixit").write_text(f"#!/bin/sh\nln -sfn {project.root}/evil {link}\nexit 1\n")
    guarded_tool(project, argv=["./current/fixit"], contract={"idempotent": True})
    step = note("fix", "good", tool="guarded", retry={"max": 2})
    project.runbook(step, tools=["guarded"], governance=GUARDED)
    before = approved(project)
    return asks_again(project, before)


def redacted_by_the_runbook(project: Project) -> str:
    secret_runbook(project, **{"from": "env/TEXT"})
    waiting = started(project, TEXT="good-secret-1")
    return project.gert("approvals", "show", waiting["pending"][0]["ticket_id"]).ended(0).out


def redacted_by_the_step(project: Project) -> str:
    guarded_tool(project)
    step = note("fix", "good", tool="guarded", contract={"inputs": {"word": {"type": "string", "secret": True}}})
    project.runbook(step, tools=["guarded"], governance=GUARDED)
    waiting = started(project)
    return project.gert("approvals", "show", waiting["pending"][0]["ticket_id"]).ended(0).out


def key_in_the_record(project: Project) -> str:
    """A tool prints the ledger of its own run; the key in it is in no event, answer, ticket or export."""
    project.script("spy", "cat runs/ledger.db* | tr -cd '[:print:]'", extract={"all": {"from": "stdout"}})
    guarded_tool(project)
    project.runbook(
        call("look", "spy"),
        note("fix", "{{ .text }}", tool="guarded"),
        tools=["guarded", "spy"],
        governance=GUARDED,
        inputs={"text": {"type": "string", "secret": True, "from": "env/TEXT"}},
    )
    before = started(project, TEXT="good-secret-1")
    run = project.run()
    ((key,),) = run.rows("SELECT private FROM runs WHERE run_id = ?1")
    assert len(key) == 64
    assert not [line for line in run.lines() if key in line]
    assert key.decode() not in json.dumps(run.answers())
    assert before["run_id"] in json.dumps(run.answers()[0]), "the tool has not seen the ledger"
    kept = [name for name in snapshot(project.root) if key in (project.root / name).read_bytes()]
    assert kept == [str(run.ledger.relative_to(project.root))]
    assert run.ledger.stat().st_mode & 0o077 == 0
    assert key.decode() not in project.gert("run", "export", before["run_id"]).ended(0).out
    assert key.decode() not in project.gert("run", "show", before["run_id"], "--json").out
    return f"{len(kept)} place"


SAME = "what was approved is exactly what is started"
SECRET = "a secret input is bound by an HMAC under a key of the run"
TOLD = "what the approver cannot see, the approver is told about"
FILE = "the runbook, the tool file, the command or an input differs from the request"
NO = "a rejection fails the step, whatever changes after it"
BOB = "rejected by `bob`: not today"
KEPT = "an answer that cannot be verified here is kept, and decides nothing before the run has verified it"
SHOWN = "what an approver sees is what the hash covers"
OTHERWISE = "shows something else than what would run"
ATTACKS = [
    Attack(
        "the folder of an approved command is exchanged behind a link",
        why="an approval binds where the command runs",
        attempt=folder_behind_a_link,
        reason="the folder of `sh` was",
    ),
    Attack(
        "harm stands beyond the 2,000th character of a command",
        why="approvers see exactly what would run",
        attempt=end_of_a_long_command,
        reason="AAA; rm -rf /;",
    ),
    Attack("`argv` of the tool is changed after the approval", SAME, argv_changed, FILE),
    Attack("`stdin` of the action is changed after the approval", SAME, stdin_changed, FILE),
    Attack("`env` of the action is changed after the approval", SAME, env_changed, FILE),
    Attack("`cwd` of the action is changed after the approval", SAME, cwd_changed, FILE),
    Attack("the preview is changed after the approval", SAME, preview_changed, FILE),
    Attack("the runbook hands over another input after the approval", SAME, comment_in_the_runbook, FILE),
    Attack("the instructions of a manual step are changed after the approval", SAME, instructions_changed, FILE),
    Attack("a ticket shows another command than the one that would run", SHOWN, another_command_shown, OTHERWISE),
    Attack("a ticket leaves out who hides an input", SHOWN, no_note_shown, OTHERWISE),
    Attack("a ticket shows another preview command", SHOWN, another_preview_command_shown, OTHERWISE),
    Attack("the tool is changed while its ticket is open", SAME, while_it_is_open, FILE),
    Attack("a secret input is swapped with --input", SECRET, secret_given, "the secret input `word`"),
    Attack(
        "a secret input is swapped in the environment", SECRET, secret_in_the_environment, "the secret input `word`"
    ),
    Attack("a secret input is swapped in its file", SECRET, secret_in_a_file, "the secret input `word`"),
    Attack("an input that the tool calls secret is swapped", SECRET, secret_of_the_tool, FILE),
    Attack("the key of the run is replaced", SECRET, another_key, "the secret input `word`"),
    Attack("the key of the run is removed", SECRET, no_key, "the secret input `word`"),
    Attack("PATH finds another program", SAME, another_path, "was found at"),
    Attack("the program is a link that is pointed elsewhere", SAME, another_link, "was found at"),
    Attack(
        "the folder of the program is a link that is pointed elsewhere", SAME, another_linked_folder, "was found at"
    ),
    Attack("the program is replaced between approval and start", SAME, between_approval_and_start, "was found at"),
    Attack("PATH finds another program after a rejection", NO, rejected_then_another_path, BOB),
    Attack("the tool is changed after a rejection", NO, rejected_then_changed_tool, BOB),
    Attack("a secret input is swapped after a rejection", NO, rejected_then_changed_secret, BOB),
    Attack("the action is changed after an approval and a rejection", NO, approved_then_rejected_then_changed, BOB),
    Attack("the policy needs fewer approvals after a rejection", NO, rejected_then_fewer_needed, BOB),
    Attack("the tool is changed and the ticket of a rejection removed", NO, ticket_of_the_rejection_removed, "ticket"),
    Attack(
        "an approval leaves no trace because its ticket is outdated",
        "every response is on record",
        approval_dropped,
        f"what would run has changed: {FILE}",
    ),
    Attack("an approval with another key of the same id closes the ticket", KEPT, wrong_key_of_the_same_id, UNSIGNED),
    Attack("an approval with an unknown key closes the ticket", KEPT, wrong_key_of_another_id, UNSIGNED),
    Attack("a rejection with an unknown key closes the ticket", KEPT, wrong_key_rejects, UNSIGNED),
    Attack("an unverified approval keeps out another one", KEPT, wrong_key_before_another_unverified, UNSIGNED),
    Attack("the tool is changed after a crash, and the call is retried", SAME, after_a_crash, FILE),
    Attack("the first attempt replaces the program for the second", SAME, between_retries, "was found at"),
    Attack(
        "a rerun from a sibling lane runs an approved call under the old approval",
        "a rerun takes recorded answers, never approvals for calls it makes live",
        rerun_of_a_sibling,
        "fix is asked again",
    ),
    Attack(
        "a rerun from a sibling lane retries an approved call under the old approval",
        "a rerun takes recorded answers, never approvals for calls it makes live",
        rerun_between_attempts,
        "fix is asked again",
    ),
    Attack(
        "a rerun from the approved step runs it under the old approval",
        "a rerun takes recorded answers, never approvals for calls it makes live",
        rerun_from_the_step,
        "waiting: fix",
    ),
    Attack(
        "a rerun from after the approved step runs it again",
        "recorded answers are taken over",
        rerun_from_after_the_step,
        "completed",
    ),
    Attack(
        "the answer for one item is put into the ticket of another",
        "an answer is for one ticket",
        ticket_of_another_item,
        "not counted",
    ),
    Attack("an approval of one item lets the others run", "an answer is for one ticket", approved_item_only, "waiting"),
    Attack(
        "a runbook hides an input from the approver",
        TOLD,
        redacted_by_the_runbook,
        "[REDACTED] (marked secret by the runbook, not by the tool)",
    ),
    Attack(
        "a step's own contract hides an input from the approver",
        TOLD,
        redacted_by_the_step,
        "[REDACTED] (marked secret by the runbook, not by the tool)",
    ),
    Attack("a tool prints the key of its run", "the key is in no event", key_in_the_record, "1 place"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)
