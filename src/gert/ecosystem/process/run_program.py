"""Run one program to its end in a clean environment: the runner itself, and programs in a sandbox."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gert.ecosystem.process.capture import Capture
from gert.ecosystem.process.command import Command
from gert.ecosystem.process.descendants import MARK
from gert.ecosystem.process.process import Process
from gert.kernel.foundation.redaction import Redactor


class Ended(NamedTuple):
    """A program that has ended: its status, negative for a signal, None if unknown; and what it printed."""

    status: int | None
    stdout: Capture
    stderr: Capture


async def run_program(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: str,
    redactor: Redactor,
    limit: int,
    mark: str,
    stdin: bytes | None = None,
    inherited: tuple[int, ...] = (),
    stop_grace: float = 2.0,
    printing: Callable[[Capture, Capture], object] | None = None,
    leaves_nothing: bool = False,
) -> Ended:
    """Run a program without a shell; OSError or ValueError if it cannot be started.

    When cancelled, it and everything it started have ended before this returns.

    environment: everything it gets, beside a mark by which its processes are found
    limit: bytes kept of each stream
    printing: given its output and its errors, which grow while it runs
    leaves_nothing: processes that it left running are ended when it has ended
    """
    stdout, stderr = Capture(redactor, limit), Capture(redactor, limit)
    if printing is not None:
        printing(stdout, stderr)
    process = Process(stdout, stderr, quiet=0.25)
    command = Command(
        name=argv[0],
        program=argv[0],
        arguments=tuple(argv[1:]),
        environment={os.fsencode(name): os.fsencode(value) for name, value in {**environment, MARK: mark}.items()},
        folder=folder,
        stdin=stdin,
        inherited=inherited,
    )
    try:
        try:
            await process.start(command)
            status = await process.done()
            if leaves_nothing:
                await process.stop(stop_grace)
            return Ended(status, stdout, stderr)
        except BaseException:
            await process.stop(stop_grace)
            raise
    finally:
        process.close()
