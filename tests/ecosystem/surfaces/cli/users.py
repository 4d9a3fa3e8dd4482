"""Several users of this machine, each with a real `gert`; only root can start them."""

import atexit
import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import PATIENCE, Project, Ran, Recorded, environment, note

from gert.kernel.foundation.signature import parse_key

SEED = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="
# What the user who starts runs trusts.
TRUSTED = {"GERT_APPROVAL_KEY_BOB": parse_key(SEED).public_text or "", "GERT_APPROVAL_OWNER_BOB": "bob"}
GATE = {"rules": [{"default": "require-approval", "min_approvers": 1}]}
STRANGERS = Path(__file__).with_name("strangers.py")


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
    """A user of this machine."""

    name: str
    home: Path
    umask: int = 0o022

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.name).pw_uid

    def gert(self, *words: str | Path, **environ: str) -> Ran:
        return self.gert_by(zygote(), *words, **environ)

    def gert_by(self, process: "subprocess.Popen[bytes]", *words: str | Path, **environ: str) -> Ran:
        return self._call({"words": [str(word) for word in words]}, environ, process)

    def _call(self, what: dict[str, Any], environ: dict[str, str], process: "subprocess.Popen[bytes]") -> Ran:
        assert process.stdin is not None
        assert process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            call = {
                **what,
                "uid": self.uid,
                "gid": pwd.getpwnam(self.name).pw_gid,
                "groups": [],
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
    """A folder that other users can reach, with a project of Ann's, a drop box, and a home for each user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ann = User("daemon", self._home("ann", "daemon"))
        self.bob = User("bin", self._home("bob", "bin"))
        self.eve = User("nobody", self._home("eve", "nobody"))
        self.state = self.ann.home / "state"
        self.box = self.ann.home / "box"
        self.project = Project(self.ann.home / "project")
        self.project.write("gert-project.yaml", {"name": "bench", "approvals": {"drop_box": str(self.box)}})
        self.project.runbook(note("deploy"), governance=GATE)
        for path in (self.project.root, *self.project.root.rglob("*")):
            os.chown(path, self.ann.uid, -1)
        key = self.bob.home / "bob.key"
        key.write_text(SEED)
        key.chmod(0o600)
        os.chown(key, self.bob.uid, -1)

    def _home(self, person: str, user: str) -> Path:
        home = self.root / person
        home.mkdir()
        home.chmod(0o755)
        os.chown(home, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        return home

    @property
    def record(self) -> Recorded:
        (only,) = (each for each in (self.state / "runs").iterdir() if each.is_dir())
        return Recorded(only)

    def detach(self) -> str:
        """Start a run that waits; gives its ticket."""
        words = (
            "exec",
            self.project.root / "book.yaml",
            "--detach",
            "--json",
            "--as",
            "ann",
            "--state-dir",
            self.state,
        )
        ticket: str = self.ann.gert(*words, **TRUSTED).ended(0).said["pending"][0]["ticket_id"]
        return ticket

    def resume(self) -> Ran:
        words = ("resume", "--run", self.record.id, "--detach", "--json", "--state-dir", self.state)
        return self.ann.gert(*words, **TRUSTED)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """One after the other, whoever runs tests beside us: gert looks at everything that runs as the same user."""
    with Path(tempfile.gettempdir(), "gert-users.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        root = Path(tempfile.mkdtemp(prefix="gert-users-"))
        root.chmod(0o755)
        try:
            yield Machine(root)
        finally:
            shutil.rmtree(root)
