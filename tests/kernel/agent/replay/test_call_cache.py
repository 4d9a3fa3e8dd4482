"""What a process knows of the requests of a run is a hint: what it does not know, it reads."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gert.kernel.agent.replay import call_cache
from gert.kernel.agent.replay.call_cache import CallCache
from gert.kernel.events.agent import (
    ContextRead,
    ModelCompleted,
    ModelFailed,
    ModelRequested,
    ReplayedWithDrift,
    RunStarted,
    RunSummary,
)
from gert.kernel.events.payload import Payload
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import Batch, Call, Head, ended

MOMENT = "2030-01-01T00:00:00.000000Z"

EVENTS: list[Payload] = [
    RunStarted(),
    ModelRequested(model="m", prompt="q", step_key="k", input_hash="h"),
    ModelFailed(request_seq=2, model="m", reason="failed"),
    ModelRequested(model="m", prompt="q", step_key="k", input_hash="h"),
    ModelCompleted(request_seq=4, model="m", output_json="{}"),
    RunSummary(summary_type="x", summary_json="{}"),
    ReplayedWithDrift(
        model="m", source_model_requested_event_id="r#4", replay_policy="allow_prompt_drift", input_hash="other"
    ),
    ContextRead(source="s", step_key="c", content="text"),
]


class FakeLedger:
    """The requests of one run, and how often they were read."""

    def __init__(self) -> None:
        self.stored: dict[int, Call] = {}
        self.count = 0
        self.asked: list[str] = []

    def write(self, batch: Batch) -> Batch:
        self.count = batch.head.count
        self.stored |= {call.seq: call for call in batch.calls}
        for end in batch.ends:
            self.stored[end.seq] = ended(self.stored[end.seq], end)
        return batch

    async def head(self, run_id: str) -> Head:
        self.asked.append("head")
        return Head(run_id, count=self.count)

    async def all_calls(self, run_id: str, since: int, limit: int) -> list[Call]:
        self.asked.append("all_calls")
        return list(self.stored.values())[:limit]

    async def calls(self, run_id: str, key: str) -> list[Call]:
        self.asked.append(key)
        return sorted((call for call in self.stored.values() if call.key == key), key=lambda c: c.seq, reverse=True)


def batches(*sizes: int) -> list[Batch]:
    """All events, in batches of these sizes."""
    found, head, left = [], Head("r"), list(EVENTS)
    for size in [*sizes, len(EVENTS)]:
        if left:
            found.append(build_batch(head, MOMENT, "acme", [Entry(each) for each in left[:size]]))
            head, left = found[-1].head, left[size:]
    return found


def calls(cache: CallCache, key: str, **more: Any) -> list[Call]:
    return asyncio.run(cache.calls("r", key, **more))


def opened() -> tuple[FakeLedger, CallCache]:
    ledger = FakeLedger()
    return ledger, CallCache(ledger)  # type: ignore[arg-type]


def known(found: Sequence[Call]) -> list[tuple[int, str, int | None, str]]:
    return [(call.seq, call.outcome, call.done_seq, call.drift) for call in found]


EXPECTED = [(4, "success", 5, "other"), (2, "failed", 3, "")]


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1, 1, 1, 1, 1, 1), (2, 2), (1, 3, 2)], ids=str)
def test_what_this_process_wrote_is_known_without_reading(sizes: tuple[int, ...]) -> None:
    ledger, cache = opened()
    first, *rest = batches(*sizes)
    if sizes:
        cache.add_run(ledger.write(first))
        for batch in rest:
            cache.add(ledger.write(batch))
        assert known(calls(cache, "model:k")) == EXPECTED
        assert calls(cache, "model:none") == []
        assert ledger.asked == []
    else:
        ledger.write(first)
        assert known(calls(cache, "model:k")) == EXPECTED
        assert calls(cache, "model:none") == []
        assert ledger.asked == ["head", "all_calls"]


def test_where_another_process_wrote_in_between_keys_are_read() -> None:
    ledger, cache = opened()
    first, second, third = batches(1, 2)
    cache.add_run(ledger.write(first))
    ledger.write(second)
    cache.add(ledger.write(third))
    assert known(calls(cache, "model:k")) == EXPECTED
    assert known(calls(cache, "model:k")) == EXPECTED
    assert ledger.asked == ["model:k"]


def test_a_key_in_doubt_is_read_once() -> None:
    ledger, cache = opened()
    [batch] = batches()
    cache.add_run(ledger.write(batch))
    other = msgspec.structs.replace(ledger.stored[4], seq=9, done_seq=10, last_seq=10)
    ledger.stored[9] = other
    assert known(calls(cache, "model:k")) == EXPECTED
    cache.invalidate("r", "model:k")
    assert calls(cache, "model:k")[0] == calls(cache, "model:k")[0] == other
    assert ledger.asked == ["model:k"]
    assert calls(cache, "read:c") != []


def test_what_is_read_does_not_undo_what_was_written_since() -> None:
    ledger, cache = opened()
    first, rest = batches(4)
    cache.add_run(ledger.write(first))
    stale = dict(ledger.stored)
    cache.add(ledger.write(rest))
    ledger.stored = stale
    assert calls(cache, "model:k", fresh=True)[0].outcome == "open"
    assert known(calls(cache, "model:k")) == EXPECTED


def test_a_long_run_is_read_one_key_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "MAX_PRELOADED_EVENTS", 3)
    ledger, cache = opened()
    ledger.write(batches()[0])
    assert known(calls(cache, "model:k")) == EXPECTED
    assert calls(cache, "model:none") == calls(cache, "model:none") == []
    assert ledger.asked == ["head", "model:k", "model:none"]


def test_a_run_with_too_many_requests_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "MAX_CALLS", 2)
    ledger, cache = opened()
    first, rest = batches(1)
    cache.add_run(ledger.write(first))
    cache.add(ledger.write(rest))
    assert known(calls(cache, "model:k")) == EXPECTED
    assert ledger.asked == ["model:k"]


def test_a_run_that_was_forgotten_is_read_again() -> None:
    ledger, cache = opened()
    cache.add_run(ledger.write(batches()[0]))
    cache.forget("r")
    assert len(cache) == 0
    assert known(calls(cache, "model:k")) == EXPECTED
    assert ledger.asked == ["head", "all_calls"]
