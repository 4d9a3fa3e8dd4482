"""What is written to a ledger on Postgres in its tests, here and in processes of their own."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from gert.ecosystem.stores.postgres import PostgresLedger
from gert.kernel.agent.compose import Entry, compose
from gert.kernel.agent.ledger import Batch, Head, Ledger, Write, Written
from gert.kernel.events.agent import RunSummary, ToolCompleted, ToolRequested
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import decode
from gert.kernel.events.payload import Payload

ROOT = Path(__file__).resolve().parents[3]
TENANT = "acme"


def says(*payloads: Payload) -> Write:
    """Writes these events."""

    def write(head: Head, moment: str) -> Batch:
        return compose(head, moment, TENANT, [Entry(payload) for payload in payloads])

    return write


def note(text: str, kind: str = "note") -> RunSummary:
    return RunSummary(summary_type=kind, summary_json=f'"{text}"')


def asks(key: str, semantic_key: str | None = None, tool: str = "pay") -> ToolRequested:
    return ToolRequested(
        tool_name=tool,
        arguments_json="{}",
        idempotency_key="i",
        tool_version="1",
        schema_version="1",
        step_key=key,
        semantic_idempotency_key=semantic_key,
    )


def answers(seq: int, outcome: str = "success", tool: str = "pay") -> ToolCompleted:
    return ToolCompleted(request_seq=seq, tool_name=tool, result_json="{}", outcome=outcome)  # type: ignore[arg-type]


async def notes_of(ledger: Ledger, run_id: str) -> list[str]:
    """The texts of all notes of a run, whose chain must hold and end where the ledger says."""
    lines = await ledger.lines(run_id, limit=100_000)
    head = await ledger.head(run_id)
    report = read_chain(line + b"\n" for line in lines)
    assert report.breaks == ()
    assert (head.count, head.hash) == (len(lines), report.head) if head is not None else not lines
    return [str(decode(line).data["summary_json"]).strip('"') for line in lines if b'"run_summary"' in line]


async def append_all(ledger: Ledger, run_id: str, texts: Sequence[str]) -> None:
    for text in texts:
        assert isinstance(await ledger.append(run_id, says(note(text))), Written)


async def _main(dsn: str, run_id: str, name: str, count: int) -> None:
    async with PostgresLedger(dsn) as ledger:
        await append_all(ledger, run_id, [f"{name}-{number}" for number in range(count)])


async def in_process(dsn: str, run_id: str, name: str, count: int) -> int:
    """Append so many notes to a run in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", "tests.ecosystem.stores.postgres_writes",
        dsn, run_id, name, str(count), cwd=ROOT,
    )  # fmt: skip
    return await process.wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:4], int(sys.argv[4])))
