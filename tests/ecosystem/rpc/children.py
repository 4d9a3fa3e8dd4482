"""Children that speak JSON-RPC, as a few lines of Python, and a pool to call them."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

from gert.ecosystem.process.command import Command
from gert.ecosystem.process.descendants import MARK
from gert.ecosystem.process.process_table import ProcessTable
from gert.ecosystem.rpc import Server, Servers
from gert.kernel.foundation.redaction import Redactor

T = TypeVar("T")
_CALLS = count()

PRELUDE = """
import json, os, sys, time
def read():
    line = sys.stdin.readline()
    if not line: sys.exit(0)
    return json.loads(line)
def write(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def answer(message, result): write(id=message["id"], result=result)
"""

ECHO = "while True:\n    m = read()\n    if 'id' in m: answer(m, m.get('params'))\n"


def server(code: str, *, name: str = "s", hides: tuple[str, ...] = (), **options: Any) -> Server:
    """A server that runs this code after the prelude."""
    mark = f"test/{os.getpid()}-{next(_CALLS)}"
    environment = {"PATH": os.environ["PATH"], MARK: mark}
    return Server(
        name=name,
        title=f"the server `{name}`",
        command=Command(
            name="server",
            program=sys.executable,
            arguments=("-S", "-E", "-c", PRELUDE + code),
            environment={key.encode(): value.encode() for key, value in environment.items()},
            folder=os.getcwd(),
        ),
        redactor=Redactor(hides),
        **{"grace": 0.5, **options},
    )


def with_servers(work: Callable[[Servers], Awaitable[T]]) -> T:
    """Run it with a pool, for half a minute at most; the pool is closed afterwards."""

    async def bounded() -> T:
        async with asyncio.timeout(30):
            servers = Servers()
            try:
                return await work(servers)
            finally:
                await servers.close()

    return asyncio.run(bounded())


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    return pid in ProcessTable().entries
