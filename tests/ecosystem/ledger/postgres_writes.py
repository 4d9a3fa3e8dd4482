"""Notes in a ledger on Postgres, written here and in processes of their own."""

import asyncio
import sys
from collections.abc import Sequence

from tests.ecosystem.ledger.ledgers import ROOT, check, note, written

from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.port import Ledger


async def append_all(ledger: Ledger, run_id: str, texts: Sequence[str]) -> None:
    """Append notes, each on its own."""
    for text in texts:
        await written(ledger, note(text), run_id=run_id)


async def notes_of(ledger: Ledger, run_id: str) -> list[str]:
    """The texts of all notes of a run, whose chain must hold and end where the ledger says."""
    if await ledger.head(run_id) is None:
        return []
    return [decode(line).data["summary_json"] for line in await check(ledger, run_id) if b'"run_summary"' in line]


async def in_process(dsn: str, run_id: str, name: str, count: int) -> int:
    """Append so many notes to a run in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", "tests.ecosystem.ledger.postgres_writes",
        dsn, run_id, name, str(count), cwd=ROOT,
    )  # fmt: skip
    return await process.wait()


async def _main(dsn: str, run_id: str, name: str, count: str) -> None:
    async with PostgresLedger(dsn) as ledger:
        await append_all(ledger, run_id, [f"{name}-{number}" for number in range(int(count))])


if __name__ == "__main__":
    _, *given = sys.argv
    asyncio.run(_main(*given))
