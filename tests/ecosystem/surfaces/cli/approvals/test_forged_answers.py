"""Answers that somebody slips into a ledger without a key, with a head to match: what they can be made to say."""

import json
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, call, note

from gert.kernel.ledger.record import hash_answer

SEED = "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
OTHER = "ed25519:enl4d3Z1dHNycXBvbm1sa2ppaGdmZWRjYmFaWVhXVlU="
SIGNED = {
    "rules": [{"effects": ["restart"], "action": "require-approval"}, {"default": "allow"}],
    "require_signed_approvals": True,
}


class Signed(Project):
    """A project in which a restart needs a signed approval; its runs are in the usual ledger or in another."""

    def __init__(self, root: Path, *, in_database: bool) -> None:
        super().__init__(root)
        self.note_tool("restart", contract={"effects": ["restart"]})
        self.script("dies", f"test -e {root}/mended || kill -9 $PPID")
        self.place = ("--db", str(root / "runs.db")) if in_database else ()

    def on(self, *words: str, **environ: str) -> Ran:
        return self.gert(*words, *self.place, **{"GERT_APPROVAL_KEY_BOB": SEED, **environ})

    def waiting(self, *more: dict[str, Any]) -> tuple[str, str]:
        """A run that waits for a signed approval, and its ticket."""
        steps = (note("first"), note("second", tool="restart"), *more)
        self.runbook(*steps, tools=("note", "restart", "dies"), governance=SIGNED)
        said = self.on("exec", str(self.root / "book.yaml"), "--detach", "--json").ended(0).said
        return said["run_id"], said["pending"][0]["ticket_id"]

    def approve(self, ticket: str) -> None:
        name = "GERT_APPROVAL_KEY_BOB"
        self.gert("approve", ticket, "--as", "bob", "--key", name, *self.place, **{name: SEED}).ended(0)

    @property
    def ledger(self) -> Path:
        return Path(self.place[1]) if self.place else self.root / "runs" / "ledger.db"

    def answers(self, run_id: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.ledger)) as database:
            rows = database.execute("SELECT line FROM answers WHERE run_id = ? ORDER BY n", [run_id]).fetchall()
        return [json.loads(line) for (line,) in rows]

    def slip_in(self, run_id: str, *entries: dict[str, Any]) -> None:
        """Put answers after the last one, and let the head say so: no event names them yet."""
        with closing(sqlite3.connect(self.ledger, isolation_level=None)) as database:
            count, total = database.execute(
                "SELECT answers, answers_hash FROM runs WHERE run_id = ?", [run_id]
            ).fetchone()
            for number, line in enumerate((json.dumps(entry).encode() for entry in entries), start=count + 1):
                database.execute("INSERT INTO answers (run_id, n, line) VALUES (?, ?, ?)", [run_id, number, line])
                total = hash_answer(total, line)
            changed = [count + len(entries), total, run_id]
            database.execute("UPDATE runs SET answers = ?, answers_hash = ? WHERE run_id = ?", changed)


@pytest.fixture(params=[False, True], ids=["in the state directory", "in a database"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Signed:
    return Signed(tmp_path, in_database=request.param)


def approval(**more: Any) -> dict[str, Any]:
    moment = (datetime.now(UTC) + timedelta(seconds=1)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    response = {"approver": "bob", "approved": True, "timestamp": moment, **more}
    return {"key": "second#2", "answer": {"kind": "approval", "responses": [response]}}


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param({"verified": True}, id="it says that it was checked"),
        pytest.param({"scripted": True}, id="it says that it is of a scenario"),
        pytest.param({"verified": True, "key_id": "bob", "signature_alg": "ed25519"}, id="it names a key"),
        pytest.param(
            {"verified": True, "key_id": "bob", "signature_alg": "ed25519", "signature": "QUJD" * 22},
            id="its signature is none",
        ),
        pytest.param(
            {"verified": True, "key_id": "default", "signature_alg": "hmac-sha256", "signature": "ab" * 32},
            id="it is of another algorithm",
        ),
    ],
)
def test_an_unsigned_approval_opens_nothing(project: Signed, claim: dict[str, Any]) -> None:
    run_id, _ = project.waiting()
    project.slip_in(run_id, approval(**claim))
    ran = project.on("resume", "--run", run_id, "--detach").ended(1)
    assert "whose signature does not hold" in ran.err
    assert project.noted() == ["first"]


def test_an_approval_that_is_not_said_to_be_signed_does_not_count(project: Signed) -> None:
    run_id, _ = project.waiting()
    project.slip_in(run_id, approval())
    project.on("resume", "--run", run_id, "--detach").ended(3)
    assert project.noted() == ["first"]


def killed_after_approval(project: Signed) -> str:
    run_id, ticket = project.waiting(call("last", "dies"))
    project.approve(ticket)
    project.on("resume", "--run", run_id, "--detach").ended(-signal.SIGKILL)
    (project.root / "mended").touch()
    return run_id


def test_an_approval_that_was_signed_is_heard_again_and_holds(project: Signed) -> None:
    run_id = killed_after_approval(project)
    project.on("resume", "--run", run_id, "--detach").ended(0)
    assert project.noted() == ["first", "second"]
    project.on("run", "verify", run_id).ended(0)


def test_without_the_key_it_was_checked_with_an_approval_does_not_hold(project: Signed) -> None:
    run_id = killed_after_approval(project)
    ran = project.on("resume", "--run", run_id, "--detach", GERT_APPROVAL_KEY_BOB=OTHER).ended(1)
    assert "whose signature does not hold" in ran.err
    assert "set the keys" in ran.err


def test_a_signature_for_another_ticket_is_none_for_this_one(project: Signed) -> None:
    run_id, ticket = project.waiting(note("third", tool="restart"))
    project.approve(ticket)
    project.on("resume", "--run", run_id, "--detach").ended(0)
    (genuine,) = [each for each in project.answers(run_id) if each["answer"]["kind"] == "approval"]
    response = {**genuine["answer"]["responses"][0], "ticket_id": "", "request_hash": ""}
    project.slip_in(run_id, {"key": "third#2", "answer": {"kind": "approval", "responses": [response]}})
    assert "whose signature does not hold" in project.on("resume", "--run", run_id, "--detach").ended(1).err
    assert project.noted() == ["first", "second"]


def test_abandoning_the_run_does_not_seal_what_was_slipped_in(project: Signed) -> None:
    run_id, _ = project.waiting()
    project.slip_in(run_id, approval(verified=True))
    out = project.on("run", "abandon", run_id, "--reason", "odd").ended(0).out
    assert "the record was closed without replaying it" in out
    exported = project.on("run", "export", run_id).ended(0).out
    assert "approval_resolved" not in exported
    project.on("run", "verify", run_id).ended(0)


def test_a_new_run_takes_no_approval_that_cannot_be_checked_and_does_not_begin(project: Signed) -> None:
    run_id = killed_after_approval(project)
    project.on("resume", "--run", run_id, "--detach").ended(0)
    before = project.on("run", "list", "--json").ended(0).out
    ran = project.on("rerun", "--run", run_id, "--from", "last", GERT_APPROVAL_KEY_BOB=OTHER).ended(1)
    assert "whose signature does not hold" in ran.err
    assert project.on("run", "list", "--json").ended(0).out == before
    project.on("rerun", "--run", run_id, "--from", "last").ended(0)
    assert project.noted() == ["first", "second"]
