"""Which calls of a run are open where its record ends."""

from typing import Any

import pytest

from gert.kernel.events.doubts import calls_in_doubt
from gert.kernel.events.envelope import Envelope

ONCE = {"idempotent": False}


def event(kind: str, path: str | None, **data: Any) -> Envelope:
    return Envelope(
        seq=1,
        run_id="r-1",
        type=kind,
        timestamp="2026-02-28T14:30:00.000000Z",
        path=path,
        prev_hash="0" * 64,
        data=data,
    )


def starts(path: str | None, **data: Any) -> Envelope:
    said = {"step_id": path, "type": "tool", "tool": "t", "action": "go", "contract_summary": ONCE, **data}
    return event("step_start", path, **said)


def ends(path: str) -> Envelope:
    return event("step_complete", path, step_id=path, status="success")


@pytest.mark.parametrize(
    ("events", "open_paths"),
    [
        pytest.param([], [], id="nothing was called"),
        pytest.param([starts("a")], ["a"], id="a call without a result"),
        pytest.param([starts("a"), ends("a")], [], id="a call with its result"),
        pytest.param([starts("b"), starts("a"), ends("b"), starts("c")], ["a", "c"], id="lanes, in order"),
        pytest.param([starts("a"), ends("a"), starts("a")], ["a"], id="a step that was visited again"),
        pytest.param([starts("a"), starts("b"), starts("a")], ["b", "a"], id="a call that was put again comes last"),
        pytest.param([starts("each", tool=None, action=None)], [], id="a loop calls nothing itself"),
        pytest.param([starts("m", type="manual", tool=None)], [], id="people are asked again"),
        pytest.param([starts("x", tool=None, action=None, extension="e")], ["x"], id="an extension"),
        pytest.param([event("approval_submitted", "a", step_id="a")], [], id="a request is no call"),
        pytest.param([starts(None, step_id=None)], [""], id="one that does not say where it is"),
    ],
)
def test_calls_without_a_result_are_in_doubt(events: list[Envelope], open_paths: list[str]) -> None:
    assert [call.path for call in calls_in_doubt(events)] == open_paths


@pytest.mark.parametrize(
    ("summary", "idempotent"),
    [
        pytest.param({"idempotent": True}, True, id="it says so"),
        pytest.param({"idempotent": False}, False, id="it says otherwise"),
        pytest.param({"idempotent": "yes"}, False, id="it says something else"),
        pytest.param({}, False, id="it says nothing"),
        pytest.param("idempotent", False, id="it says nothing that can be read"),
    ],
)
def test_what_is_not_said_to_be_idempotent_is_not(summary: Any, idempotent: bool) -> None:
    (call,) = calls_in_doubt([starts("a", contract_summary=summary)])
    assert (call.idempotent, call.target) == (idempotent, "t:go")
