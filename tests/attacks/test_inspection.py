"""Attempts of a tool to read gert's keys out of the gert process, as an ordinary user of the machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.strangers import __file__ as strangers
from tests.ecosystem.surfaces.cli.users import Machine, machine
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, call, of_type
from tests.needs import missing

USES = (machine,)
"""Fixtures of another file that tests here ask for by name."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can start gert as another user"
)

KEY = "canary-of-the-signing-key"


@pytest.fixture(scope="module")
def gert_with_a_key() -> Iterator["subprocess.Popen[bytes]"]:
    """A loaded gert whose environment holds a key from the start, as the system shows it under /proc."""
    process = subprocess.Popen(
        [sys.executable, strangers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "GERT_TRACE_SIGNING_KEY": KEY},
    )
    yield process
    process.communicate()


def snooped(machine: Machine, gert: "subprocess.Popen[bytes]", script: str) -> Ran:
    """Run a tool of Ann's that writes what it finds into the file `loot`."""
    machine.project.script("snoops", script)
    machine.project.runbook(call("snoop", "snoops"), tools=["snoops"])
    words = ["exec", str(machine.project.root / "book.yaml"), "--json", "--state-dir", str(machine.state)]
    return machine.ann.gert_by(gert, *words, GERT_TRACE_SIGNING_KEY=KEY)


def reading(command: str) -> Callable[[Machine, "subprocess.Popen[bytes]"], str]:
    """What comes of a command that reads from the process that started the tool, which is gert."""

    def attempt(machine: Machine, gert: "subprocess.Popen[bytes]") -> str:
        ran = snooped(machine, gert, f"{command} > loot")
        loot = machine.ann.home / "loot"
        assert not loot.exists() or KEY.encode() not in loot.read_bytes()
        return str(ran.ended(3).said["failure"]["message"])

    return attempt


# Seizing does not stop what is traced, so gert goes on where the attempt succeeds.
SEIZE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0) and 'Permission denied')"
ATTEMPTS = [
    ("the environment of the process", reading("cat /proc/$PPID/environ")),
    ("the environment, by its thread", reading("cat /proc/$PPID/task/$PPID/environ")),
    ("its memory, which needs the right to trace it", reading("head -c 1 /proc/$PPID/mem")),
    ("the map of its memory", reading("cat /proc/$PPID/maps")),
    ("the start of its environment in memory", reading("cat /proc/$PPID/auxv")),
    ("its open files", reading("ls /proc/$PPID/fd/")),
    ("a child of the tool in a session of its own", reading("setsid -w sh -c 'cat /proc/'$PPID'/environ'")),
    ("tracing it", reading(f'/usr/bin/python3 -c "{SEIZE}" $PPID')),
]


@pytest.mark.parametrize(("what", "attempt"), [pytest.param(*each, id=each[0]) for each in ATTEMPTS])
def test_a_tool_cannot_look_into_gert(
    machine: Machine,
    gert_with_a_key: "subprocess.Popen[bytes]",
    what: str,
    attempt: Callable[[Machine, "subprocess.Popen[bytes]"], str],
) -> None:
    if what == "tracing it" and not Path("/usr/bin/python3").exists():
        missing("a Python that every user can run")
    row = Attack(what, "gert cannot be inspected", lambda _: attempt(machine, gert_with_a_key), "Permission denied")
    row.fails(machine.project)


def test_a_tool_and_what_it_starts_can_be_inspected_as_ever(
    machine: Machine, gert_with_a_key: "subprocess.Popen[bytes]"
) -> None:
    script = "sleep 5 & cat /proc/$!/environ /proc/self/environ /proc/$$/maps > loot; ls /proc/$$/fd/; kill $!"
    snooped(machine, gert_with_a_key, script).ended(0)
    assert b"PATH=" in (machine.ann.home / "loot").read_bytes()


