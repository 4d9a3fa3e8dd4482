"""Starts a process on POSIX: in a session of its own, with three descriptors and no others."""

import os
import signal
import subprocess
import sys
from typing import Any, Final

from gert.ecosystem.process.command import Command
from gert.ecosystem.process.descriptors import are_private

_RESTORED: Final = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name))
"""Signals Python ignores and others do not expect to be ignored."""


def spawn(command: Command, stdin: int, stdout: int, stderr: int) -> int:
    """Start a process and give its id; whoever calls waits for it.

    The system's own way takes two thirds of the time of `Popen`. It knows no folder to start in, it closes
    nothing, and the descriptors it is given must not lie where it puts them. A process it starts ignores the two
    signals the C library keeps for itself, as what shells and `make` start this way does; nobody else can send them.
    """
    if sys.platform == "linux" and are_private() and min(stdin, stdout, stderr) > 2 and _is_here(command.folder):
        actions: Any = [(os.POSIX_SPAWN_DUP2, each, to) for to, each in enumerate((stdin, stdout, stderr))]
        return os.posix_spawn(
            command.program,
            [command.name, *command.arguments],
            command.environment,
            file_actions=actions,
            setsid=True,
            setsigdef=_RESTORED,
        )
    popen = subprocess.Popen(  # noqa: S603 - no shell, and the words are given one by one
        [command.name, *command.arguments],
        executable=command.program,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=command.folder,
        env=command.environment,
        start_new_session=True,
    )
    # We wait for it ourselves, and it must not.
    popen.returncode = 0
    return popen.pid


def _is_here(folder: str) -> bool:
    """Whether this process is in a folder; one that was removed is nowhere, though another may be in its place."""
    try:
        return folder == os.getcwd()
    except OSError:
        return False
