"""The process that drives one run in the background: it reads its task, reports once, and drives until the run ends."""

import asyncio
import os
import sys
from contextlib import suppress

import msgspec

from gert.ecosystem.host.background.launch import Report, Task
from gert.ecosystem.host.config.machine.process_setup import set_up_process
from gert.ecosystem.host.redrive.rerun import rerun
from gert.ecosystem.host.redrive.resume import resume
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.observer import SilentObserver
from gert.ecosystem.host.run.world.console import Console
from gert.errors import GertError
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload


class _Announcer(SilentObserver):
    """Reports the run when its first new event is on record."""

    def __init__(self) -> None:
        self._is_told = False

    def said(self, event: Envelope, payload: Payload) -> None:
        """The event is durable."""
        self.tell(event.run_id)

    def tell(self, run_id: str) -> None:
        """Report the run, once."""
        if not self._is_told:
            self._is_told = True
            report(Report(run_id=run_id))


def report(said: Report) -> None:
    """Write the report, and close the pipe: the process that started this one may end now."""
    with suppress(OSError):
        os.write(1, msgspec.json.encode(said) + b"\n")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def main() -> int:
    """Drive the run of the task on standard input."""
    set_up_process(os.environ)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    # No person is at this console: inputs that only a person could give are missing, which is an error.
    console = Console(None, lambda _: None)
    announcer = _Announcer()
    try:
        if task.resume is not None:
            executed = asyncio.run(resume(task.resume, observers=[announcer], console=console))
            # A run that still waits for the same tickets records nothing.
            announcer.tell(executed.run_id)
        elif task.rerun is not None:
            asyncio.run(rerun(task.rerun, observers=[announcer], console=console))
        elif task.execute is not None:
            asyncio.run(execute(task.execute, observers=[announcer], console=console))
    except GertError as problem:
        report(Report(error=type(problem).__name__, message=problem.message, hint=problem.hint))
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 1
    except Exception as problem:
        report(Report(error="GertError", message=f"internal error: {type(problem).__name__}: {problem}"))
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
