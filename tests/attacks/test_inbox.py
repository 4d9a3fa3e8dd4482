"""Attempts to approve with messages that gert did not write, and to take messages away."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.attacks.test_approvals import ANN, GUARDED, TRUSTED, guarded_tool, started
from tests.ecosystem.surfaces.cli.workbench import Project, note, of_type

BOUND = "a response is bound to one ticket and one request"
SIGNED = "an approval that claims a signature needs one that holds"
ONCE = "`min_approvers` counts people, and a message is taken once"
CHAIN = "what the run took is in the chain, and its tickets follow from it"
TWO = {"rules": [{"writes": ["things"], "action": "require-approval", "min_approvers": 2}, {"default": "allow"}]}
SIGN = ("--as", "ann@x", "--key", "MINE", "--key-id", "ann")


def waiting(project: Project, governance: dict[str, Any] | None = None) -> str:
    """A run that waits for approval; its ticket."""
    guarded_tool(project)
    project.runbook(note("fix", "good", tool="guarded"), tools=["guarded"], governance=governance or GUARDED)
    ticket: str = started(project, **TRUSTED)["pending"][0]["ticket_id"]
    return ticket


def said(ticket: str, **changes: Any) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"ticket_id": ticket, "approved": True, "approver_id": "bob", "timestamp": now, **changes}


def refused(project: Project, ticket: str, *bodies: Any, received_at: str | None = None) -> str:
    """Insert messages; the run refuses the last one, waits on, and runs nothing."""
    for body in bodies:
        project.run().post(ticket, body, received_at)
    run = project.run().id
    assert project.gert("resume", "--run", run, "--detach", "--json", **TRUSTED).ended(0).said["status"] == "waiting"
    assert project.noted() == []
    project.gert("run", "verify-ledger", run).ended(0)
    return str(of_type(project.run().events(), "approval_refused")[-1]["data"]["objection"])


def forged(project: Project) -> str:
    ticket = waiting(project)
    forgery = {"signature": "AAAA", "signature_alg": "ed25519", "key_id": "ann"}
    return refused(project, ticket, said(ticket, approver_id="ann@x", **forgery))


def flipped(project: Project) -> str:
    """A signed rejection is turned into an approval."""
    ticket = waiting(project)
    project.gert("reject", ticket, *SIGN, MINE=ANN, **TRUSTED).ended(0)
    [signed] = project.run().inbox()
    project.run().change("DELETE FROM inbox WHERE run_id = ?1")
    return refused(project, ticket, {**signed, "approved": True})


def replayed(project: Project) -> str:
    """One signed approval is inserted twice where two people have to approve."""
    ticket = waiting(project, TWO)
    project.gert("approve", ticket, *SIGN, MINE=ANN, **TRUSTED).ended(0)
    [signed] = project.run().inbox()
    return refused(project, ticket, signed)


def taken_again(project: Project) -> str:
    """A message that was taken is marked as untaken."""
    ticket = waiting(project, TWO)
    project.gert("approve", ticket, "--as", "bob").ended(0)
    run = project.run().id
    project.gert("resume", "--run", run, "--detach", **TRUSTED).ended(0)
    project.run().change("UPDATE inbox SET taken = NULL WHERE run_id = ?1")
    return refused(project, ticket)


def late(project: Project) -> str:
    """The ledger received it after the timeout; it names a time before."""
    ticket = waiting(project)
    later = (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return refused(project, ticket, said(ticket), received_at=later)


def prepared(project: Project) -> str:
    ticket = waiting(project)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return refused(project, ticket, said(ticket, timestamp=tomorrow))


def of_another_ticket(project: Project) -> str:
    ticket = waiting(project)
    return refused(project, ticket, said("another-run-0123"))


def of_another_ledger(project: Project) -> str:
    """An approval that was signed for a run of another ledger is inserted into this one."""
    other = Project(project.root.parent / "other")
    elsewhere = waiting(other)
    other.gert("approve", elsewhere, *SIGN, MINE=ANN, **TRUSTED).ended(0)
    [signed] = other.run().inbox()
    ticket = waiting(project)
    return refused(project, ticket, {**signed, "ticket_id": ticket})


def of_another_request(project: Project) -> str:
    ticket = waiting(project)
    return refused(project, ticket, said(ticket, request_hash="sha256:" + "0" * 64))


def oversized(project: Project) -> str:
    ticket = waiting(project)
    return refused(project, ticket, b"x" * 20_000_000)


def no_json(project: Project) -> str:
    ticket = waiting(project)
    return refused(project, ticket, b"\xff\x00[")


def rejection_by_no_one(project: Project) -> str:
    ticket = waiting(project)
    return refused(project, ticket, said(ticket, approved=False, approver_id=""))


def odd_time(project: Project) -> str:
    ticket = waiting(project)
    return refused(project, ticket, said(ticket), received_at="yesterday")


def edited(project: Project, statement: str) -> str:
    """A change of what the ledger derives is found, and the run is not resumed."""
    ticket = waiting(project, TWO)
    project.gert("approve", ticket, "--as", "bob").ended(0)
    run = project.run().id
    project.gert("resume", "--run", run, "--detach", **TRUSTED).ended(0)
    project.run().change(f"{statement} WHERE run_id = ?1")
    ran = project.gert("resume", "--run", run, "--detach", **TRUSTED).ended(1)
    assert project.noted() == []
    return ran.err


def marked_approved(project: Project) -> str:
    return edited(project, "UPDATE tickets SET status = 'approved'")


def response_added(project: Project) -> str:
    return edited(project, "UPDATE tickets SET responses = responses || responses")


def request_replaced(project: Project) -> str:
    return edited(project, "UPDATE tickets SET request = '{}'")


def extended(project: Project) -> str:
    return edited(project, "UPDATE tickets SET expires_at = '2999-01-01T00:00:00.000000Z'")


def deleted_after_it_was_taken(project: Project) -> str:
    """The message of an approval that the run took is removed: the chain has it."""
    ticket = waiting(project, TWO)
    project.gert("approve", ticket, "--as", "bob").ended(0)
    run = project.run().id
    project.gert("resume", "--run", run, "--detach", **TRUSTED).ended(0)
    project.run().change("DELETE FROM inbox WHERE run_id = ?1")
    project.gert("run", "verify-ledger", run).ended(0)
    shown = json.loads(project.gert("approvals", "show", ticket, "--json").ended(0).out)
    return f"{shown['approvals']} approval by {shown['responses'][0]['approver_id']}"


TICKETS = "the stored tickets are not those of the events"
ATTACKS = [
    Attack("a forged signature", SIGNED, forged, "no valid signature"),
    Attack("a signed rejection is turned into an approval", SIGNED, flipped, "is invalid"),
    Attack("a signed approval is replayed", ONCE, replayed, "has already responded"),
    Attack("a message that was taken is marked as untaken", ONCE, taken_again, "has already responded"),
    Attack("a late message names an early time", "the ledger's clock decides", late, "came too late"),
    Attack("a message is prepared for tomorrow", "it was not given now", prepared, "from the future"),
    Attack("a message for another ticket", BOUND, of_another_ticket, "for the ticket `another-run-0123`"),
    Attack("a signed message of another ledger", BOUND, of_another_ledger, "another request"),
    Attack("a message for another request", BOUND, of_another_request, "another request"),
    Attack("a message of 20 MB", "it is not read whole", oversized, "too long"),
    Attack("a message that is no JSON", "it is no response", no_json, "cannot be read"),
    Attack(
        "a rejection without a name", "a response says who gave it", rejection_by_no_one, "does not name its approver"
    ),
    Attack("a message received at no time", "the ledger's clock decides", odd_time, "yesterday"),
    Attack("a ticket is marked approved", CHAIN, marked_approved, TICKETS),
    Attack("a response is added to a ticket", CHAIN, response_added, TICKETS),
    Attack("the request of a ticket is replaced", CHAIN, request_replaced, TICKETS),
    Attack("the time of a ticket is extended", CHAIN, extended, TICKETS),
    Attack("a message that was taken is deleted", CHAIN, deleted_after_it_was_taken, "1 approval by bob"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


@pytest.mark.parametrize("junk", [b"junk", None], ids=["junk", "approvals"])
def test_no_number_of_messages_hides_a_rejection(project: Project, junk: bytes | None) -> None:
    """A rejection that was received after more messages than are taken at once still decides."""
    ticket = waiting(project)
    project.run().post(ticket, said(ticket, approver_id="first"))
    for n in range(60):
        project.run().post(ticket, junk or said(ticket, approver_id=f"u{n}"))
    project.gert("reject", ticket, "--as", "carol", "--reason", "stop").ended(0)
    project.gert("resume", "--run", project.run().id, **TRUSTED).ended(3)
    assert project.noted() == []
