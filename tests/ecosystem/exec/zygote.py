"""A process that has loaded `gert` and starts copies of itself, so that a hundred calls need not load it again.

Each line on its standard input is a call: words, folder, environment, and files for the output. Each call is a
process of its own; the answer is its exit code.
"""

import json
import os
import signal
import sys
from typing import Any

from gert.ecosystem.executors.descriptors import keep_private
from gert.ecosystem.executors.own_process import take_over
from gert.ecosystem.surfaces.cli.exec import command as exec_command
from gert.ecosystem.surfaces.cli.main import main
from gert.ecosystem.surfaces.cli.trace import command as trace_command

# Loaded here, so that no call needs to.
LOADED = (exec_command, trace_command)


def become(call: dict[str, Any]) -> int:
    """In the copy: be the process that was asked for."""
    signal.alarm(call["patience"])
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY),
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
    take_over(os.environ)
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


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
    serve()
