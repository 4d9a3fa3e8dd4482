"""What a run was started with, read back from its first event."""

import pytest

from gert.ecosystem.host.redrive.recorded_run import Record, start_of
from gert.errors import UsageError
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload, to_data
from gert.kernel.foundation.secret_refs import secret_ref

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


def record() -> Record:
    event = first(started(START))
    said, start = start_of(event)
    return Record(event.run_id, said, start, event.timestamp, [], [], read_chain([]), {})


def test_the_first_event_says_how_a_run_was_started() -> None:
    assert start_of(first(started(START))) == (started(START), START)


def test_options_of_a_run_are_taken_from_its_record_unless_others_are_given() -> None:
    options = record().options(actor="lou", approvals="wait")
    assert (options.file, options.mode, options.timeout, options.approvals, options.actor) == (
        "/p/book.yaml",
        "real",
        1.5,
        "wait",
        "lou",
    )


def test_a_placeholder_of_a_secret_is_not_an_input() -> None:
    found = record()
    assert (found.inputs, found.start.secret_inputs) == ({"n": 1}, ("key",))
    again = found.resolved({"key": "s3cret"})
    assert again.values == {"n": 1, "key": secret_ref("key")}
    assert (again.sources["key"], again.secrets) == ("env/KEY", {"key": "s3cret"})


@pytest.mark.parametrize("payload", [started(None), says.RunCancelled(reason="x")], ids=["a trace from elsewhere", "x"])
def test_a_run_that_does_not_say_how_it_was_started_cannot_be_driven_again(payload: Payload) -> None:
    with pytest.raises(UsageError, match="does not say how it was started"):
        start_of(first(payload))