@pytest.mark.parametrize(
    ("names", "dumpable"),
    [
        pytest.param(["GERT_APPROVAL_SIGNING_KEY"], 0, id="a command that holds a key"),
        pytest.param(["GERT_TRACE_KEY_PROD_FILE"], 0, id="a command that reads a key from a file"),
        pytest.param(["GERT_STATE_DIR", "HOME"], 1, id="a command without keys"),
    ],
)
def test_commands_that_run_no_tools_are_closed_where_they_hold_keys(names: list[str], dumpable: int) -> None:
    script = (
        "import ctypes; from gert.ecosystem.process.own_process import claim_process; "
        f"claim_process({names!r}); print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{dumpable}\n"


SLACK = {"webhook": "${HOOK}", "signing_secret": "${SECRET}", "users": {"U2CERLKJA": "alice@example.com"}}


@pytest.mark.parametrize(
    ("settings", "owned", "dumpable"),
    [
        pytest.param({"approvals": {"slack": SLACK}}, True, 0, id="the secret of a channel"),
        pytest.param({"on_outcome": {"escalated": {"webhook": "${HOOK}"}}}, True, 0, id="the address of a notice"),
        pytest.param({"approvals": {"slack": SLACK}}, False, 1, id="in a program that uses gert as a library"),
        pytest.param({}, True, 1, id="no secrets"),
    ],
)
def test_commands_are_closed_where_settings_name_secrets(
    project: Project, settings: dict[str, object], owned: bool, dumpable: int
) -> None:
    project.write("gert-config.yaml", settings)
    script = (
        "import ctypes; from gert.ecosystem.process.own_process import claim_process; "
        "from gert.ecosystem.host.config.workspace import Workspace; "
        "from gert.ecosystem.host.config.settings import settings_for; "
        f"{'claim_process([]); ' if owned else ''}settings_for(Workspace('.'), '.'); "
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=project.root)
    assert ran.stdout == f"{dumpable}\n"


def test_a_program_that_uses_gert_as_a_library_stays_open(project: Project) -> None:
    project.script("works", "true")
    project.runbook(call("work", "works"), tools=["works"])
    script = "import ctypes, gert; gert.run('book.yaml'); print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    environ = {**os.environ, "GERT_TRACE_SIGNING_KEY": KEY}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=project.root, env=environ
    )
    assert ran.stdout == "1\n"


# --- key files

SEED = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="


def key_file(project: Project, mode: int = 0o600, text: str = KEY) -> Path:
    path = project.root / "signing.key"
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


def refused(prepare: Callable[[Project], dict[str, str]]) -> Callable[[Project], str]:
    """Start a run with a key file that cannot be trusted: nothing begins, and the key is not shown."""

    def attempt(project: Project) -> str:
        project.script("works", "true")
        project.runbook(call("work", "works"), tools=["works"])
        ran = project.exec(**prepare(project)).ended(1)
        assert project.runs() == []
        assert KEY not in ran.out + ran.err
        return ran.err

    return attempt


def named(path: object) -> dict[str, str]:
    return {"GERT_TRACE_SIGNING_KEY_FILE": str(path)}


def pipe(project: Project) -> dict[str, str]:
    os.mkfifo(project.root / "pipe", 0o600)
    return named(project.root / "pipe")


def foreign(project: Project) -> dict[str, str]:
    path = key_file(project)
    os.chown(path, 65534, -1)
    return named(path)


def public(project: Project) -> dict[str, str]:
    path = key_file(project, 0o666, "ed25519-public:6MgY8nqIQ3nx1HwAvD7rX1zMskIy+7HQ3Q0/5d1XQ1w=")
    return {"GERT_APPROVAL_KEY_BOB_FILE": str(path)}


