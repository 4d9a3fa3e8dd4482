"""The lease of a run that this process drives, held and renewed until the run ends or is detached."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from gert.ecosystem.ledger.holder import is_gone
from gert.errors import Busy, GertError
from gert.kernel.ledger.port import Ledger

SECONDS: Final = 30.0
"""How long a lease lasts; a process that dies on another host keeps its run for so long."""

_BEATS: Final = 3


@asynccontextmanager
async def hold_lease(ledger: Ledger, run_id: str) -> AsyncIterator[None]:
    """Be the only process that drives a run; Busy where another one does."""
    worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    if await ledger.acquire(run_id, worker, SECONDS) is None:
        raise Busy(f"run `{run_id}` is being driven by another process{await _who(ledger, run_id)}", hint=_WAIT)
    beats = asyncio.get_running_loop().create_task(_beat(ledger, run_id, worker))
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)
        # The lease runs out by itself where it cannot be given back.
        with suppress(GertError):
            await ledger.release(run_id, worker)


async def is_driven(ledger: Ledger, run_id: str) -> bool:
    """Whether a process drives a run: it holds the lease, and is not known to have ended."""
    lease = await ledger.lease(run_id)
    return lease is not None and not (lease.holder is not None and is_gone(lease.holder))


_WAIT: Final = "wait for it to end; a process that died on another host keeps its run for half a minute"


async def _beat(ledger: Ledger, run_id: str, worker: str) -> None:
    """Extend the lease while the run is driven; where another process has taken it, the next append is refused."""
    while True:
        await asyncio.sleep(SECONDS / _BEATS)
        with suppress(GertError):
            if await ledger.renew(run_id, worker, SECONDS, late=True) is None:
                return


async def _who(ledger: Ledger, run_id: str) -> str:
    lease = await ledger.lease(run_id)
    if lease is None or lease.holder is None:
        return ""
    return f" (process {lease.holder.pid} on `{lease.holder.host}`)"
