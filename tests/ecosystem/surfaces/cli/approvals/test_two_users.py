"""Tickets that several users of one machine answer: real users, real permissions, and what a false friend can do."""

import atexit
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import (
    PATIENCE,
    Project,
    Ran,
    Recorded,
    environment,
    mode_of,
    note,
    of_type,
    rows_of,
    until,
)

from gert.kernel.foundation.signature import parse_key

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be two other users"
)

GROUP = 54321
"""Nobody's group on any machine, so that it can be anybody's here."""
SEED = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="
OTHER_SEED = "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
PUBLIC = parse_key(SEED).public_text or ""
OTHER_PUBLIC = parse_key(OTHER_SEED).public_text or ""
# What whoever starts runs trusts; nothing of it lies where others write.
TRUSTED = {
    "GERT_APPROVAL_KEY_BOB": PUBLIC,
    "GERT_APPROVAL_OWNER_BOB": "bob",
    "GERT_APPROVAL_KEY_DAN": OTHER_PUBLIC,
    "GERT_APPROVAL_OWNER_DAN": "dan",
}
GATE = {"rules": [{"default": "require-approval", "min_approvers": 1}]}
STRANGERS = Path(__file__).parents[1] / "strangers.py"


def loaded() -> "subprocess.Popen[bytes]":
    """A `gert` that starts copies of itself, one after the other."""
    return subprocess.Popen([sys.executable, str(STRANGERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@cache
def zygote() -> "subprocess.Popen[bytes]":
    process = loaded()
    atexit.register(process.communicate)
    return process


@dataclass(frozen=True)
class User:
    """A user of this machine, in the group or not."""

    name: str
    home: Path
    is_member: bool
    umask: int = 0o022

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.name).pw_uid

    def gert(self, *words: str | Path, **environ: str) -> Ran:
        return self.gert_by(zygote(), *words, **environ)

    def gert_by(self, process: "subprocess.Popen[bytes]", *words: str | Path, **environ: str) -> Ran:
        return self._call({"words": [str(word) for word in words]}, environ, process)

    def attack(self, name: str, tickets: Path, ticket: str) -> None:
        self._call({"attack": name, "tickets": str(tickets), "ticket": ticket}, {}, zygote()).ended(0)

    def _call(self, what: dict[str, Any], environ: dict[str, str], process: "subprocess.Popen[bytes]") -> Ran:
        assert process.stdin is not None
        assert process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            call = {
                **what,
                "uid": self.uid,
                "gid": pwd.getpwnam(self.name).pw_gid,
                "groups": [GROUP] if self.is_member else [],
                "umask": self.umask,
                "folder": str(self.home),
                "environment": environment(environ),
                "out": str(out),
                "err": str(err),
                "patience": int(PATIENCE),
            }
            process.stdin.write(json.dumps(call).encode() + b"\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            assert code != -signal.SIGALRM, f"{what} took too long"
            return Ran(code, out.read_text(), err.read_text())


class Machine:
    """A folder that other users can reach, with a project of Ann's and a home for everybody."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ann = User("daemon", self._home("ann", "daemon"), is_member=True)
        self.bob = User("bin", self._home("bob", "bin"), is_member=True)
        self.eve = User("nobody", self._home("eve", "nobody"), is_member=False)
        self.state = self.ann.home / "state"
        self.project = Project(self.ann.home / "project")
        self.settings(str(GROUP))
        self.project.runbook(note("deploy"), governance=GATE)
        for path in (self.project.root, *self.project.root.rglob("*")):
            os.chown(path, self.ann.uid, -1)
        for name, seed in (("bob", SEED), ("dan", OTHER_SEED)):
            key = self.bob.home / f"{name}.key"
            key.write_text(seed)
            key.chmod(0o600)
            os.chown(key, self.bob.uid, -1)

    def _home(self, person: str, user: str) -> Path:
        home = self.root / person
        home.mkdir()
        home.chmod(0o755)
        os.chown(home, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        return home

    def settings(self, group: str | None) -> None:
        approvals = {"approvals": {"shared_with": group}} if group is not None else {}
        self.project.write("gert-project.yaml", {"name": "bench", **approvals})

    @property
    def tickets(self) -> Path:
        return self.state / "approvals"

    @property
    def record(self) -> Recorded:
        (only,) = (each for each in (self.state / "runs").iterdir() if each.is_dir())
        return Recorded(only)

    def detach(self, who: User | None = None, **environ: str) -> str:
        """Start a run that is set aside; gives its ticket."""
        said = (who or self.ann).gert(*self.words("exec"), **{**TRUSTED, **environ}).ended(0).said
        ticket: str = said["pending"][0]["ticket_id"]
        return ticket

    def words(self, command: str) -> list[str | Path]:
        where: list[str | Path] = ["--state-dir", self.state]
        if command == "exec":
            return ["exec", self.project.root / "book.yaml", "--detach", "--json", "--as", "ann", *where]
        return [command, "--run", self.record.folder.name, "--json", *where]

    def resume(self, **environ: str) -> Ran:
        return self.ann.gert(*self.words("resume"), **{**TRUSTED, **environ})

    def approve(self, ticket: str, *more: str, key: str | None = "bob.key", name: str = "bob") -> Ran:
        signed = ["--key", key] if key is not None else []
        return self.bob.gert("approve", ticket, "--as", name, "--state-dir", self.state, *signed, *more)

    def did_nothing(self) -> bool:
        return self.project.noted() == []


@pytest.fixture
def machine() -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="gert-users-"))
    root.chmod(0o755)
    try:
        yield Machine(root)
    finally:
        shutil.rmtree(root)


def with_umask(user: User, umask: int) -> User:
    return User(user.name, user.home, user.is_member, umask)


# --- together


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000], ids=["usual umask", "strict umask", "no umask"])
def test_one_user_starts_another_approves_and_the_first_goes_on(machine: Machine, umask: int) -> None:
    machine.ann, machine.bob = with_umask(machine.ann, umask), with_umask(machine.bob, umask)
    ticket = machine.detach()
    listed = machine.bob.gert("approvals", "list", "--state-dir", machine.state, "--json").ended(0)
    assert ticket in listed.out
    shown = machine.bob.gert("approvals", "show", ticket, "--state-dir", machine.state).ended(0)
    assert "signatures:    required" in shown.out
    machine.approve(ticket).ended(0)
    assert machine.did_nothing()
    assert machine.resume().ended(0).said["status"] == "completed"
    assert machine.project.noted() == ["deploy"]
    (resolved,) = of_type(machine.record.events(), "approval_resolved")
    assert (resolved["data"]["approver_id"], resolved["data"]["verified"]) == ("bob", True)
    machine.ann.gert("trace", "verify", machine.record.trace).ended(0)


def test_a_run_that_waits_goes_on_by_itself_when_another_user_approves(machine: Machine) -> None:
    words = [word if word != "--detach" else "--wait" for word in machine.words("exec")]
    with loaded() as another, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(machine.ann.gert_by, another, *words, **TRUSTED)
        until(lambda: waiting.done() or list(machine.tickets.glob("*.json")))
        (ticket,) = machine.tickets.glob("*.json")
        machine.bob.attack("an unsigned answer", machine.tickets, ticket.stem)
        machine.approve(ticket.stem).ended(0)
        assert waiting.result().ended(0).said["status"] == "completed"
        assert another.stdin is not None
        another.stdin.close()
    assert machine.project.noted() == ["deploy"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000], ids=["usual umask", "strict umask", "no umask"])
def test_only_tickets_are_shared(machine: Machine, umask: int) -> None:
    machine.ann, machine.bob = with_umask(machine.ann, umask), with_umask(machine.bob, umask)
    ticket = machine.detach()
    machine.approve(ticket).ended(0)
    modes = {str(path.relative_to(machine.state)): mode_of(path) for path in machine.state.rglob("*")}
    run = f"runs/{machine.record.folder.name}"
    assert (mode_of(machine.state), machine.state.stat().st_gid) == (0o710, GROUP)
    assert (modes["approvals"], machine.tickets.stat().st_gid) == (0o2770, GROUP)
    assert modes["approvals/locks"] == 0o2770
    assert modes[f"approvals/{ticket}.json"] == modes[f"approvals/locks/{ticket}.lock"] == 0o660
    assert modes[f"approvals/{ticket}.rejections"] == 0o3770
    assert (modes["runs"], modes[run]) == (0o700, 0o700)
    assert all(not mode & 0o077 for name, mode in modes.items() if name.startswith("runs"))
    assert (machine.tickets / f"{ticket}.json").stat().st_gid == GROUP


def test_another_user_rejects_with_or_without_a_key(machine: Machine) -> None:
    ticket = machine.detach()
    machine.bob.gert("reject", ticket, "--as", "bob", "--state-dir", machine.state).ended(0)
    assert machine.approve(ticket).ended(1).out.count("not counted") == 1
    machine.resume().ended(3)
    assert machine.did_nothing()
    (resolved,) = of_type(machine.record.events(), "approval_resolved")
    assert (resolved["data"]["status"], resolved["data"]["approver_id"]) == ("rejected", "bob")


def test_the_project_folder_leads_to_the_tickets_as_well(machine: Machine) -> None:
    said = machine.ann.gert("exec", machine.project.root / "book.yaml", "--detach", "--json", "--as", "ann", **TRUSTED)
    ticket = said.ended(0).said["pending"][0]["ticket_id"]
    there = User(machine.bob.name, machine.project.root, is_member=True)
    assert ticket in there.gert("approvals", "list").ended(0).out
    there.gert("approve", ticket, "--as", "bob", "--key", str(machine.bob.home / "bob.key")).ended(0)
    elsewhere = machine.bob.gert("approvals", "list", "--all", GERT_STATE_DIR=str(machine.project.root)).ended(0)
    assert ticket in elsewhere.out
    shown = machine.bob.gert("approvals", "show", ticket, GERT_STATE_DIR=str(machine.project.root)).ended(0)
    assert "bob approved" in shown.out
    assert "counts once the run has verified the signature" in shown.out


# --- apart


def test_who_is_not_in_the_group_sees_nothing(machine: Machine) -> None:
    ticket = machine.detach()
    for words in (("approvals", "list"), ("approvals", "show", ticket), ("approve", ticket), ("reject", ticket)):
        ran = machine.eve.gert(*words, "--state-dir", machine.state).ended(1)
        assert "permission denied" in ran.err
        assert "approvals.shared_with" in ran.err
    machine.eve.attack("nothing to see", machine.tickets, ticket)


@pytest.mark.parametrize("who", ["bob", "eve"], ids=["of the group", "not of the group"])
def test_a_run_goes_on_only_for_whoever_started_it(machine: Machine, who: str) -> None:
    ticket = machine.detach()
    machine.approve(ticket).ended(0)
    ran = getattr(machine, who).gert(*machine.words("resume"), **TRUSTED).ended(2)
    assert "were not started by you" in ran.err
    assert machine.did_nothing()


def test_an_approval_without_a_key_is_refused_before_it_is_given(machine: Machine) -> None:
    ticket = machine.detach()
    ran = machine.approve(ticket, key=None).ended(2)
    assert "takes only signed approvals" in ran.err
    assert "gert keys new" in ran.err
    machine.resume().ended(0)
    assert machine.did_nothing()


WRONG: list[Any] = [
    pytest.param({"key": "dan.key", "name": "bob"}, {}, "does not speak for `bob`", id="in another's name"),
    pytest.param(
        {"key": "bob.key", "name": "bob"},
        {"GERT_APPROVAL_KEY_BOB": OTHER_PUBLIC},
        "the signature by key `bob` is invalid",
        id="with a key the run does not know under this id",
    ),
    pytest.param(
        {"key": "bob.key", "name": "ann"},
        {"GERT_APPROVAL_OWNER_BOB": "bob,ann"},
        "`ann` started the run and may not approve it",
        id="in the name of whoever started the run",
    ),
]


@pytest.mark.parametrize(("given", "environ", "why"), WRONG)
def test_what_bob_signs_and_ann_does_not_count(
    machine: Machine, given: dict[str, str], environ: dict[str, str], why: str
) -> None:
    governance = {"separation_of_duties": True, **GATE}
    machine.project.runbook(note("deploy"), governance=governance)
    ticket = machine.detach()
    machine.approve(ticket, **given)
    assert machine.resume(**environ).ended(0).said["status"] == "waiting"
    assert machine.did_nothing()
    document = json.loads((machine.tickets / f"{ticket}.json").read_bytes())
    assert why in document["responses"][0]["objection"]


def test_a_key_that_speaks_for_nobody_in_particular_approves_nothing(machine: Machine) -> None:
    trusted = {name: value for name, value in TRUSTED.items() if "OWNER" not in name}
    said = machine.ann.gert(*machine.words("exec"), **trusted).ended(0).said
    ticket = said["pending"][0]["ticket_id"]
    machine.approve(ticket, name="anybody").ended(0)
    assert machine.ann.gert(*machine.words("resume"), **trusted).ended(0).said["status"] == "waiting"
    document = json.loads((machine.tickets / f"{ticket}.json").read_bytes())
    assert "it is not said whom the key `bob` speaks for" in document["responses"][0]["objection"]
    assert machine.did_nothing()


def test_without_keys_to_trust_nobody_is_asked(machine: Machine) -> None:
    ran = machine.ann.gert(*machine.words("exec")).ended(3)
    assert "no key to verify them with is set" in ran.out
    assert list(machine.tickets.glob("*.json")) == []


# --- a false friend

# What Bob does to a ticket that nobody has approved, and how Ann's run stands afterwards.
FORGED = {
    "an unsigned answer": "waiting",
    "an answer called verified": "waiting",
    "a made-up signature": "waiting",
    "no signatures asked for": "waiting",
    "fewer approvers": "waiting",
    "other approvers": "waiting",
    "marked approved": "waiting",
    "marked expired": "waiting",
    "never expiring": "waiting",
    "expired long ago": "waiting",
    "an endless answer": "waiting",
    "the locks taken away": "waiting",
    "rejections among junk": "waiting",
    "another request": "something else than the run",
    "abandoned": "was abandoned",
    "thousands of answers": "more than a ticket ever does",
    "another ticket": "it says that it is the ticket `other`",
    "not a ticket": "is not a ticket",
    "taken away": "there is no ticket",
    "a link": "it is a symbolic link",
    "a pipe": "is not a regular file",
    "a folder": "is a directory",
    "rejections in a place of their own": "are not where the run keeps them",
    "rejections taken away": "are not where the run keeps them",
    "rejections drowned": "holds 300 rejections",
}


# What Bob does so that Ann cannot even look.
BARRED = {
    "the lock held": "is locked by another process",
    "the lock a pipe": "it is not a regular file",
    "the locks elsewhere": "is not a folder",
}


@pytest.mark.parametrize("attack", BARRED)
def test_a_ticket_that_cannot_be_looked_at_keeps_the_run_where_it_is(machine: Machine, attack: str) -> None:
    ticket = machine.detach()
    machine.approve(ticket).ended(0)
    before = rows_of(machine.record.ledger)
    machine.bob.attack(attack, machine.tickets, ticket)
    assert BARRED[attack] in machine.resume().ended(4).err
    assert rows_of(machine.record.ledger) == before
    assert machine.did_nothing()


@pytest.mark.parametrize("attack", FORGED)
def test_whatever_somebody_of_the_group_does_to_a_ticket_approves_nothing(machine: Machine, attack: str) -> None:
    ticket = machine.detach()
    machine.bob.attack(attack, machine.tickets, ticket)
    ran = machine.resume()
    assert machine.did_nothing()
    if FORGED[attack] != "waiting":
        ran.ended(3)
        assert FORGED[attack] in ran.said["failure"]["message"]
        return
    assert ran.ended(0).said["status"] == "waiting"
    # Whoever may approve still can, and by Ann's terms.
    machine.approve(ticket).ended(0)
    assert machine.resume().ended(0).said["status"] == "completed"


def test_a_rejection_that_is_taken_out_of_the_ticket_holds_all_the_same(machine: Machine) -> None:
    ticket = machine.detach()
    dan = User("games", machine.bob.home, is_member=True)
    dan.gert("reject", ticket, "--as", "dan", "--state-dir", machine.state).ended(0)
    machine.bob.attack("rejections taken out", machine.tickets, ticket)
    machine.approve(ticket).ended(0)
    machine.resume().ended(3)
    assert machine.did_nothing()
    (resolved,) = of_type(machine.record.events(), "approval_resolved")
    assert (resolved["data"]["status"], resolved["data"]["approver_id"]) == ("rejected", "dan")


def test_a_rejection_of_what_the_ticket_asked_for_a_moment_holds_all_the_same(machine: Machine) -> None:
    ticket = machine.detach()
    machine.bob.attack("something else asked for", machine.tickets, ticket)
    machine.bob.gert("reject", ticket, "--as", "dan", "--state-dir", machine.state).ended(0)
    machine.bob.attack("nothing else asked for", machine.tickets, ticket)
    machine.approve(ticket).ended(0)
    machine.resume().ended(3)
    (resolved,) = of_type(machine.record.events(), "approval_resolved")
    assert resolved["data"]["status"] == "rejected"
    assert machine.did_nothing()


def test_the_place_of_another_ticket_hides_no_rejection(machine: Machine) -> None:
    ticket = machine.detach()
    run_id = machine.record.folder.name
    machine.detach()
    dan = User("games", machine.bob.home, is_member=True)
    dan.gert("reject", ticket, "--as", "dan", "--state-dir", machine.state).ended(0)
    machine.bob.attack("rejections of another ticket", machine.tickets, ticket)
    machine.approve(ticket).ended(0)
    resumed = machine.ann.gert("resume", "--run", run_id, "--json", "--state-dir", machine.state, **TRUSTED)
    assert "are not where the run keeps them" in resumed.ended(3).said["failure"]["message"]
    assert machine.did_nothing()


@pytest.mark.parametrize("attack", ["never expiring", "marked expired", "an unsigned answer"])
def test_when_a_ticket_expires_is_for_the_run_to_say(machine: Machine, attack: str) -> None:
    machine.project.runbook(note("deploy"), governance={"approval_timeout": "2s", **GATE})
    ticket = machine.detach()
    machine.bob.attack(attack, machine.tickets, ticket)
    ran = machine.ann.gert(*machine.words("resume"), "--wait", **TRUSTED).ended(3)
    assert "no approver approved in time" in ran.out
    (submitted,) = of_type(machine.record.events(), "approval_submitted")
    (resolved,) = of_type(machine.record.events(), "approval_resolved")
    assert resolved["data"]["status"] == "expired"
    assert machine.did_nothing()
    assert resolved["timestamp"] >= submitted["data"]["expires_at"]


# --- folders


def unshare(machine: Machine) -> None:
    machine.settings(None)


def regroup(machine: Machine) -> None:
    os.chown(machine.tickets, -1, GROUP + 1)


def open_up(machine: Machine) -> None:
    machine.tickets.chmod(0o2777)


def give_away(machine: Machine) -> None:
    os.chown(machine.tickets, machine.bob.uid, -1)


def bar(machine: Machine) -> None:
    machine.ann.home.chmod(0o700)


def close(machine: Machine) -> None:
    machine.tickets.chmod(0o700)


def link(machine: Machine) -> None:
    machine.tickets.rename(machine.state / "elsewhere")
    machine.tickets.symlink_to("elsewhere")


FOLDERS: list[Any] = [
    pytest.param(unshare, "others may write in", id="shared, and settings do not say so"),
    pytest.param(regroup, f"is not shared with the group `{GROUP}`", id="of another group"),
    pytest.param(open_up, "others may write in", id="open to everybody"),
    pytest.param(give_away, "belongs to another user", id="of another user"),
    pytest.param(bar, f"the group `{GROUP}` cannot go through", id="behind a folder the group cannot go through"),
    pytest.param(close, f"is not shared with the group `{GROUP}`", id="closed again"),
    pytest.param(link, "is not a folder", id="a link"),
]


@pytest.mark.parametrize(("change", "why"), FOLDERS)
def test_a_folder_that_is_not_what_settings_say_is_refused_and_nothing_is_changed(
    machine: Machine, change: Any, why: str
) -> None:
    ticket = machine.detach()
    machine.approve(ticket).ended(0)
    before = machine.record.trace.read_bytes()
    change(machine)
    for command in ("resume", "exec"):
        ran = machine.ann.gert(*machine.words(command), **TRUSTED).ended(4)
        assert why in ran.err
        assert "hint" in ran.err or why == "is not a folder"
    assert machine.record.trace.read_bytes() == before
    assert machine.did_nothing()


def test_a_folder_everybody_writes_in_takes_no_answers(machine: Machine) -> None:
    ticket = machine.detach()
    open_up(machine)
    assert "others may write in" in machine.approve(ticket).ended(4).err


def test_a_group_that_is_not_ones_own_cannot_be_shared_with(machine: Machine) -> None:
    machine.settings(str(GROUP + 7))
    ran = machine.ann.gert(*machine.words("exec"), **TRUSTED).ended(4)
    assert f"you are not in the group `{GROUP + 7}`" in ran.err
    assert not machine.state.exists()


def test_there_are_enough_forgeries() -> None:
    from tests.ecosystem.surfaces.cli.strangers import ATTACKS

    assert len(FORGED) >= 25
    assert {*FORGED, *BARRED} <= set(ATTACKS)
