"""A process that has loaded `gert` and starts copies of itself that are other users of this machine.

Each line on its standard input is a call: a user, a group, an umask, and words for `gert` or the name of an attack. The
Python that tests run with may lie where other users cannot read, so everything is loaded before a copy becomes one.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from gert.ecosystem.approvals.locks import PATIENCE
from gert.ecosystem.process.own_process import take_over
from gert.ecosystem.surfaces.cli.main import main

Attack = Callable[[Path, str], None]
LOADED = (unicodedata,)
"""What is loaded by chance alone when everything is done once: where a name is written in letters beyond ASCII."""
BOOK = {
    "apiVersion": "kernel/v0",
    "meta": {"name": "book", "governance": {"rules": [{"default": "require-approval"}]}},
    "tools": ["./true.tool.yaml"],
    "steps": [
        {"id": "do", "type": "tool", "tool": "true"},
        {"type": "end", "outcome": {"category": "resolved", "code": "done"}},
    ],
}
TOOL = {
    "apiVersion": "tool/v0",
    "meta": {"name": "true"},
    "contract": {"effects": ["files"], "writes": [], "idempotent": True},
    "actions": {"go": {"argv": ["true"]}},
}


# --- what somebody of the group does to a ticket


def _edit(change: Callable[[dict[str, Any]], object]) -> Attack:
    def attack(folder: Path, ticket: str) -> None:
        path = folder / f"{ticket}.json"
        document = json.loads(path.read_bytes())
        change(document)
        mine = folder / "mine"
        mine.write_text(json.dumps(document))
        mine.chmod(0o660)
        mine.replace(path)

    return attack


def _answer(document: dict[str, Any], **said: Any) -> None:
    response = {
        "approver": "bob",
        "approved": True,
        "timestamp": document["ticket"]["created_at"],
        "ticket_id": document["ticket"]["id"],
        "request_hash": document["ticket"]["request"]["request_hash"],
        **said,
    }
    document["responses"] = [{"response": response, "at": document["ticket"]["created_at"]}]


def _asked(document: dict[str, Any], **terms: Any) -> None:
    document["ticket"]["request"].update(terms)
    _answer(document)


def _crowd(document: dict[str, Any]) -> None:
    _answer(document)
    document["responses"] *= 5000


def _endless(document: dict[str, Any]) -> None:
    _answer(document, reason="x" * 1_000_000)


def _instead(make: Callable[[Path], object]) -> Attack:
    def attack(folder: Path, ticket: str) -> None:
        path = folder / f"{ticket}.json"
        path.rename(folder / "aside")
        make(path)

    return attack


def _hold(folder: Path, ticket: str) -> None:
    """Hold the lock of a ticket for longer than anybody waits."""
    if os.fork():
        while not (folder / "held").exists():
            time.sleep(0.005)
        return
    lock = os.open(folder / "locks" / f"{ticket}.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "held").touch()
    time.sleep(PATIENCE + 5)


def _without_rejections(folder: Path, ticket: str) -> None:
    """Take what somebody said out of the file."""
    _edit(lambda document: document.update(responses=[], status="pending"))(folder, ticket)


def _lie(folder: Path, ticket: str) -> None:
    """Have the ticket ask for something else, until somebody has rejected that."""
    shutil.copy(folder / f"{ticket}.json", folder / "before")
    _edit(lambda document: document["ticket"]["request"].update(request_hash="sha256:" + "1" * 64))(folder, ticket)


def _never_lied(folder: Path, ticket: str) -> None:
    (folder / "before").chmod(0o660)
    (folder / "before").replace(folder / f"{ticket}.json")


def _own_place(folder: Path, ticket: str) -> None:
    _without_rejections(folder, ticket)
    (folder / f"{ticket}.rejections").rename(folder / "elsewhere")
    place = folder / f"{ticket}.rejections"
    place.mkdir()
    place.chmod(0o3770)


def _swapped(folder: Path, ticket: str) -> None:
    """Give the place the run made for another question the name of this one's."""
    _without_rejections(folder, ticket)
    other = next(place for place in folder.glob("*.rejections") if place.name != f"{ticket}.rejections")
    (folder / f"{ticket}.rejections").rename(folder / "elsewhere")
    other.rename(folder / f"{ticket}.rejections")


def _away(folder: Path, ticket: str) -> None:
    (folder / f"{ticket}.rejections").rename(folder / "gone")


def _flood(folder: Path, ticket: str) -> None:
    for number in range(300):
        (folder / f"{ticket}.rejections" / f"{number}.json").write_text("{}")


def _junk(folder: Path, ticket: str) -> None:
    place = folder / f"{ticket}.rejections"
    os.mkfifo(place / "pipe.json")
    (place / "link.json").symlink_to("/dev/zero")
    (place / "half.json").write_text('{"approver":')
    (place / "folder.json").mkdir()


def _locks_elsewhere(folder: Path, ticket: str) -> None:
    (folder / "locks").rename(folder / "unlocked")
    (folder / "locks").symlink_to("/tmp")


