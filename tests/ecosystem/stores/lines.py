"""Lines for stores: chained events of any run, and answers."""

from pathlib import Path

from gert.ecosystem.stores.jsonl import JsonlStore
from gert.ecosystem.stores.memory import MemoryStore
from gert.ecosystem.stores.port import Store
from gert.ecosystem.stores.sqlite import SqliteStore
from gert.kernel.events.chain import Chain
from gert.kernel.events.envelope import Envelope, encode

RUN = "20260228-143000-a1b2"


def events(count: int, run_id: str = RUN, size: int = 20) -> list[bytes]:
    chain, lines = Chain(), []
    for _ in range(count):
        event = Envelope(
            seq=chain.next_seq,
            run_id=run_id,
            type="step_start",
            timestamp="2026-02-28T14:30:00.000000Z",
            prev_hash=chain.head,
            data={"step_id": "größe", "padding": "x" * size},
        )
        lines.append(encode(event))
        chain.append(lines[-1])
    return lines


def answers(count: int) -> list[bytes]:
    return [f'{{"key":"step/{number}","stdout":"ok"}}'.encode() for number in range(count)]


def open_store(kind: str, folder: Path, *, sync: bool = True) -> Store:
    """A new store of a kind."""
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite":
        return SqliteStore(folder / "runs.db", sync=sync)
    return JsonlStore(folder / "trace.jsonl", folder / "answers.jsonl", sync=sync)


def open_again(kind: str, folder: Path) -> Store:
    """The same store after its process has gone."""
    if kind == "sqlite":
        return SqliteStore(folder / "runs.db")
    return JsonlStore.reopen(folder / "trace.jsonl", folder / "answers.jsonl")
