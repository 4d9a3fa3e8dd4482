"""Helper programs that gert itself uses: git, and worker processes of `gert test`. Tools are started by `child`."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from gert.ecosystem.process.own_process import reaped, started

_LOOK: Final = 0.2
"""Seconds between two looks at the clock while a program says nothing."""

_CAN_WAIT: Final = sys.platform != "win32"
"""Whether a pipe can be waited for; elsewhere a program that says nothing is killed by a timer."""

_KILLED: Final = -9


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
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    limit: int,
    timeout: float,
    given_up: threading.Event | None = None,
) -> Output:
    """Run a program and return at most `limit` bytes of its output; a longer output ends it, and so does `timeout`.

    What it started in its session ends with it, and a descendant that left the session and still holds its output
    is not waited for.

    given_up: set by a caller that no longer waits
    """
    with subprocess.Popen(  # noqa: S603  # as above
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
        start_new_session=True,
    ) as process:
        deadline, data = time.monotonic() + timeout, bytearray()
        output = process.stdout.fileno() if process.stdout is not None else -1
        killer = threading.Timer(timeout, process.kill)
        if not _CAN_WAIT:
            killer.start()
        try:
            while len(data) < limit:
                if time.monotonic() > deadline or (given_up is not None and given_up.is_set()):
                    return Output(_KILLED, bytes(data))
                if _CAN_WAIT and not select.select([output], [], [], _LOOK)[0]:
                    continue
                block = os.read(output, limit - len(data))
                if not block:
                    break
                data += block
            code = 0 if len(data) == limit else process.wait(max(_LOOK, deadline - time.monotonic()))
            return Output(code, bytes(data))
        except subprocess.TimeoutExpired:
            return Output(_KILLED, bytes(data))
        finally:
            killer.cancel()
            if process.returncode is None:
                _kill_session(process)


def _kill_session(process: "subprocess.Popen[bytes]") -> None:
    """Kill a program that is not reaped, so that its session is still its own."""
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


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
