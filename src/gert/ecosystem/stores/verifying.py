"""Verifying a run in any ledger: every line is read once, a page at a time."""

from typing import Final

from gert.errors import RunNotFound
from gert.kernel.agent.ledger import Head, Ledger
from gert.kernel.agent.verifying import RunReport, check_run
from gert.kernel.events.chain import ChainReader, ChainReport
from gert.kernel.foundation.signature import Keys

_NO_KEYS: Final = Keys()


async def verify_run(
    ledger: Ledger, run_id: str, keys: Keys = _NO_KEYS, *, require_seal: bool = False, key_id: str | None = None
) -> RunReport:
    """Check a run against the end the ledger keeps of it; RunError where there is no such run."""
    report, head = await read_run(ledger, run_id)
    if head is None and not report.events and report.torn is None:
        raise RunNotFound(f"there is no run `{run_id}`", hint="`gert run list` shows what there is")
    return check_run(report, head, keys, run_id=run_id, require_seal=require_seal, key_id=key_id)


async def read_run(ledger: Ledger, run_id: str) -> tuple[ChainReport, Head | None]:
    """Read lines until there are no more; the end is asked for after them, as others may be writing."""
    reader, count = ChainReader(), 0
    while True:
        before = count
        async for line in ledger.stream(run_id, count):
            reader.add(line)
            count += 1
        head = await ledger.head(run_id)
        report = reader.report()
        # Of a chain that is broken nobody can say after which number to go on.
        if count == before or head is None or head.count <= count or report.break_count:
            return report, head
