"""What is done with a step that may have been taken before, as tables."""

import pytest

from gert.kernel.agent.replay.decisions import Compare, Fail, InDoubt, Replay, Request, Wait, decide_model, decide_tool
from gert.kernel.ledger.record import Call

NONE: frozenset[int] = frozenset()


def call(seq: int, outcome: str = "success", hashed: str = "same", kind: str = "model", done: int = 0) -> Call:
    return Call("r", seq, kind, "key", "name", "acme", "", hashed, None, outcome, done or None, "", done or seq)  # type: ignore[arg-type]


MODEL = [
    pytest.param([], NONE, Request(), id="never asked: ask"),
    pytest.param([call(2)], NONE, Replay(call(2)), id="answered: replay"),
    pytest.param(
        [call(5, done=6), call(2, done=9)], NONE, Replay(call(5, done=6)), id="answered twice: what came first"
    ),
    pytest.param(
        [call(5, done=9), call(2, done=6)], NONE, Replay(call(2, done=6)), id="answered twice, in order: the same"
    ),
    pytest.param(
        [call(5, hashed="other", done=9), call(2, hashed="third", done=6)],
        NONE,
        Compare(call(2, hashed="third", done=6)),
        id="two other questions: what was answered first",
    ),
    pytest.param([call(2, hashed="other")], NONE, Compare(call(2, hashed="other")), id="another question"),
    pytest.param(
        [call(5, hashed="other"), call(2)], NONE, Replay(call(2)), id="the same before another: replay the same"
    ),
    pytest.param([call(5, "failed"), call(2)], NONE, Replay(call(2)), id="an answer stands whatever failed after it"),
    *(
        pytest.param([call(2, word)], NONE, Request(2, ()), id=f"{word}: ask again")
        for word in ("failed", "timeout", "cancelled", "abandoned")
    ),
    pytest.param([call(2, "open")], NONE, Request(2, (call(2, "open"),)), id="not under way: abandoned, ask again"),
    pytest.param([call(2, "open")], frozenset({2}), Wait(call(2, "open")), id="under way: wait"),
    pytest.param(
        [call(4, "open"), call(2, "open")],
        frozenset({4}),
        Wait(call(4, "open")),
        id="under way beside one that was abandoned: wait",
    ),
    pytest.param([call(4, "open"), call(2, "failed")], frozenset({4}), Wait(call(4, "open")), id="being retried: wait"),
    pytest.param([call(3, "open", "other"), call(2)], NONE, Replay(call(2)), id="another question is open"),
]

TOOL = [
    pytest.param([], NONE, True, Request(), id="never called: call"),
    pytest.param([call(2)], NONE, True, Replay(call(2)), id="succeeded: replay"),
    pytest.param(
        [call(5, done=6), call(2, done=9)], NONE, True, Replay(call(5, done=6)), id="succeeded twice: the first"
    ),
    pytest.param(
        [call(5, "permanent_error"), call(4, "unknown_outcome"), call(2, done=9)],
        NONE,
        True,
        Replay(call(2, done=9)),
        id="a success stands whatever failed after it",
    ),
    pytest.param([call(2, hashed="alike")], NONE, True, Replay(call(2, hashed="alike")), id="the same otherwise"),
    pytest.param([call(2, hashed="other")], NONE, True, Compare(call(2, hashed="other")), id="another call"),
    pytest.param(
        [call(5), call(2, "failed", "other")],
        NONE,
        True,
        Compare(call(2, "failed", "other")),
        id="another call ever: refused",
    ),
    pytest.param([call(2, "permanent_error")], NONE, True, Fail(call(2, "permanent_error")), id="failed for good"),
    pytest.param([call(2, "unknown_outcome")], NONE, True, InDoubt(call(2, "unknown_outcome")), id="in doubt"),
    pytest.param(
        [call(2, "unknown_outcome")],
        NONE,
        False,
        InDoubt(call(2, "unknown_outcome")),
        id="in doubt also without effects",
    ),
    pytest.param([call(2, "transient_error")], NONE, True, Request(2, ()), id="failed for now: again"),
    pytest.param([call(2, "open")], NONE, True, InDoubt(call(2, "open")), id="no end, with effects: in doubt"),
    pytest.param(
        [call(2, "open")],
        NONE,
        False,
        Request(2, (call(2, "open"),)),
        id="no end, without effects: again",
    ),
    pytest.param([call(2, "open")], frozenset({2}), True, Wait(call(2, "open")), id="under way: wait"),
    pytest.param(
        [call(4, "transient_error"), call(2, "unknown_outcome")],
        NONE,
        True,
        InDoubt(call(2, "unknown_outcome")),
        id="doubt about an earlier one is not forgotten",
    ),
    pytest.param([call(4, "transient_error"), call(2, "transient_error")], NONE, True, Request(4, ()), id="thrice"),
]


@pytest.mark.parametrize(("calls", "in_flight", "decision"), MODEL)
def test_what_a_model_step_does(calls: list[Call], in_flight: frozenset[int], decision: object) -> None:
    assert decide_model(calls, "same", in_flight) == decision


@pytest.mark.parametrize(("calls", "in_flight", "side_effect", "decision"), TOOL)
def test_what_a_tool_step_does(
    calls: list[Call], in_flight: frozenset[int], side_effect: bool, decision: object
) -> None:
    assert decide_tool(calls, {"same", "alike"}, in_flight, side_effect=side_effect) == decision
