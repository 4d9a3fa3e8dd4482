"""A process that tests some runbooks of a suite: told which on standard input, it tells what it found line by line.

It is started by `gert test` itself, and speaks nothing but JSON. Standard input stays open for as long as somebody
wants to know: when it ends, so does the worker, in whichever way its suite came to an end.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

import gert
from gert.ecosystem.host.scenarios.suite import Covered, Group, SuiteOptions, Tested, broken, run_groups
from gert.ecosystem.process.helper import start_worker

_LONGEST_LINE: Final = 64 * 1024 * 1024


class Task(msgspec.Struct, frozen=True):
    """What one worker does."""

    groups: tuple[Group, ...]
    options: SuiteOptions


class RunbookResult(msgspec.Struct, frozen=True):
    """What was found out about one runbook."""

    tested: list[Tested]
    covered: Covered | None


def main() -> None:
    """Do what standard input says, while somebody is there to be told."""
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    threading.Thread(target=_end_with_suite, daemon=True).start()
    for group in task.groups:
        found = list(run_groups([group], task.options))
        book = RunbookResult(
            [each for each in found if isinstance(each, Tested)],
            next((each for each in found if isinstance(each, Covered)), None),
        )
        sys.stdout.buffer.write(msgspec.json.encode(book, enc_hook=str) + b"\n")
        sys.stdout.buffer.flush()


def _end_with_suite() -> None:
    # Not through a buffer: its lock would still be held when this process ends by itself.
    while os.read(0, 1):
        pass
    os._exit(1)


async def run_parallel(
    groups: Sequence[Group], options: SuiteOptions, jobs: int
) -> AsyncGenerator[RunbookResult, None]:
    """Test runbooks in several processes; they come as they are done."""
    found: asyncio.Queue[RunbookResult | None] = asyncio.Queue()
    workers = [asyncio.create_task(_work(groups[index::jobs], options, found)) for index in range(jobs)]
    try:
        left = jobs
        while left:
            book = await found.get()
            if book is None:
                left -= 1
            else:
                yield book
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _work(groups: Sequence[Group], options: SuiteOptions, found: "asyncio.Queue[RunbookResult | None]") -> None:
    process: asyncio.subprocess.Process | None = None
    left = list(groups)
    try:
        process = await start_worker(_command(), limit=_LONGEST_LINE)
        if process.stdin is None or process.stdout is None:
            return
        process.stdin.write(msgspec.json.encode(Task(tuple(groups), options)) + b"\n")
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # it was ended in the middle of a line
            # A worker takes its runbooks in order, so what comes is always about the first that is left.
            await found.put(msgspec.json.decode(line, type=RunbookResult))
            del left[:1]
        await process.wait()
        for group in left:
            await found.put(_lost(group))
    finally:
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if process is not None and process.stdin is not None:
            process.stdin.close()
        await found.put(None)


def _command() -> list[str]:
    """A worker is this gert, never a module that lies in the working folder: that is whoever's runbooks are tested."""
    where = os.path.dirname(os.path.dirname(os.path.abspath(gert.__file__)))
    # Ctrl-C reaches every process of a terminal; whoever started this one ends it, and says so once.
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    start = f"import sys; sys.path.append({where!r}); from gert.ecosystem.host.scenarios.worker import main; main()"
    return [sys.executable, "-P", "-c", f"{deaf}; {start}"]


def _lost(group: Group) -> RunbookResult:
    """A worker that ended before its time leaves nothing untold."""
    message = "the process that tested it ended before it was done"
    return RunbookResult([broken(folder, message, None) for folder in group.folders], None)
