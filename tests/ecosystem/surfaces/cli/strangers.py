"""A process that has loaded `gert` and starts copies of itself that are other users of this machine.

Each line on its standard input is a call: a user, an umask, and words for `gert`. The
Python that tests run with may lie where other users cannot read, so everything is loaded before a copy becomes one.
"""

import ctypes
import json
import os
import signal
import sys
import tempfile
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from gert.ecosystem.process.own_process import claim_process
from gert.ecosystem.surfaces.cli.main import main

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
    sys.argv = ["gert", *call["words"]]
    claim_process(os.environ)
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
            Path(place, "gert-project.yaml").write_text(json.dumps({"name": "x", "approvals": {"drop_box": "box"}}))
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
