"""A worker process of `gert test`: it reads a task on standard input and writes one JSON line per runbook.

Standard input stays open while the suite runs: when it closes, the worker exits, however the suite ended.
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
    """The task of one worker."""

    groups: tuple[Group, ...]
    options: SuiteOptions


class RunbookResult(msgspec.Struct, frozen=True):
    """The results of one runbook."""

    tested: list[Tested]
    covered: Covered | None


def main() -> None:
    """Read the task and write its results until standard input closes."""
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
    # Unbuffered: a buffer's lock would still be held when the process exits normally.
    while os.read(0, 1):
        pass
    os._exit(1)


async def run_parallel(
    groups: Sequence[Group], options: SuiteOptions, jobs: int
) -> AsyncGenerator[RunbookResult, None]:
    """Test runbooks in several processes; yield results as they complete."""
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
                break  # the worker was killed in the middle of a line
            # A worker tests its runbooks in order, so each result is for the first one left.
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
    """Start this gert, never a module from the working directory, which belongs to the runbooks under test."""
    where = os.path.dirname(os.path.dirname(os.path.abspath(gert.__file__)))
    # Ctrl-C reaches every process of a terminal; the parent ends its workers and reports it once.
    ignore_interrupt = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    start = f"import sys; sys.path.append({where!r}); from gert.ecosystem.host.scenarios.worker import main; main()"
    return [sys.executable, "-P", "-c", f"{ignore_interrupt}; {start}"]


def _lost(group: Group) -> RunbookResult:
    """The result of a runbook whose worker exited early."""
    message = "the worker process exited before it finished"
    return RunbookResult([broken(folder, message, None) for folder in group.folders], None)
