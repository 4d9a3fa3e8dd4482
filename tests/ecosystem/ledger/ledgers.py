"""Every ledger the promise suite runs on, how to open one, and what is written to it; also for other processes."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from msgspec.structs import replace

from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.kernel.events.agent import HarnessStage, RunStarted, RunSummary, ToolCompleted, ToolRequested
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import encode_payload
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import RunStart
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import Projection
from gert.kernel.ledger.record import Batch, Event, Head, Write, Written, hash_answer

P = ParamSpec("P")

ROOT = Path(__file__).resolve().parents[3]
NOON = datetime(2026, 2, 28, 12, tzinfo=UTC)
TENANT = "acme"
RUN = "20260228-120000-000-a1b2c3"
# Longer than `in_loop` lets a test take: what should be woken and is not, fails.
LONG = 1000.0

# Opens a ledger at a place: a file, a folder, or the address of a server.
LEDGERS: dict[str, Callable[..., Ledger]] = {
    "memory": lambda _, **options: SqliteLedger(":memory:", **options),
    "sqlite": SqliteLedger,
    "sqlite-threads": SqliteLedger,
    "postgres": PostgresLedger,
}
# Those that more than one process can open.
SHARED = [kind for kind in LEDGERS if kind != "memory"]


def place_of(kind: str, folder: Path) -> str:
    """Where a ledger of a kind lives in a test."""
    return str(folder / ("runs.db" if kind.startswith("sqlite") else "runs"))


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.moment = NOON

    def __call__(self) -> datetime:
        return self.moment

    def passes(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def in_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own, which it cannot block for ever."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            async with asyncio.timeout(120):
                await test(*args, **kwargs)

        asyncio.run(main())

    return run


# --- what is written


def says(*payloads: Payload, tenant: str = TENANT) -> Write:
    """Writes these events."""

    def write(head: Head, moment: str) -> Batch:
        return build_batch(head, moment, tenant, [Entry(payload) for payload in payloads])

    return write


def note(text: str = "", kind: str = "note") -> RunSummary:
    return RunSummary(summary_type=kind, summary_json=text)


def stage(text: str) -> HarnessStage:
    return HarnessStage(stage=text)


def asks(key: str | None = None, semantic_key: str | None = None, tool: str = "pay") -> ToolRequested:
    return ToolRequested(
        tool_name=tool,
        arguments_json="{}",
        idempotency_key="i",
        step_key=key,
        semantic_idempotency_key=semantic_key,
    )


def answers(seq: int, outcome: str = "success", tool: str = "pay") -> ToolCompleted:
    return ToolCompleted(request_seq=seq, tool_name=tool, outcome=outcome)  # type: ignore[arg-type]


def starts(head: Head, moment: str) -> Batch:
    """Begins a run that nobody has begun."""
    if head.count:
        raise FileExistsError(head.run_id)
    return build_batch(head, moment, TENANT, [Entry(RunStarted())])


async def written(ledger: Ledger, *payloads: Payload, run_id: str = RUN) -> Written:
    """Append what must be appended."""
    done = await ledger.append(run_id, says(*payloads))
    assert isinstance(done, Written), done
    return done


async def check(ledger: Ledger, run_id: str = RUN) -> list[bytes]:
    """The lines of a run whose chain holds and ends where the ledger says."""
    lines = [line async for line in ledger.stream(run_id)]
    head = await ledger.head(run_id)
    assert head is not None
    report = read_chain(lines)
    assert (report.breaks, report.torn) == ((), None)
    assert (head.count, head.hash) == (report.events, report.head)
    assert report.run_id == run_id
    return lines


# --- a runbook run, whose driver holds the lease

STARTED = RunStart(runbook="r", runbook_hash="h", actor="ann", host="here", gert_version="1", mode="real")


def drives(*payloads: Payload, answers: Sequence[bytes] = (), **more: Any) -> Write:
    """Writes these events of a runbook run, and the answers they rest on.

    more: other parts of the batch
    """

    def write(head: Head, moment: str) -> Batch:
        answers_hash = head.answers_hash
        for answer in answers:
            answers_hash = hash_answer(answers_hash, answer)
        named = f"{head.answers + len(answers)}:{answers_hash}" if answers else None
        projection = Projection(head)
        lines: list[Event] = []
        seq, chain = head.count, head.hash
        for payload in payloads:
            seq += 1
            path = getattr(payload, "step_id", None)
            line = encode_payload(payload, seq, head.run_id, moment, None, path, chain, answers=named)
            named, chain = None, sha256_hex(line)
            lines.append(Event(seq, payload.type, moment, None, line))
            projection.add(payload, seq, moment, path)
        after = replace(
            head, kind="runbook", count=seq, hash=chain, answers=head.answers + len(answers),
            answers_hash=answers_hash, snapshot=projection.snapshot, started_at=head.started_at or moment,
            updated_at=moment if payloads else head.updated_at,
        )  # fmt: skip
        return Batch(
            after, lines, projection.calls, projection.ends, answers, projection.tickets, projection.ticket_ends, **more
        )

    return write


# --- in other processes

PRELUDE = """
import asyncio, os, sys
from tests.ecosystem.ledger.ledgers import *
from gert.errors import *
kind, place, *rest = sys.argv[1:]
async def main():
    async with LEDGERS[kind](place) as ledger:
        await work(ledger)
"""


def process(kind: str, place: str, work: str, *rest: str) -> "subprocess.Popen[bytes]":
    """Let another process work on a ledger: `work` is the body of a function of `ledger`, and of `rest`."""
    body = "".join(f"    {line}\n" for line in work.strip().splitlines())
    script = f"{PRELUDE}\nasync def work(ledger):\n{body}\nasyncio.run(main())\n"
    return subprocess.Popen(
        [sys.executable, "-c", script, kind, place, *rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )


async def outcome_of(child: "subprocess.Popen[bytes]") -> list[bytes]:
    """What a process printed, which must have ended well."""
    out, err = await asyncio.to_thread(child.communicate, None, 60)
    assert child.returncode == 0, err.decode()
    return out.splitlines()


async def gathered(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What came of work that is done at the same time, errors included."""
    return await asyncio.gather(*work, return_exceptions=True)
