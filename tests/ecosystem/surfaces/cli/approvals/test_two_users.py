"""Approvals by other users of one machine: real users, real permissions, and a drop box."""

import os
import sys

import pytest
from tests.ecosystem.surfaces.cli.users import Machine, machine
from tests.ecosystem.surfaces.cli.workbench import of_type

USES = (machine,)
"""Fixtures of another file that tests here ask for by name."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can start gert as another user"
)


def test_another_user_approves_through_the_drop_box(machine: Machine) -> None:
    ticket = machine.detach()
    words = ("--as", "bob", "--key", "bob.key", "--drop-box", machine.box)
    said = machine.bob.gert("approve", ticket[:-4], *words).ended(0)
    assert "word: deploy" in said.out
    assert "is in the drop box" in said.out
    assert machine.resume().ended(0).said["status"] == "completed"
    assert machine.project.noted() == ["deploy"]
    [resolved] = of_type(machine.record.events(), "approval_resolved")
    assert (resolved["data"]["approver_id"], resolved["data"]["verified"]) == ("bob", True)
    assert list((machine.box / "requests").iterdir()) == []


def test_another_user_lists_and_shows_the_requests_of_a_drop_box(machine: Machine) -> None:
    ticket = machine.detach()
    listed = machine.bob.gert("approvals", "list", "--drop-box", machine.box).ended(0)
    assert ticket in listed.out
    shown = machine.bob.gert("approvals", "show", ticket[:20], "--drop-box", machine.box, "--json").ended(0).said
    assert (shown["ticket_id"], shown["status"], shown["resume"]) == (ticket, "pending", None)
    assert shown["request_hash"].startswith("sha256:")
    (machine.box / "requests" / "junk.json").write_text("{")
    listed = machine.bob.gert("approvals", "list", "--drop-box", machine.box).ended(1)
    assert ticket in listed.out
    assert "junk.json` is not a request" in listed.err
    both = machine.bob.gert("approvals", "list", "--drop-box", machine.box, "--db", "x.db").ended(2)
    assert "expected `--drop-box` or a ledger, found both" in both.err
    assert "cannot be read" in machine.bob.gert("approvals", "list", "--drop-box", "/none").ended(2).err


def test_another_user_rejects_through_the_drop_box(machine: Machine) -> None:
    ticket = machine.detach()
    machine.bob.gert("reject", ticket, "--as", "bob", "--key", "bob.key", "--drop-box", machine.box).ended(0)
    assert machine.resume().ended(3).said["status"] == "failed"
    assert machine.project.noted() == []


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_unsigned_response_is_not_left(machine: Machine, verb: str) -> None:
    ticket = machine.detach()
    said = machine.bob.gert(verb, ticket, "--as", "bob", "--drop-box", machine.box).ended(2)
    assert "has to be signed" in said.err
    assert list((machine.box / "responses").iterdir()) == []


def test_a_key_that_the_run_does_not_know_approves_nothing(machine: Machine) -> None:
    ticket = machine.detach()
    other = "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
    words = ("--as", "bob", "--key", "MINE", "--key-id", "bob", "--drop-box", machine.box)
    machine.eve.gert("approve", ticket, *words, MINE=other).ended(0)
    assert machine.resume().ended(0).said["status"] == "waiting"
    assert machine.project.noted() == []
    shown = machine.ann.gert("approvals", "show", ticket, "--state-dir", machine.state).ended(0).out
    assert "drop box: a response is not validly signed" in shown


def test_a_rejection_by_a_key_that_the_run_does_not_know_is_recorded_with_its_reason(machine: Machine) -> None:
    ticket = machine.detach()
    other = "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
    words = (
        "--as",
        "bob",
        "--key",
        "MINE",
        "--key-id",
        "unknown",
        "--reason",
        "wrong database",
        "--drop-box",
        machine.box,
    )
    machine.bob.gert("reject", ticket, *words, MINE=other).ended(0)
    assert machine.resume().ended(0).said["status"] == "waiting"
    shown = machine.ann.gert("approvals", "show", ticket, "--state-dir", machine.state).ended(0).out
    assert "wrong database" in shown
    assert "no key `unknown` is known" in shown


def test_the_ledger_and_its_runs_are_private(machine: Machine) -> None:
    ticket = machine.detach()
    for words in (("approvals", "list"), ("approvals", "show", ticket), ("approve", ticket, "--as", "bob")):
        assert machine.bob.gert(*words, "--state-dir", machine.state).code != 0
    assert machine.resume().ended(0).said["status"] == "waiting"