FILES = [
    Attack(what, why="a key that others can read or change signs nothing", attempt=refused(prepare), reason=reason)
    for what, prepare, reason in [
        ("a key file that its group can read", lambda p: named(key_file(p, 0o640)), "other users may read or change"),
        ("a key file that other users can read", lambda p: named(key_file(p, 0o604)), "other users may read or change"),
        ("a key file of another user", foreign, "belongs to another user"),
        ("a public key that other users can exchange", public, "other users may change"),
        ("a pipe in place of a file", pipe, "is not a regular file"),
        ("a folder in place of a file", lambda p: named(p.root), "is not a regular file"),
        ("a file that is not there", lambda p: named(p.root / "none"), "no such file"),
        ("the key itself in place of a path", lambda p: named(KEY), "set the variable to the path of the file"),
        ("a variable that a pipeline failed to fill in", lambda p: named(" "), "is empty"),
        ("a file as large as a disk", lambda p: named(key_file(p, text="x" * 20000)), "is larger than"),
        ("a key and a file", lambda p: {**named(key_file(p)), "GERT_TRACE_SIGNING_KEY": KEY}, "set only one of them"),
    ]
]  # fmt: skip


@pytest.mark.parametrize("attack", table(FILES))
def test_a_key_file_that_cannot_be_trusted_is_refused(attack: Attack, project: Project) -> None:
    attack.fails(project)


@pytest.mark.parametrize(
    ("variable", "environ"),
    [
        pytest.param("GERT_TRACE_SIGNING_KEY_FILE", {}, id="the signing key"),
        pytest.param("GERT_TRACE_KEY_PROD_FILE", {"GERT_TRACE_SIGNING_KEY_ID": "prod"}, id="a key with a label"),
    ],
)
def test_a_run_is_signed_with_a_key_from_a_file(project: Project, variable: str, environ: dict[str, str]) -> None:
    path = key_file(project)
    project.script("prints", f"echo {KEY}; env")
    project.runbook(call("print", "prints"), tools=["prints"])
    ran = project.exec("--verbose", **{variable: str(path)}, **environ).ended(0)
    assert KEY not in ran.out + ran.err, "the key is masked in what tools print"
    assert str(path) not in ran.out
    (end,) = of_type(project.run().events(), "run_complete")
    assert end["data"]["signature"]
    trace = project.run().trace
    project.gert("trace", "verify", trace, "--require-signature", **{variable: str(path)}, **environ).ended(0)
    wrong = key_file(project, text="another key altogether")
    project.gert("trace", "verify", trace, "--require-signature", **{variable: str(wrong)}, **environ).ended(1)


def test_approvals_are_signed_and_checked_with_keys_from_files(project: Project) -> None:
    key_file(project, text=SEED)
    own = {"GERT_APPROVAL_SIGNING_KEY_FILE": str(project.root / "signing.key")}
    listed = json.loads(project.gert("keys", "list", "--json", **own).ended(0).out)
    assert [(each["variable"], each["can_sign"]) for each in listed] == [("GERT_APPROVAL_SIGNING_KEY", True)]
    public_file = project.root / "bob.pub"
    public_file.write_text(listed[0]["public"])
    public_file.chmod(0o644)
    project.script("works", "true")
    gate = {"rules": [{"default": "require-approval", "min_approvers": 1}], "require_signed_approvals": True}
    project.runbook(call("work", "works"), tools=["works"], governance=gate)
    trusted = {"GERT_APPROVAL_KEY_BOB_FILE": str(public_file), "GERT_APPROVAL_OWNER_BOB": "bob"}
    waits = project.exec("--detach", "--json", **trusted).ended(0).said
    ticket = waits["pending"][0]["ticket_id"]
    project.gert(
        "approve", ticket, "--as", "bob", "--key", "GERT_APPROVAL_SIGNING_KEY", "--key-id", "bob", **own, **trusted
    ).ended(0)
    project.gert("resume", "--run", waits["run_id"], **trusted).ended(0)
    (resolved,) = of_type(project.run().events(), "approval_resolved")
    assert resolved["data"]["verified"] is True
