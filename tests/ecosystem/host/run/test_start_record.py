"""What a run was started with, read back from its first event."""

import pytest

from gert.ecosystem.host.run.start_record import state_of
from gert.errors import UsageError
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload, to_data

START = says.Start(file="/p/book.yaml", working="/p", approvals="detach", secret_inputs=("key",), timeout=1.5)


def first(payload: Payload) -> Envelope:
    return Envelope(
        seq=1,
        run_id="run-1",
        type=payload.type,
        timestamp="2026-02-28T12:00:00.000000Z",
        prev_hash="0" * 64,
        data=to_data(payload),
    )


def started(start: says.Start | None) -> says.RunStart:
    return says.RunStart(
        runbook="book", runbook_hash="sha256:00", actor="kim", host="here", gert_version="gert 1", mode="real",
        inputs={"n": 1, "key": "[REDACTED]"}, input_sources={"n": "cli", "key": "env/KEY"}, start=start,
    )  # fmt: skip


def test_the_first_event_says_how_a_run_was_started() -> None:
    state = state_of(first(started(START)))
    assert (state.run_id, state.started, state.file, state.working) == (
        "run-1",
        "2026-02-28T12:00:00.000000Z",
        "/p/book.yaml",
        "/p",
    )
    assert (state.approvals, state.timeout, state.start) == ("detach", 1.5, START)


def test_what_stands_in_place_of_a_secret_is_no_input() -> None:
    state = state_of(first(started(START)))
    assert (state.inputs, state.secret_inputs, state.input_sources["key"]) == ({"n": 1}, ("key",), "env/KEY")


@pytest.mark.parametrize("payload", [started(None), says.RunCancelled(reason="x")], ids=["a trace from elsewhere", "x"])
def test_a_run_that_does_not_say_how_it_was_started_cannot_be_driven_again(payload: Payload) -> None:
    with pytest.raises(UsageError, match="does not say how it was started"):
        state_of(first(payload))
