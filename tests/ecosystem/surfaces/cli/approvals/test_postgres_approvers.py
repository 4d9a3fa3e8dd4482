"""Approvals on a shared Postgres ledger: a role for approvers that can respond and do nothing else."""

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import pytest
from tests.attacks.attack import Attack, table
from tests.attacks.test_approvals import ANN, OTHER, TRUSTED, guarded, guarded_tool
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, of_type
from tests.postgres import execute

DOCS = Path(__file__).parents[5] / "docs" / "approvals.md"
ROLE = "gert_approver"
GONE = f"""DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{ROLE}') THEN DROP OWNED BY {ROLE}; DROP ROLE {ROLE}; END IF;
END $$"""


def role_sql() -> list[str]:
    """The statements of the documentation."""
    [text] = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    return [each.strip() for each in text.split(";") if each.strip()]


class Shared(Project):
    """A project whose runs go to a Postgres ledger, and an approver with a role of their own."""

    def __init__(self, root: Path, dsn: str) -> None:
        super().__init__(root)
        self.dsn = dsn
        guarded_tool(self)
        guarded(self)

    def waiting(self) -> dict[str, Any]:
        """A run that waits, on a ledger that approvers may use."""
        said = self.owner("exec", self.root / "book.yaml", "--detach", "--json", "--as", "starter").ended(0).said
        execute(self.dsn, GONE, *role_sql())
        return said

    def owner(self, *words: str | Path, **environ: str) -> Ran:
        return self.gert(*words, "--dsn", "env:LEDGER", LEDGER=self.dsn, **{**TRUSTED, **environ})

    def approver(self, *words: str | Path, **environ: str) -> Ran:
        return self.gert(*words, "--dsn", "env:LEDGER", LEDGER=as_role(self.dsn), **environ)

    def resumed(self, run_id: str) -> dict[str, Any]:
        said: dict[str, Any] = self.owner("resume", "--run", run_id, "--detach", "--json").said
        return said

    def events(self, run_id: str) -> list[dict[str, Any]]:
        lines = self.owner("trace", "export", "--run", run_id).ended(0).out.splitlines()
        return [json.loads(line) for line in lines]


def as_role(dsn: str) -> str:
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(ROLE)}@{host}"))


@pytest.fixture
def shared(tmp_path: Path, dsn: str) -> Any:
    yield Shared(tmp_path / "project", dsn)
    execute(dsn, GONE)


SIGN = ("--as", "ann@x", "--key", "MINE", "--key-id", "ann")


def test_the_role_of_an_approver_lists_shows_and_approves(shared: Shared) -> None:
    run = shared.waiting()
    [ticket] = [each["ticket_id"] for each in run["pending"]]
    assert ticket in shared.approver("approvals", "list").ended(0).out
    assert "word: good" in shared.approver("approvals", "show", ticket[:-3]).ended(0).out
    shared.approver("approve", ticket, *SIGN, MINE=ANN).ended(0)
    assert shared.resumed(run["run_id"])["status"] == "completed"
    assert shared.noted() == ["good"]
    [resolved] = of_type(shared.events(run["run_id"]), "approval_resolved")
    assert (resolved["data"]["approver_id"], resolved["data"]["verified"]) == ("ann@x", True)
    [response] = of_type(shared.events(run["run_id"]), "approval_response")
    assert response["data"]["received_at"]


def test_the_role_of_an_approver_answers_all_tickets_of_a_run(shared: Shared) -> None:
    run = shared.waiting()
    shared.approver("approve", run["run_id"], "--all", *SIGN, MINE=ANN).ended(0)
    ran = shared.owner("resume", "--ready", "--json").ended(0)
    assert [(each["run_id"], each["status"]) for each in json.loads(ran.out)] == [(run["run_id"], "completed")]


