"""Helper programs that gert itself uses: git, and worker processes of `gert test`. Tools are started by `child`."""

import asyncio
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gert.ecosystem.process.own_process import reaped, started


class Output(NamedTuple):
    """The exit code and output of a helper program that has ended."""

    code: int
    stdout: bytes
    stderr: bytes = b""


def run_helper(command: Sequence[str], environ: Mapping[str, str], *, stdin: bytes, timeout: float) -> Output:
    """Run a program without a shell and return its output; raise TimeoutError after `timeout` seconds."""
    try:
        done = subprocess.run(  # noqa: S603  # the command is gert's own, and no shell reads it
            command, input=stdin, capture_output=True, env=environ, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return Output(done.returncode, done.stdout, done.stderr)


def read_helper(
    command: Sequence[str], environ: Mapping[str, str], *, limit: int, timeout: float, with_errors: bool = False
) -> Output:
    """Run a program and return at most `limit` bytes of its output; a longer output ends it, and so does `timeout`.

    with_errors: its standard error is part of the output
    """
    errors = subprocess.STDOUT if with_errors else subprocess.DEVNULL
    with subprocess.Popen(  # noqa: S603  # as above
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environ
    ) as process:
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        try:
            data = process.stdout.read(limit) if process.stdout is not None else b""
            return Output(0 if len(data) == limit else process.wait(), data)
        finally:
            process.kill()
            timer.cancel()


async def start_worker(command: Sequence[str], *, limit: int) -> asyncio.subprocess.Process:
    """Start a worker process that reads tasks and writes results, lines of at most `limit` bytes, on its pipes."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=limit)


def start_background(command: Sequence[str], environ: Mapping[str, str], task: bytes, limit: int) -> tuple[int, bytes]:
    """Start a process that outlives this one, and return its id and the one line it reports, or b"" if it ended.

    It has its own session, so that neither Ctrl-C nor a closed terminal reaches it, and holds no pipe of this process
    once it has reported.
    """
    process = subprocess.Popen(  # noqa: S603  # as above
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
        start_new_session=True,
    )
    started(process.pid)
    threading.Thread(target=_reap, args=(process,), name="gert-driver", daemon=True).start()
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both pipes were asked for")
    with process.stdout, suppress(BrokenPipeError):
        with process.stdin:
            process.stdin.write(task)
        return process.pid, process.stdout.readline(limit)
    return process.pid, b""


def _reap(process: "subprocess.Popen[bytes]") -> None:
    process.wait()
    reaped(process.pid)


def run_on_terminal(command: Sequence[str], environ: Mapping[str, str], stdin: bytes) -> int:
    """Run a program that takes over the terminal, such as a pager, and return its exit code."""
    done = subprocess.run(command, input=stdin, env=environ, check=False)  # noqa: S603  # as above
    return done.returncode
