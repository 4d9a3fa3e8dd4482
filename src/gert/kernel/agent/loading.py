"""Reading a run into memory, when a process first looks something up in it."""

from gert.errors import TraceError
from gert.kernel.agent.memory import RunMemory
from gert.kernel.ledger.port import Ledger

PRELOADED = 4000
"""A run of no more events is read at once."""

PAGE = 1000


async def preloaded(ledger: Ledger, run_id: str) -> RunMemory:
    """What is known of a run: one that is short is read whole, a long one is looked up step by step."""
    memory = RunMemory()
    head = await ledger.head(run_id)
    if head is not None and head.count > PRELOADED:
        memory.complete = False
        return memory
    while head is not None and memory.count < head.count:
        lines = await ledger.lines(run_id, memory.count, PAGE)
        if not lines:
            raise TraceError(f"run `{run_id}` has lost events: expected {head.count}, found {memory.count}")
        memory.read(memory.count + 1, lines)
    return memory
