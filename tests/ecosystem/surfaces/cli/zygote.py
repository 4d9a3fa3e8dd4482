"""A process that has loaded `gert` and starts copies of itself, so that a hundred calls need not load it again.

Each line on its standard input is a call: words, folder, environment, files for the output, and perhaps one with what
a pipe gives the call as its standard input. Each call is a process of its own; the answer is its exit code.
"""

import gc
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.process.descriptors import keep_private
from gert.ecosystem.process.own_process import claim_process
from gert.ecosystem.surfaces.cli.main import COMMANDS, main

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "runbooks" / "demo-service-restart.yaml"
# Loaded here, so that no call needs to: every command, and what most of them load only where it is needed.
LATER = (
    *("asyncpg", "concurrent.futures.thread", "cryptography.hazmat.primitives.asymmetric.ed25519", "ctypes", "gettext"),
    *("gert.ecosystem.ledger.postgres.ledger", "gert.ecosystem.ledger.sqlite.ledger", "httpx2", "pwd", "re2"),
    *("rich.console", "rich.table"),
)
LOADED = [
    import_module(name)
    for name in (*(f"gert.ecosystem.surfaces.cli.commands.{module}" for module, _ in COMMANDS.values()), *LATER)
]


def become(call: dict[str, Any]) -> int:
    """In the copy: be the process that was asked for."""
    signal.alarm(call["patience"])
    if "stdin" in call:
        os.dup2(filled_pipe(call["stdin"]), 0)
    for number, name, flags in (
        *([] if "stdin" in call else [(0, os.devnull, os.O_RDONLY)]),
        (1, call["out"], os.O_WRONLY | os.O_CREAT),
        (2, call["err"], os.O_WRONLY | os.O_CREAT),
    ):
        file = os.open(name, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.stdin = open(0)  # noqa: SIM115 - what was read here is not the copy's
    sys.argv = ["gert", *call["words"]]
    keep_private()
    claim_process(os.environ)
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def filled_pipe(name: str) -> int:
    """A pipe that gives what is in a file, and ends."""
    reading, writing = os.pipe()
    with open(name, "rb") as file, open(writing, "wb") as pipe:
        pipe.write(file.read())
    return reading


def serve() -> None:
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
    Workspace().program(str(EXAMPLE))  # what is built when it is first used is built here
    gc.freeze()  # what is never collected is not copied into every call
    serve()
