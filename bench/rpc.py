"""JSON-RPC: calls of the peer on one warm runner, beside an echo of bare lines by the same program.

The floor is a loop that sends a line over the same pipes and awaits the line that comes back, without JSON, ids, limits
and a pool. A loop that blocks on its pipes is shown as well: it is what the operating system can do, and nothing else
could happen meanwhile.

All of it runs on one processor. Where the system moves a program to another one, waking it up costs more than a call
does, and it moves the program that answers calls and not the one that echoes, or the other way round, as it happens.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.ratio import Ratio, report
from gert.ecosystem.process.command import Command
from gert.ecosystem.process.descendants import MARK
from gert.ecosystem.process.process import Process
from gert.ecosystem.process.stdin import StdinStream
from gert.ecosystem.rpc import Server, Servers
from gert.kernel.foundation.redaction import Redactor

CALLS = 100
TURNS = 20
ROUNDS = 5
# One program for all: it reads a line, and answers it as JSON-RPC or as it is.
PROGRAM = """
import json, sys
read, write = sys.stdin.buffer, sys.stdout.buffer
for line in read:
    if line.startswith(b"{"):
        call = json.loads(line)
        line = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": call["params"]}).encode() + b"\\n"
    write.write(line)
    write.flush()
"""
ARGUMENTS = ("-S", "-E", "-c", PROGRAM)
PARAMS = {"inputs": {"target": "web-1"}, "vars": {}, "contract": {}}
LINE = b'["2.0", 1234, "execute", {"inputs": {"target": "web-1"}, "vars": {}, "contract": {}}, "........"]\n'


class Echo:
    """A process on the same pipes as a server, whose lines are only counted."""

    def __init__(self) -> None:
        self.fed = 0
        self._answer: asyncio.Future[None] | None = None
        self._stdin = StdinStream(1 << 20)
        self._process = Process(self, _Ignored(), 0.1)

    def feed(self, data: bytes) -> None:
        """A line arrived."""
        if self._answer is not None and data.endswith(b"\n"):
            self._answer.set_result(None)

    def close(self) -> None:
        """It has ended."""

    async def start(self) -> None:
        """Start it."""
        await self._process.start(_command(), self._stdin)

    async def echo(self) -> None:
        """Send a line and wait for it."""
        self._answer = asyncio.get_running_loop().create_future()
        self._stdin.send(LINE)
        await self._answer

    async def stop(self) -> None:
        """End it."""
        await self._process.stop(0)
        self._process.close()


class _Ignored:
    fed = 0

    def feed(self, data: bytes) -> None:
        """Standard error is not read."""

    def close(self) -> None:
        """It has ended."""


def main() -> int:
    """Measure and report."""
    with _one_processor():
        calls, echoes, blocking = map(statistics.median, zip(*asyncio.run(_measured()), strict=True))
    print(
        f"     a second: {1 / calls:,.0f} calls, {1 / echoes:,.0f} bare echoes ({echoes / calls:.0%}, aim 50 %), "
        f"{1 / blocking:,.0f} echoes of a loop that blocks ({blocking / calls:.0%})"
    )
    return report([Ratio("a call of the peer / a bare echo over the same pipes", calls, echoes, 2.0)])


@contextmanager
def _one_processor() -> Iterator[None]:
    """Run this process, and those it starts, on one processor, where the system can be told to."""
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _measured() -> list[tuple[float, float, float]]:
    """The seconds of one call, one echo and one blocking echo, in turns."""
    servers, echo = Servers(), Echo()
    server = Server(name="runner", title="the runner", command=_command(), redactor=Redactor())
    with subprocess.Popen(
        [sys.executable, *ARGUMENTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as bare:
        try:
            await echo.start()
            rounds = []
            for _ in range(ROUNDS + 1):
                turns = [(await _calls(servers, server), await _echoes(echo), _blocking(bare)) for _ in range(TURNS)]
                rounds.append((_mean(turns, 0), _mean(turns, 1), _mean(turns, 2)))
            return rounds[1:]
        finally:
            await servers.close()
            await echo.stop()
            bare.kill()


def _mean(turns: list[tuple[float, float, float]], column: int) -> float:
    """The mean of short turns: whatever else the machine does hits all three alike."""
    return statistics.fmean(turn[column] for turn in turns)


async def _calls(servers: Servers, server: Server) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        await servers.call(server, "execute", PARAMS)
    return (time.perf_counter() - started) / CALLS


async def _echoes(echo: Echo) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        await echo.echo()
    return (time.perf_counter() - started) / CALLS


def _blocking(process: "subprocess.Popen[bytes]") -> float:
    if process.stdin is None or process.stdout is None:
        return 0.0
    write, read = process.stdin.fileno(), process.stdout.fileno()
    started = time.perf_counter()
    for _ in range(CALLS):
        os.write(write, LINE)
        while not os.read(read, 65536).endswith(b"\n"):
            pass
    return (time.perf_counter() - started) / CALLS


def _command() -> Command:
    environment = {b"PATH": os.environ["PATH"].encode(), MARK.encode(): b"bench"}
    return Command(
        name="runner", program=sys.executable, arguments=ARGUMENTS, environment=environment, folder=os.getcwd()
    )


if __name__ == "__main__":
    sys.exit(main())