def test_the_role_of_an_approver_rejects_without_a_key(shared: Shared) -> None:
    run = shared.waiting()
    shared.approver("reject", run["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    assert shared.resumed(run["run_id"])["status"] == "failed"
    assert shared.noted() == []


FORBIDDEN = [
    *(f"SELECT * FROM gert.{name}" for name in ("runs", "events", "answers", "calls", "documents", "output", "claims")),
    "SELECT body FROM gert.inbox",
    "UPDATE gert.tickets SET status = 'approved'",
    "DELETE FROM gert.tickets",
    "INSERT INTO gert.tickets SELECT * FROM gert.tickets",
    "DELETE FROM gert.inbox",
    "UPDATE gert.inbox SET taken = 1",
    "TRUNCATE gert.inbox",
    "INSERT INTO gert.inbox (run_id, kind, body, received_at) VALUES ('x', 'approval', '', '2000')",
    "INSERT INTO gert.inbox (run_id, kind, body, taken) VALUES ('x', 'approval', '', 1)",
    "INSERT INTO gert.events VALUES ('x', 1, '', '', NULL, '')",
    "UPDATE gert.runs SET status = 'completed'",
    "UPDATE gert.meta SET value = '9'",
    "CREATE TABLE gert.mine (x int)",
    "DROP TABLE gert.inbox",
]


def test_the_role_of_an_approver_can_do_nothing_else(shared: Shared) -> None:
    shared.waiting()

    async def attempt() -> list[str]:
        done = []
        connection = await asyncpg.connect(as_role(shared.dsn))
        try:
            for statement in FORBIDDEN:
                try:
                    await connection.execute(statement)
                except (asyncpg.InsufficientPrivilegeError, asyncpg.GeneratedAlwaysError):
                    continue
                done.append(statement)
        finally:
            await connection.close()
        return done

    assert asyncio.run(attempt()) == []


def test_without_a_key_to_verify_with_nothing_is_asked_on_a_shared_ledger(shared: Shared) -> None:
    said = shared.gert("exec", shared.root / "book.yaml", "--detach", "--dsn", "env:LEDGER", LEDGER=shared.dsn).ended(3)
    assert "a ledger that others can write to asks for signed answers" in said.out + said.err


# --- attempts of an approver, with SQL of their own


def inserted(shared: Shared, run: dict[str, Any], body: str, ticket: str | None = None) -> str:
    """Insert a message with the role of an approver, and return why the run refuses it."""
    ticket = ticket or run["pending"][0]["ticket_id"]

    async def insert() -> None:
        connection = await asyncpg.connect(as_role(shared.dsn))
        try:
            await connection.execute(
                "INSERT INTO gert.inbox (run_id, kind, body, ticket_id) VALUES ($1, 'approval', $2, $3)",
                run["run_id"],
                body.encode(),
                ticket,
            )
        finally:
            await connection.close()

    asyncio.run(insert())
    assert shared.resumed(run["run_id"])["status"] == "waiting"
    assert shared.noted() == []
    refused = of_type(shared.events(run["run_id"]), "approval_refused")
    return str(refused[-1]["data"]["objection"]) if refused else "nothing was taken"


def message(run: dict[str, Any], **changes: Any) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    ticket = run["pending"][0]
    said = {"ticket_id": ticket["ticket_id"], "approved": True, "approver_id": "ann@x", "timestamp": now, **changes}
    return json.dumps(said)


def unsigned(shared: Shared) -> str:
    run = shared.waiting()
    return inserted(shared, run, message(run))


def forged(shared: Shared) -> str:
    run = shared.waiting()
    return inserted(shared, run, message(run, signature="AAAA", signature_alg="ed25519", key_id="ann"))


def signed_by_another(shared: Shared) -> str:
    run = shared.waiting()
    shared.approver("approve", run["pending"][0]["ticket_id"], *SIGN, MINE=OTHER).ended(0)
    assert shared.resumed(run["run_id"])["status"] == "waiting"
    return str(of_type(shared.events(run["run_id"]), "approval_refused")[-1]["data"]["objection"])


def of_another_ticket(shared: Shared) -> str:
    run = shared.waiting()
    return inserted(shared, run, message(run, ticket_id="other-1"))


def oversized(shared: Shared) -> str:
    run = shared.waiting()
    return inserted(shared, run, "x" * 5_000_000)


def to_no_ticket(shared: Shared) -> str:
    run = shared.waiting()
    return inserted(shared, run, message(run), ticket="nothing")


SHARED_LEDGER = "on a ledger that others can write to, an approval needs a signature by a key with an owner"
ATTACKS = [
    Attack("an unsigned approval is inserted", SHARED_LEDGER, unsigned, "no valid signature"),  # type: ignore[arg-type]
    Attack("a forged signature is inserted", SHARED_LEDGER, forged, "no valid signature"),  # type: ignore[arg-type]
    Attack("another key signs in the name of a person", SHARED_LEDGER, signed_by_another, "is invalid"),  # type: ignore[arg-type]
    Attack("a response to another ticket is inserted", "it is bound", of_another_ticket, "for the ticket `other-1`"),  # type: ignore[arg-type]
    Attack("a message of five megabytes is inserted", "it is not read whole", oversized, "too long"),  # type: ignore[arg-type]
    Attack("a message about no ticket is inserted", "no run asks for it", to_no_ticket, "nothing was taken"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, shared: Shared) -> None:
    attack.fails(shared)
