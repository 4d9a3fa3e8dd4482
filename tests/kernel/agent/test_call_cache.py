"""What a process remembers of a run is a hint: what it does not know, it does not claim to know."""

import msgspec
import pytest
from gert.kernel.agent.memory import RunMemory
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.agent import memory as module
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
from gert.kernel.ledger.compose import Entry, compose
from gert.kernel.ledger.record import Batch, Head

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


def batches(sizes: list[int]) -> list[Batch]:
    """All events, in batches of these sizes."""
    found, head, left = [], Head("r"), list(EVENTS)
    for size in [*sizes, len(EVENTS)]:
        if left:
            found.append(compose(head, MOMENT, "acme", [Entry(each) for each in left[:size]]))
            head, left = found[-1].head, left[size:]
    return found


def known(memory: RunMemory) -> list[tuple[int, str, int | None, str]]:
    calls = [*memory.calls("model:k"), *memory.calls("read:c")]
    return [(call.seq, call.outcome, call.done_seq, call.drift) for call in calls]


EXPECTED = [(4, "success", 5, "other"), (2, "failed", 3, ""), (8, "success", 8, "")]


@given(st.lists(st.integers(1, 4), max_size=8))
def test_what_was_written_and_what_was_read_are_remembered_alike(sizes: list[int]) -> None:
    written, read = RunMemory(), RunMemory()
    for batch in batches(sizes):
        written.take(batch)
        read.read(read.count + 1, [row.line for row in batch.rows])
    assert known(written) == known(read) == EXPECTED
    assert written.complete
    assert read.complete
    assert written.count == read.count == len(EVENTS)


def test_who_missed_something_knows_it() -> None:
    memory = RunMemory()
    first, _, third = batches([2, 2])
    memory.take(first)
    memory.take(third)
    assert not memory.complete
    assert memory.count == len(EVENTS)


def test_it_remembers_so_many_requests_and_then_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CALLS", 2)
    memory = RunMemory()
    for batch in batches([1] * len(EVENTS)):
        memory.take(batch)
    assert not memory.complete
    assert memory.calls("model:k") == []


def test_it_keeps_so_many_bytes_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10)
    memory = RunMemory()
    memory.read(1, [row.line for batch in batches([]) for row in batch.rows])
    assert len(memory.lines) == 1
    assert known(memory) == EXPECTED


def test_what_is_doubted_is_not_known_until_it_was_looked_up() -> None:
    memory = RunMemory()
    for batch in batches([]):
        memory.take(batch)
    calls = memory.calls("model:k")
    memory.doubt("model:k")
    assert not memory.knows("model:k")
    assert memory.knows("read:c")
    other = msgspec.structs.replace(calls[0], seq=9, done_seq=10)
    memory.learn("model:k", [other, msgspec.structs.replace(calls[0], outcome="open", done_seq=None)])
    assert memory.knows("model:k")
    assert memory.calls("model:k") == [other, *calls], "what was heard before stays"


def test_every_changed_question_an_answer_was_taken_for_is_remembered() -> None:
    memory = RunMemory()
    for batch in batches([]):
        memory.take(batch)
    assert memory.drifts == {(4, "other")}
    assert memory.size > 0