def _lock_pipe(folder: Path, ticket: str) -> None:
    lock = folder / "locks" / f"{ticket}.lock"
    lock.unlink()
    os.mkfifo(lock)
    lock.chmod(0o660)


def _read_all(folder: Path, ticket: str) -> None:
    """Fail unless nothing at all can be seen of a folder."""
    for look in (lambda: os.listdir(folder), (folder / f"{ticket}.json").read_bytes):
        try:
            look()
        except PermissionError:
            continue
        raise SystemExit("it can be seen")


ATTACKS: Mapping[str, Attack] = {
    "an unsigned answer": _edit(_answer),
    "an answer called verified": _edit(lambda document: _answer(document, verified=True)),
    "a made-up signature": _edit(
        lambda document: _answer(document, signature="AAAA", signature_alg="ed25519", key_id="bob")
    ),
    "no signatures asked for": _edit(lambda document: _asked(document, require_signed_approvals=False)),
    "fewer approvers": _edit(lambda document: _asked(document, min_approvers=0)),
    "other approvers": _edit(lambda document: _asked(document, approvers=[["eve"]], admitted=[["eve"]])),
    "marked approved": _edit(lambda document: document.update(status="approved")),
    "marked expired": _edit(lambda document: document.update(status="expired")),
    "never expiring": _edit(lambda document: document["ticket"].update(expires_at="2999-01-01T00:00:00.000000Z")),
    "expired long ago": _edit(lambda document: document["ticket"].update(expires_at="2001-01-01T00:00:00.000000Z")),
    "another request": _edit(lambda document: _asked(document, request_hash="sha256:" + "1" * 64)),
    "abandoned": _edit(lambda document: document.update(status="abandoned")),
    "thousands of answers": _edit(_crowd),
    "an endless answer": _edit(_endless),
    "another ticket": _edit(lambda document: document["ticket"].update(id="other")),
    "not a ticket": _instead(lambda path: path.write_text("approved")),
    "taken away": _instead(lambda path: None),
    "a link": _instead(lambda path: path.symlink_to("aside")),
    "a pipe": _instead(os.mkfifo),
    "a folder": _instead(lambda path: path.mkdir()),
    "the lock held": _hold,
    "the lock a pipe": _lock_pipe,
    "the locks taken away": lambda folder, _: shutil.rmtree(folder / "locks"),
    "the locks elsewhere": _locks_elsewhere,
    "rejections taken out": _without_rejections,
    "rejections in a place of their own": _own_place,
    "something else asked for": _lie,
    "nothing else asked for": _never_lied,
    "rejections taken away": _away,
    "rejections of another ticket": _swapped,
    "rejections drowned": _flood,
    "rejections among junk": _junk,
    "nothing to see": _read_all,
}


# --- becoming somebody


def become(call: dict[str, Any]) -> int:
    """In the copy: be the process that was asked for, of the user that was asked for."""
    signal.alarm(call["patience"])
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, call["out"], os.O_WRONLY | os.O_CREAT),
        (2, call["err"], os.O_WRONLY | os.O_CREAT),
    ):
        file = os.open(name, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.setgroups(call["groups"])
    os.setresgid(call["gid"], call["gid"], call["gid"])
    os.setresuid(call["uid"], call["uid"], call["uid"])
    # A process that changes its user cannot be inspected until it runs another program; a gert that was started can.
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    os.umask(call["umask"])
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.stdin = open(0)  # noqa: SIM115 - what was read here is not the copy's
    if "attack" in call:
        ATTACKS[call["attack"]](Path(call["tickets"]), call["ticket"])
        return 0
    sys.argv = ["gert", *call["words"]]
    take_over(os.environ)
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def load() -> None:
    """Load whatever a call needs, also what is only loaded when it is used: by doing everything once."""
    with tempfile.TemporaryDirectory() as place, open(os.devnull, "w") as nowhere:
        Path(place, "book.yaml").write_text(json.dumps(BOOK))
        Path(place, "true.tool.yaml").write_text(json.dumps(TOOL))
        Path(place, "key").write_text("ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE=")
        os.environ["GERT_APPROVAL_KEY_KEY"] = Path(place, "key").read_text()
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            where = ["--state-dir", place]
            codes = [main(["exec", f"{place}/book.yaml", "--detach", "--json", *where])]
            (run,) = (each for each in Path(place, "runs").iterdir() if each.is_dir())
            codes += [
                main(words)
                for words in (
                    ["approvals", "list", *where],
                    ["approvals", "show", run.name, *where],
                    ["approve", run.name, "--as", "me", "--key", f"{place}/key", *where],
                    ["resume", "--run", run.name, *where],
                    ["trace", "verify", f"{run}/trace.jsonl"],
                    ["reject", run.name, *where],
                )
            ]
    assert codes == [0, 0, 0, 0, 0, 0, 1], codes


def serve() -> None:
    load()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 70
            try:
                code = become(json.loads(line))
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
